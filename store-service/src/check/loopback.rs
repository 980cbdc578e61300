//! The loopback chain of detached execution: each of its lines is part of a promise.

use super::clusters::{check_breakers, missing};
use super::code::Code;
use super::guard::{Guard, is_ours};
use super::place::{Findings, Place};
use super::routes::{Marked, check_action};
use super::times::check_run;
use super::world::{Chain, World};
use fencepost_filter_core::exchange::detached::{MAX_RUN_HEADER, REPORT_HEADER};
use fencepost_filter_core::policy::{Execution, Policy, Retries};
use std::collections::BTreeMap;

/// What the report is made of, in this order.
const REPORT: &str =
    "%RESPONSE_CODE_DETAILS%|%RESPONSE_FLAGS%|%UPSTREAM_REQUEST_ATTEMPT_COUNT%|%UPSTREAM_WIRE_BYTES_SENT%";

const OVERWRITE: &str = "OVERWRITE_IF_EXISTS_OR_ADD";

/// Envoy's own circuit breakers, and one.
const BREAKERS_MIN: u64 = 1_025;

/// Checks where detached requests go: once per cluster, and once per route.
pub(super) fn check(world: &World<'_>, guard: &Guard<'_>, marked: &[Marked<'_>], findings: &mut Findings) {
    let mut clusters = BTreeMap::new();
    for policy in guard.configuration.policies() {
        if let Execution::Detached { cluster, loopback, .. } = &policy.execution {
            let (believed, retries) = clusters.entry(cluster.as_str()).or_insert((false, Retries::Suppress));
            *believed |= *loopback;
            if policy.retries == Retries::Allow {
                *retries = Retries::Allow;
            }
            let place = guard.configuration.line_of_setting(&policy.name, "execution.detached.cluster");
            if world.cluster(cluster).is_none() {
                missing(world, place, cluster, Code::DetachedClusterMissing, findings);
            }
        }
    }
    for (name, (believed, retries)) in clusters {
        let Some(cluster) = world.cluster(name) else { continue };
        if !believed {
            check_without(name, marked, findings);
            continue;
        }
        check_breakers(cluster, BREAKERS_MIN, Code::LoopbackClusterBreakers, findings);
        let Some(listener_name) = internal_listener(cluster) else {
            let found = format!("cluster {name:?} with loopback: true, which leads to no internal listener");
            findings.error(
                cluster,
                Code::LoopbackNotInternal,
                found,
                "an endpoint with envoy_internal_address",
            );
            continue;
        };
        check_listener(world, cluster, listener_name, findings);
        let is_loopback = |chain: &&Chain<'_>| {
            chain.listener.is_some_and(|listener| listener.get("name").is(listener_name))
        };
        for chain in world.chains.iter().filter(is_loopback) {
            check_chain(chain, retries, findings);
            for marked in marked.iter().filter(|marked| leads_to(&marked.policy, name)) {
                check_route(chain, marked, findings);
            }
        }
    }
}

fn leads_to(policy: &Policy, name: &str) -> bool {
    matches!(&policy.execution, Execution::Detached { cluster, .. } if cluster == name)
}

/// Name of the internal listener that a cluster leads to.
fn internal_listener<'a>(cluster: Place<'a>) -> Option<&'a str> {
    let localities = cluster.at("load_assignment.endpoints").items();
    let mut endpoints = localities.flat_map(|locality| locality.get("lb_endpoints").items());
    endpoints.find_map(|one| one.at("endpoint.address.envoy_internal_address.server_listener_name").text())
}

