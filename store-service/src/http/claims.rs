//! The five calls on idempotency entries: frames in, frames out.

use super::framed::{self, ANSWER_MAX, HEAD_ONLY_MAX, body, head, in_range, version};
use super::{Api, Problem, Role};
use crate::entry::{ClaimOutcome, Complete};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use fencepost_protocol::Fence;
use fencepost_protocol::answer::split_payload;
use fencepost_protocol::claims::{
    CLAIM_TTL_MS, ClaimReply, ClaimRequest, CompleteRequest, PARK_MS_MAX, RENEW_MAX, ReleaseRequest,
    RenewReply, RenewRequest, TTL_MS_MAX, UnknownRequest,
};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Longest time that the upstream may be said to run, in milliseconds: a day.
const RUN_MS_MAX: u32 = 24 * 3_600 * 1_000;

type Answered = Result<Response, Problem>;

/// `POST /v1/claims`
pub async fn claim(State(api): State<Api>, request: Request) -> Answered {
    timed("claim", async {
        let (parts, body) = body(&api, request, Role::Filter, HEAD_ONLY_MAX).await?;
        let (request, _) = head::<ClaimRequest>(&body)?;
        version(request.v)?;
        api.tokens.caller(&parts, Role::Filter)?.may_use(&request.key)?;
        in_range("claim_ttl_ms", request.claim_ttl_ms, *CLAIM_TTL_MS.start(), *CLAIM_TTL_MS.end())?;
        in_range("max_run_ms", request.max_run_ms, 0, RUN_MS_MAX)?;
        in_range("unknown_ttl_ms", request.unknown_ttl_ms, 1, TTL_MS_MAX)?;
        in_range("wait_ms", request.wait_ms, 0, PARK_MS_MAX)?;
        let wait = Duration::from_millis(request.wait_ms.into());
        let knows_quota = request.knows_quota;
        let (outcome, parked_ms) = api.service.claim(request.into(), wait).await?;
        let (reply, payload) = claim_reply(outcome, parked_ms, knows_quota)?;
        framed::reply(&api, reply, &[&payload.0, &payload.1])
    })
    .await
}

/// `POST /v1/complete`
pub async fn complete(State(api): State<Api>, request: Request) -> Answered {
    timed("complete", async {
        let (parts, body) = body(&api, request, Role::Filter, ANSWER_MAX).await?;
        let (request, payload) = head::<CompleteRequest>(&body)?;
        version(request.v)?;
        api.tokens.caller(&parts, Role::Filter)?.may_use(&request.key)?;
        in_range("status", request.status, 200, 599)?;
        in_range("ttl_ms", request.ttl_ms, 1, TTL_MS_MAX)?;
        let stated = request.headers_len as usize + request.body_len as usize;
        if payload.len() != stated {
            let detail = format!("payload of {} bytes, {stated} stated in the head", payload.len());
            return Err(Problem::bad_request("payload_length", detail));
        }
        let bad = |error: fencepost_protocol::AnswerDecodeError| {
            Problem::bad_request("header_block", error.to_string())
        };
        let (header_block, answer_body) =
            split_payload(&payload, request.headers_len as usize).map_err(bad)?;
        framed::header_block(header_block)?;
        let complete = Complete {
            headers: payload.slice_ref(header_block),
            body: payload.slice_ref(answer_body),
            key: request.key,
            token: request.token,
            fence: request.fence,
            scheme: request.scheme,
            fingerprint: request.fingerprint,
            scope: request.scope,
            status: request.status,
            ttl_ms: request.ttl_ms,
        };
        let reply = api.service.complete(complete).await?;
        framed::reply(&api, reply, &[])
    })
    .await
}

/// `POST /v1/release`
pub async fn release(State(api): State<Api>, request: Request) -> Answered {
    timed("release", async {
        let (parts, body) = body(&api, request, Role::Filter, HEAD_ONLY_MAX).await?;
        let (request, _) = head::<ReleaseRequest>(&body)?;
        version(request.v)?;
        api.tokens.caller(&parts, Role::Filter)?.may_use(&request.key)?;
        let reply = api.service.release(request.into()).await?;
        framed::reply(&api, reply, &[])
    })
    .await
}

