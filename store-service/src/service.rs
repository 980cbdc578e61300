//! The service: a store, the callers that wait, and the tasks that outlive their callers.
//!
//! Store work runs on tasks of its own, never inside a request's future: a caller that hangs up
//! cancels its request, and that must lose neither an answer nor a release, nor leave a statement
//! half read on a connection.

use crate::calm::Calm;
use crate::entry::{self, Claim, ClaimOutcome, Complete, Micros, Release, Settle, SettleReply};
use crate::quota::{Limit, Over, Place, Quota};
use crate::recent::{Recent, Told};
use crate::store::{Beat, Hearing, Mark, Store, StoreError, Woken};
use crate::trace;
use crate::waiters::{Ticket, Waiters};
use fencepost_protocol::claims::{
    CompleteReply, ReleaseCause, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{ScopeDigest, StoreKey};
use futures_util::future::try_join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::Instrument;

/// How often one of the callers that wait for a key looks for what other instances freed, where
/// nobody tells.
const POLL: Duration = Duration::from_millis(250);

/// The same where other instances tell: it finds what a lost notice would have told.
const POLL_NOTIFIED: Duration = Duration::from_secs(1);

/// A claim's outcome and how long its call was parked before the statement that decided it.
pub type ClaimAnswer = Result<(ClaimOutcome, u32), StoreError>;

/// Everything that a request needs.
pub struct Service {
    store: Arc<dyn Store>,
    waiters: Arc<Waiters>,
    quota: Arc<Quota>,
    calm: Calm,
    draining: AtomicBool,
    recent: Recent,
}

impl Service {
    /// A service on this store. It is calm from now on.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Self::with_waiters(store, Waiters::default())
    }

    /// With other bounds on waiting.
    pub fn with_waiters(store: Arc<dyn Store>, waiters: Waiters) -> Arc<Self> {
        Self::with_bounds(store, waiters, Arc::default())
    }

    /// With other bounds on waiting, and a quota for each caller.
    pub fn with_bounds(store: Arc<dyn Store>, waiters: Waiters, quota: Arc<Quota>) -> Arc<Self> {
        let waiters = Arc::new(waiters);
        let told = Arc::downgrade(&waiters);
        store.listen(Box::new(move |woken| {
            if let Some(waiters) = told.upgrade() {
                match woken {
                    Woken::Key(key) => waiters.wake(key),
                    Woken::All => waiters.wake_all(),
                }
            }
        }));
        Arc::new(Self {
            store,
            waiters,
            quota,
            calm: Calm::default(),
            draining: AtomicBool::new(false),
            recent: Recent::default(),
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

    /// What callers were told a moment ago.
    pub fn recent(&self) -> &Recent {
        &self.recent
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
        let work = async move { service.claim_for(Arc::new(claim), wait, answer).await };
        tokio::spawn(work.in_current_span());
        result.await.map_or_else(|_| Err(task_gone()), Given::take)
    }

    async fn claim_for(
        self: Arc<Self>,
        claim: Arc<Claim>,
        wait: Duration,
        mut caller: oneshot::Sender<Given>,
    ) {
        let arrived = Instant::now();
        let deadline = arrived + wait;
        let mut ticket: Option<Ticket> = None;
        let mut why = Why::First;
        let result = loop {
            let epoch = self.waiters.epoch(&claim.key);
            let parked = if ticket.is_some() { arrived.elapsed() } else { Duration::ZERO };
            let outcome = self.ask_store(&claim).await;
            self.calm.note(&outcome);
            let lease_left_ms = match outcome {
                Ok(ClaimOutcome::InProgress { lease_left_ms }) => lease_left_ms,
                other => break other.map(|outcome| (outcome, millis(parked))),
            };
            let looked = Instant::now();
            if ticket.is_none() && looked < deadline && !self.draining() {
                ticket = self.waiters.park(&claim.key);
            }
            let Some(ticket) = ticket.as_ref().filter(|_| looked < deadline && !self.draining()) else {
                break Ok((ClaimOutcome::InProgress { lease_left_ms }, millis(parked)));
            };
            // Never at once again: a lease that is just ending would make a loop of statements.
            let lease_left = Duration::from_millis(lease_left_ms.max(1));
            ticket.looked(looked + lease_left.min(self.poll()));
            why = tokio::select! {
                why = self.wait_for(ticket, &claim.key, epoch, why, deadline) => why,
                () = caller.closed() => return,
            };
            if why == Why::Deadline {
                let gone = u64::from(millis(looked.elapsed()));
                let lease_left_ms = lease_left_ms.saturating_sub(gone);
                break Ok((ClaimOutcome::InProgress { lease_left_ms }, millis(arrived.elapsed())));
            }
        };
        drop(ticket);
        if let Some(told) = result.as_ref().ok().and_then(|(outcome, _)| told(outcome)) {
            self.recent.note(&claim.key, told);
        }
        if why.may_be_news_to_others() && !matches!(result, Ok((ClaimOutcome::Claimed { .. }, _))) {
            // Who waits for this key need not wait for its own turn to learn the same.
            self.waiters.wake(&claim.key);
        }
        // Whatever is not taken gives itself back: that the caller still listens now does not mean
        // that it will look.
        drop(caller.send(Given { answer: Some(result), service: self.clone(), claim }));
    }

    /// Asks the store, if the caller's quota has a place for a new claim or none would be made.
    async fn ask_store(&self, claim: &Arc<Claim>) -> Result<ClaimOutcome, StoreError> {
        let place = match self.place(claim).await? {
            Ok(place) => place,
            Err(over) => {
                self.quota.note_refusal(over, Instant::now());
                return Ok(ClaimOutcome::OverQuota(over));
            }
        };
        let span = self.span("claim_acquire");
        let outcome = self.store.claim(claim.clone(), self.calm.ms()).instrument(span).await;
        if let Ok(ClaimOutcome::Claimed { .. }) = outcome {
            let lease = Duration::from_millis(claim.claim_ttl_ms.into());
            place.used(&claim.key, claim.token, lease, Instant::now());
        }
        outcome
    }

    async fn place(&self, claim: &Arc<Claim>) -> Result<Result<Place, Over>, StoreError> {
        let over = match self.quota.take(claim.scope, Instant::now()) {
            Ok(place) => return Ok(Ok(place)),
            Err(over) => over,
        };
        let begins = match self.store.look(&claim.key).await? {
            None => true,
            Some(seen) => entry::begins_claim(Some(&seen.row), claim, seen.now, self.calm.ms()),
        };
        if !begins {
            return Ok(Ok(self.quota.beyond(claim.scope)));
        }
        if over.limit == Limit::Live && self.forget_ended(&claim.scope).await? {
            return Ok(self.quota.take(claim.scope, Instant::now()));
        }
        Ok(Err(over))
    }

    /// Looks which claims of a caller have ended in other instances; whether there are any.
    async fn forget_ended(&self, scope: &ScopeDigest) -> Result<bool, StoreError> {
        let known = self.quota.due_for_look(scope, Instant::now());
        let seen = try_join_all(known.iter().map(|(key, _)| self.store.look(key))).await?;
        let mut any = false;
        for ((key, token), seen) in known.iter().zip(seen) {
            if !seen.is_some_and(|seen| seen.row.is_held_by(token, seen.now)) {
                self.quota.ended(scope, key, token);
                any = true;
            }
        }
        Ok(any)
    }

    /// Waits until there is a reason to ask again, or the time is over. The claim is marked first,
    /// so that other instances tell of its end; the epoch was noted before it was found live.
    async fn wait_for(
        &self,
        ticket: &Ticket,
        key: &StoreKey,
        epoch: u64,
        why: Why,
        deadline: Instant,
    ) -> Why {
        // On a turn the mark is looked at anew: the claim may be another one by now.
        if why == Why::Turn || !ticket.marked(epoch) {
            match self.store.mark_waited(key).await {
                Ok(Mark::Waited | Mark::Needless) => ticket.set_marked(epoch),
                Ok(Mark::Changed) => return Why::Woken,
                // Then it is found by looking.
                Err(error) => tracing::debug!(%error, "a claim was not marked as waited for"),
            }
        }
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Why::Deadline;
            }
            let look = ticket.next_look().unwrap_or(now).max(now).min(deadline);
            tokio::select! {
                () = ticket.changed_since(epoch) => return Why::Woken,
                () = tokio::time::sleep_until(look.into()) => {
                    let now = Instant::now();
                    if now < deadline && ticket.take_turn(now, self.poll()) {
                        return Why::Turn;
                    }
                }
            }
            if self.draining() {
                return Why::Deadline;
            }
        }
    }

    fn poll(&self) -> Duration {
        jittered(match self.store.hearing() {
            Hearing::Notified => POLL_NOTIFIED,
            Hearing::Alone | Hearing::Polling(_) => POLL,
        })
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
        self.quota.ended(&claim.scope, &claim.key, &claim.token);
        self.waiters.wake(&claim.key);
        if let Err(error) = result {
            tracing::warn!(%error, "a claim won for a caller that went away stays until its lease ends");
        }
    }

    /// Stores an answer, whether or not the caller stays.
    pub async fn complete(self: &Arc<Self>, complete: Complete) -> Result<CompleteReply, StoreError> {
        self.detached(move |service| async move {
            let (key, scope, token) = (complete.key.clone(), complete.scope, complete.token);
            let span = service.span("claim_complete");
            let result = service.store.complete(complete).instrument(span).await;
            if result.is_ok() {
                service.quota.ended(&scope, &key, &token);
            }
            if matches!(result, Ok(CompleteReply::Refused { .. })) {
                service.recent.note(&key, Told::Lost);
            }
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Gives a claim back, whether or not the caller stays.
    pub async fn release(self: &Arc<Self>, release: Release) -> Result<ReleaseReply, StoreError> {
        self.detached(move |service| async move {
            let (key, scope, token) = (release.key.clone(), release.scope, release.token);
            let span = service.span("claim_release");
            let result = service.store.release(release).instrument(span).await;
            if result.is_ok() {
                service.quota.ended(&scope, &key, &token);
            }
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Records an unknown outcome, whether or not the caller stays.
    pub async fn unknown(self: &Arc<Self>, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        self.detached(move |service| async move {
            let key = request.key.clone();
            let span = service.span("claim_unknown");
            let result = service.store.unknown(request).instrument(span).await;
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Extends leases, whether or not the caller stays.
    pub async fn renew(self: &Arc<Self>, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        self.detached(move |service| async move {
            let span = service.span("claim_renew");
            service.store.renew(renewals).instrument(span).await
        })
        .await
    }

    /// Does what a person decided about an entry, whether or not the person's client stays.
    pub async fn settle(self: &Arc<Self>, order: Settle) -> Result<SettleReply, StoreError> {
        self.detached(move |service| async move {
            let key = order.key.clone();
            let result = service.store.settle(order).await;
            service.waiters.wake(&key);
            result
        })
        .await
    }

    /// Asks the store whether it is there.
    pub async fn heartbeat(&self) -> Result<Beat, StoreError> {
        let result = self.store.heartbeat().await;
        self.calm.note(&result);
        if result == Ok(Beat::Disturbed) {
            metrics::counter!("fencepost_disturbed_beats_total").increment(1);
            self.calm.disturb();
        }
        result
    }

    /// For traces: one operation on the store.
    fn span(&self, name: &'static str) -> tracing::Span {
        trace::operation(name, self.store.kind().name())
    }

    async fn detached<R, F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>) -> F) -> Result<R, StoreError>
    where
        R: Send + 'static,
        F: Future<Output = Result<R, StoreError>> + Send + 'static,
    {
        let work = work(self.clone());
        let service = self.clone();
        let work = async move {
            let result = work.await;
            service.calm.note(&result);
            result
        };
        let task = tokio::spawn(work.in_current_span());
        task.await.unwrap_or_else(|_| Err(task_gone()))
    }
}

/// An answer on its way to its caller. A claim in it that nobody takes is given back.
struct Given {
    answer: Option<ClaimAnswer>,
    service: Arc<Service>,
    claim: Arc<Claim>,
}

impl Given {
    fn take(mut self) -> ClaimAnswer {
        self.answer.take().unwrap_or_else(|| Err(task_gone()))
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let Some(Ok((ClaimOutcome::Claimed { lease_until, .. }, _))) = self.answer.take() else { return };
        let (service, claim) = (self.service.clone(), self.claim.clone());
        // Without a runtime the process ends, and the claim with its lease.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { service.give_back(&claim, lease_until).await });
        }
    }
}

/// Why a waiting caller asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// It has just come.
    First,
    /// The key changed.
    Woken,
    /// It looks for all callers of the key.
    Turn,
    /// It does not ask any more: its time is over.
    Deadline,
}

impl Why {
    /// Whoever was woken was woken with all others.
    fn may_be_news_to_others(self) -> bool {
        matches!(self, Self::First | Self::Turn)
    }
}

/// What people may want to see of an outcome.
fn told(outcome: &ClaimOutcome) -> Option<Told> {
    match outcome {
        ClaimOutcome::Completed(_) => Some(Told::Replayed),
        ClaimOutcome::Mismatch => Some(Told::Mismatch),
        ClaimOutcome::Unknown { .. } => Some(Told::Unknown),
        ClaimOutcome::Claimed { .. }
        | ClaimOutcome::InProgress { .. }
        | ClaimOutcome::OtherScheme(_)
        | ClaimOutcome::Dead
        | ClaimOutcome::OverQuota(_) => None,
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
