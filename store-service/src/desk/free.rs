//! Freeing what a hold has held, once it is lifted.
//!
//! A key that a hold made unknown does not say which hold that was, and several may stand. So a key is
//! freed only where no hold that still stands would hold it: lifting one says nothing about another.

use fencepost_protocol::StoreKey;

/// Most keys without an outcome that one batch looks at.
pub const BATCH: u32 = 1_000;

/// One bounded batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreeOrder {
    /// The lifted hold.
    pub hold: i64,
    /// Only keys behind this one.
    pub after: Option<StoreKey>,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What a batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Freed {
    /// Keys that may run again.
    pub freed: u64,
    /// Keys that stay held: by another hold, or because they changed meanwhile.
    pub kept: u64,
    /// Where to go on; none: this was the end.
    pub next: Option<StoreKey>,
}

/// What became of an order to free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FreeDone {
    /// A batch was looked through.
    Done(Freed),
    /// The hold stands: it is lifted first.
    Standing,
    /// There is no such hold.
    Absent,
}
