//! Entries: the row of one key and the pure transitions that the state table allows.
//!
//! The transition functions are the executable specification. The memory and SQLite stores apply
//! them; PostgreSQL decides its writes in SQL and is compared with them step by step. They have
//! no clock and no I/O: `now` is the time read by whoever holds the row.

mod claim;
mod complete;
mod held;
mod release;
mod renew;
mod row;
mod settle;
mod sweep;
mod unknown;

pub use claim::{Answer, Claim, ClaimOutcome, begins_claim, claim};
pub use complete::{Complete, complete};
pub use held::{Hold, claim_held};
pub use release::{Release, TOMBSTONE_MS, release};
pub use renew::renew;
pub use row::{Dead, Lease, Micros, Row, State};
pub use settle::{Ruling, Settle, SettleReply, Version, VersionError, settle};
pub use sweep::{SweepKind, sweep};
pub use unknown::unknown;

/// What a transition does to the row of its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing: the row stays as it is, or stays absent.
    Keep,
    /// The row becomes this one.
    Put(Box<Row>),
    /// The row goes away. Only the sweeper does that.
    Drop,
}

impl Change {
    fn put(row: Row) -> Self {
        Self::Put(Box::new(row))
    }
}

/// One transition: its effect on the row and the answer to the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<R> {
    /// Effect.
    pub change: Change,
    /// Answer.
    pub reply: R,
}

impl<R> Step<R> {
    fn keep(reply: R) -> Self {
        Self { change: Change::Keep, reply }
    }

    fn put(row: Row, reply: R) -> Self {
        Self { change: Change::put(row), reply }
    }
}

#[cfg(test)]
mod table;
