//! The row of one key.
//!
//! Invariants: a claim has no end of its own (it ends by a transition, never by time alone); every
//! other state has one, and a row past its end counts as absent. The fence of a key never falls.

use bytes::Bytes;
use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause};
use fencepost_protocol::{ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest};

/// Microseconds since 1970, by the clock of the store that decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Micros(pub i64);

impl Micros {
    /// This many milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Self {
        let us = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        Self(self.0.saturating_add(us))
    }

    /// Milliseconds from `now` until here, rounded up; zero when past.
    pub fn ms_after(self, now: Micros) -> u64 {
        u64::try_from(self.0.saturating_sub(now.0)).map_or(0, |us| us.div_ceil(1_000))
    }

    /// As a fence, within the range that a fence has.
    pub fn fence(self) -> i64 {
        self.0.clamp(1, Fence::MAX)
    }
}

/// Tokens that were given back or lost their claim; they claim nothing any more.
///
/// Only the last [`Dead::MAX`] are kept: a token matters as long as a resend of its claim may
/// still be on its way, and each of these needed a claim or a release of its own after it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dead(Vec<ClaimToken>);

impl Dead {
    /// Most tokens that one row remembers.
    pub const MAX: usize = 8;

    /// From tokens in order of age, oldest first; the oldest beyond the limit are dropped.
    pub fn new(tokens: impl IntoIterator<Item = ClaimToken>) -> Self {
        let mut dead = Self::default();
        tokens.into_iter().for_each(|token| dead.push(token));
        dead
    }

    /// Is this token dead?
    pub fn has(&self, token: &ClaimToken) -> bool {
        self.0.contains(token)
    }

    /// Remembers a token as the newest; one that is known already keeps its place.
    pub fn push(&mut self, token: ClaimToken) {
        if self.has(&token) {
            return;
        }
        if self.0.len() == Self::MAX {
            self.0.remove(0);
        }
        self.0.push(token);
    }

    /// The tokens, oldest first.
    pub fn tokens(&self) -> &[ClaimToken] {
        &self.0
    }
}

/// What a claim holds besides its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Until when the holder counts as alive without a renewal.
    pub until: Micros,
    /// Until when the upstream may run.
    pub run_until: Micros,
    /// What happens when the answer is lost.
    pub on_lost: OnLost,
    /// Length of the lease, in milliseconds.
    pub claim_ttl_ms: u32,
    /// Lifetime of an unknown outcome of this claim, in milliseconds.
    pub unknown_ttl_ms: u64,
}

impl Lease {
    /// Has the lease ended, as far as others are concerned? Not while this instance has been
    /// calm for less than a lease: a holder must get its chance to renew after an outage.
    pub fn over(&self, now: Micros, calm_ms: u64) -> bool {
        self.until <= now && calm_ms >= u64::from(self.claim_ttl_ms)
    }

    /// Milliseconds until [`Lease::over`] may become true.
    pub fn left_ms(&self, now: Micros, calm_ms: u64) -> u64 {
        self.until.ms_after(now).max(u64::from(self.claim_ttl_ms).saturating_sub(calm_ms))
    }
}

/// State of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// A request holds the key.
    Claimed(Lease),
    /// The answer is known.
    Completed {
        /// The upstream's status.
        status: u16,
        /// Header block, as it came.
        headers: Bytes,
        /// Body, as it came.
        body: Bytes,
        /// When it was stored.
        at: Micros,
        /// When it expires.
        until: Micros,
    },
    /// Nobody knows whether the work was done.
    Unknown {
        /// Why.
        cause: UnknownCause,
        /// When it expires.
        until: Micros,
    },
    /// The key is free; the token that gave it back is remembered.
    Released {
        /// Why it was given back.
        cause: ReleaseCause,
        /// When the memory ends.
        until: Micros,
    },
}

/// The row of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Token of the last claim, answer or release.
    pub token: ClaimToken,
    /// Fence of the last claim.
    pub fence: i64,
    /// Rules that made the fingerprint.
    pub scheme: Scheme,
    /// What makes two requests the same.
    pub fingerprint: Fingerprint,
    /// Digest of the caller's scope.
    pub scope: ScopeDigest,
    /// Tokens that claim nothing any more.
    pub dead: Dead,
    /// State, with what belongs to it.
    pub state: State,
    /// When the claim, or the row without one, was made.
    pub created_at: Micros,
    /// When the row last changed.
    pub updated_at: Micros,
}

impl Row {
    /// When the row ends by time alone; `None` for a claim.
    pub fn until(&self) -> Option<Micros> {
        match &self.state {
            State::Claimed(_) => None,
            State::Completed { until, .. } | State::Unknown { until, .. } | State::Released { until, .. } => {
                Some(*until)
            }
        }
    }

    /// Does this token hold the key, by a claim whose lease runs?
    pub fn is_held_by(&self, token: &ClaimToken, now: Micros) -> bool {
        self.token == *token && matches!(&self.state, State::Claimed(lease) if lease.until > now)
    }

    /// Does the row still count?
    pub fn live(&self, now: Micros) -> bool {
        self.until().is_none_or(|until| until > now)
    }
}
