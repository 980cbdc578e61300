//! Calls of the service. A call is never repeated here: whoever retries decides, with the same
//! operation id.

use bytes::Bytes;
use fencepost_protocol::grants::{
    AdmitReply, AdmitRequest, Caller, LeaseKind, MaySubmitReply, MaySubmitRequest, Operation, OperationId,
    OperationRefusal, OperationStatus, OwnedReply, PROBLEM_OPERATION, PROBLEM_REASON, RecordReply,
    RecordRequest, RenewOperationRequest, TakeOverRequest, codes, headers, paths,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode, Uri, header};
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Longest reply.
const REPLY_MAX: usize = 1024 * 1024;

/// Why a call said nothing that can be acted on. Nothing may be executed on any of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Not reached, no answer in time, or the store does not answer. It may have been done: ask
    /// again with the same operation id.
    #[error("not confirmed: {0}")]
    Unconfirmed(String),
    /// The service refused the call itself: its code. Asking again does not help.
    #[error("refused: {status} {code}: {detail}")]
    Refused {
        /// Status.
        status: u16,
        /// Stable code.
        code: String,
        /// For people.
        detail: String,
    },
    /// This client is not set up rightly.
    #[error("set-up: {0}")]
    SetUp(String),
}

/// What became of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The grant is spent and the operation is ours: go on.
    Admitted(Owned),
    /// It was admitted for this operation before: report it, execute nothing.
    Before(Box<Operation>),
    /// Not admitted, and not spent: issued before a backup was restored, so perhaps used since. The
    /// same may be asked again once a person has released it or lifted the hold; not before.
    Held,
    /// Not admitted. The code is one of `grant_not_available`, `grant_expired`, `grant_not_valid`
    /// and `grant_not_covered`; the reason may be empty.
    Refused {
        /// Stable code.
        code: String,
        /// Stable word that says more.
        reason: String,
    },
}

/// Ownership of an operation, from the instant of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// Names the owner in every later call.
    pub owner_version: i32,
    /// What is left of the lease.
    pub lease_left: Duration,
}

/// May anything be sent?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    /// Yes, for so long.
    May(Duration),
    /// No; why.
    MayNot(OperationRefusal),
}

/// Was it recorded?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It is, by this call or the same one before.
    Yes,
    /// No; why.
    No(OperationRefusal),
}

/// A client of one service. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    connections: Connections<HttpConnector, Full<Bytes>>,
    base: String,
    authorization: Option<header::HeaderValue>,
    timeout: Duration,
}

struct Problem {
    status: StatusCode,
    body: Value,
}

impl Problem {
    fn text(&self, name: &str) -> String {
        self.body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn member<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.body.get(name)?.clone()).ok()
    }

    fn error(&self) -> ClientError {
        let code = self.text("code");
        if self.status.is_server_error() || self.status == StatusCode::REQUEST_TIMEOUT || code.is_empty() {
            return ClientError::Unconfirmed(format!("status {} {code}", self.status.as_u16()));
        }
        ClientError::Refused { status: self.status.as_u16(), code, detail: self.text("detail") }
    }
}

