//! The calls on grants and operations: JSON in, JSON out, for applications.
//!
//! 200 means done; everything else means not, or not known. See `fencepost_protocol::grants`.

use super::auth::Shown;
use super::{Api, Problem, Role};
use crate::grant::requester::Requester;
use crate::grant::service::{Grants, Refusal};
use crate::grant::store::{Admitted, Because, Issued, OperationRow, OwnerOutcome, Revoked};
use crate::grant::{details, token::is_name};
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fencepost_protocol::grants::{
    AdmitReply, AdmitRequest, Caller, IssueReply, IssueRequest, MaySubmitReply, MaySubmitRequest, Operation,
    OperationId, OwnedReply, PROBLEM_OPERATION, PROBLEM_REASON, RecordReply, RecordRequest,
    RenewOperationRequest, RevokeReply, RevokeRequest, TakeOverRequest, codes, headers as names,
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest request: a token, and as many details as there may be of usual length.
const REQUEST_MAX: usize = 128 * 1024;

/// How long a request's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Seconds after which an operation that is not final may be asked about again.
const PENDING_RETRY: &str = "2";

pub(super) type Answered = Result<Response, Refused>;

/// A refusal with what there is to say about it.
pub struct Refused {
    problem: Problem,
    members: Map<String, Value>,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem, members: Map::new() }
    }
}

impl Refused {
    fn new(status: StatusCode, code: &'static str, detail: &str) -> Self {
        Problem::new(status, code, detail).into()
    }

    fn with(mut self, name: &str, value: impl Serialize) -> Self {
        // Cannot fail: plain data of this crate.
        self.members.insert(name.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let operation = self.members.contains_key(PROBLEM_OPERATION);
        let mut response = self.problem.into_response_with(self.members);
        if operation {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(PENDING_RETRY));
        }
        response
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Malformed(detail) => Problem::bad_request("malformed", detail).into(),
            Refusal::NotValid(reason) => {
                let detail = "the grant is not acceptable";
                Self::new(StatusCode::FORBIDDEN, codes::NOT_VALID, detail)
                    .with(PROBLEM_REASON, reason.to_string())
            }
            Refusal::NotCovered(reason) => {
                let detail = "the grant does not allow what is asked for; it is not spent";
                Self::new(StatusCode::FORBIDDEN, codes::NOT_COVERED, detail)
                    .with(PROBLEM_REASON, reason.to_string())
            }
            Refusal::NoKeys => {
                let detail = "the issuer's keys can't be had now; nothing was admitted, ask again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "keys_unavailable", detail)
            }
            Refusal::NoIssuer => {
                let detail = "no such issuer is configured for grants of this form";
                Self::new(StatusCode::FORBIDDEN, codes::NOT_VALID, detail).with(PROBLEM_REASON, "issuer")
            }
            Refusal::NoProof => {
                let detail = "nothing proves that this grant was issued";
                Self::new(StatusCode::FORBIDDEN, "no_proof_of_issue", detail)
            }
            Refusal::TooOften => {
                let detail = "too many calls of this kind by this token, or on grants of this issuer; nothing was \
                              done, ask again in a minute";
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_often", detail)
            }
            Refusal::OtherIssuer => {
                let detail = "the token is bound to other issuers than this grant's";
                Self::new(StatusCode::FORBIDDEN, "issuer", detail)
            }
            Refusal::Store(error) => Problem::from(error).into(),
        }
    }
}

/// `POST /v1/grants/admit`
pub async fn admit(State(api): State<Api>, request: Request) -> Answered {
    timed("grant_admit", async {
        let grants = grants(&api)?;
        let caller = api.tokens.caller(&request, Role::Admit)?;
        let request: AdmitRequest = json(request).await?;
        let operation_id = request.operation_id.clone();
        match grants.admit_for(&caller.requester(), request).await? {
            Admitted::Now(owned) => reply(&AdmitReply {
                operation_id,
                owner_version: owned.owner_version,
                lease_left_ms: owned.lease_left_ms,
                submit_left_ms: owned.submit_left_ms,
            }),
            Admitted::Before(row) => {
                let detail = "the grant was admitted for this operation before: this is its status, not a right to \
                              execute it";
                Err(Refused::new(StatusCode::CONFLICT, codes::ALREADY_ADMITTED, detail)
                    .with(PROBLEM_OPERATION, operation(*row)))
            }
            Admitted::Refused(Because::Late) => {
                let detail = "the grant is past its admission deadline; an operation that it admitted is still at \
                              /v1/operations";
                Err(Refused::new(StatusCode::FORBIDDEN, codes::EXPIRED, detail))
            }
            Admitted::Refused(Because::Held) => {
                let detail = "the grant was issued before the store was restored from a backup, and may have been \
                              used since: an operator looks, or another grant is issued";
                Err(Refused::new(StatusCode::FORBIDDEN, codes::HELD, detail))
            }
            // One answer for all: which it is would tell of somebody else's operation.
            Admitted::Refused(Because::Used | Because::Revoked | Because::Conflict | Because::NoRow) => {
                let detail = "the grant can't be used for this operation";
                Err(Refused::new(StatusCode::FORBIDDEN, codes::NOT_AVAILABLE, detail))
            }
        }
    })
    .await
}

