//! Entries as people see them.

use super::words;
use crate::entry::{Micros, Row, State, Version};
use crate::seal;
use fencepost_protocol::{ScopeDigest, StoreKey};

/// One live entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its key.
    pub key: StoreKey,
    /// Its row; the answer in it is empty where it was not asked for.
    pub row: Row,
    /// Bytes of the answer's header block.
    pub headers_len: u64,
    /// Bytes of the answer's body.
    pub body_len: u64,
    /// In a list: does a hold that stands keep its key from running?
    pub held: Option<bool>,
    /// The store's clock when it was read.
    pub now: Micros,
}

impl Entry {
    /// Of a whole row.
    pub fn of(key: StoreKey, mut row: Row, answer: bool, now: Micros) -> Self {
        let (mut headers_len, mut body_len) = (0, 0);
        if let State::Completed { headers, body, .. } = &mut row.state {
            (headers_len, body_len) = (seal::headers_len(headers) as u64, body.len() as u64);
            if !answer {
                headers.clear();
                body.clear();
            }
        }
        Self { key, row, headers_len, body_len, held: None, now }
    }
}

/// Which entries.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only in this state, by its name.
    pub state: Option<StateName>,
    /// Only under these prefixes.
    pub prefixes: Option<Vec<String>>,
    /// Only of this caller.
    pub scope: Option<ScopeDigest>,
    /// Only unknown or released for this cause, by its word.
    pub cause: Option<String>,
    /// Only held by a hold that stands, or only not.
    pub held: Option<bool>,
    /// Claimed at least so many milliseconds ago.
    pub older_than_ms: Option<u64>,
    /// Only keys behind this one, in the order of their bytes.
    pub after: Option<StoreKey>,
    /// At most so many.
    pub limit: u32,
}

/// Name of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum StateName {
    /// A request holds the key.
    Claimed,
    /// There is an answer.
    Completed,
    /// Nobody knows whether the work was done.
    Unknown,
    /// The key is free; the last token is remembered.
    Released,
}

impl StateName {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Claimed, Self::Completed, Self::Unknown, Self::Released];

    /// Of a row.
    pub fn of(state: &State) -> Self {
        match state {
            State::Claimed(_) => Self::Claimed,
            State::Completed { .. } => Self::Completed,
            State::Unknown { .. } => Self::Unknown,
            State::Released { .. } => Self::Released,
        }
    }

    /// The column's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Unknown => "unknown",
            Self::Released => "released",
        }
    }
}

impl Filter {
    /// The last moment at which an entry may have been claimed.
    pub fn claimed_by(&self, now: Micros) -> Option<Micros> {
        let us = |ms| i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        self.older_than_ms.map(|ms| Micros(now.0.saturating_sub(us(ms))))
    }

    /// Does it let this entry through?
    pub fn lets(&self, key: &StoreKey, row: &Row, now: Micros) -> bool {
        self.state.is_none_or(|state| state == StateName::of(&row.state))
            && self.prefixes.as_ref().is_none_or(|some| some.iter().any(|prefix| prefix == key.prefix()))
            && self.scope.is_none_or(|scope| scope == row.scope)
            && self.cause.as_ref().is_none_or(|cause| words::cause(&row.state).as_ref() == Some(cause))
            && self.claimed_by(now).is_none_or(|by| row.created_at <= by)
            && self.after.as_ref().is_none_or(|after| key > after)
    }
}

/// One line of the audit: what a person did to an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    /// When.
    pub at: Micros,
    /// Name of the person's token.
    pub who: String,
    /// What.
    pub action: String,
    /// To which version.
    pub version: Version,
    /// The state that it was in.
    pub state_before: String,
    /// The state that it is in since.
    pub state_after: String,
    /// Was it done although the request may have been running?
    pub forced: bool,
    /// Why.
    pub reason: String,
}
