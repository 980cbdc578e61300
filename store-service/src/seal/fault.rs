//! Why an answer could not be sealed or opened, and the telling of it.

use super::KeyId;
use crate::store::StoreError;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the log tells of it; the counter counts every one.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How long a fault is warned of: longer than an alert takes to bring somebody to look.
const WARN_FOR: Duration = Duration::from_secs(3_600);

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
    /// Neither an open answer nor an envelope that this version knows.
    #[error(
        "a stored answer was altered at its beginning, or is sealed in a form that this version does not know"
    )]
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

/// Counts faults, and tells of them now and then.
#[derive(Default)]
pub struct Faults {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    logged: Option<Instant>,
    count: u64,
    last: Option<(Instant, SealFault)>,
}

impl Faults {
    /// The store's error for it.
    pub fn told(&self, fault: SealFault) -> StoreError {
        metrics::counter!("fencepost_seal_failures_total", "cause" => fault.cause()).increment(1);
        if self.note(&fault, Instant::now()) {
            tracing::error!(%fault, "an answer was refused; more within a minute are only counted");
        }
        StoreError::Sealed(fault)
    }

    /// What was seen lately, in a sentence.
    pub fn warning(&self, now: Instant) -> Option<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (then, fault) = seen.last.as_ref()?;
        let ago = now.saturating_duration_since(*then);
        (ago < WARN_FOR).then(|| {
            format!(
                "{} answers could not be sealed or opened since the start, the last one {} s ago ({fault}): see \
                 \"Stored answers do not open\" in docs/runbook.md",
                seen.count,
                ago.as_secs()
            )
        })
    }

    /// Takes note of a fault; whether it is to be logged.
    fn note(&self, fault: &SealFault, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.count += 1;
        seen.last = Some((now, fault.clone()));
        let due = seen.logged.is_none_or(|then| now.saturating_duration_since(then) >= LOG_EVERY);
        if due {
            seen.logged = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_logged_once_a_minute_and_warned_of_for_an_hour() {
        let faults = Faults::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(faults.warning(at(0)), None);
        let due = [0, 1, 59, 60, 61, 119, 120].map(|s| faults.note(&SealFault::NoKeys, at(s)));
        assert_eq!(due, [true, false, false, true, false, false, true]);
        faults.note(&SealFault::UnknownKey("k1".parse().unwrap()), at(121));
        let said = faults.warning(at(130)).unwrap();
        assert!(said.contains("8 answers") && said.contains("9 s ago") && said.contains("key k1"), "{said}");
        assert!(faults.warning(at(121 + 3_599)).is_some());
        assert_eq!(faults.warning(at(121 + 3_600)), None);
    }
}
