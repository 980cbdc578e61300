//! The boundary before a store of grants: answers of operations.

use super::{Seal, Subject};
use crate::grant::duration::Span;
use crate::grant::issuers::Issuers;
use crate::grant::store::{
    Admission, Admitted, Bounded, GrantStore, Issue, Issued, IssuedRow, OperationAnswer, OperationRow,
    OwnerCall, OwnerOutcome, PinError, Revocation, Revoked,
};
use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;
use std::sync::Arc;

/// Grants whose operations' answers are sealed.
pub struct SealedGrants {
    pub(super) seal: Arc<Seal>,
    pub(super) inner: Arc<dyn GrantStore>,
}

impl Seal {
    /// Seals the answer of an operation.
    pub(super) fn close_operation(
        &self,
        id: &OperationId,
        answer: Option<&mut OperationAnswer>,
    ) -> Result<(), StoreError> {
        let Some(OperationAnswer { status, headers, body }) = answer else { return Ok(()) };
        self.close(Subject::Operation { id, status: *status }, headers, body)
    }
}

#[async_trait]
impl GrantStore for SealedGrants {
    async fn pin(&self, issuers: &Issuers) -> Result<(), PinError> {
        self.inner.pin(issuers).await
    }

    async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError> {
        self.inner.admit(admission).await
    }

    async fn own(
        &self,
        id: OperationId,
        version: i32,
        mut call: OwnerCall,
    ) -> Result<OwnerOutcome, StoreError> {
        match &mut call {
            OwnerCall::Finish { answer, .. } => self.seal.close_operation(&id, answer.as_mut())?,
            OwnerCall::MaySubmit { .. }
            | OwnerCall::Record { .. }
            | OwnerCall::Renew { .. }
            | OwnerCall::TakeOver { .. } => {}
        }
        self.inner.own(id, version, call).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError> {
        self.inner.operation(id).await
    }

    async fn answer(&self, id: OperationId) -> Result<Option<OperationAnswer>, StoreError> {
        let mut answer = self.inner.answer(id.clone()).await?;
        if let Some(OperationAnswer { status, headers, body }) = &mut answer {
            self.seal.open(Subject::Operation { id: &id, status: *status }, headers, body)?;
        }
        Ok(answer)
    }

    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        self.inner.history(id).await
    }

    async fn issue(&self, issue: Issue) -> Result<Issued, StoreError> {
        self.inner.issue(issue).await
    }

    async fn issued(&self, key: GrantKey) -> Result<Option<IssuedRow>, StoreError> {
        self.inner.issued(key).await
    }

    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError> {
        self.inner.revoke(revocation).await
    }

    async fn check_bound(&self) -> Result<Bounded, StoreError> {
        self.inner.check_bound().await
    }

    async fn archive(&self, after: Span, limit: u32) -> Result<u64, StoreError> {
        self.inner.archive(after, limit).await
    }

    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError> {
        self.inner.cleanup(limit).await
    }
}
