//! The loopback chain of detached execution: each of its lines is part of a promise.

use super::code::Code;
use super::guard::is_ours;
use super::order::is_harmless;
use super::place::{Findings, Place};
use super::routes::check_action;
use super::switch::{Switch, switch};
use super::times::{STREAM_IDLE_MS, limit, show};
use super::undone::{MAX_RETRIES, TIMEOUT};
use super::world::{Chain, Filter, routes_of};
use fencepost_filter_core::exchange::detached::{MAX_RUN_HEADER, REPORT_HEADER};
use fencepost_filter_core::policy::Retries;

/// What the report is made of, in this order.
const REPORT: &str =
    "%RESPONSE_CODE_DETAILS%|%RESPONSE_FLAGS%|%UPSTREAM_REQUEST_ATTEMPT_COUNT%|%UPSTREAM_WIRE_BYTES_SENT%";

const OVERWRITE: &str = "OVERWRITE_IF_EXISTS_OR_ADD";

/// What the policies that lead to a loopback need of it.
#[derive(Debug)]
pub(super) struct Needs {
    pub retries: Retries,
    pub max_run_ms: u32,
}

/// Checks a chain.
pub(super) fn check(chain: &Chain<'_>, needs: &Needs, findings: &mut Findings) {
    let manager = chain.manager;
    check_mutations(chain, needs.retries, findings);
    check_filters(chain, findings);
    check_times(chain, u64::from(needs.max_run_ms), findings);
    let forward = manager.get("forward_client_cert_details");
    if !forward.is("ALWAYS_FORWARD_ONLY") {
        let expected = "ALWAYS_FORWARD_ONLY, or the application misses the header of the outer listener";
        findings.warning(forward, Code::LoopbackClientCertificate, forward.shown(), expected);
    }
    let remote = manager.get("use_remote_address");
    if remote.is_true() {
        let expected = "false: here the client is the outer listener";
        findings.error(remote, Code::LoopbackRemoteAddress, remote.shown(), expected);
    }
    let Some(routes) = chain.routes else {
        let found = "routes of the loopback that are not in the files";
        findings.note(manager, Code::NotChecked, found, "the file that has them, to check them as well");
        return;
    };
    let mut catches_all = false;
    for host in chain.virtual_hosts() {
        check_report(&host, &routes, findings);
        let everything = host.get("domains").items().any(|domain| domain.is("*"));
        catches_all |= everything;
        let last = host.get("routes").items().last();
        let caught = last.is_some_and(|route| {
            let answers = route.get("direct_response").exists() || route.get("route").exists();
            route.at("match.prefix").is("/") && answers
        });
        if !caught && !host.get("matcher").exists() {
            let found =
                format!("virtual host {} without a last route for everything", host.get("name").shown());
            let expected = "a last route {match: {prefix: /}, direct_response: {status: 404}}";
            findings.warning(host.get("routes"), Code::LoopbackCatchAllMissing, found, expected);
        }
        for (route, _) in routes_of(&host) {
            let levels = [route, host, routes];
            check_action(&levels, findings);
            check_switches(chain, &levels, findings);
        }
    }
    if !catches_all {
        let expected = "a virtual host for \"*\" with a route that answers by itself";
        findings.warning(routes, Code::LoopbackCatchAllMissing, "no virtual host for every domain", expected);
    }
}

fn is_mutation(filter: &&Filter<'_>) -> bool {
    filter.word() == "header_mutation" && !filter.disabled
}

/// The request headers that the router gets, as far as the mutations before it say.
struct Sent<'a> {
    /// The value of [`MAX_RETRIES`].
    retries: Option<&'a str>,
    /// Whether [`TIMEOUT`] is the run's.
    timed: bool,
    /// Whether [`MAX_RUN_HEADER`] is still there.
    max_run: bool,
}

/// Applies the mutations one after the other: a header that was removed can't be read any more, and
/// the last word on a header counts.
fn sent<'a>(chain: &Chain<'a>) -> Sent<'a> {
    let mut sent = Sent { retries: None, timed: false, max_run: true };
    let filters = chain.filters.iter().filter(is_mutation);
    for mutation in filters.flat_map(|filter| filter.config.at("mutations.request_mutations").items()) {
        let removed = mutation.get("remove").text().unwrap_or_default().to_ascii_lowercase();
        let append = mutation.get("append");
        let key = append.at("header.key").text().unwrap_or_default().to_ascii_lowercase();
        let value = append.at("header.value").text().filter(|_| overwrites(&append));
        match (removed.as_str(), key.as_str()) {
            (MAX_RUN_HEADER, _) => sent.max_run = false,
            (MAX_RETRIES, _) | (_, MAX_RETRIES) => sent.retries = value,
            (TIMEOUT, _) | (_, TIMEOUT) => sent.timed = sent.max_run && value.is_some_and(reads_max_run),
            _ => {}
        }
    }
    sent
}

fn overwrites(append: &Place<'_>) -> bool {
    let action = append.get("append_action");
    // The older field of header rules: not appended is overwritten.
    action.is(OVERWRITE) || action.is("2") || (!action.exists() && append.get("append").is("false"))
}

fn reads_max_run(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    [format!("%req({MAX_RUN_HEADER})%"), format!("%request_header({MAX_RUN_HEADER})%")].contains(&lower)
}