/// `POST /v1/grants/issue`
pub async fn issue(State(api): State<Api>, request: Request) -> Answered {
    timed("grant_issue", async {
        let grants = grants(&api)?;
        let caller = api.tokens.caller(&request, Role::Issue)?;
        match grants.issue(json::<IssueRequest>(request).await?, caller.requester()).await? {
            Issued::Now => reply(&IssueReply { before: false }),
            Issued::Before => reply(&IssueReply { before: true }),
            Issued::Taken => {
                Err(Refused::new(StatusCode::CONFLICT, "grant_id_taken", "another grant has this id"))
            }
            Issued::BadExpiry => Err(Problem::bad_request(
                "expires_at",
                "expected an expiry ahead, and no further than the issuer's max_lifetime",
            )
            .into()),
        }
    })
    .await
}

/// `POST /v1/grants/revoke`
pub async fn revoke(State(api): State<Api>, request: Request) -> Answered {
    timed("grant_revoke", async {
        let grants = grants(&api)?;
        let caller = api.tokens.caller(&request, Role::Revoke)?;
        match grants.revoke(json::<RevokeRequest>(request).await?, caller.requester()).await? {
            Revoked::Now => reply(&RevokeReply { before: false }),
            Revoked::Before => reply(&RevokeReply { before: true }),
            Revoked::Used => {
                let detail = "the grant was used before; the revocation changes nothing";
                Err(Refused::new(StatusCode::CONFLICT, codes::ALREADY_USED, detail))
            }
            Revoked::NoRow => Err(Refusal::NoProof.into()),
        }
    })
    .await
}

/// `GET /v1/operations/{id}`
pub async fn status(State(api): State<Api>, Path(id): Path<String>, parts: Parts) -> Answered {
    timed("operation_status", async {
        let grants = grants(&api)?;
        let who = api.tokens.caller(&parts, Role::Admit)?.requester();
        let named = |name: &str| -> Result<Option<String>, Refused> {
            let mut values = parts.headers.get_all(name).iter();
            let Some(value) = values.next() else { return Ok(None) };
            let text = std::str::from_utf8(value.as_bytes()).ok().filter(|text| is_name(text));
            match (text, values.next()) {
                (Some(text), None) => Ok(Some(text.to_owned())),
                _ => Err(Problem::bad_request("malformed", format!("{name}: expected one value")).into()),
            }
        };
        let needed = |name: &str| {
            named(name)?.ok_or_else(|| {
                Refused::from(Problem::bad_request("malformed", format!("{name}: the header is missing")))
            })
        };
        let caller = Caller { namespace: needed(names::CALLER_NAMESPACE)?, id: needed(names::CALLER)? };
        let tenant = named(names::TENANT)?.unwrap_or_default();
        match grants.operation(operation_id(&id)?, &caller, &tenant).await? {
            Some(row) if who.may_use(&row.key.issuer).is_err() => Err(out_of_reach(&who)),
            Some(row) => reply(&operation(row)),
            None => Err(no_operation()),
        }
    })
    .await
}

/// `POST /v1/operations/{id}/may-submit`
pub async fn may_submit(State(api): State<Api>, Path(id): Path<String>, request: Request) -> Answered {
    timed("operation_may_submit", async {
        let (grants, id) = owner(&api, (&request).into(), &id).await?;
        match grants.may_submit(id, json::<MaySubmitRequest>(request).await?).await? {
            OwnerOutcome::Done(owned) => {
                reply(&MaySubmitReply { left_ms: owned.lease_left_ms.min(owned.submit_left_ms) })
            }
            other => Err(not_applied(other)),
        }
    })
    .await
}

/// `POST /v1/operations/{id}/record`
pub async fn record(State(api): State<Api>, Path(id): Path<String>, request: Request) -> Answered {
    timed("operation_record", async {
        let (grants, id) = owner(&api, (&request).into(), &id).await?;
        match grants.record(id, json::<RecordRequest>(request).await?).await? {
            OwnerOutcome::Done(_) => reply(&RecordReply { before: false }),
            OwnerOutcome::Before => reply(&RecordReply { before: true }),
            other => Err(not_applied(other)),
        }
    })
    .await
}

