//! What behind our filter undoes the request headers that it sets: filters that change headers, and
//! the header rules of the route, which the router applies before it reads its own headers.

use super::code::Code;
use super::finding::Severity::{Error, Warning};
use super::place::{Findings, Place};
use super::routes::Marked;
use super::switch::{entry, switch, unwrapped};
use super::world::Filter;
use fencepost_filter_core::guard::{DEPTH_HEADER, FENCE_HEADER};
use fencepost_filter_core::policy::{Policy, Retries};
use fencepost_filter_core::router_commands::{is_router_command, makes_up_an_answer};

/// Header of the router: how long the upstream may take.
pub(super) const TIMEOUT: &str = "x-envoy-upstream-rq-timeout-ms";
/// Header of the router: how often it may try again.
pub(super) const MAX_RETRIES: &str = "x-envoy-max-retries";

/// Header of an answer: what the application says about keeping it.
const STORE_HEADER: &str = "x-fencepost-store";

/// Checks a marked route that runs inline, with the filters behind ours.
pub(super) fn check(behind: &[Filter<'_>], marked: &Marked<'_>, findings: &mut Findings) {
    let levels = marked.levels();
    for filter in behind.iter().filter(|filter| filter.word() == "header_mutation") {
        if switch(filter, &levels).is_on() {
            let own = levels.iter().filter_map(|level| entry(filter, level));
            let configs = own.map(|own| unwrapped(&own).1).chain([filter.config]);
            for config in configs {
                check_mutations(config.at("mutations.request_mutations"), &marked.policy, findings);
                for mutation in config.at("mutations.response_mutations").items() {
                    check_answer(&mutation.get("remove"), findings);
                    check_answer(&mutation.at("append.header.key"), findings);
                }
            }
        }
    }
    let shares = marked.route.at("route.weighted_clusters.clusters").items();
    for level in levels.into_iter().chain(shares) {
        check_rules(&level, &marked.policy, findings);
        level.get("response_headers_to_remove").items().for_each(|name| check_answer(&name, findings));
        let added = level.get("response_headers_to_add").items();
        added.for_each(|added| check_answer(&added.at("header.key"), findings));
    }
}

/// Whether a rule of the answer touches what the application says to the filter.
fn check_answer(name: &Place<'_>, findings: &mut Findings) {
    if name.text().is_some_and(|name| name.eq_ignore_ascii_case(STORE_HEADER)) {
        let found = format!("{STORE_HEADER} changed before the filter reads it");
        let expected = "no such rule on guarded requests: the application says with it what is kept";
        findings.error(*name, Code::HeadersUndone, found, expected);
    }
}

fn check_mutations(mutations: Place<'_>, policy: &Policy, findings: &mut Findings) {
    for mutation in mutations.items() {
        check_removed(&mutation.get("remove"), policy, findings);
        check_added(&mutation.get("append"), policy, findings);
    }
}

/// The header rules of a route, virtual host or route configuration.
pub(super) fn check_rules(level: &Place<'_>, policy: &Policy, findings: &mut Findings) {
    for removed in level.get("request_headers_to_remove").items() {
        check_removed(&removed, policy, findings);
    }
    for added in level.get("request_headers_to_add").items() {
        check_added(&added, policy, findings);
    }
}

fn check_removed(name: &Place<'_>, policy: &Policy, findings: &mut Findings) {
    if let Some(header) = ours(name, policy) {
        report(*name, header, "removed", policy, findings);
    }
}

fn check_added(added: &Place<'_>, policy: &Policy, findings: &mut Findings) {
    let key = added.at("header.key");
    let Some(header) = ours(&key, policy) else { return check_command(&key, policy, findings) };
    let action = added.get("append_action");
    let harmless = action.is("ADD_IF_ABSENT")
        || header == MAX_RETRIES
            && added.at("header.value").is("0")
            && action.is("OVERWRITE_IF_EXISTS_OR_ADD");
    if !harmless {
        report(key, header, "set anew", policy, findings);
    }
}

/// The name, if the filter sets this header under the policy.
fn ours(name: &Place<'_>, policy: &Policy) -> Option<String> {
    let lower = name.text()?.to_ascii_lowercase();
    let is_ours = lower == TIMEOUT
        || lower == MAX_RETRIES && policy.retries == Retries::Suppress
        || lower == FENCE_HEADER
        || lower == DEPTH_HEADER
        || policy.downstream_keys.iter().any(|key| key.header == lower);
    is_ours.then_some(lower)
}

/// A command to the router that the filter takes from clients comes back behind it.
fn check_command(key: &Place<'_>, policy: &Policy, findings: &mut Findings) {
    let Some(name) = key.text().map(str::as_bytes) else { return };
    if makes_up_an_answer(name) || is_router_command(name) && policy.retries == Retries::Suppress {
        let found = format!("{} added behind the filter, under policy {:?}", key.shown(), policy.name);
        let expected = "no such rule on guarded requests: it commands the router to repeat, cut or answer";
        findings.error(*key, Code::HeadersUndone, found, expected);
    }
}

fn report(place: Place<'_>, header: String, how: &str, policy: &Policy, findings: &mut Findings) {
    let severity = if header.starts_with("x-envoy-") || header == DEPTH_HEADER { Error } else { Warning };
    let found = format!("{header} {how} behind the filter, which sets it under policy {:?}", policy.name);
    let expected = "no such rule on guarded requests";
    findings.add(severity, place, Code::HeadersUndone, found, expected);
}