/// The mutations before the router.
fn check_mutations(chain: &Chain<'_>, retries: Retries, findings: &mut Findings) {
    let sent = sent(chain);
    let place = chain.manager.get("http_filters");
    if retries == Retries::Suppress && sent.retries != Some("0") {
        let expected = "header_mutation before the router that sets x-envoy-max-retries to 0 (OVERWRITE_IF_EXISTS_OR_ADD): \
                        the header of the filter's own call does not get here";
        findings.error(place, Code::LoopbackRetriesOn, "a loopback chain with retries", expected);
    }
    if !sent.timed {
        let expected = format!(
            "header_mutation before the router that sets {TIMEOUT} to %REQ({MAX_RUN_HEADER})% ({OVERWRITE}), \
             before that header is removed"
        );
        findings.error(place, Code::LoopbackMaxRunMissing, "a loopback chain without max_run", expected);
    } else if sent.max_run {
        let found = format!("a loopback chain that sends {MAX_RUN_HEADER} to the application");
        findings.warning(
            place,
            Code::LoopbackMaxRunMissing,
            found,
            "a mutation that removes it, after it was read",
        );
    }
}

/// A route in the loopback must not switch the mutations off.
fn check_switches(chain: &Chain<'_>, levels: &[Place<'_>], findings: &mut Findings) {
    for filter in chain.filters.iter().filter(is_mutation) {
        if let Switch::Off(place) = switch(filter, levels) {
            let found = format!("{:?} off on a route of the loopback", filter.name);
            let expected = "it on: it bounds the run and the number of attempts";
            findings.error(place, Code::LoopbackRetriesOn, found, expected);
        }
    }
}

/// What else runs there.
fn check_filters(chain: &Chain<'_>, findings: &mut Findings) {
    for filter in chain.filters.iter().filter(|filter| !filter.disabled) {
        if is_ours(filter) {
            let expected = "it in the outer chain only: here every request would meet its own claim";
            findings.error(filter.place, Code::LoopbackGuarded, "the filter in the loopback chain", expected);
        } else if !is_harmless(filter) {
            let found = format!("{:?} in the loopback chain", filter.name);
            let expected = "it in the outer chain, before the filter: what it answers here has no report, so it \
                            counts as unknown";
            findings.warning(filter.place, Code::LoopbackFilter, found, expected);
        }
        for mutation in filter.config.at("mutations.response_mutations").items() {
            let names = [mutation.get("remove"), mutation.at("append.header.key")];
            if let Some(name) = names.into_iter().find(is_report) {
                let expected = "no such mutation: without the report every ending is unknown";
                findings.error(
                    name,
                    Code::LoopbackReportMissing,
                    "a filter that changes the report",
                    expected,
                );
            }
        }
    }
}

/// Limits of the chain's own: what they cut has an unknown outcome.
fn check_times(chain: &Chain<'_>, max_run: u64, findings: &mut Findings) {
    let idle = chain.manager.get("stream_idle_timeout");
    let of_idle = if idle.exists() { limit(idle) } else { Some((chain.manager, STREAM_IDLE_MS)) };
    let duration = limit(chain.manager.at("common_http_protocol_options.max_stream_duration"));
    let all = [(of_idle, Code::StreamIdleTimeoutShort), (duration, Code::StreamDurationShort)];
    for (place, ms, code) in all.into_iter().filter_map(|(limit, code)| Some((limit?.0, limit?.1, code))) {
        if ms <= max_run {
            let found = format!("streams of the loopback that are cut after {}", show(ms));
            let expected = format!("more than max_run ({})", show(max_run));
            findings.warning(place, code, found, expected);
        }
    }
}

fn is_report(name: &Place<'_>) -> bool {
    name.text().is_some_and(|name| name.eq_ignore_ascii_case(REPORT_HEADER))
}

/// The report, on a virtual host or on all of them.
fn check_report(host: &Place<'_>, routes: &Place<'_>, findings: &mut Findings) {
    for level in [*host, *routes].into_iter().chain(routes_of(host).into_iter().map(|(route, _)| route)) {
        let mut removed = level.get("response_headers_to_remove").items();
        if let Some(removed) = removed.find(is_report) {
            let expected = "no such rule: without the report every ending is unknown";
            findings.error(removed, Code::LoopbackReportMissing, "a rule that removes the report", expected);
        }
    }
    let added = [host, routes].into_iter().flat_map(|level| level.get("response_headers_to_add").items());
    let mut reports = added.filter(|add| is_report(&add.at("header.key")));
    let Some(report) = reports.next() else {
        let found = format!("virtual host {} without the report", host.get("name").shown());
        let expected =
            format!("response_headers_to_add with {REPORT_HEADER}: without it every ending is unknown");
        findings.error(*host, Code::LoopbackReportMissing, found, expected);
        return;
    };
    let value = report.at("header.value");
    if !value.is(REPORT) {
        findings.error(value, Code::LoopbackReportMissing, value.shown(), REPORT);
    }
    if !overwrites(&report) {
        let action = report.get("append_action");
        let expected = format!("append_action: {OVERWRITE}: an upstream's own header would be believed");
        findings.error(
            report,
            Code::LoopbackReportForgeable,
            format!("append_action {}", action.shown()),
            expected,
        );
    }
}
