//! `unknown`: the holder can't tell whether the upstream did the work.

use super::{Lease, Micros, Row, State, Step};
use fencepost_protocol::claims::{OnLost, Refusal, UnknownReply, UnknownRequest};

/// Decides about an unknown outcome. Under `rerun` the claim stays, with its lease over, until
/// the upstream has certainly stopped: then an equal request takes it over.
pub fn unknown(row: Option<&Row>, request: &UnknownRequest, now: Micros) -> Step<UnknownReply> {
    let refused = |reason| Step::keep(UnknownReply::Refused { reason });
    let Some(row) = row.filter(|row| row.live(now)) else {
        return refused(Refusal::Absent);
    };
    let own = row.token == request.token;
    match &row.state {
        State::Claimed(lease) if own => {
            let state = match lease.on_lost {
                OnLost::Hold => {
                    State::Unknown { cause: request.cause, until: now.plus_ms(lease.unknown_ttl_ms) }
                }
                OnLost::Rerun => State::Claimed(Lease { until: now, ..*lease }),
            };
            Step::put(Row { state, updated_at: now, ..row.clone() }, UnknownReply::Marked)
        }
        State::Claimed(_) => refused(Refusal::HeldByOther),
        State::Unknown { .. } if own => Step::keep(UnknownReply::AlreadyMarked),
        State::Unknown { .. } => refused(Refusal::Unknown),
        State::Completed { .. } => refused(Refusal::Completed),
        State::Released { .. } => refused(Refusal::Released),
    }
}
