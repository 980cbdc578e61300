//! A provider: where effects are looked up and sent again, and how much of that at once.

use super::answer::{Reply, of_key, of_operation};
use super::breaker::{Admits, Breaker, BreakerLimits};
use super::endpoint::{Endpoint, Line, Message, NoReply};
use super::held_plan::HeldAnswer;
use super::plan::{Answer, Contract};
use super::store::HeldKey;
use super::template::Values;
use crate::grant::details;
use crate::grant::store::OperationRow;
use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// What it serves of operations.
#[derive(Clone, Debug)]
pub struct OperationsAt {
    /// Whose grants admit them.
    pub issuers: Vec<String>,
    /// Looks one up; none where the provider declares no look-up.
    pub lookup: Option<Endpoint>,
    /// Sends one again.
    pub submit: Option<Endpoint>,
    /// What the provider promises.
    pub contract: Contract,
}

/// What it serves of keys.
#[derive(Clone, Debug)]
pub struct KeysAt {
    /// Prefixes of the stored keys.
    pub prefixes: Vec<String>,
    /// Looks one up.
    pub lookup: Endpoint,
}

/// One provider.
pub struct Provider {
    /// Its name in the settings.
    pub name: String,
    /// Of operations.
    pub operations: Option<OperationsAt>,
    /// Of held keys.
    pub keys: Option<KeysAt>,
    /// Most requests at once, of this instance, for operations and keys together.
    pub concurrency: usize,
    /// Who waits for a place gets it in the order of asking, so that no loop keeps another out.
    places: Semaphore,
    state: Mutex<State>,
}

struct State {
    breaker: Breaker,
    busy: usize,
}

/// The right to make one request at a time, until it is dropped.
pub struct Place<'a> {
    provider: &'a Provider,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.provider.state();
        state.busy = state.busy.saturating_sub(1);
    }
}

impl Provider {
    /// One whose breaker is closed.
    pub fn new(
        name: String,
        operations: Option<OperationsAt>,
        keys: Option<KeysAt>,
        concurrency: usize,
        breaker: BreakerLimits,
    ) -> Self {
        let state = Mutex::new(State { breaker: Breaker::new(breaker), busy: 0 });
        Self { name, operations, keys, concurrency, places: Semaphore::new(concurrency), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is it left alone now?
    pub fn rests(&self) -> bool {
        self.state().breaker.admits(Instant::now()) == Admits::None
    }

    /// A place, as soon as one is free. None where the provider is left alone, or somebody is trying it.
    pub async fn place(&self) -> Option<Place<'_>> {
        if self.rests() {
            return None;
        }
        let permit = self.places.acquire().await.ok()?;
        self.entered(permit)
    }

    /// A place, if one is free now and nobody waits for it.
    pub fn free_place(&self) -> Option<Place<'_>> {
        let permit = self.places.try_acquire().ok()?;
        self.entered(permit)
    }

    fn entered<'a>(&'a self, permit: SemaphorePermit<'a>) -> Option<Place<'a>> {
        let mut state = self.state();
        let admitted = match state.breaker.admits(Instant::now()) {
            Admits::None => false,
            // Seen and counted under one lock: of two loops one makes the only request.
            Admits::One => state.busy == 0,
            Admits::Any => true,
        };
        if !admitted {
            return None;
        }
        state.busy += 1;
        Some(Place { provider: self, _permit: permit })
    }

    fn note(&self, call: &'static str, result: &'static str, since: Instant) {
        let answered = result != "unreachable";
        let mut state = self.state();
        state.breaker.note(answered, Instant::now());
        let open = state.breaker.admits(Instant::now()) != Admits::Any;
        drop(state);
        let provider = || self.name.clone();
        metrics::counter!(
            "fencepost_recovery_calls_total", "provider" => provider(), "call" => call, "result" => result
        )
        .increment(1);
        metrics::histogram!("fencepost_recovery_call_seconds", "provider" => provider(), "call" => call)
            .record(since.elapsed());
        metrics::gauge!("fencepost_recovery_breaker_open", "provider" => provider())
            .set(f64::from(u8::from(open)));
    }

