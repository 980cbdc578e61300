//! `release`: a token gives up its claim, or says that it never had one.
//!
//! After it the token claims nothing any more, wherever its claim may still be on its way: the
//! caller that gave up on a claim call can't know whether it was granted.

use super::{Dead, Micros, Row, State, Step};
use fencepost_protocol::claims::{Refusal, ReleaseCause, ReleaseReply, ReleaseRequest};
use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest, StoreKey};

/// How long a released token is remembered: longer than any resend of its claim can be under way.
pub const TOMBSTONE_MS: u64 = 10 * 60 * 1_000;

/// A release as the stores take it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// As in the claim.
    pub scheme: Scheme,
    /// As in the claim.
    pub fingerprint: Fingerprint,
    /// As in the claim.
    pub scope: ScopeDigest,
    /// Why.
    pub cause: ReleaseCause,
    /// Only give back the claim whose lease ends exactly here. The service names it when it gives
    /// back a claim for a caller that went away: a resend with the same token may have made the
    /// claim again meanwhile, and then it is in use.
    pub only_lease: Option<Micros>,
}

impl From<ReleaseRequest> for Release {
    fn from(request: ReleaseRequest) -> Self {
        let ReleaseRequest { v: _, key, token, scheme, fingerprint, scope, cause } = request;
        Self { key, token, scheme, fingerprint, scope, cause, only_lease: None }
    }
}

/// Decides about a release.
pub fn release(row: Option<&Row>, release: &Release, now: Micros) -> Step<ReleaseReply> {
    let refused = |reason| Step::keep(ReleaseReply::Refused { reason });
    let live = row.filter(|row| row.live(now));
    if let Some(lease_until) = release.only_lease {
        let same = live.is_some_and(|row| {
            row.token == release.token && matches!(&row.state, State::Claimed(l) if l.until == lease_until)
        });
        if !same {
            return refused(Refusal::Other);
        }
    }
    let Some(row) = live else {
        return Step::put(tombstone(row, release, now), ReleaseReply::Released);
    };
    let own = row.token == release.token;
    match &row.state {
        State::Claimed(_) if own => {
            let row = Row { state: state(release, now), updated_at: now, ..row.clone() };
            Step::put(row, ReleaseReply::Released)
        }
        State::Claimed(_) => {
            let reply = ReleaseReply::Refused { reason: Refusal::HeldByOther };
            remembered(row, release.token, now, reply)
        }
        State::Released { .. } if own => Step::keep(ReleaseReply::AlreadyReleased),
        State::Released { .. } => remembered(row, release.token, now, ReleaseReply::Released),
        State::Completed { .. } => refused(Refusal::Completed),
        State::Unknown { .. } => refused(Refusal::Unknown),
    }
}

/// Another token has the row: ours is remembered beside it.
fn remembered(row: &Row, token: ClaimToken, now: Micros, reply: ReleaseReply) -> Step<ReleaseReply> {
    if row.dead.has(&token) {
        return Step::keep(reply);
    }
    let mut row = Row { updated_at: now, ..row.clone() };
    row.dead.push(token);
    Step::put(row, reply)
}

fn tombstone(old: Option<&Row>, release: &Release, now: Micros) -> Row {
    Row {
        token: release.token,
        fence: old.map_or(now.fence(), |old| old.fence.max(now.fence())),
        scheme: release.scheme.clone(),
        fingerprint: release.fingerprint,
        scope: release.scope,
        dead: old.map_or_else(Dead::default, |old| old.dead.clone()),
        state: state(release, now),
        created_at: now,
        updated_at: now,
    }
}

fn state(release: &Release, now: Micros) -> State {
    State::Released { cause: release.cause, until: now.plus_ms(TOMBSTONE_MS) }
}
