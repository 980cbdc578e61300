//! What a store of grants decides, and what it says about it.
//!
//! Every decision is one atomic step of the store, by its own clock. What a refused caller is told
//! comes from a read after it, which reports and never decides.

use super::duration::Span;
use super::issuers::Issuers;
use super::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;

pub use super::admission::{Admission, Admitted, Because, KeyReport, report};
pub use super::issued::{Issue, Issued, IssuedRow, Revocation, Revoked};
pub use super::operation::{
    FIRST_OWNER, OperationAnswer, OperationRow, Owned, OwnerCall, OwnerOutcome, lease_of, owner_refusal,
    read_status, status_word,
};
pub use super::pin::{Pin, PinError};

/// May records of use be deleted?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// An admission on this store ends within the bound, and that was seen.
    Verified,
    /// It is not known to; why.
    No(String),
}

/// A store of grants.
#[async_trait]
pub trait GrantStore: Send + Sync + 'static {
    /// Pins what must not change while grants can be admitted; says what differs.
    async fn pin(&self, issuers: &Issuers) -> Result<(), PinError>;

    /// Claims a grant's single use and records its operation.
    async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError>;

    /// A call by an operation's owner.
    async fn own(&self, id: OperationId, version: i32, call: OwnerCall) -> Result<OwnerOutcome, StoreError>;

    /// An operation.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError>;

    /// The answer that was stored with an operation's final outcome.
    async fn answer(&self, id: OperationId) -> Result<Option<OperationAnswer>, StoreError>;

    /// What was done about an operation, by recovery and by people, oldest first.
    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        let _ = id;
        Ok(Vec::new())
    }

    /// Records that a grant was issued.
    async fn issue(&self, issue: Issue) -> Result<Issued, StoreError>;

    /// The row of an issued grant.
    async fn issued(&self, key: GrantKey) -> Result<Option<IssuedRow>, StoreError>;

    /// Withdraws a grant.
    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError>;

    /// Sees whether admissions are bounded; may take as long as the bound.
    async fn check_bound(&self) -> Result<Bounded, StoreError>;

    /// Archives one bounded batch of rows whose deadline is further back than this, used or not; it
    /// takes what they bound and keeps their keys, so no id is ever issued or admitted again.
    async fn archive(&self, after: Span, limit: u32) -> Result<u64, StoreError>;

    /// Deletes one bounded batch of records of use whose grants can't be admitted any more.
    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError>;
}
