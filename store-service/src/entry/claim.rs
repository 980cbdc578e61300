//! `claim`: who may run a request.

use super::{Dead, Lease, Micros, Row, State, Step};
use crate::quota::Over;
use bytes::Bytes;
use fencepost_protocol::claims::{ClaimRequest, OnLost, UnknownCause};
use fencepost_protocol::{ClaimToken, Fingerprint, Scheme, ScopeDigest, StoreKey};

/// A claim as the stores take it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Entry.
    pub key: StoreKey,
    /// Chosen by the caller.
    pub token: ClaimToken,
    /// Rules that made the fingerprint.
    pub scheme: Scheme,
    /// What makes two requests the same.
    pub fingerprint: Fingerprint,
    /// Digest of the caller's scope.
    pub scope: ScopeDigest,
    /// Length of the lease.
    pub claim_ttl_ms: u32,
    /// How long the upstream may run after the lease.
    pub max_run_ms: u32,
    /// What happens when the answer is lost.
    pub on_lost: OnLost,
    /// Lifetime of an unknown outcome.
    pub unknown_ttl_ms: u64,
}

impl From<ClaimRequest> for Claim {
    fn from(request: ClaimRequest) -> Self {
        let ClaimRequest { v: _, key, token, scheme, fingerprint, scope, .. } = request;
        Self {
            key,
            token,
            scheme,
            fingerprint,
            scope,
            claim_ttl_ms: request.claim_ttl_ms,
            max_run_ms: request.max_run_ms,
            on_lost: request.on_lost,
            unknown_ttl_ms: request.unknown_ttl_ms,
        }
    }
}

/// A stored answer with its age.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The upstream's status.
    pub status: u16,
    /// Header block.
    pub headers: Bytes,
    /// Body.
    pub body: Bytes,
    /// Milliseconds since it was stored.
    pub age_ms: u64,
    /// Milliseconds until it expires.
    pub left_ms: u64,
}

/// What became of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimOutcome {
    /// The caller holds the key.
    Claimed {
        /// Fence of the claim.
        fence: i64,
        /// End of the lease as it was just written: who gives the claim back for a caller that
        /// went away names it, so that a claim made again by a resend is not given back.
        lease_until: Micros,
    },
    /// There is an answer.
    Completed(Answer),
    /// Another claim is live.
    InProgress {
        /// Milliseconds until the lease ends.
        lease_left_ms: u64,
    },
    /// Another fingerprint.
    Mismatch,
    /// The answer is lost.
    Unknown {
        /// Why.
        cause: UnknownCause,
        /// Milliseconds until the entry expires.
        left_ms: u64,
    },
    /// Another fingerprint scheme.
    OtherScheme(Scheme),
    /// The token was given back.
    Dead,
    /// The caller has as many claims as it may have. Decided by the service; no store says so.
    OverQuota(Over),
}

/// Decides a claim. `calm_ms` says for how long this instance has been able to hear renewals.
pub fn claim(row: Option<&Row>, claim: &Claim, now: Micros, calm_ms: u64) -> Step<ClaimOutcome> {
    let Some(row) = row else {
        return fresh(None, claim, now);
    };
    if !row.live(now) {
        return fresh(Some(row), claim, now);
    }
    let own = row.token == claim.token;
    match &row.state {
        State::Released { .. } if own => Step::keep(ClaimOutcome::Dead),
        State::Released { .. } => fresh(Some(row), claim, now),
        State::Claimed(lease) if own => again(row, lease, claim, now),
        State::Claimed(lease) => contend(row, lease, claim, now, calm_ms),
        State::Completed { .. } | State::Unknown { .. } => {
            let other = if own { None } else { differs(row, claim) };
            Step::keep(other.unwrap_or_else(|| told(row, now)))
        }
    }
}

/// Would this be a new claim? Not where its own token holds the key: that is the same claim.
pub fn begins_claim(row: Option<&Row>, asked: &Claim, now: Micros, calm_ms: u64) -> bool {
    let is_same = row.is_some_and(|row| row.token == asked.token && matches!(row.state, State::Claimed(_)));
    !is_same && matches!(claim(row, asked, now, calm_ms).reply, ClaimOutcome::Claimed { .. })
}

