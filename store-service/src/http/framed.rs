//! Framed calls: reading the frame of a caller that may call, and writing the reply's.

use super::{Api, Problem, Role};
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fencepost_protocol::answer::decode_headers;
use fencepost_protocol::claims::Reply;
use fencepost_protocol::frame::{self, HEAD_LEN_MAX, PAYLOAD_LEN_MAX};
use fencepost_protocol::{FRAME_MEDIA_TYPE, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest request without a payload.
pub const HEAD_ONLY_MAX: usize = 4 + HEAD_LEN_MAX;

/// Longest request with an answer in it.
pub const ANSWER_MAX: usize = HEAD_ONLY_MAX + PAYLOAD_LEN_MAX;

/// How long a request's body may take: a sender that stopped half way must not hold memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks the caller and the media type, then reads the body: nothing is read for a stranger.
pub async fn body(api: &Api, request: Request, role: Role, max: usize) -> Result<(Parts, Bytes), Problem> {
    let (parts, body) = request.into_parts();
    api.tokens.caller(&parts, role)?;
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|value| value.split(';').next()).unwrap_or("").trim();
    if !media.eq_ignore_ascii_case(FRAME_MEDIA_TYPE) {
        let detail = format!("found content-type {media:?}, expected {FRAME_MEDIA_TYPE}");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, limited(body, max)).await.map_err(|_| {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time")
    })??;
    Ok((parts, body))
}

async fn limited(body: Body, max: usize) -> Result<Bytes, Problem> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the request is longer than {max} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
        }
        Err(_) => Err(Problem::bad_request("body", "the body ended early")),
    }
}

/// Reads the head; what is left is the payload.
pub fn head<T: DeserializeOwned>(body: &Bytes) -> Result<(T, Bytes), Problem> {
    let (text, payload) =
        frame::split(body).map_err(|error| Problem::bad_request("frame", error.to_string()))?;
    // The parser's words may quote a value, a token for one, so only the place is told.
    let request = serde_json::from_slice(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Problem::bad_request("frame", format!("frame head: not the JSON of this call: {place}"))
    })?;
    Ok((request, body.slice_ref(payload)))
}

/// Checks the headers of an answer that is to be kept: a replay sends them as they are, and what ends
/// a line would begin another one (RFC 9110, sections 5.1 and 5.5). Filters keep no such header.
pub fn header_block(block: &[u8]) -> Result<(), Problem> {
    let refused = |detail: String| Problem::bad_request("header_block", detail);
    let headers = decode_headers(block).map_err(|error| refused(error.to_string()))?;
    for (number, (name, value)) in headers.iter().enumerate() {
        if HeaderName::from_bytes(name).is_err() {
            return Err(refused(format!("the name of header {number} is no token")));
        }
        if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            return Err(refused(format!("the value of header {number} has the end of a line, or NUL")));
        }
    }
    Ok(())
}

/// Messages of the version before and the version after ours are understood.
pub fn version(found: u16) -> Result<(), Problem> {
    if (PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION + 1).contains(&found) {
        return Ok(());
    }
    let detail = format!("found protocol version {found}, this service speaks {PROTOCOL_VERSION}");
    Err(Problem::bad_request("protocol_version", detail))
}

/// 400 for a number that is out of its range.
pub fn in_range<T: PartialOrd + std::fmt::Display>(
    name: &str,
    found: T,
    min: T,
    max: T,
) -> Result<(), Problem> {
    if found < min || found > max {
        let detail = format!("{name}: found {found}, expected {min} to {max}");
        return Err(Problem::bad_request("out_of_range", detail));
    }
    Ok(())
}

/// The framed reply.
pub fn reply<T: Serialize>(api: &Api, reply: T, payload: &[&[u8]]) -> Result<Response, Problem> {
    let head = Reply::new(api.service.store().store_id(), reply);
    let frame = frame::encode(&head, payload).map_err(|error| {
        tracing::error!(%error, "a reply can't be framed");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "frame", "the reply can't be framed")
    })?;
    let content_type = HeaderValue::from_static(FRAME_MEDIA_TYPE);
    Ok(([(header::CONTENT_TYPE, content_type)], frame).into_response())
}