/// `POST /v1/unknown`
pub async fn unknown(State(api): State<Api>, request: Request) -> Answered {
    timed("unknown", async {
        let (parts, body) = body(&api, request, Role::Filter, HEAD_ONLY_MAX).await?;
        let (request, _) = head::<UnknownRequest>(&body)?;
        version(request.v)?;
        api.tokens.caller(&parts, Role::Filter)?.may_use(&request.key)?;
        let reply = api.service.unknown(request).await?;
        framed::reply(&api, reply, &[])
    })
    .await
}

/// `POST /v1/renew`
pub async fn renew(State(api): State<Api>, request: Request) -> Answered {
    timed("renew", async {
        let (parts, body) = body(&api, request, Role::Filter, HEAD_ONLY_MAX).await?;
        let (request, _) = head::<RenewRequest>(&body)?;
        version(request.v)?;
        let caller = api.tokens.caller(&parts, Role::Filter)?;
        if request.claims.len() > RENEW_MAX {
            let detail = format!("claims: found {}, at most {RENEW_MAX} are allowed", request.claims.len());
            return Err(Problem::bad_request("out_of_range", detail));
        }
        let mut keys = HashSet::new();
        for renewal in &request.claims {
            caller.may_use(&renewal.key)?;
            in_range("claim_ttl_ms", renewal.claim_ttl_ms, *CLAIM_TTL_MS.start(), *CLAIM_TTL_MS.end())?;
            in_range("run_ms", renewal.run_ms, 0, RUN_MS_MAX)?;
            if !keys.insert(&renewal.key) {
                let detail = format!("claims: key {} stands twice in one renewal", renewal.key);
                return Err(Problem::bad_request("key_twice", detail));
            }
        }
        let results = api.service.renew(request.claims).await?;
        framed::reply(&api, RenewReply { results }, &[])
    })
    .await
}

async fn timed(call: &'static str, work: impl Future<Output = Answered>) -> Answered {
    let start = Instant::now();
    let result = work.await;
    metrics::histogram!("fencepost_call_seconds", "call" => call).record(start.elapsed());
    result
}

fn claim_reply(
    outcome: ClaimOutcome,
    parked_ms: u32,
    knows_quota: bool,
) -> Result<(ClaimReply, (Bytes, Bytes)), Problem> {
    let mut payload = (Bytes::new(), Bytes::new());
    let (name, reply) = match outcome {
        ClaimOutcome::Claimed { fence, lease_until: _ } => {
            let fence = Fence::new(fence).map_err(|_| {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "fence", "the key's fence left its range")
            })?;
            ("claimed", ClaimReply::Claimed { fence, parked_ms })
        }
        ClaimOutcome::Completed(answer) => {
            let len = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let reply = ClaimReply::Completed {
                status: answer.status,
                headers_len: len(&answer.headers),
                body_len: len(&answer.body),
                age_ms: answer.age_ms,
                left_ms: answer.left_ms,
            };
            payload = (answer.headers, answer.body);
            ("completed", reply)
        }
        ClaimOutcome::InProgress { lease_left_ms } => {
            ("in_progress", ClaimReply::InProgress { lease_left_ms, parked_ms })
        }
        ClaimOutcome::Mismatch => ("mismatch", ClaimReply::Mismatch),
        ClaimOutcome::Unknown { cause, left_ms } => ("unknown", ClaimReply::Unknown { cause, left_ms }),
        ClaimOutcome::OtherScheme(scheme) => ("other_scheme", ClaimReply::OtherScheme { scheme }),
        ClaimOutcome::Dead => ("dead", ClaimReply::Dead),
        ClaimOutcome::OverQuota(over) => {
            let retry_after_ms = u64::try_from(over.retry_after.as_millis()).unwrap_or(u64::MAX);
            // A caller that can't read the refusal would release its token, and leave a row behind;
            // one whose token is dead refuses as well, and does nothing more.
            let reply = if knows_quota { ClaimReply::OverQuota { retry_after_ms } } else { ClaimReply::Dead };
            ("over_quota", reply)
        }
    };
    metrics::counter!("fencepost_claims_total", "outcome" => name).increment(1);
    Ok((reply, payload))
}