impl Client {
    /// For the service at this address, such as `http://127.0.0.1:7070`, with a bearer token of the
    /// role `admit` where it asks for one. TLS belongs beside the application: a mesh or a proxy.
    pub fn new(base: &str, token: Option<&str>, timeout: Duration) -> Result<Self, ClientError> {
        let uri: Uri = base.parse().map_err(|_| ClientError::SetUp("the address is no URL".into()))?;
        if uri.scheme_str() != Some("http") || uri.authority().is_none() {
            return Err(ClientError::SetUp("expected an address such as http://127.0.0.1:7070".into()));
        }
        let authorization = token
            .map(|token| {
                let mut value = header::HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| ClientError::SetUp("the token can't be a header".into()))?;
                value.set_sensitive(true);
                Ok(value)
            })
            .transpose()?;
        let connections = Connections::builder(TokioExecutor::new()).build_http();
        Ok(Self { connections, base: base.trim_end_matches('/').to_owned(), authorization, timeout })
    }

    /// Claims the single use of a grant for an operation.
    pub async fn admit(&self, request: &AdmitRequest) -> Result<Admission, ClientError> {
        let problem = match self.post::<AdmitReply>(paths::ADMIT, request).await? {
            Ok(reply) if reply.operation_id == request.operation_id => {
                let lease_left = Duration::from_millis(reply.lease_left_ms);
                return Ok(Admission::Admitted(Owned { owner_version: reply.owner_version, lease_left }));
            }
            Ok(_) => return Err(ClientError::Unconfirmed("the reply is about another operation".into())),
            Err(problem) => problem,
        };
        let code = problem.text("code");
        match code.as_str() {
            codes::ALREADY_ADMITTED => match problem.member::<Operation>(PROBLEM_OPERATION) {
                Some(operation) => Ok(Admission::Before(Box::new(operation))),
                None => Err(problem.error()),
            },
            codes::HELD => Ok(Admission::Held),
            codes::NOT_AVAILABLE | codes::EXPIRED | codes::NOT_VALID | codes::NOT_COVERED => {
                Ok(Admission::Refused { reason: problem.text(PROBLEM_REASON), code })
            }
            _ => Err(problem.error()),
        }
    }

    /// May the owner send its request to the provider now?
    pub async fn may_submit(&self, id: &OperationId, owner_version: i32) -> Result<Submission, ClientError> {
        let ask = MaySubmitRequest { owner_version, expected_status: OperationStatus::Admitted };
        match self.post::<MaySubmitReply>(&of(id, "may-submit"), &ask).await? {
            Ok(reply) => Ok(Submission::May(Duration::from_millis(reply.left_ms))),
            Err(problem) => not_applied(&problem).map(Submission::MayNot),
        }
    }

    /// Records how it went.
    pub async fn record(&self, id: &OperationId, request: &RecordRequest) -> Result<Recorded, ClientError> {
        match self.post::<RecordReply>(&of(id, "record"), request).await? {
            Ok(_) => Ok(Recorded::Yes),
            Err(problem) => not_applied(&problem).map(Recorded::No),
        }
    }

    /// Extends the ownership. `Err` in the result: it was lost; why.
    pub async fn renew(
        &self,
        id: &OperationId,
        owner_version: i32,
    ) -> Result<Result<Owned, OperationRefusal>, ClientError> {
        let ask = RenewOperationRequest { owner_version, lease: LeaseKind::Execution };
        match self.post::<OwnedReply>(&of(id, "renew"), &ask).await? {
            Ok(reply) => Ok(Ok(Owned {
                owner_version: reply.owner_version,
                lease_left: Duration::from_millis(reply.lease_left_ms),
            })),
            Err(problem) => not_applied(&problem).map(Err),
        }
    }

    /// Takes over a stalled operation whose owner's lease has ended, for recovery. `Err` in the
    /// result: it does not apply; why.
    pub async fn take_over(
        &self,
        id: &OperationId,
        seen_version: i32,
    ) -> Result<Result<Owned, OperationRefusal>, ClientError> {
        let ask = TakeOverRequest { owner_version: seen_version };
        match self.post::<OwnedReply>(&of(id, "take-over"), &ask).await? {
            Ok(reply) => Ok(Ok(Owned {
                owner_version: reply.owner_version,
                lease_left: Duration::from_millis(reply.lease_left_ms),
            })),
            Err(problem) => not_applied(&problem).map(Err),
        }
    }

    /// An operation of this caller; `None` when there is none.
    pub async fn status(
        &self,
        id: &OperationId,
        caller: &Caller,
        tenant: Option<&str>,
    ) -> Result<Option<Operation>, ClientError> {
        let mut request = Request::get(format!("{}{}/{id}", self.base, paths::OPERATIONS))
            .header(headers::CALLER_NAMESPACE, caller.namespace.as_bytes())
            .header(headers::CALLER, caller.id.as_bytes());
        if let Some(tenant) = tenant {
            request = request.header(headers::TENANT, tenant.as_bytes());
        }
        match self.send(request, Bytes::new()).await? {
            Ok(operation) => Ok(Some(operation)),
            Err(problem) if problem.text("code") == codes::NO_OPERATION => Ok(None),
            Err(problem) => Err(problem.error()),
        }
    }

    async fn post<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<R, Problem>, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::SetUp(error.to_string()))?;
        let request = Request::post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        self.send(request, body.into()).await
    }

    async fn send<R: DeserializeOwned>(
        &self,
        mut request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<Result<R, Problem>, ClientError> {
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(|error| ClientError::SetUp(error.to_string()))?;
        let exchange = async {
            let reply = self.connections.request(request).await;
            let reply = reply.map_err(|error| ClientError::Unconfirmed(error.to_string()))?;
            let status = reply.status();
            let body = Limited::new(reply.into_body(), REPLY_MAX).collect().await;
            let body = body.map_err(|error| ClientError::Unconfirmed(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let (status, body) = tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| ClientError::Unconfirmed("no answer in time".into()))??;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map(Ok).map_err(|_| {
                ClientError::Unconfirmed("the reply is not what this call is answered with".into())
            });
        }
        Ok(Err(Problem { status, body: serde_json::from_slice(&body).unwrap_or_default() }))
    }
}

fn of(id: &OperationId, call: &str) -> String {
    format!("{}/{id}/{call}", paths::OPERATIONS)
}

fn not_applied(problem: &Problem) -> Result<OperationRefusal, ClientError> {
    match problem.text("code").as_str() {
        codes::NOT_APPLIED => Ok(problem.member(PROBLEM_REASON).unwrap_or(OperationRefusal::Other)),
        codes::NO_OPERATION => Ok(OperationRefusal::Absent),
        _ => Err(problem.error()),
    }
}
