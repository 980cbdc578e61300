//! Envoy's buffers against the bodies that the filter holds.
//!
//! One limit per stream holds for both directions. Over it, a request gets 413 from Envoy itself;
//! an answer is lost, after the upstream has run.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::world::Chain;

/// Envoy's `per_connection_buffer_limit_bytes`, if none is set.
const CONNECTION_LIMIT: u64 = 1 << 20;

/// Room for the chunk that comes in on top of what is held.
const CHUNK: u64 = 256 << 10;

/// See the module.
pub(super) fn check(chain: &Chain<'_>, guard: &Guard<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let limits = [http1_limit(chain, marked), http2_limit(chain)];
    for (place, limit) in limits.into_iter().flatten() {
        check_limit(place, limit, guard, marked, findings);
    }
}

/// Checks a listener and a route that are not the whole: only what is written there.
pub(super) fn check_written(
    listener: Place<'_>,
    guard: &Guard<'_>,
    marked: &Marked<'_>,
    findings: &mut Findings,
) {
    let levels = [marked.route, marked.host];
    let of_levels = levels.iter().flat_map(|level| {
        [level.get("request_body_buffer_limit"), level.get("per_request_buffer_limit_bytes")]
    });
    for place in of_levels.filter(Place::exists) {
        if let Some(limit) = place.number() {
            check_limit(place, limit, guard, marked, findings);
        }
    }
    let of_listener = listener.get("per_connection_buffer_limit_bytes");
    if let Some(limit) = of_listener.number() {
        check_limit(of_listener, unless_zero(limit), guard, marked, findings);
    }
}

/// For HTTP/1, and for HTTP/2 too where the route says it.
fn http1_limit<'a>(chain: &Chain<'a>, marked: &Marked<'a>) -> Option<(Place<'a>, u64)> {
    let levels = [marked.route, marked.host];
    let raised = levels.iter().map(|level| level.get("request_body_buffer_limit")).find(Place::exists);
    if let Some(place) = raised {
        return place.number().map(|limit| (place, limit));
    }
    let listener = chain.listener?.get("per_connection_buffer_limit_bytes");
    let of_listener = if listener.exists() { unless_zero(listener.number()?) } else { CONNECTION_LIMIT };
    let lowered = levels.iter().map(|level| level.get("per_request_buffer_limit_bytes")).find(Place::exists);
    match lowered.and_then(|place| place.number().map(|limit| (place, limit))) {
        Some((place, limit)) if limit < of_listener => Some((place, limit)),
        _ => Some((listener, of_listener)),
    }
}

/// A listener without a limit says zero.
fn unless_zero(limit: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit }
}

/// For HTTP/2 the stream's window is the limit.
fn http2_limit<'a>(chain: &Chain<'a>) -> Option<(Place<'a>, u64)> {
    let window = chain.manager.at("http2_protocol_options.initial_stream_window_size");
    let spoken = !chain.manager.get("codec_type").is("HTTP1");
    window.number().filter(|_| spoken).map(|limit| (window, limit))
}

fn check_limit(
    place: Place<'_>,
    limit: u64,
    guard: &Guard<'_>,
    marked: &Marked<'_>,
    findings: &mut Findings,
) {
    let policy = &marked.policy;
    // A default has no line of its own.
    let at = |setting: &str| {
        if place.exists() { place } else { marked.place_of(guard, setting) }
    };
    let holds_body = policy.fingerprint.needs_body() || !marked.is_inline();
    let request = policy.max_body as u64;
    if holds_body && limit < request {
        let found =
            format!("a buffer of {limit} bytes, and requests up to {request} in policy {:?}", policy.name);
        let expected = format!("at least {request} bytes, or a smaller fingerprint.max_body");
        findings.warning(at("fingerprint.max_body"), Code::RequestBufferSmall, found, expected);
    }
    let answer = policy.response.max_body as u64;
    if marked.is_inline() && limit < answer + CHUNK {
        let found =
            format!("a buffer of {limit} bytes, and answers up to {answer} in policy {:?}", policy.name);
        let expected = format!(
            "at least {} bytes (room for a chunk more), or a smaller response.max_body",
            answer + CHUNK
        );
        let place = at("response.max_body");
        if limit <= answer {
            findings.error(place, Code::ResponseBufferSmall, found, expected);
        } else {
            findings.warning(place, Code::ResponseBufferSmall, found, expected);
        }
    }
}
