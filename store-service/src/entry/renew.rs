//! `renew`: the holder is alive.

use super::{Lease, Micros, Row, State, Step};
use fencepost_protocol::claims::{Refusal, RenewResult, Renewal};

/// Decides about one renewal. It works after the lease ran out as well, as long as nobody else
/// changed the row: the token is what counts, the lease only says when others may act.
pub fn renew(row: Option<&Row>, renewal: &Renewal, now: Micros) -> Step<RenewResult> {
    let refused = |reason| Step::keep(RenewResult::Refused { reason });
    let Some(row) = row.filter(|row| row.live(now)) else {
        return refused(Refusal::Absent);
    };
    match &row.state {
        State::Claimed(lease) if row.token == renewal.token => {
            let lease = Lease {
                until: now.plus_ms(renewal.claim_ttl_ms.into()),
                run_until: lease.run_until.max(now.plus_ms(renewal.run_ms.into())),
                claim_ttl_ms: renewal.claim_ttl_ms,
                ..*lease
            };
            Step::put(
                Row { state: State::Claimed(lease), updated_at: now, ..row.clone() },
                RenewResult::Renewed,
            )
        }
        State::Claimed(_) => refused(Refusal::HeldByOther),
        State::Completed { .. } => refused(Refusal::Completed),
        State::Unknown { .. } => refused(Refusal::Unknown),
        State::Released { .. } => refused(Refusal::Released),
    }
}
