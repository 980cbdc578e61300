//! The service: a store, the callers that wait, and the tasks that outlive their callers.
//!
//! Store work runs on tasks of its own, never inside a request's future: a caller that hangs up
//! cancels its request, and that must lose neither an answer nor a release, nor leave a statement
//! half read on a connection.

use crate::calm::Calm;
use crate::entry::{Claim, ClaimOutcome, Complete, Micros, Release};
use crate::store::{Store, StoreError};
use crate::waiters::{Ticket, Waiters};
use fencepost_protocol::claims::{
    CompleteReply, ReleaseCause, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often a parked caller asks the store without being woken, for what other instances freed.
const POLL: Duration = Duration::from_millis(250);

/// A claim's outcome and how long its call was parked before the statement that decided it.
pub type ClaimAnswer = Result<(ClaimOutcome, u32), StoreError>;

/// Everything that a request needs.
pub struct Service {
    store: Arc<dyn Store>,
    waiters: Arc<Waiters>,
    calm: Calm,
    draining: AtomicBool,
}

impl Service {
    /// A service on this store. It is calm from now on.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Self::with_waiters(store, Waiters::default())
    }

    /// With other bounds on waiting.
    pub fn with_waiters(store: Arc<dyn Store>, waiters: Waiters) -> Arc<Self> {
        Arc::new(Self {
            store,
            waiters: Arc::new(waiters),
            calm: Calm::default(),
            draining: AtomicBool::new(false),
        })
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The parked callers.
    pub fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    /// Outages and the time since.
    pub fn calm(&self) -> &Calm {
        &self.calm
    }

    /// From now on the service is not ready, and nobody parks any more.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Is it stopping?
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Asks for a claim, and waits up to `wait` while another one is live. Dropping this future
    /// ends the waiting; a claim that was won nevertheless is given back.
    pub async fn claim(self: &Arc<Self>, claim: Claim, wait: Duration) -> ClaimAnswer {
        let (answer, result) = oneshot::channel();
        let service = self.clone();
        tokio::spawn(async move { service.claim_for(Arc::new(claim), wait, answer).await });
        result.await.unwrap_or_else(|_| Err(task_gone()))
    }

    async fn claim_for(
        self: Arc<Self>,
        claim: Arc<Claim>,
        wait: Duration,
        mut caller: oneshot::Sender<ClaimAnswer>,
    ) {
        let arrived = Instant::now();
        let deadline = arrived + wait;
        let mut ticket: Option<Ticket> = None;
        let result = loop {
            let epoch = self.waiters.epoch(&claim.key);
            let parked = if ticket.is_some() { arrived.elapsed() } else { Duration::ZERO };
            let outcome = self.store.claim(claim.clone(), self.calm.ms()).await;
            self.calm.note(&outcome);
            let lease_left_ms = match outcome {
                Ok(ClaimOutcome::InProgress { lease_left_ms }) => lease_left_ms,
                other => break other.map(|outcome| (outcome, millis(parked))),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if ticket.is_none() && !left.is_zero() && !self.draining() {
                ticket = self.waiters.park(&claim.key);
            }
            let Some(ticket) = ticket.as_ref().filter(|_| !left.is_zero() && !self.draining()) else {
                break Ok((ClaimOutcome::InProgress { lease_left_ms }, millis(parked)));
            };
            // Never at once again: a lease that is just ending would make a loop of statements.
            let lease_left = Duration::from_millis(lease_left_ms.max(1));
            let pause = left.min(lease_left).min(jittered(POLL));
            tokio::select! {
                () = ticket.changed_since(epoch) => {}
                () = tokio::time::sleep(pause) => {}
                () = caller.closed() => return,
            }
        };
        drop(ticket);
        if let Ok((ClaimOutcome::Unknown { .. }, _)) = &result {
            // It may have become unknown right now, by this claim: others need not wait for it.
            self.waiters.wake(&claim.key);
        }
        if let Err(Ok((ClaimOutcome::Claimed { lease_until, .. }, _))) = caller.send(result) {
            self.give_back(&claim, lease_until).await;
        }
    }

    /// The claim was won for a caller that is gone. Only this very claim is given back: if the
    /// caller has asked again with the same token, it has a lease with another end.
    async fn give_back(&self, claim: &Claim, lease_until: Micros) {
        let release = Release {
            key: claim.key.clone(),
            token: claim.token,
            scheme: claim.scheme.clone(),
            fingerprint: claim.fingerprint,
            scope: claim.scope,
            cause: ReleaseCause::ClientGone,
            only_lease: Some(lease_until),
        };
        metrics::counter!("fencepost_claims_given_back_total").increment(1);
        let result = self.store.release(release).await;
        self.calm.note(&result);
        self.waiters.wake(&claim.key);
        if let Err(error) = result {
            tracing::warn!(%error, "a claim won for a caller that went away stays until its lease ends");
        }
    }

    /// Stores an answer, whether or not the caller stays.
    pub async fn complete(self: &Arc<Self>, complete: Complete) -> Result<CompleteReply, StoreError> {
        self.detached(move |service| async move {
            let key = complete.key.clone();
            let result = service.store.complete(complete).await;
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Gives a claim back, whether or not the caller stays.
    pub async fn release(self: &Arc<Self>, release: Release) -> Result<ReleaseReply, StoreError> {
        self.detached(move |service| async move {
            let key = release.key.clone();
            let result = service.store.release(release).await;
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Records an unknown outcome, whether or not the caller stays.
    pub async fn unknown(self: &Arc<Self>, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        self.detached(move |service| async move {
            let key = request.key.clone();
            let result = service.store.unknown(request).await;
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Extends leases, whether or not the caller stays.
    pub async fn renew(self: &Arc<Self>, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        self.detached(move |service| async move { service.store.renew(renewals).await }).await
    }

    /// Asks the store whether it is there.
    pub async fn heartbeat(&self) -> Result<(), StoreError> {
        let result = self.store.heartbeat().await;
        self.calm.note(&result);
        result
    }

    async fn detached<R, F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, StoreError>> + Send + 'static,
    {
        let work = work(self.clone());
        let service = self.clone();
        let task = tokio::spawn(async move {
            let result = work.await;
            service.calm.note(&result);
            result
        });
        task.await.unwrap_or_else(|_| Err(task_gone()))
    }
}

fn task_gone() -> StoreError {
    StoreError::Broken("the task of this operation ended without a result".into())
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Between three quarters and five quarters, so that callers parked together do not ask together.
fn jittered(duration: Duration) -> Duration {
    let mut byte = [128];
    // Without random numbers there is no jitter, and nothing else is lost.
    let _ = getrandom::fill(&mut byte);
    let [byte] = byte;
    duration * 3 / 4 + duration / 2 * u32::from(byte) / 255
}
