//! Holds: after a restored backup, what may have been done in the lost window.
//!
//! The service can't know which keys and grants were used since the backup: their rows are gone. A
//! hold makes it refuse whatever such a row might forbid, until a person speaks for the key or the
//! grant, or the hold ends.

use crate::entry::Micros;

/// A hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldSeen {
    /// Its number.
    pub id: i64,
    /// Keys with this prefix; none: all keys.
    pub prefix: Option<String>,
    /// Claims that began by then are not run again, grants issued by then not admitted.
    pub since: Micros,
    /// Until when keys without an answer are held; none: they are not.
    pub keys_until: Option<Micros>,
    /// Are grants held?
    pub grants: bool,
    /// When it began.
    pub began_at: Micros,
    /// Who began it.
    pub began_by: String,
    /// Why.
    pub reason: String,
    /// When it was lifted.
    pub lifted_at: Option<Micros>,
    /// The store's clock when it was read.
    pub now: Micros,
}

/// Begins a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HoldOrder {
    /// Keys with this prefix; none: all keys.
    pub prefix: Option<String>,
    /// Up to when work may have been forgotten; none: now.
    pub since: Option<Micros>,
    /// For how long keys without an answer are held, in milliseconds; none: they are not.
    pub keys_for_ms: Option<u64>,
    /// Hold grants?
    pub grants: bool,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What became of an order about a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HoldDone {
    /// It is in force.
    Begun(HoldSeen),
    /// It ended.
    Lifted(HoldSeen),
    /// `since` is ahead of the store's clock.
    Ahead,
    /// There is no such hold, or it was lifted before.
    Absent,
}
