//! The boundary before what recovery writes: answers of operations that it ends. Held keys it ends
//! by orders, which pass the boundary before the entries.

use super::Seal;
use crate::grant::duration::Span;
use crate::grant::store::{Owned, OwnerOutcome};
use crate::recovery::store::{
    Applied, Backlog, Ending, HeldKey, MarkedKey, Note, Owner, RecoveryStore, Rest, StepName, TakeOver, Taken,
};
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::StoreKey;
use fencepost_protocol::grants::OperationStatus;
use std::sync::Arc;

/// Recovery whose answers are sealed.
pub struct SealedRecovery {
    pub(super) seal: Arc<Seal>,
    pub(super) inner: Arc<dyn RecoveryStore>,
}

#[async_trait]
impl RecoveryStore for SealedRecovery {
    async fn take_over(&self, take: TakeOver) -> Result<Vec<Taken>, StoreError> {
        self.inner.take_over(take).await
    }

    async fn step(
        &self,
        owner: Owner,
        step: StepName,
        lease: Span,
        note: Note,
    ) -> Result<Applied<Owned>, StoreError> {
        self.inner.step(owner, step, lease, note).await
    }

    async fn may_submit(&self, owner: Owner, expected: OperationStatus) -> Result<OwnerOutcome, StoreError> {
        self.inner.may_submit(owner, expected).await
    }

    async fn record(&self, owner: Owner, mut ending: Ending, note: Note) -> Result<Applied<()>, StoreError> {
        self.seal.close_operation(&owner.id, ending.answer.as_mut())?;
        self.inner.record(owner, ending, note).await
    }

    async fn postpone(&self, owner: Owner, rest: Rest, note: Note) -> Result<Applied<()>, StoreError> {
        self.inner.postpone(owner, rest, note).await
    }

    async fn backlog(&self, max: u32) -> Result<Backlog, StoreError> {
        self.inner.backlog(max).await
    }

    async fn held_take(
        &self,
        prefixes: Vec<String>,
        lease: Span,
        actor: String,
        limit: u32,
    ) -> Result<Vec<HeldKey>, StoreError> {
        self.inner.held_take(prefixes, lease, actor, limit).await
    }

    async fn held_postpone(
        &self,
        key: StoreKey,
        turn: i64,
        rest: Rest,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        self.inner.held_postpone(key, turn, rest, result).await
    }

    async fn held_mark(
        &self,
        key: StoreKey,
        turn: i64,
        reason: String,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        self.inner.held_mark(key, turn, reason, result).await
    }

    async fn held_list(
        &self,
        prefixes: Option<Vec<String>>,
        after: Option<StoreKey>,
        limit: u32,
    ) -> Result<Vec<MarkedKey>, StoreError> {
        self.inner.held_list(prefixes, after, limit).await
    }

    async fn held_tidy(&self, after: Option<String>, limit: u32) -> Result<Option<String>, StoreError> {
        self.inner.held_tidy(after, limit).await
    }
}
