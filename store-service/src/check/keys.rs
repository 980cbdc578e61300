//! What before our filter makes or takes the key: a key that the proxy makes is another one for each
//! attempt, so every retry runs.
//!
//! Only values that are known to be new for each attempt, or the same for all, are reported: a key
//! from another header of the client is the client's.

use super::code::Code;
use super::origin::is_name;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::settings::OF_ONE_ATTEMPT;
use super::switch::{entry, switch, unwrapped};
use super::world::{Chain, Filter, typed};

/// Commands of formats whose value is another one for each request or connection.
const NEW_EACH_TIME: [&str; 8] = [
    "UUID",
    "UNIQUE_ID",
    "STREAM_ID",
    "TRACE_ID",
    "SPAN_ID",
    "START_TIME",
    "CONNECTION_ID",
    "DOWNSTREAM_REMOTE_PORT",
];

/// Checks a marked route with the filters before ours.
pub(super) fn check(chain: &Chain<'_>, before: &[Filter<'_>], marked: &Marked<'_>, findings: &mut Findings) {
    for early in chain.manager.get("early_header_mutation_extensions").items() {
        check_mutations(typed(&early.get("typed_config")).1.get("mutations"), marked, findings);
    }
    let levels = marked.levels();
    for filter in before.iter().filter(|filter| filter.word() == "header_mutation") {
        if switch(filter, &levels).is_on() {
            let own = levels.iter().filter_map(|level| entry(filter, level));
            for config in own.map(|own| unwrapped(&own).1).chain([filter.config]) {
                check_mutations(config.at("mutations.request_mutations"), marked, findings);
            }
        }
    }
}

fn check_mutations(mutations: Place<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let policy = &marked.policy;
    let is_key = |place: &Place<'_>| policy.key.names.iter().any(|key| is_name(place, key));
    for mutation in mutations.items() {
        let removed = mutation.get("remove");
        let header = mutation.at("append.header");
        if is_key(&removed) {
            let found = format!("the key of policy {:?} taken away before the filter", policy.name);
            let expected = "it left as the client sent it: no request has a key otherwise";
            findings.error(removed, Code::KeyReplaced, found, expected);
        } else if is_key(&header.get("key")) && is_made(header.get("value").text().unwrap_or_default()) {
            let found = format!("the key of policy {:?} made by the proxy", policy.name);
            let expected = "the client's own key: one that is made here is not the same in a retry, or is \
                            the same in all requests";
            findings.error(header, Code::KeyReplaced, found, expected);
        }
    }
}

/// Whether a format has nothing of the client in it, or something that is new each time.
fn is_made(format: &str) -> bool {
    // Commands stand between percent signs: every second part.
    let mut commands = format.split('%').skip(1).step_by(2).filter(|command| !command.is_empty()).peekable();
    if commands.peek().is_none() {
        return true;
    }
    commands.any(|command| {
        let name = command.split(['(', ':']).next().unwrap_or_default();
        let inner = command.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        // The second name is for requests without the first one.
        let mut headers = inner.map(|(inner, _)| inner).unwrap_or_default().split('?');
        NEW_EACH_TIME.contains(&name)
            || ["REQ", "REQUEST_HEADER"].contains(&name)
                && headers.any(|header| OF_ONE_ATTEMPT.contains(&header.to_ascii_lowercase().as_str()))
    })
}
