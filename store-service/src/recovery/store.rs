//! What recovery writes. Each call is one atomic step of the store, by its own clock, and applies
//! only for the owner's version, or the turn, that it names.

use crate::entry::{Micros, Version};
use crate::grant::duration::Span;
use crate::grant::operation::OperationAnswer;
use crate::grant::store::{OperationRow, Owned, OwnerOutcome};
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::grants::{OperationId, OperationStatus};
use fencepost_protocol::{ScopeDigest, StoreKey};

/// Which stalled operations are taken over, and for how long.
#[derive(Clone, Debug)]
pub struct TakeOver {
    /// Only of these issuers; `None`: of any.
    pub issuers: Option<Vec<String>>,
    /// Only those that were admitted longer ago than this.
    pub older_than: Option<Span>,
    /// The new lease.
    pub lease: Span,
    /// At most so many.
    pub limit: u32,
    /// Who, and why, for the history.
    pub note: Note,
}

/// What the history says about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Who does it.
    pub actor: String,
    /// What was known before it, as one word.
    pub result: String,
    /// For people.
    pub detail: String,
}

/// An operation that recovery owns now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The operation, with the new owner's version.
    pub row: OperationRow,
    /// Look-ups before that settled nothing.
    pub attempts: u32,
    /// Milliseconds since its admission.
    pub age_ms: u64,
}

/// An operation, and the version of the owner that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The operation.
    pub id: OperationId,
    /// The version.
    pub version: i32,
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepName {
    /// The effect is looked up.
    LookUp,
    /// The request is sent again.
    Submit,
}

impl StepName {
    /// Word of the history and of metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::LookUp => "look_up",
            Self::Submit => "submit",
        }
    }
}

/// Did a call by an owner, or in a turn, apply?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied<T> {
    /// It did.
    Yes(T),
    /// Somebody else owns it by now, or it has ended; nothing changed.
    Lost,
}

/// How an operation went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The status that it is expected to have.
    pub expected: OperationStatus,
    /// The status that it gets.
    pub outcome: OperationStatus,
    /// Recorded with it.
    pub reference: Option<String>,
    /// What a repeated call is answered; only with a final status.
    pub answer: Option<OperationAnswer>,
}

/// A rest before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// How long.
    pub span: Span,
    /// Does this attempt count towards the highest number?
    pub counted: bool,
}

/// A held key that recovery has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKey {
    /// The stored key.
    pub key: StoreKey,
    /// Version of its entry.
    pub version: Version,
    /// Digest of its caller's scope.
    pub scope: ScopeDigest,
    /// This taking.
    pub turn: i64,
    /// Look-ups before that settled nothing.
    pub attempts: u32,
    /// Milliseconds since its outcome became unknown.
    pub age_ms: u64,
}

/// A held key that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkedKey {
    /// The stored key.
    pub key: StoreKey,
    /// Version of its entry, for an order about it.
    pub version: Version,
    /// Look-ups that were made.
    pub attempts: u32,
    /// What the last one found, as one word.
    pub result: String,
    /// Why a person is needed.
    pub reason: String,
    /// Since when.
    pub marked_at: Micros,
    /// The instance that looked.
    pub by: String,
}

/// How much waits, each counted up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Open operations whose lease is over.
    pub stalled: u64,
    /// Operations that wait for a person.
    pub needs_reconciliation: u64,
    /// Held keys that wait for a person.
    pub marked_keys: u64,
}

/// A store of what recovery does.
#[async_trait]
pub trait RecoveryStore: Send + Sync + 'static {
    /// Takes stalled operations over. Of several instances, one has each.
    async fn take_over(&self, take: TakeOver) -> Result<Vec<Taken>, StoreError>;

    /// Renews the lease right before a step, and notes the step.
    async fn step(
        &self,
        owner: Owner,
        step: StepName,
        lease: Span,
        note: Note,
    ) -> Result<Applied<Owned>, StoreError>;

    /// May anything be sent now?
    async fn may_submit(&self, owner: Owner, expected: OperationStatus) -> Result<OwnerOutcome, StoreError>;

    /// Records how it went. Never over an end.
    async fn record(&self, owner: Owner, ending: Ending, note: Note) -> Result<Applied<()>, StoreError>;

    /// Nothing is settled: comes back later.
    async fn postpone(&self, owner: Owner, rest: Rest, note: Note) -> Result<Applied<()>, StoreError>;

    /// How much waits, each counted up to `max`.
    async fn backlog(&self, max: u32) -> Result<Backlog, StoreError>;

    /// Takes held keys under these prefixes.
    async fn held_take(
        &self,
        prefixes: Vec<String>,
        lease: Span,
        actor: String,
        limit: u32,
    ) -> Result<Vec<HeldKey>, StoreError>;

    /// Nothing is known about a held key: comes back later.
    async fn held_postpone(
        &self,
        key: StoreKey,
        turn: i64,
        rest: Rest,
        result: String,
    ) -> Result<Applied<()>, StoreError>;

    /// A held key is for a person from now on.
    async fn held_mark(
        &self,
        key: StoreKey,
        turn: i64,
        reason: String,
        result: String,
    ) -> Result<Applied<()>, StoreError>;

    /// Held keys that wait for a person, in the order of their keys, behind `after`.
    async fn held_list(
        &self,
        prefixes: Option<Vec<String>>,
        after: Option<StoreKey>,
        limit: u32,
    ) -> Result<Vec<MarkedKey>, StoreError>;

    /// Forgets held keys that are held no more, in one bounded batch behind `after`; where the next
    /// batch begins, `None` at the end.
    async fn held_tidy(&self, after: Option<String>, limit: u32) -> Result<Option<String>, StoreError>;
}
