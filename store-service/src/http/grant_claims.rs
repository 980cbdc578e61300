//! The two framed calls of grant routes: the operation is the claim, and keeps the answer.
//!
//! A refusal is a decision and comes as one, in a frame. What was not decided is a problem, and
//! whoever gets one executes nothing. Asking again never admits: the grant is spent by one statement,
//! and every later call is told what the operation has become.

use super::framed::{self, ANSWER_MAX, HEAD_ONLY_MAX, body, head, header_block, in_range, version};
use super::grants::{
    Answered, Refused, grants, not_applied, operation, operation_id, reply, timed, within_reach,
};
use super::{Api, Problem, Role};
use crate::grant::service::{Finish, Refusal};
use crate::grant::store::{Admitted, Because, OperationAnswer, OwnerOutcome};
use axum::extract::{Path, Request, State};
use bytes::Bytes;
use fencepost_protocol::grant_claims::{
    AnswerHead, FinishRequest, GrantClaimReply, GrantClaimRequest, GrantRefusal,
};
use fencepost_protocol::grants::RecordReply;

/// `POST /v1/grants/claim`
pub async fn claim(State(api): State<Api>, request: Request) -> Answered {
    timed("grant_claim", async {
        let grants = grants(&api)?;
        let (parts, body) = body(&api, request, Role::Admit, HEAD_ONLY_MAX).await?;
        let caller = api.tokens.caller(&parts, Role::Admit)?;
        let (request, payload) = head::<GrantClaimRequest>(&body)?;
        version(request.v)?;
        if !payload.is_empty() {
            return Err(Problem::bad_request("payload_length", "found a payload, expected none").into());
        }
        let refused = |code, reason| GrantClaimReply::Refused { code, reason };
        let (claimed, answer) = match grants.admit_for(&caller.requester(), request.into()).await {
            Ok(Admitted::Now(owned)) => {
                let admitted = GrantClaimReply::Admitted {
                    owner_version: owned.owner_version,
                    lease_left_ms: owned.lease_left_ms,
                    submit_left_ms: owned.submit_left_ms,
                };
                (admitted, None)
            }
            Ok(Admitted::Before(row)) => {
                let answer = grants.answer(&row).await?;
                let head = answer.as_ref().map(answer_head);
                (GrantClaimReply::Before { operation: Box::new(operation(*row)), answer: head }, answer)
            }
            Ok(Admitted::Refused(Because::Late)) => (refused(GrantRefusal::Expired, None), None),
            // Issued before a backup was restored; a filter of any version knows the kind.
            Ok(Admitted::Refused(Because::Held)) => {
                (refused(GrantRefusal::NotAvailable, Some("held".into())), None)
            }
            // One answer for all: which it is would tell of somebody else's operation.
            Ok(Admitted::Refused(Because::Used | Because::Revoked | Because::Conflict | Because::NoRow)) => {
                (refused(GrantRefusal::NotAvailable, None), None)
            }
            Err(Refusal::NotValid(reason)) => {
                (refused(GrantRefusal::NotValid, Some(reason.to_string())), None)
            }
            Err(Refusal::NoIssuer) => (refused(GrantRefusal::NotValid, Some("issuer".into())), None),
            Err(Refusal::NotCovered(reason)) => {
                (refused(GrantRefusal::NotCovered, Some(reason.to_string())), None)
            }
            Err(undecided) => return Err(undecided.into()),
        };
        let (headers, body) = answer.map_or_else(Default::default, |answer| (answer.headers, answer.body));
        Ok(framed::reply(&api, claimed, &[&headers, &body])?)
    })
    .await
}

/// `POST /v1/operations/{id}/finish`
pub async fn finish(State(api): State<Api>, Path(id): Path<String>, request: Request) -> Answered {
    timed("operation_finish", async {
        let grants = grants(&api)?;
        let id = operation_id(&id)?;
        within_reach(&grants, &api.tokens.caller(&request, Role::Admit)?.requester(), &id).await?;
        let (_, body) = body(&api, request, Role::Admit, ANSWER_MAX).await?;
        let (request, payload) = head::<FinishRequest>(&body)?;
        version(request.v)?;
        let finish = Finish {
            expected: request.expected_status,
            outcome: request.outcome,
            reference: request.reference,
            answer: answer(request.answer, &payload)?,
        };
        match grants.finish(id, request.owner_version, finish).await? {
            OwnerOutcome::Done(_) => reply(&RecordReply { before: false }),
            OwnerOutcome::Before => reply(&RecordReply { before: true }),
            other => Err(not_applied(other)),
        }
    })
    .await
}

/// The answer in a payload, which must be as long as its head says and have readable headers.
fn answer(head: Option<AnswerHead>, payload: &Bytes) -> Result<Option<OperationAnswer>, Refused> {
    let Some(head) = head else {
        return match payload.len() {
            0 => Ok(None),
            len => {
                let detail = format!("payload of {len} bytes without an answer in the head");
                Err(Problem::bad_request("payload_length", detail).into())
            }
        };
    };
    in_range("answer.status", head.status, 200, 599)?;
    let stated = u64::from(head.headers_len) + u64::from(head.body_len);
    if payload.len() as u64 != stated {
        let detail = format!("payload of {} bytes, {stated} stated in the head", payload.len());
        return Err(Problem::bad_request("payload_length", detail).into());
    }
    let bad = |error: fencepost_protocol::AnswerDecodeError| {
        Problem::bad_request("header_block", error.to_string())
    };
    let (block, body) = head.split(payload).map_err(bad)?;
    header_block(block)?;
    Ok(Some(OperationAnswer {
        status: head.status,
        headers: payload.slice_ref(block),
        body: payload.slice_ref(body),
    }))
}

fn answer_head(answer: &OperationAnswer) -> AnswerHead {
    // Cannot overflow: what is stored came in a frame, and so is far below 4 GiB.
    let len = |bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    AnswerHead { status: answer.status, headers_len: len(&answer.headers), body_len: len(&answer.body) }
}