/// Nobody holds the key: a new claim, with a fence above all earlier ones.
fn fresh(old: Option<&Row>, claim: &Claim, now: Micros) -> Step<ClaimOutcome> {
    let mut dead = Dead::default();
    let mut fence = now.fence();
    if let Some(old) = old {
        dead = old.dead.clone();
        if dead.has(&claim.token) {
            return Step::keep(ClaimOutcome::Dead);
        }
        if matches!(old.state, State::Released { .. } | State::Claimed(_)) && old.token != claim.token {
            dead.push(old.token);
        }
        fence = fence.max(old.fence.saturating_add(1));
    }
    let lease = Lease {
        until: now.plus_ms(claim.claim_ttl_ms.into()),
        run_until: run_until(claim, now),
        on_lost: claim.on_lost,
        claim_ttl_ms: claim.claim_ttl_ms,
        unknown_ttl_ms: claim.unknown_ttl_ms,
    };
    let row = Row {
        token: claim.token,
        fence,
        scheme: claim.scheme.clone(),
        fingerprint: claim.fingerprint,
        scope: claim.scope,
        dead,
        state: State::Claimed(lease),
        created_at: now,
        updated_at: now,
    };
    Step::put(row, ClaimOutcome::Claimed { fence, lease_until: lease.until })
}

/// The holder asks again: the same claim, its lease anew, even when it had run out.
fn again(row: &Row, lease: &Lease, claim: &Claim, now: Micros) -> Step<ClaimOutcome> {
    let mut until = now.plus_ms(claim.claim_ttl_ms.into());
    if until == lease.until {
        // Every claim writes an end of its own, so that a conditional release can tell them apart.
        until = Micros(until.0 + 1);
    }
    let run_until = lease.run_until.max(run_until(claim, now));
    let lease = Lease { until, run_until, claim_ttl_ms: claim.claim_ttl_ms, ..*lease };
    let reply = ClaimOutcome::Claimed { fence: row.fence, lease_until: until };
    Step::put(Row { state: State::Claimed(lease), updated_at: now, ..row.clone() }, reply)
}

/// Another token holds the key.
fn contend(row: &Row, lease: &Lease, claim: &Claim, now: Micros, calm_ms: u64) -> Step<ClaimOutcome> {
    let other = differs(row, claim);
    if !lease.over(now, calm_ms) {
        let lease_left_ms = lease.left_ms(now, calm_ms);
        return Step::keep(other.unwrap_or(ClaimOutcome::InProgress { lease_left_ms }));
    }
    match lease.on_lost {
        OnLost::Hold => {
            let row = lost(row, lease, now);
            let reply = other.unwrap_or_else(|| told(&row, now));
            Step::put(row, reply)
        }
        OnLost::Rerun => match other {
            Some(other) => Step::keep(other),
            None if lease.run_until <= now => fresh(Some(row), claim, now),
            None => Step::keep(ClaimOutcome::InProgress { lease_left_ms: lease.run_until.ms_after(now) }),
        },
    }
}

/// A held claim whose lease ran out: nobody knows its outcome.
pub(super) fn lost(row: &Row, lease: &Lease, now: Micros) -> Row {
    let state =
        State::Unknown { cause: UnknownCause::LeaseExpired, until: now.plus_ms(lease.unknown_ttl_ms) };
    Row { state, updated_at: now, ..row.clone() }
}

fn differs(row: &Row, claim: &Claim) -> Option<ClaimOutcome> {
    if row.scheme != claim.scheme {
        Some(ClaimOutcome::OtherScheme(row.scheme.clone()))
    } else if row.fingerprint != claim.fingerprint {
        Some(ClaimOutcome::Mismatch)
    } else {
        None
    }
}

/// What a live row says to a caller with its fingerprint.
pub(super) fn told(row: &Row, now: Micros) -> ClaimOutcome {
    match &row.state {
        State::Completed { status, headers, body, at, until } => ClaimOutcome::Completed(Answer {
            status: *status,
            headers: headers.clone(),
            body: body.clone(),
            age_ms: u64::try_from(now.0.saturating_sub(at.0)).map_or(0, |us| us / 1_000),
            left_ms: until.ms_after(now),
        }),
        State::Unknown { cause, until } => {
            ClaimOutcome::Unknown { cause: *cause, left_ms: until.ms_after(now) }
        }
        State::Claimed(lease) => ClaimOutcome::InProgress { lease_left_ms: lease.until.ms_after(now) },
        State::Released { .. } => ClaimOutcome::Dead,
    }
}

fn run_until(claim: &Claim, now: Micros) -> Micros {
    now.plus_ms(u64::from(claim.claim_ttl_ms) + u64::from(claim.max_run_ms))
}