    /// Looks an operation's effect up.
    pub async fn look_up(&self, endpoint: &Endpoint, row: &OperationRow) -> Answer {
        let since = Instant::now();
        let answer = match operation_message(endpoint, row, false) {
            Err(why) => Answer::Unclear(why),
            Ok(message) => match ask(endpoint, &message).await {
                Ok(reply) => of_operation(&reply, &row.operation),
                Err(NoReply::Silence(why)) => Answer::Unreachable(why),
                Err(NoReply::Unreadable(why)) => Answer::Unclear(why),
            },
        };
        self.note("look_up", answer.word(), since);
        answer
    }

    /// Opens a connection to send an operation's request again.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Line, String> {
        let since = Instant::now();
        let line = endpoint.connect().await;
        if line.is_err() {
            self.note("submit", "unreachable", since);
        }
        line
    }

    /// Sends an operation's request again, with its idempotency keys; waits no longer than
    /// `limit`.
    pub async fn submit(
        &self,
        endpoint: &Endpoint,
        line: Line,
        row: &OperationRow,
        limit: Duration,
    ) -> Answer {
        let since = Instant::now();
        let answer = match operation_message(endpoint, row, true) {
            Err(why) => Answer::Unclear(why),
            Ok(message) => match endpoint.send(line, &message, limit).await {
                Ok(reply) => of_operation(&reply, &row.operation),
                Err(NoReply::Silence(why)) => Answer::Unreachable(why),
                Err(NoReply::Unreadable(why)) => Answer::Unclear(why),
            },
        };
        self.note("submit", answer.word(), since);
        answer
    }

    /// Looks a held key up.
    pub async fn look_up_key(&self, endpoint: &Endpoint, held: &HeldKey) -> HeldAnswer {
        let since = Instant::now();
        let answer = match key_message(endpoint, held) {
            Err(why) => HeldAnswer::Unclear(why),
            Ok(message) => match ask(endpoint, &message).await {
                Ok(reply) => of_key(&reply, &held.key, held.version),
                Err(NoReply::Silence(why)) => HeldAnswer::Unreachable(why),
                Err(NoReply::Unreadable(why)) => HeldAnswer::Unclear(why),
            },
        };
        self.note("look_up_key", answer.word(), since);
        answer
    }
}

async fn ask(endpoint: &Endpoint, message: &Message) -> Result<Reply, NoReply> {
    let start = Instant::now();
    let line = endpoint.connect().await?;
    endpoint.send(line, message, endpoint.timeout.saturating_sub(start.elapsed())).await
}

fn operation_message(endpoint: &Endpoint, row: &OperationRow, sends: bool) -> Result<Message, String> {
    let details = details::from_text(&row.details).0;
    let id = row.operation.as_str();
    let mut values = Values::from(
        [
            ("operation_id", id),
            ("issuer", &row.key.issuer),
            ("grant_id", &row.key.grant_id),
            ("tenant", &row.tenant),
            ("caller", &row.caller_id),
            ("caller_namespace", &row.caller_namespace),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned())),
    );
    values.extend(details.iter().map(|(name, value)| (format!("detail.{name}"), value.clone())));
    let body = json!({
        "operation_id": id,
        "issuer": row.key.issuer,
        "grant_id": row.key.grant_id,
        "caller": {"namespace": row.caller_namespace, "id": row.caller_id},
        "tenant": row.tenant,
        "details": details,
    });
    let path = endpoint.url.fill(&values)?;
    let keys = if sends { endpoint.targets.headers(id) } else { Vec::new() };
    Ok(Message { path, body: body_of(endpoint, &body), keys })
}

fn key_message(endpoint: &Endpoint, held: &HeldKey) -> Result<Message, String> {
    let (key, scope) = (held.key.to_string(), held.scope.to_hex());
    let values = BTreeMap::from(
        [("key", key.clone()), ("fence", held.version.fence.to_string()), ("scope", scope.clone())]
            .map(|(name, value)| (name.to_owned(), value)),
    );
    let body = json!({"key": key, "fence": held.version.fence, "scope": scope});
    let path = endpoint.url.fill(&values)?;
    Ok(Message { path, body: body_of(endpoint, &body), keys: Vec::new() })
}

fn body_of(endpoint: &Endpoint, body: &serde_json::Value) -> Bytes {
    if endpoint.method == Method::GET { Bytes::new() } else { Bytes::from(body.to_string()) }
}
