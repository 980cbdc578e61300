//! `/v1/operator/operations`: what operators see and decide about operations.

use super::entries::{Answered, json, order, query, reasoned, wrong};
use super::{Api, Problem};
use crate::desk::{Desk, Ending, OperationFilter, OperationOrder, OperationSeen, OperationSettled};
use crate::grant::details;
use crate::grant::store::{read_status, status_word};
use crate::operator::desk_model::{
    EndingWord, EventView, OperationSettleOrder, OperationView, OperationsReply,
};
use crate::operator::print::duration;
use crate::recovery::OperationEvent;
use axum::extract::{Path, Request, State as Shared};
use axum::http::StatusCode;
use fencepost_protocol::grants::{OperationId, OperationStatus, TEXT_MAX};
use std::sync::Arc;

/// Most operations in one list, and how many without a wish.
pub const LIST_MAX: u32 = 1_000;
const LIST_USUAL: u32 = 100;

/// Longest age to ask for, in milliseconds: a hundred years. Databases compute with it.
const AGE_MS_MAX: u64 = 100 * 365 * 86_400_000;

/// An age to compare with.
pub fn age(name: &str, ms: u64) -> Result<u64, Problem> {
    if ms <= AGE_MS_MAX { Ok(ms) } else { Err(wrong(name, "at most a hundred years")) }
}

/// Those that have not ended.
pub const OPEN: [OperationStatus; 3] =
    [OperationStatus::Admitted, OperationStatus::Unknown, OperationStatus::NeedsReconciliation];

/// `GET /v1/operator/operations`
pub async fn list(Shared(api): Shared<Api>, request: Request) -> Answered {
    let desk = api.desk(&request)?.desk;
    let mut filter = OperationFilter { limit: LIST_USUAL, ..OperationFilter::default() };
    for (name, value) in query(&request)? {
        match &name[..] {
            "status" => {
                let words = "open, admitted, succeeded, failed, unknown or needs_reconciliation";
                let more = match &value[..] {
                    "open" => OPEN.to_vec(),
                    word => vec![read_status(word).ok_or_else(|| wrong("status", words))?],
                };
                filter.statuses.get_or_insert_default().extend(more);
            }
            "issuer" => filter.issuer = Some(value),
            "tenant" => filter.tenant = Some(value),
            "caller_namespace" => filter.caller_namespace = Some(value),
            "caller" => filter.caller_id = Some(value),
            "cause" => filter.cause = Some(value),
            "older_than_ms" => {
                let ms = value.parse().map_err(|_| wrong("older_than_ms", "a number of milliseconds"))?;
                filter.older_than_ms = Some(age("older_than_ms", ms)?);
            }
            "after" => filter.after = Some(id(&value)?),
            "limit" => filter.limit = limit(&value)?,
            _ => {
                let known =
                    "status, issuer, tenant, caller_namespace, caller, cause, older_than_ms, after or limit";
                return Err(wrong(&name, known));
            }
        }
    }
    let limit = filter.limit as usize;
    let found = desk.operations(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|seen| seen.id.to_string());
    json(&OperationsReply { operations: found.into_iter().map(|seen| view(seen, None)).collect(), next })
}

/// `GET /v1/operator/operations/{id}`
pub async fn show(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let desk = api.desk(&request)?.desk;
    json(&shown(&*desk, id(&text)?).await?)
}

/// `POST /v1/operator/operations/{id}/settle`
pub async fn settle(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let id = id(&text)?;
    let (parts, body) = request.into_parts();
    let at = api.desk(&parts)?;
    let OperationSettleOrder { version, reason, outcome, reference } = order(&parts.headers, body).await?;
    decide(at.desk, at.who, id, &version, reason, outcome, reference).await.and_then(|view| json(&view))
}

