//! `complete`: the answer is known.
//!
//! An answer is kept whenever that can't hide another one: it counts as true as long as its own
//! token was the last to hold the key, whatever the clock says about the lease.

use super::{Dead, Micros, Row, State, Step};
use bytes::Bytes;
use fencepost_protocol::claims::{CompleteReply, Refusal};
use fencepost_protocol::{ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest, StoreKey};

/// An answer as the stores take it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complete {
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// Fence of the claim.
    pub fence: Fence,
    /// As in the claim.
    pub scheme: Scheme,
    /// As in the claim.
    pub fingerprint: Fingerprint,
    /// As in the claim.
    pub scope: ScopeDigest,
    /// The upstream's status.
    pub status: u16,
    /// Header block.
    pub headers: Bytes,
    /// Body.
    pub body: Bytes,
    /// Lifetime, from now.
    pub ttl_ms: u64,
}

/// Decides about an answer.
pub fn complete(row: Option<&Row>, complete: &Complete, now: Micros) -> Step<CompleteReply> {
    let refused = |reason| Step::keep(CompleteReply::Refused { reason });
    let Some(row) = row.filter(|row| row.live(now)) else {
        return Step::put(onto_absent(row, complete, now), CompleteReply::Stored);
    };
    let own = row.token == complete.token;
    match &row.state {
        State::Claimed(_) | State::Unknown { .. } if own => stored(row, complete, now),
        State::Completed { .. } if own => Step::keep(CompleteReply::AlreadyStored),
        State::Claimed(_) => refused(Refusal::HeldByOther),
        State::Completed { .. } => refused(Refusal::Completed),
        State::Unknown { .. } => refused(Refusal::Unknown),
        State::Released { .. }
            if (&row.scheme, row.fingerprint) == (&complete.scheme, complete.fingerprint) =>
        {
            stored(row, complete, now)
        }
        State::Released { .. } => refused(Refusal::Mismatch),
    }
}

fn stored(row: &Row, complete: &Complete, now: Micros) -> Step<CompleteReply> {
    let row = Row { token: complete.token, state: state(complete, now), updated_at: now, ..row.clone() };
    Step::put(row, CompleteReply::Stored)
}

fn onto_absent(old: Option<&Row>, complete: &Complete, now: Micros) -> Row {
    // A fence beyond the clock was not given out by this database: it must not spend the numbers.
    let told = complete.fence.get().min(now.fence());
    Row {
        token: complete.token,
        fence: old.map_or(told, |old| old.fence.max(told)),
        scheme: complete.scheme.clone(),
        fingerprint: complete.fingerprint,
        scope: complete.scope,
        dead: old.map_or_else(Dead::default, |old| old.dead.clone()),
        state: state(complete, now),
        created_at: now,
        updated_at: now,
    }
}

fn state(complete: &Complete, now: Micros) -> State {
    State::Completed {
        status: complete.status,
        headers: complete.headers.clone(),
        body: complete.body.clone(),
        at: now,
        until: now.plus_ms(complete.ttl_ms),
    }
}
