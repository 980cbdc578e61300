//! The boundary before a store of entries.

use super::{Seal, SealStore, Subject};
use crate::desk::Desk;
use crate::entry::{Claim, ClaimOutcome, Complete, Release, Ruling, Settle, SettleReply, State, SweepKind};
use crate::grant::store::GrantStore;
use crate::grant::timing::ExecutionTimings;
use crate::recovery::store::RecoveryStore;
use crate::store::{Audit, Beat, Ear, Entry, Filter, Hearing, Mark, Store, StoreError, StoreKind};
use async_trait::async_trait;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreId, StoreKey};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often an instance makes sure that its key's id is in the list: somebody who renews the seals
/// while an instance with the old key still serves takes it out.
const LISTED_EVERY: Duration = Duration::from_secs(30);

/// A store whose answers are sealed.
pub struct Sealed {
    seal: Arc<Seal>,
    inner: Arc<dyn Store>,
    listed: Mutex<Instant>,
}

impl Sealed {
    /// Before this store.
    pub fn new(seal: Arc<Seal>, inner: Arc<dyn Store>) -> Self {
        Self { seal, inner, listed: Mutex::new(Instant::now()) }
    }

    async fn stay_listed(&self) -> Result<(), StoreError> {
        let (Some(ring), Some(keeper)) = (self.seal.ring(), self.inner.seals()) else { return Ok(()) };
        {
            let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
            if listed.elapsed() < LISTED_EVERY {
                return Ok(());
            }
            *listed = Instant::now();
        }
        keeper.add_key(ring.current().0.as_str()).await
    }

    /// Seals the answer that a person or recovery gives. What it is bound to is read first: the order
    /// names the version that was seen, and applies to no other, so either this is that version's, or
    /// the order does nothing.
    async fn close_ruling(&self, order: &mut Settle) -> Result<(), StoreError> {
        let Ruling::Answer { status, headers, body, .. } = &mut order.ruling else { return Ok(()) };
        if self.seal.ring().is_none() {
            return Ok(());
        }
        let Some(entry) = self.inner.entry(&order.key, false).await? else { return Ok(()) };
        if entry.row.version() != order.version {
            return Ok(());
        }
        let subject = Subject::Entry {
            key: &order.key,
            scheme: &entry.row.scheme,
            fingerprint: &entry.row.fingerprint,
            status: *status,
        };
        self.seal.close(subject, headers, body)
    }
}

#[async_trait]
impl Store for Sealed {
    fn kind(&self) -> StoreKind {
        self.inner.kind()
    }

    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError> {
        let mut outcome = self.inner.claim(claim.clone(), calm_ms).await?;
        if let ClaimOutcome::Completed(answer) = &mut outcome {
            let Claim { key, scheme, fingerprint, .. } = &*claim;
            let subject = Subject::Entry { key, scheme, fingerprint, status: answer.status };
            self.seal.open(subject, &mut answer.headers, &mut answer.body)?;
        }
        Ok(outcome)
    }

    async fn complete(&self, mut complete: Complete) -> Result<CompleteReply, StoreError> {
        let Complete { key, scheme, fingerprint, status, headers, body, .. } = &mut complete;
        let subject = Subject::Entry { key, scheme, fingerprint, status: *status };
        self.seal.close(subject, headers, body)?;
        self.inner.complete(complete).await
    }

    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError> {
        self.inner.release(release).await
    }

    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        self.inner.unknown(request).await
    }

    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        self.inner.renew(renewals).await
    }

    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError> {
        self.inner.sweep(kind, calm_ms, limit).await
    }

    async fn sweep_lag(&self) -> Result<u64, StoreError> {
        self.inner.sweep_lag().await
    }

    async fn mark_waited(&self, key: &StoreKey) -> Result<Mark, StoreError> {
        self.inner.mark_waited(key).await
    }

    fn listen(&self, ear: Ear) {
        self.inner.listen(ear);
    }

    fn hearing(&self) -> Hearing {
        self.inner.hearing()
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.inner.warnings();
        warnings.extend(self.seal.warnings());
        warnings
    }

    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError> {
        let mut entry = self.inner.entry(key, answer).await?;
        if let Some(Entry { key, row, .. }) = entry.as_mut().filter(|_| answer)
            && let State::Completed { status, headers, body, .. } = &mut row.state
        {
            let (scheme, fingerprint) = (&row.scheme, &row.fingerprint);
            let subject = Subject::Entry { key, scheme, fingerprint, status: *status };
            self.seal.open(subject, headers, body)?;
        }
        Ok(entry)
    }

    async fn look(&self, key: &StoreKey) -> Result<Option<Entry>, StoreError> {
        self.inner.look(key).await
    }

    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError> {
        self.inner.entries(filter).await
    }

    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError> {
        self.inner.audit(key).await
    }

    async fn settle(&self, mut order: Settle) -> Result<SettleReply, StoreError> {
        self.close_ruling(&mut order).await?;
        self.inner.settle(order).await
    }

    fn grants(&self, timings: ExecutionTimings) -> Option<Arc<dyn GrantStore>> {
        self.inner.grants(timings).map(|grants| self.seal.grants(grants))
    }

    /// Nothing there reads or writes what an application said: erasing puts a text of its own.
    fn desk(&self) -> Option<Arc<dyn Desk>> {
        self.inner.desk()
    }

    fn recovery(&self) -> Option<Arc<dyn RecoveryStore>> {
        self.inner.recovery().map(|recovery| self.seal.recovery(recovery))
    }

    fn seals(&self) -> Option<Arc<dyn SealStore>> {
        self.inner.seals()
    }

    async fn heartbeat(&self) -> Result<Beat, StoreError> {
        let beat = self.inner.heartbeat().await?;
        if let Err(error) = self.stay_listed().await {
            tracing::warn!(%error, "the id of the sealing key was not written down");
        }
        Ok(beat)
    }

    async fn leave(&self) {
        self.inner.leave().await;
    }
}
