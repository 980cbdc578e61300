//! The desk of the person on call: what people see of operations and grants, and what they decide
//! about them. Entries one by one are in [`crate::store`].
//!
//! Every change is one atomic step of the store, about a version that was seen, with a line of an
//! audit that only grows. Nothing here is on a request's path, so it has connections of its own.

mod again;
mod audit;
mod erase;
mod free;
mod grant;
mod hold;
mod note;
mod operation;
pub mod postgres;
pub mod sqlite;

pub use again::{Again, AgainOrder};
pub use audit::{AuditFilter, AuditKind, AuditPlace, AuditSeen};
pub use erase::{
    BATCH as ERASE_BATCH, EraseCursor, EraseOrder, Erased, Place as ErasePlace, Whose, marker as erase_marker,
};
pub use free::{FreeDone, FreeOrder, Freed};
pub use grant::{GrantFilter, GrantSeen, GrantState};
pub use hold::{HoldDone, HoldOrder, HoldSeen};
pub use note::{Line, Note, entry_subject, grant_subject, hold_subject, whose_subject};
pub use operation::{
    Ending, OperationFilter, OperationOrder, OperationSeen, OperationSettled, OperationVersion,
    OperationVersionError, settle,
};

use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;

/// A store as the person on call uses it.
#[async_trait]
pub trait Desk: Send + Sync + 'static {
    /// Operations in the order of their ids.
    async fn operations(&self, filter: OperationFilter) -> Result<Vec<OperationSeen>, StoreError>;

    /// One operation.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationSeen>, StoreError>;

    /// What was done about an operation, by recovery and by people, oldest first.
    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError>;

    /// Ends an operation as a person says, and writes it down; both or neither.
    async fn settle_operation(&self, order: OperationOrder) -> Result<OperationSettled, StoreError>;

    /// Grants in the order of their names.
    async fn grants(&self, filter: GrantFilter) -> Result<Vec<GrantSeen>, StoreError>;

    /// Lets one grant be admitted although a hold stands over it, and writes it down.
    async fn release_grant(&self, key: GrantKey, who: String, reason: String) -> Result<(), StoreError>;

    /// Holds, the newest first.
    async fn holds(&self) -> Result<Vec<HoldSeen>, StoreError>;

    /// Begins a hold, and writes it down; both or neither.
    async fn begin_hold(&self, order: HoldOrder) -> Result<HoldDone, StoreError>;

    /// Ends a hold, and writes it down; both or neither. Keys that it has made unknown stay so.
    async fn lift_hold(&self, id: i64, who: String, reason: String) -> Result<HoldDone, StoreError>;

    /// Frees keys that a lifted hold has held and no other holds, in one bounded batch, and writes it
    /// down; both or neither.
    async fn free_held(&self, order: FreeOrder) -> Result<FreeDone, StoreError>;

    /// Has recovery look again for a held key that it has given to a person, and writes it down; both or
    /// neither.
    async fn look_again(&self, order: AgainOrder) -> Result<Again, StoreError>;

    /// Erases answers in one bounded batch, and writes it down; both or neither.
    async fn erase(&self, order: EraseOrder) -> Result<Erased, StoreError>;

    /// The last thousand lines about a subject, oldest first.
    async fn lines(&self, subject: String) -> Result<Vec<Line>, StoreError>;

    /// Lines of every audit in one order, the newest first.
    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditSeen>, StoreError>;

    /// Writes a line that goes with no change.
    async fn note(&self, note: Note) -> Result<(), StoreError>;
}
