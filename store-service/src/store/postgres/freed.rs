//! The result of an operation that may have freed callers of other instances.

use super::batch::Told;
use super::row::Seen;
use crate::entry::{Change, Step};

/// A result, and whether callers of other instances wait for what it changed.
pub struct Freed<R> {
    /// The result.
    pub reply: R,
    /// Are they to be told?
    pub waited: bool,
}

impl<R> Freed<R> {
    /// Nobody is to be told.
    pub fn nobody(reply: R) -> Self {
        Self { reply, waited: false }
    }

    /// The result of a row that was written.
    pub fn told(reply: R, seen: &Seen) -> Told<Self> {
        Told::Done(Self { reply, waited: seen.wrote && seen.waited })
    }

    /// The answer of a transition that changes nothing; one that would have changed the row was not
    /// applied because the row changed meanwhile.
    pub fn unchanged(step: Step<R>) -> Told<Self> {
        match step.change {
            Change::Keep => Told::Done(Self::nobody(step.reply)),
            Change::Put(_) | Change::Drop => Told::Again,
        }
    }
}
