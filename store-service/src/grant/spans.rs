//! Spans of a grant store's operations, in the trace of the call that they serve.
//!
//! Around the store, not in it: no operation is left out, whichever store decides it. On PostgreSQL
//! its statements stand below.

use super::duration::Span;
use super::issuers::Issuers;
use super::operation::{OperationAnswer, OperationRow, OwnerCall, OwnerOutcome};
use super::store::{
    Admission, Admitted, Bounded, GrantStore, Issue, Issued, IssuedRow, PinError, Revocation, Revoked,
};
use super::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use crate::trace;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;
use std::sync::Arc;
use tracing::Instrument;

/// A store whose operations are seen in traces.
pub struct Spanned {
    store: Arc<dyn GrantStore>,
    /// What kind of store it is, as traces name it.
    system: &'static str,
}

impl Spanned {
    /// Around a store.
    pub fn around(store: Arc<dyn GrantStore>, system: &'static str) -> Self {
        Self { store, system }
    }

    fn span(&self, name: &'static str) -> tracing::Span {
        trace::operation(name, self.system)
    }
}

fn owner_call(call: &OwnerCall) -> &'static str {
    match call {
        OwnerCall::MaySubmit { .. } => "operation_may_submit",
        OwnerCall::Record { .. } => "operation_record",
        OwnerCall::Finish { .. } => "operation_finish",
        OwnerCall::Renew { .. } => "operation_renew",
        OwnerCall::TakeOver { .. } => "operation_take_over",
    }
}

#[async_trait]
impl GrantStore for Spanned {
    async fn pin(&self, issuers: &Issuers) -> Result<(), PinError> {
        self.store.pin(issuers).instrument(self.span("grant_pin")).await
    }

    async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError> {
        self.store.admit(admission).instrument(self.span("grant_admit")).await
    }

    async fn own(&self, id: OperationId, version: i32, call: OwnerCall) -> Result<OwnerOutcome, StoreError> {
        let span = self.span(owner_call(&call));
        self.store.own(id, version, call).instrument(span).await
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError> {
        self.store.operation(id).instrument(self.span("operation_status")).await
    }

    async fn answer(&self, id: OperationId) -> Result<Option<OperationAnswer>, StoreError> {
        self.store.answer(id).instrument(self.span("operation_answer")).await
    }

    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        self.store.history(id).instrument(self.span("operation_history")).await
    }

    async fn issue(&self, issue: Issue) -> Result<Issued, StoreError> {
        self.store.issue(issue).instrument(self.span("grant_issue")).await
    }

    async fn issued(&self, key: GrantKey) -> Result<Option<IssuedRow>, StoreError> {
        self.store.issued(key).instrument(self.span("grant_issued")).await
    }

    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError> {
        self.store.revoke(revocation).instrument(self.span("grant_revoke")).await
    }

    async fn check_bound(&self) -> Result<Bounded, StoreError> {
        self.store.check_bound().instrument(self.span("bound_check")).await
    }

    async fn archive(&self, after: Span, limit: u32) -> Result<u64, StoreError> {
        self.store.archive(after, limit).instrument(self.span("grant_archive")).await
    }

    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError> {
        self.store.cleanup(limit).instrument(self.span("grant_cleanup")).await
    }
}