/// Without a loopback the route's own features are not applied.
fn check_without(cluster: &str, marked: &[Marked<'_>], findings: &mut Findings) {
    const OF_ROUTES: [&str; 4] = [
        "request_headers_to_add",
        "request_headers_to_remove",
        "response_headers_to_add",
        "response_headers_to_remove",
    ];
    const OF_ACTIONS: [&str; 8] = [
        "prefix_rewrite",
        "regex_rewrite",
        "path_rewrite_policy",
        "host_rewrite_literal",
        "host_rewrite_header",
        "host_rewrite_path_regex",
        "auto_host_rewrite",
        "hash_policy",
    ];
    for marked in marked.iter().filter(|marked| leads_to(&marked.policy, cluster)) {
        let action = marked.action();
        let of_routes = OF_ROUTES.iter().flat_map(|name| [marked.route.get(name), marked.host.get(name)]);
        let lost = of_routes.chain(OF_ACTIONS.iter().map(|name| action.get(name))).find(Place::exists);
        let other = action.get("cluster").text().is_some_and(|of_route| of_route != cluster);
        if lost.is_some() || other {
            let place = lost.unwrap_or_else(|| action.get("cluster"));
            let found = format!(
                "a route under policy {:?}, which is sent to {cluster:?} as it came",
                marked.policy.name
            );
            let expected =
                "a loopback, which applies the route, or nothing on the route that changes requests";
            findings.warning(place, Code::DetachedWithoutLoopback, found, expected);
        }
    }
}

fn check_listener(world: &World<'_>, cluster: Place<'_>, name: &str, findings: &mut Findings) {
    let Some(listener) = world.listeners.iter().find(|listener| listener.get("name").is(name)) else {
        if world.bootstrap.is_some() && !world.open {
            let found = format!("internal listener {name:?}, which does not exist");
            findings.error(
                cluster,
                Code::LoopbackListenerMissing,
                found,
                "a listener of that name with internal_listener",
            );
        }
        return;
    };
    let address = listener.get("address");
    if address.exists() || !listener.get("internal_listener").exists() {
        let place = if address.exists() { address } else { *listener };
        let found = format!("listener {name:?} with an address of its own");
        let expected = "internal_listener: {} and no address: others could go around the guard";
        findings.error(place, Code::LoopbackListenerOpen, found, expected);
    }
    let Some(bootstrap) = world.bootstrap else { return };
    let mut extensions = bootstrap.get("bootstrap_extensions").items();
    if !extensions.any(|extension| extension.get("name").is("envoy.bootstrap.internal_listener")) {
        let found = "no bootstrap extension for internal listeners";
        let expected = "envoy.bootstrap.internal_listener in bootstrap_extensions";
        findings.error(bootstrap, Code::InternalListenerExtensionMissing, found, expected);
    }
}

fn check_chain(chain: &Chain<'_>, retries: Retries, findings: &mut Findings) {
    let manager = chain.manager;
    check_mutations(chain, retries, findings);
    if let Some(ours) = chain.filters.iter().find(|filter| is_ours(filter)) {
        let expected = "it in the outer chain only: here every request would meet its own claim";
        findings.error(ours.place, Code::LoopbackGuarded, "the filter in the loopback chain", expected);
    }
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
        let last = host.get("routes").items().last();
        let caught = last.is_some_and(|route| {
            let answers = route.get("direct_response").exists() || route.get("route").exists();
            route.at("match.prefix").is("/") && answers
        });
        catches_all |= everything;
        if !caught {
            let found =
                format!("virtual host {} without a last route for everything", host.get("name").shown());
            let expected = "a last route {match: {prefix: /}, direct_response: {status: 404}}";
            findings.warning(host.get("routes"), Code::LoopbackCatchAllMissing, found, expected);
        }
        for route in host.get("routes").items() {
            check_action(chain, &host, &route, findings);
        }
    }
    if !catches_all {
        let expected = "a virtual host for \"*\" with a route that answers by itself";
        findings.warning(routes, Code::LoopbackCatchAllMissing, "no virtual host for every domain", expected);
    }
}

