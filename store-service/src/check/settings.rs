//! Settings that the filter takes, and that hardly anybody means: what is compared changes with each
//! attempt or is never there, and answers that are forgotten while the client still asks.
//!
//! Retries of honest clients are refused under the first kind; under the others requests run twice,
//! or get the answer of another one.

use super::code::Code;
use super::finding::Severity::{self, Error, Warning};
use super::place::{Findings, Place};
use super::times::show;
use fencepost_filter_core::fingerprint::QueryRule;
use fencepost_filter_core::policy::{OnLost, Policy, StatusRule};

/// Request headers that proxies and tracers make anew for each attempt, or clients for each moment.
pub(super) const OF_ONE_ATTEMPT: [&str; 14] = [
    "x-request-id",
    "traceparent",
    "tracestate",
    "b3",
    "x-b3-traceid",
    "x-b3-spanid",
    "x-b3-parentspanid",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-datadog-trace-id",
    "x-datadog-parent-id",
    "uber-trace-id",
    "x-request-start",
    "date",
];

/// Request headers that change when a caller's token or session is renewed.
const OF_ONE_TOKEN: [&str; 2] = ["authorization", "cookie"];

/// What is wrong with a setting.
struct Doubt {
    /// Its path in a policy.
    setting: String,
    severity: Severity,
    code: Code,
    found: String,
    expected: &'static str,
}

/// Checks a policy; `place` says where a setting stands, and is nothing for those that are another
/// layer's.
pub(super) fn check<'a>(policy: &Policy, place: impl Fn(&str) -> Option<Place<'a>>, findings: &mut Findings) {
    let mut doubts = Vec::new();
    doubt_fingerprint(policy, &mut doubts);
    doubt_downstream(policy, &mut doubts);
    // Operations of grants are kept whatever these say.
    if policy.grant.is_none() {
        doubt_lifetimes(policy, &mut doubts);
    }
    for Doubt { setting, severity, code, found, expected } in doubts {
        if let Some(place) = place(&setting) {
            findings.add(severity, place, code, format!("{found} in policy {:?}", policy.name), expected);
        }
    }
}

fn doubt_fingerprint(policy: &Policy, doubts: &mut Vec<Doubt>) {
    let options = policy.fingerprint.options();
    for header in &options.headers {
        let severity = match header.as_str() {
            header if OF_ONE_ATTEMPT.contains(&header) => Error,
            header if OF_ONE_TOKEN.contains(&header) => Warning,
            _ => continue,
        };
        doubts.push(Doubt {
            setting: "fingerprint.headers".to_owned(),
            severity,
            code: Code::FingerprintChanges,
            found: format!("header {header:?}, which an honest retry has otherwise,"),
            expected: "headers that a client sends again as they were: any other makes a retry another \
                       request, which gets 422",
        });
    }
    for property in options.properties.iter().filter(|name| is_path(name)) {
        doubts.push(Doubt {
            setting: "fingerprint.properties".to_owned(),
            severity: Warning,
            code: Code::FingerprintProperty,
            found: format!("property {property:?}, which is the name of one member at the top,"),
            expected: "a JSON pointer, such as /order/amount: a member that is not there is equal in all \
                       requests",
        });
    }
    if let Some(path) = &options.path
        && path.variables.is_empty()
        && path.template.contains('{')
    {
        doubts.push(Doubt {
            setting: "fingerprint.path".to_owned(),
            severity: Warning,
            code: Code::FingerprintPath,
            found: format!("path template {:?} of which no variable counts", path.template),
            expected: "the variables that tell requests apart in variables: without them, one key's \
                       answer is given for another path",
        });
    }
    if let QueryRule::Names(names) = &options.query
        && let Some(name) = names.iter().find(|name| name.contains(['=', '&', '?']))
    {
        doubts.push(Doubt {
            setting: "fingerprint.query".to_owned(),
            severity: Warning,
            code: Code::FingerprintProperty,
            found: format!("parameter {name:?}, which no query has,"),
            expected: "the name alone, without ?, & and =",
        });
    }
}

/// Whether somebody who wrote this name meant a way into the body.
fn is_path(name: &str) -> bool {
    !name.starts_with('/') && (name.starts_with(['$', '#', '.']) || name.contains(['.', '/', '[']))
}

fn doubt_downstream(policy: &Policy, doubts: &mut Vec<Doubt>) {
    for (index, key) in policy.downstream_keys.iter().enumerate() {
        let mut earlier = policy.downstream_keys.iter().take(index);
        if earlier.any(|one| one.provider == key.provider && one.operation == key.operation) {
            doubts.push(Doubt {
                setting: format!("downstream_keys[{index}]"),
                severity: Warning,
                code: Code::DownstreamKeysSame,
                found: format!("two keys for operation {:?} of provider {:?}", key.operation, key.provider),
                expected: "another operation for each call: the provider would take the second call for \
                           the first one again",
            });
        }
    }
}

fn doubt_lifetimes(policy: &Policy, doubts: &mut Vec<Doubt>) {
    let max_run = u64::from(policy.max_run_ms);
    let response = &policy.response;
    let mut short = |setting: String, what: &str, ms: u64, expected| {
        if ms < max_run {
            doubts.push(Doubt {
                setting,
                severity: Warning,
                code: Code::LifetimeShort,
                found: format!("{what} kept for {}, and max_run {}", show(ms), show(max_run)),
                expected,
            });
        }
    };
    let answers = "at least max_run, and longer than clients go on asking: after it an equal request runs \
                   again";
    short("response.ttl".to_owned(), "answers", response.ttl_ms, answers);
    if policy.on_lost == OnLost::Hold {
        let expected = "at least max_run, and longer than people need to find out what happened: after it \
                        an equal request runs, even beside one that still does";
        short("response.unknown_ttl".to_owned(), "unknown outcomes", response.unknown_ttl_ms, expected);
    }
    let classes = response.classes.iter().filter(|(class, _)| **class == 2);
    let statuses = response.statuses.iter().filter(|(status, _)| (200..300).contains(*status));
    let named = classes.map(|(_, rule)| ("2xx".to_owned(), rule));
    let mut released = Vec::new();
    for (name, rule) in named.chain(statuses.map(|(status, rule)| (status.to_string(), rule))) {
        let setting = format!("response.statuses.{name}");
        match rule {
            StatusRule::Store { ttl_ms } => {
                short(setting, &format!("answers {name}"), ttl_ms.unwrap_or(u64::MAX), answers);
            }
            StatusRule::Release => released.push((setting, name)),
        }
    }
    doubts.extend(released.into_iter().map(|(setting, name)| Doubt {
        setting,
        severity: Warning,
        code: Code::SuccessReleased,
        found: format!("answers {name} released"),
        expected: "store: what succeeded runs again with each retry",
    }));
}
