//! Words for enums in a column: the same that the protocol writes.
//!
//! A word that this version does not know reads as `Other`, so that an older instance can work
//! beside a newer one.

use crate::entry::State;
use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

/// The column's word for what happens to a lost answer.
pub fn on_lost(on_lost: OnLost) -> &'static str {
    match on_lost {
        OnLost::Hold => "hold",
        OnLost::Rerun => "rerun",
    }
}

/// Reads it back; anything else than `rerun` is the careful choice.
pub fn read_on_lost(word: &str) -> OnLost {
    if word == "rerun" { OnLost::Rerun } else { OnLost::Hold }
}

/// The column's word for the cause of an unknown outcome.
pub fn unknown_cause(cause: UnknownCause) -> String {
    word(cause)
}

/// Reads it back.
pub fn read_unknown_cause(word: &str) -> UnknownCause {
    read(word).unwrap_or(UnknownCause::Other)
}

/// The column's word for the cause of a release.
pub fn release_cause(cause: ReleaseCause) -> String {
    word(cause)
}

/// Reads it back.
pub fn read_release_cause(word: &str) -> ReleaseCause {
    read(word).unwrap_or(ReleaseCause::Other)
}

/// The word of a state's cause, where it has one.
pub fn cause(state: &State) -> Option<String> {
    match state {
        State::Unknown { cause, .. } => Some(unknown_cause(*cause)),
        State::Released { cause, .. } => Some(release_cause(*cause)),
        State::Claimed(_) | State::Completed { .. } => None,
    }
}

/// Is it the word of a cause?
pub fn is_cause(word: &str) -> bool {
    read::<UnknownCause>(word).is_some() || read::<ReleaseCause>(word).is_some()
}

fn word(cause: impl Serialize) -> String {
    match serde_json::to_value(cause) {
        Ok(serde_json::Value::String(word)) => word,
        // Cannot fail: the protocol writes these enums as strings.
        _ => "other".into(),
    }
}

fn read<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(word)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_unknown_ones_are_other() {
        for cause in [UnknownCause::LeaseExpired, UnknownCause::ProxyReply, UnknownCause::Other] {
            assert_eq!(read_unknown_cause(&unknown_cause(cause)), cause);
        }
        for cause in [ReleaseCause::NotRun, ReleaseCause::CallFailed, ReleaseCause::Other] {
            assert_eq!(read_release_cause(&release_cause(cause)), cause);
        }
        assert_eq!(unknown_cause(UnknownCause::LeaseExpired), "lease_expired");
        assert_eq!(read_unknown_cause("from_the_future"), UnknownCause::Other);
        assert_eq!(read_release_cause("from_the_future"), ReleaseCause::Other);
    }
}
