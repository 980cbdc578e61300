//! What may be made the answer of a key by somebody else than its upstream.

use super::model::SettleWith;
use crate::entry::Ruling;
use axum::http::{HeaderName, HeaderValue};
use fencepost_filter_core::capture::is_never_kept;
use fencepost_protocol::answer::{HEADERS_MAX, encode_headers};
use fencepost_protocol::claims::{ReleaseCause, TTL_MS_MAX};

/// Lifetime of an answer without a wish: a day.
const TTL_MS_USUAL: u64 = 24 * 3_600 * 1_000;

/// Checks what is said about a request; says what would be right.
pub fn ruling(with: SettleWith) -> Result<Ruling, String> {
    let (status, headers, body, ttl_ms) = match with {
        SettleWith::NotRun => return Ok(Ruling::Free(ReleaseCause::NotRun)),
        SettleWith::Answer { status, headers, body, ttl_ms } => (status, headers, body, ttl_ms),
    };
    if !(200..=599).contains(&status) {
        return Err("status: expected 200 to 599".into());
    }
    if headers.len() > HEADERS_MAX {
        return Err("headers: expected at most 1024".into());
    }
    let mut pairs = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        let good_name = HeaderName::from_bytes(name.as_bytes()).is_ok();
        if !good_name || name.starts_with(':') || HeaderValue::from_bytes(&value.0).is_err() {
            return Err("headers: expected names and values that HTTP allows".into());
        }
        let name = name.to_ascii_lowercase().into_bytes();
        if is_never_kept(&name) || name.starts_with(b"x-idempotent-") {
            return Err("headers: expected no header of one hop, one client, one moment, of framing, or of \
                        the filter's own"
                .into());
        }
        pairs.push((name, value.0));
    }
    if matches!(status, 204 | 205 | 304) && !body.0.is_empty() {
        return Err("body: expected none with status 204, 205 or 304".into());
    }
    let ttl_ms = ttl_ms.unwrap_or(TTL_MS_USUAL);
    if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
        return Err("ttl_ms: expected 1 ms to 400 days".into());
    }
    Ok(Ruling::Answer { status, headers: encode_headers(&pairs).into(), body: body.0.into(), ttl_ms })
}