/// The mutations before the router.
fn check_mutations(chain: &Chain<'_>, retries: Retries, findings: &mut Findings) {
    let filters =
        chain.filters.iter().filter(|filter| filter.word() == "header_mutation" && !filter.disabled);
    let all: Vec<_> =
        filters.flat_map(|filter| filter.config.at("mutations.request_mutations").items()).collect();
    let sets = |name: &str, value: &str| {
        all.iter().any(|mutation| {
            let append = mutation.get("append");
            append.at("header.key").is(name)
                && append.at("header.value").is(value)
                && append.get("append_action").is(OVERWRITE)
        })
    };
    let place = chain.manager.get("http_filters");
    if retries == Retries::Suppress && !sets("x-envoy-max-retries", "0") {
        let expected = "header_mutation before the router that sets x-envoy-max-retries to 0 (OVERWRITE_IF_EXISTS_OR_ADD): \
                        the header of the filter's own call does not get here";
        findings.error(place, Code::LoopbackRetriesOn, "a loopback chain with retries", expected);
    }
    let request = [format!("%REQ({MAX_RUN_HEADER})%"), format!("%REQUEST_HEADER({MAX_RUN_HEADER})%")];
    let timed = request.iter().any(|value| sets("x-envoy-upstream-rq-timeout-ms", value));
    if !timed {
        let expected = format!(
            "header_mutation before the router that sets x-envoy-upstream-rq-timeout-ms to %REQ({MAX_RUN_HEADER})% \
             ({OVERWRITE})"
        );
        findings.error(place, Code::LoopbackMaxRunMissing, "a loopback chain without max_run", expected);
    } else if !all.iter().any(|mutation| mutation.get("remove").is(MAX_RUN_HEADER)) {
        let found = format!("a loopback chain that sends {MAX_RUN_HEADER} to the application");
        findings.warning(
            place,
            Code::LoopbackMaxRunMissing,
            found,
            "a mutation that removes it, after it was read",
        );
    }
}

/// The report, on a virtual host or on all of them.
fn check_report(host: &Place<'_>, routes: &Place<'_>, findings: &mut Findings) {
    let added = [host, routes].into_iter().flat_map(|level| level.get("response_headers_to_add").items());
    let mut reports = added
        .filter(|add| add.at("header.key").text().is_some_and(|key| key.eq_ignore_ascii_case(REPORT_HEADER)));
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
    let action = report.get("append_action");
    if !action.is(OVERWRITE) {
        let expected = format!("append_action: {OVERWRITE}: an upstream's own header would be believed");
        findings.error(
            report,
            Code::LoopbackReportForgeable,
            format!("append_action {}", action.shown()),
            expected,
        );
    }
}

/// A guarded route must exist in the loopback as well.
fn check_route(chain: &Chain<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let Some(path) = example(&marked.route.get("match")) else { return };
    if chain.routes.is_none() {
        return;
    }
    let domains: Vec<_> = marked.host.get("domains").items().filter_map(|domain| domain.text()).collect();
    let exact = |host: &Place<'_>| {
        host.get("domains").items().any(|domain| domain.text().is_some_and(|text| domains.contains(&text)))
    };
    let everything = |host: &Place<'_>| host.get("domains").items().any(|domain| domain.is("*"));
    let host = chain.virtual_hosts().find(exact).or_else(|| chain.virtual_hosts().find(everything));
    let mut routes = host.into_iter().flat_map(|host| host.get("routes").items());
    let found = routes.find(|route| matches(&route.get("match"), &marked.route.get("match"), path));
    match (found, host) {
        (Some(route), Some(host)) if route.get("route").exists() => {
            let own = route.at("route.retry_policy");
            let retries = if own.exists() { own } else { host.get("retry_policy") };
            check_run(&route.get("route"), &retries, &marked.policy, findings);
        }
        (Some(route), _) if route.get("redirect").exists() => {}
        _ => {
            let found = format!("a guarded route for {path:?} that the loopback does not have");
            let expected = "the same route in the loopback chain, where it is really taken";
            findings.error(marked.route, Code::LoopbackRouteMissing, found, expected);
        }
    }
}

/// A path that a match takes; none where that can't be said.
fn example<'a>(of: &Place<'a>) -> Option<&'a str> {
    ["prefix", "path", "path_separated_prefix"].iter().find_map(|name| of.get(name).text())
}

/// Whether a match takes a path, or is the same as another. Its other conditions are not looked at.
fn matches(of: &Place<'_>, other: &Place<'_>, path: &str) -> bool {
    let same =
        |name: &str| of.get(name).exists() && of.get(name).node.to_json() == other.get(name).node.to_json();
    let under = |name: &str| of.get(name).text().is_some_and(|prefix| path.starts_with(prefix));
    under("prefix")
        || under("path_separated_prefix")
        || same("path")
        || same("safe_regex")
        || same("path_match_policy")
}