/// Ends an operation, or says why not.
pub async fn decide(
    desk: Arc<dyn Desk>,
    who: String,
    id: OperationId,
    version: &str,
    reason: String,
    outcome: EndingWord,
    reference: Option<String>,
) -> Result<OperationView, Problem> {
    let version = version.parse().map_err(|error: crate::desk::OperationVersionError| {
        Problem::bad_request("version", error.to_string())
    })?;
    let reason = reasoned(reason)?;
    let reference = reference.map(self::reference).transpose()?;
    let ending = match outcome {
        EndingWord::Succeeded => Ending::Succeeded,
        EndingWord::Failed => Ending::Failed,
        EndingWord::LookAgain => Ending::LookAgain,
    };
    if ending == Ending::LookAgain && reference.is_some() {
        return Err(wrong("reference", "none where recovery is to look again"));
    }
    tracing::info!(operation = %id, action = ending.action(), who, "order of an operator");
    let order = OperationOrder { id: id.clone(), version, ending, reference, who, reason };
    // The order is carried out whether or not the person's client stays.
    let task = {
        let desk = desk.clone();
        tokio::spawn(async move { desk.settle_operation(order).await })
    };
    let settled = task.await.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "store_broken", "the order's task ended early")
    })??;
    let conflict = |code, detail: String| Err(Problem::new(StatusCode::CONFLICT, code, detail));
    match settled {
        OperationSettled::Settled => {
            metrics::counter!("fencepost_orders_total", "action" => ending.action()).increment(1);
            shown(&*desk, id).await
        }
        OperationSettled::Absent => Err(absent()),
        OperationSettled::Changed => conflict(
            "version_changed",
            "the operation is not any more what was shown: look at it again".into(),
        ),
        OperationSettled::Final => {
            conflict("already_so", "its end is recorded, and an end is never changed".into())
        }
        OperationSettled::Open => {
            conflict("already_so", "it waits for nobody: its owner or recovery works on it".into())
        }
        OperationSettled::Running { left_ms } => conflict(
            "may_be_running",
            format!("its owner may still send something, for {} more", duration(left_ms)),
        ),
    }
}

/// The provider's id of an effect, or its code of refusal.
pub fn reference(text: String) -> Result<String, Problem> {
    if text.is_empty() || text.chars().count() > TEXT_MAX || text.contains('\0') {
        return Err(wrong("reference", "1 to 255 characters"));
    }
    Ok(text)
}

/// One operation with what happened to it.
pub async fn shown(desk: &dyn Desk, id: OperationId) -> Result<OperationView, Problem> {
    let seen = desk.operation(id).await?.ok_or_else(absent)?;
    let lines = desk.history(seen.id.clone()).await?;
    Ok(view(seen, Some(lines.into_iter().map(event).collect())))
}

fn absent() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_operation", "there is no such operation")
}

/// An operation id.
pub fn id(text: &str) -> Result<OperationId, Problem> {
    OperationId::parse(text).map_err(|_| Problem::bad_request("operation_id", "expected a UUID"))
}

/// How many.
pub fn limit(text: &str) -> Result<u32, Problem> {
    let limit = text.parse().ok().filter(|limit| (1..=LIST_MAX).contains(limit));
    limit.ok_or_else(|| wrong("limit", "1 to 1000"))
}

/// A line of the history as JSON says it.
pub fn event(line: OperationEvent) -> EventView {
    EventView {
        at_us: line.at.0,
        who: line.actor,
        step: line.step,
        owner_version: line.owner_version,
        result: line.result,
        status: status_word(line.status).to_owned(),
        detail: line.detail,
    }
}

/// An operation as JSON says it.
pub fn view(seen: OperationSeen, history: Option<Vec<EventView>>) -> OperationView {
    OperationView {
        version: seen.version().to_string(),
        operation_id: seen.id.to_string(),
        status: status_word(seen.status).to_owned(),
        issuer: seen.key.issuer,
        grant_id: seen.key.grant_id,
        tenant: seen.tenant,
        caller_namespace: seen.caller_namespace,
        caller: seen.caller_id,
        details: details::from_text(&seen.details).0,
        reference: seen.reference,
        cause: seen.cause,
        resting: seen.resting,
        lease_left_ms: seen.lease_until.ms_after(seen.now),
        submit_left_ms: seen.submit_by.ms_after(seen.now),
        created_at_us: seen.created_at.0,
        updated_at_us: seen.updated_at.0,
        now_us: seen.now.0,
        history,
    }
}
