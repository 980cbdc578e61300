//! Claims while a hold stands: after a restored backup, what was done since the backup is forgotten,
//! so a key without an answer may be one whose request ran.
//!
//! Nothing is granted that a lost row might forbid: the key becomes unknown instead, and waits for a
//! person or for the end of the hold. What the rows that are there say, they say as ever: answers
//! are replayed, other payloads are told apart, a holder that asks again has its claim.

use super::claim::{lost, told};
use super::{Change, Claim, ClaimOutcome, Micros, Row, State, Step, claim};
use fencepost_protocol::claims::UnknownCause;

/// What a hold says about one key that no person has spoken for since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Claims that began by then are not run again.
    pub since: Micros,
    /// Until when keys without an answer are held; none: they are not.
    pub keys_until: Option<Micros>,
}

/// Decides a claim while `hold` stands.
pub fn claim_held(
    row: Option<&Row>,
    claim: &Claim,
    now: Micros,
    calm_ms: u64,
    hold: Hold,
) -> Step<ClaimOutcome> {
    let step = self::claim(row, claim, now, calm_ms);
    let Change::Put(new) = &step.change else { return step };
    if !matches!(new.state, State::Claimed(_)) {
        return step;
    }
    let until = hold.keys_until.filter(|until| *until > now);
    match row.filter(|row| row.live(now)).map(|row| (row, &row.state)) {
        // The holder itself.
        Some((row, State::Claimed(_))) if row.token == claim.token => step,
        // A take-over: nobody runs again what may have been answered in the meantime.
        Some((row, State::Claimed(lease))) if until.is_some() || row.created_at <= hold.since => {
            let row = lost(row, lease, now);
            let reply = told(&row, now);
            Step::put(row, reply)
        }
        _ => match until {
            None => step,
            Some(until) => {
                let fence = row.map_or(new.fence, |row| row.fence);
                let dead = row.map(|row| row.dead.clone()).unwrap_or_default();
                let state = State::Unknown { cause: UnknownCause::Held, until };
                let row = Row { state, fence, dead, ..(**new).clone() };
                let reply = told(&row, now);
                Step::put(row, reply)
            }
        },
    }
}
