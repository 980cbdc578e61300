//! Why an answer could not be sealed or opened, and the telling of it.

use super::KeyId;
use crate::store::StoreError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the log tells of it; the counter counts every one.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Why an answer could not be sealed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    /// There are no keys.
    #[error("a stored answer is sealed, and the service has no --seal-keys")]
    NoKeys,
    /// The key is not among them.
    #[error("a stored answer is sealed with key {0}, which is not in --seal-keys")]
    UnknownKey(KeyId),
    /// It is not what was sealed for this row, or another key has this id.
    #[error(
        "a stored answer does not open with key {0}: it was altered or moved, or another key has this id"
    )]
    Altered(KeyId),
    /// An envelope that this version does not know.
    #[error("a stored answer is sealed in a form that this version does not know")]
    Form,
    /// Nothing could be sealed.
    #[error("an answer could not be sealed: no random numbers from the system")]
    Random,
}

impl SealFault {
    /// Label of the counter.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::NoKeys => "no_keys",
            Self::UnknownKey(_) => "unknown_key",
            Self::Altered(_) => "altered",
            Self::Form => "form",
            Self::Random => "random",
        }
    }

    /// All labels.
    pub const CAUSES: [&'static str; 5] = ["no_keys", "unknown_key", "altered", "form", "random"];
}

/// Counts faults, and logs one of them now and then.
#[derive(Default)]
pub struct Faults {
    logged: Mutex<Option<Instant>>,
}

impl Faults {
    /// The store's error for it.
    pub fn told(&self, fault: SealFault) -> StoreError {
        metrics::counter!("fencepost_seal_failures_total", "cause" => fault.cause()).increment(1);
        if self.is_due(Instant::now()) {
            tracing::error!(%fault, "an answer was refused; more within a minute are only counted");
        }
        StoreError::Sealed(fault)
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let due = logged.is_none_or(|then| now.saturating_duration_since(then) >= LOG_EVERY);
        if due {
            *logged = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_logged_once_a_minute() {
        let faults = Faults::default();
        let start = Instant::now();
        let due = [0, 1, 59, 60, 61, 119, 120].map(|s| faults.is_due(start + Duration::from_secs(s)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }
}
