//! What this instance has told callers a moment ago: replays, mismatches, lost answers.
//!
//! Stores write nothing when they replay, so only the instance that was asked knows. It remembers
//! the last [`KEPT`] of them, in memory, for people who look; other instances have their own.

use fencepost_protocol::StoreKey;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many are remembered: some kilobytes.
pub const KEPT: usize = 500;

/// What was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A stored answer.
    Replayed,
    /// The key belongs to another request.
    Mismatch,
    /// Nobody knows what became of the request.
    Unknown,
    /// An answer was not stored: its claim had been lost.
    Lost,
}

impl Told {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Replayed, Self::Mismatch, Self::Unknown, Self::Lost];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Mismatch => "mismatch",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
        }
    }
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When, by this machine's clock, in microseconds since 1970.
    pub at_us: i64,
    /// About which key.
    pub key: StoreKey,
    /// What.
    pub told: Told,
}

/// The last of them, oldest first.
#[derive(Default)]
pub struct Recent(Mutex<VecDeque<Event>>);

impl Recent {
    /// Remembers one.
    pub fn note(&self, key: &StoreKey, told: Told) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() == KEPT {
            events.pop_front();
        }
        events.push_back(Event { at_us, key: key.clone(), told });
    }

    /// The newest first, as many as fit.
    pub fn last(&self, count: usize, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().rev().filter(|event| fits(event)).take(count).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_are_remembered() {
        let recent = Recent::default();
        for number in 0..=KEPT {
            let mut digest = [0; 16];
            digest[..2].copy_from_slice(&u16::try_from(number).unwrap().to_be_bytes());
            recent.note(&StoreKey::new("t", &digest).unwrap(), Told::Replayed);
        }
        let all = recent.last(usize::MAX, |_| true);
        assert_eq!(all.len(), KEPT);
        assert!(all[0].key.as_str().contains("01f4") && all[KEPT - 1].key.as_str().contains("0001"));
        assert!(recent.last(9, |event| event.told == Told::Lost).is_empty());
    }
}