/// `POST /v1/operations/{id}/renew`
pub async fn renew(State(api): State<Api>, Path(id): Path<String>, request: Request) -> Answered {
    timed("operation_renew", async {
        let (grants, id) = owner(&api, (&request).into(), &id).await?;
        owned(grants.renew(id, json::<RenewOperationRequest>(request).await?).await?)
    })
    .await
}

/// `POST /v1/operations/{id}/take-over`
pub async fn take_over(State(api): State<Api>, Path(id): Path<String>, request: Request) -> Answered {
    timed("operation_take_over", async {
        let (grants, id) = owner(&api, (&request).into(), &id).await?;
        owned(grants.take_over(id, json::<TakeOverRequest>(request).await?).await?)
    })
    .await
}

fn owned(outcome: OwnerOutcome) -> Answered {
    match outcome {
        OwnerOutcome::Done(owned) => {
            reply(&OwnedReply { owner_version: owned.owner_version, lease_left_ms: owned.lease_left_ms })
        }
        other => Err(not_applied(other)),
    }
}

async fn owner(api: &Api, shown: Shown<'_>, id: &str) -> Result<(Arc<Grants>, OperationId), Refused> {
    let grants = grants(api)?;
    let who = api.tokens.caller(shown, Role::Admit)?.requester();
    let id = operation_id(id)?;
    within_reach(&grants, &who, &id).await?;
    Ok((grants, id))
}

/// 404 for an operation of an issuer that the token is not bound to: it learns nothing about it.
pub(super) async fn within_reach(
    grants: &Grants,
    who: &Requester<'_>,
    id: &OperationId,
) -> Result<(), Refused> {
    if grants.reaches(who, id).await? { Ok(()) } else { Err(out_of_reach(who)) }
}

fn out_of_reach(who: &Requester<'_>) -> Refused {
    tracing::warn!(token = who.name(), "a call on an operation of an issuer that the token is not bound to");
    no_operation()
}

pub(super) fn not_applied(outcome: OwnerOutcome) -> Refused {
    let refused = Refused::new(
        StatusCode::CONFLICT,
        codes::NOT_APPLIED,
        "the call does not apply to the operation as it is; nothing changed",
    );
    match outcome {
        OwnerOutcome::Refused(fencepost_protocol::grants::OperationRefusal::Absent) => no_operation(),
        OwnerOutcome::Refused(reason) => refused.with(PROBLEM_REASON, reason),
        OwnerOutcome::Done(_) | OwnerOutcome::Before => refused,
    }
}

fn no_operation() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, codes::NO_OPERATION, "there is no such operation of this caller")
}

pub(super) fn operation(row: OperationRow) -> Operation {
    Operation {
        operation_id: row.operation,
        status: row.status,
        owner_version: row.owned.owner_version,
        lease_left_ms: row.owned.lease_left_ms,
        submit_left_ms: row.owned.submit_left_ms,
        reference: row.reference,
        details: details::from_text(&row.details),
    }
}

pub(super) fn grants(api: &Api) -> Result<Arc<Grants>, Refused> {
    let missing = || {
        let detail = "grants are not configured: the service was started without --issuers";
        Refused::new(StatusCode::NOT_FOUND, "grants_not_configured", detail)
    };
    api.grants.clone().ok_or_else(missing)
}

pub(super) fn operation_id(text: &str) -> Result<OperationId, Refused> {
    OperationId::parse(text).map_err(|error| Problem::bad_request("operation_id", error.to_string()).into())
}

/// Reads the body; the caller was checked before.
async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Refused> {
    let (parts, body) = request.into_parts();
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = media.and_then(|value| value.split(';').next()).unwrap_or("").trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let detail = format!("found content-type {media:?}, expected application/json");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail).into());
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, limited(body)).await.map_err(|_| {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", "the body did not arrive in time")
    })??;
    // The parser's words may quote a value, so only the place is told.
    serde_json::from_slice(&body).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        Problem::bad_request("malformed", format!("the body is not the JSON of this call: {place}")).into()
    })
}

async fn limited(body: Body) -> Result<Bytes, Problem> {
    match Limited::new(body, REQUEST_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the request is longer than {REQUEST_MAX} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
        }
        Err(_) => Err(Problem::bad_request("body", "the body ended early")),
    }
}

pub(super) fn reply<T: Serialize>(value: &T) -> Answered {
    let text = serde_json::to_string(value).map_err(|error| {
        tracing::error!(%error, "a reply can't be written");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "reply", "the reply can't be written")
    })?;
    let content_type = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

pub(super) async fn timed(call: &'static str, work: impl Future<Output = Answered>) -> Answered {
    let start = Instant::now();
    let result = work.await;
    metrics::histogram!("fencepost_call_seconds", "call" => call).record(start.elapsed());
    result
}
