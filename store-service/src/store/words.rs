//! Words for enums in a column: the same that the protocol writes.
//!
//! A word that this version does not know reads as `Other`, so that an older instance can work
//! beside a newer one.

use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause};

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
pub fn unknown_cause(cause: UnknownCause) -> &'static str {
    match cause {
        UnknownCause::LeaseExpired => "lease_expired",
        UnknownCause::Timeout => "timeout",
        UnknownCause::Reset => "reset",
        UnknownCause::ClientGone => "client_gone",
        UnknownCause::AnswerLost => "answer_lost",
        UnknownCause::ProxyReply => "proxy_reply",
        UnknownCause::Other => "other",
    }
}

/// Reads it back.
pub fn read_unknown_cause(word: &str) -> UnknownCause {
    match word {
        "lease_expired" => UnknownCause::LeaseExpired,
        "timeout" => UnknownCause::Timeout,
        "reset" => UnknownCause::Reset,
        "client_gone" => UnknownCause::ClientGone,
        "answer_lost" => UnknownCause::AnswerLost,
        "proxy_reply" => UnknownCause::ProxyReply,
        _ => UnknownCause::Other,
    }
}

/// The column's word for the cause of a release.
pub fn release_cause(cause: ReleaseCause) -> &'static str {
    match cause {
        ReleaseCause::NotRun => "not_run",
        ReleaseCause::StatusNotStored => "status_not_stored",
        ReleaseCause::ClientGone => "client_gone",
        ReleaseCause::TooLate => "too_late",
        ReleaseCause::CallFailed => "call_failed",
        ReleaseCause::Other => "other",
    }
}

/// Reads it back.
pub fn read_release_cause(word: &str) -> ReleaseCause {
    match word {
        "not_run" => ReleaseCause::NotRun,
        "status_not_stored" => ReleaseCause::StatusNotStored,
        "client_gone" => ReleaseCause::ClientGone,
        "too_late" => ReleaseCause::TooLate,
        "call_failed" => ReleaseCause::CallFailed,
        _ => ReleaseCause::Other,
    }
}
