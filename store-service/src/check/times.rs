//! How long things take, one against the other.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::routes::Marked;
use fencepost_filter_core::policy::{Concurrency, Policy};

/// Envoy's `stream_idle_timeout`, if none is set.
pub(super) const STREAM_IDLE_MS: u64 = 300_000;

/// A limit of the proxy. Envoy takes zero for no limit.
pub(super) fn limit(place: Place<'_>) -> Option<(Place<'_>, u64)> {
    place.millis().filter(|ms| *ms > 0).map(|ms| (place, ms))
}

/// Checks the times around a guarded route. With `defaults`, what the connection manager does not say
/// is what Envoy does by itself.
pub(super) fn check(
    manager: Place<'_>,
    defaults: bool,
    guard: &Guard<'_>,
    marked: &Marked<'_>,
    findings: &mut Findings,
) {
    let policy = &marked.policy;
    let Some(config) = &guard.configuration.config else { return };
    let wait = if policy.concurrency == Concurrency::Wait { u64::from(policy.wait_ms) } else { 0 };
    let held = wait + u64::from(config.store.timeout_ms);
    let whole = held + u64::from(policy.max_run_ms);
    let own = marked.action().get("idle_timeout");
    let idle = if own.exists() { own } else { manager.get("stream_idle_timeout") };
    let idle = if idle.exists() { limit(idle) } else { defaults.then_some((idle, STREAM_IDLE_MS)) };
    if let Some((place, ms)) = idle.filter(|(_, ms)| *ms <= whole) {
        // A default has no line of its own.
        let place = if place.exists() { place } else { marked.place_of(guard, "max_run") };
        let found = format!("a stream idle timeout of {} under policy {:?}", show(ms), policy.name);
        if ms <= held {
            let expected = format!("more than {} (wait + store.timeout)", show(held));
            findings.error(place, Code::StreamIdleTimeoutShort, found, expected);
        } else {
            let expected = format!("more than {} (wait + store.timeout + max_run)", show(whole));
            findings.warning(place, Code::StreamIdleTimeoutShort, found, expected);
        }
    }
    if let Some((place, ms)) = limit(manager.get("request_timeout")).filter(|(_, ms)| *ms <= held) {
        let found = format!("a request timeout of {} under policy {:?}", show(ms), policy.name);
        let expected = format!("more than {} (wait + store.timeout)", show(held));
        findings.error(place, Code::RequestTimeoutShort, found, expected);
    }
    // Who is not at the edge is served by proxies, which send at once what they have.
    let edge = manager.get("use_remote_address");
    if edge.is_true() && limit(manager.get("request_timeout")).is_none() {
        let found = "a listener at the edge (use_remote_address), and no request timeout";
        let expected = "request_timeout, above wait + store.timeout: who sends a body slowly holds its memory \
                        in the filter, which is bounded for all";
        findings.warning(edge, Code::RequestTimeoutMissing, found, expected);
    }
    let own = marked.action().at("max_stream_duration.max_stream_duration");
    let of_chain = manager.at("common_http_protocol_options.max_stream_duration");
    let duration = if own.exists() { own } else { of_chain };
    if let Some((place, ms)) = limit(duration).filter(|(_, ms)| *ms <= whole) {
        let found = format!("streams of at most {} under policy {:?}", show(ms), policy.name);
        let expected = format!("more than {} (wait + store.timeout + max_run)", show(whole));
        findings.warning(place, Code::StreamDurationShort, found, expected);
    }
    if marked.is_inline() {
        check_run(&marked.action(), &marked.retry_policy(), policy, findings);
    }
}

/// The times of the route that the upstream is called through, against `max_run`.
pub(super) fn check_run(action: &Place<'_>, retries: &Place<'_>, policy: &Policy, findings: &mut Findings) {
    let max_run = u64::from(policy.max_run_ms);
    let timeout = action.get("timeout");
    // None at all is what control planes write where nobody chose one.
    if timeout.exists() && timeout.millis().is_some_and(|ms| ms != max_run && ms != 0) {
        let found = format!(
            "a route timeout of {}, and max_run {} in policy {:?}",
            timeout.shown(),
            show(max_run),
            policy.name
        );
        let expected = "the same in both, or no timeout here: max_run replaces it";
        findings.warning(timeout, Code::RouteTimeoutReplaced, found, expected);
    }
    if let Some((place, ms)) = limit(retries.get("per_try_timeout")).filter(|(_, ms)| *ms < max_run) {
        let found = format!("attempts of at most {} under policy {:?}", show(ms), policy.name);
        let expected = format!("at least max_run ({}): what is cut has an unknown outcome", show(max_run));
        findings.warning(place, Code::PerTryTimeoutShort, found, expected);
    }
}

/// A duration as the configuration writes it.
pub(super) fn show(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}
