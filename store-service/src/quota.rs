//! Quotas: how many claims one caller (a scope) may make, and how many may be live at once.
//!
//! Only what would make a new claim is limited. Replays, resends, waiting, renewals, completions
//! and releases are not: before a claim is refused, the service looks whether its key would be
//! claimed at all.
//!
//! Counted in this instance alone, so n instances let a caller have up to n times as much; nothing
//! but the amount depends on it. A claim takes its place before its statement is sent and gives it
//! back when the statement made no claim, so that many at once never get more than there is. A
//! claim that was made although there was no place (its key fell free between look and statement)
//! is counted all the same.
//!
//! Whether a claim is still live is for the database to say: its completion may go to another
//! instance. What ends here is noted at once; for the rest the service looks at the claims that it
//! remembers, when their caller has no place left.
//!
//! Memory is bounded, and no caller can use it up for others: a caller's own quota bounds what is
//! remembered of it, and where there is no room a claim is not counted, rather than refused.

use crate::bucket::Buckets;
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most callers whose rate is remembered: some megabytes.
const SCOPES_MAX: usize = 65_536;

/// Most live claims that are remembered, of all callers: some ten megabytes.
const CLAIMS_MAX: usize = 65_536;

/// How often the remembered claims of one caller are looked at, at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Most claims that are looked at in one go: those that were not looked at for longest.
const LOOK_MAX: usize = 256;

/// How often refusals are told in the log, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// After how long to try again when too many claims are live.
const RETRY_LIVE: Duration = Duration::from_secs(1);

/// The limits of one caller; none: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// New claims in a minute.
    pub per_minute: Option<u32>,
    /// New claims at once, after a pause; as many as in a minute where it is not said.
    pub burst: Option<u32>,
    /// Live claims at once.
    pub live: Option<u32>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Too many new claims for the time.
    Rate,
    /// Too many live claims.
    Live,
}

impl Limit {
    /// Its word in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Live => "live",
        }
    }
}

/// There is no place for another claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Why.
    pub limit: Limit,
    /// After how long there may be one.
    pub retry_after: Duration,
}

/// The quotas of all callers.
#[derive(Default)]
pub struct Quota {
    rate: Option<Buckets<ScopeDigest>>,
    live: Option<Live>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    at: Option<Instant>,
    since: u64,
}

struct Live {
    max: u32,
    scopes: Mutex<Scopes>,
}

#[derive(Default)]
struct Scopes {
    count: usize,
    by_scope: HashMap<ScopeDigest, Places>,
}

/// What one caller has.
#[derive(Default)]
struct Places {
    /// Taken by claims whose statement runs.
    reserved: u32,
    looked: Option<Instant>,
    claims: HashMap<StoreKey, Known>,
}

struct Known {
    token: ClaimToken,
    /// When it was last known to be live.
    seen: Instant,
    /// End of the lease as far as this instance knows.
    until: Instant,
}

impl Quota {
    /// With these limits.
    pub fn new(limits: QuotaLimits) -> Arc<Self> {
        let rate = limits
            .per_minute
            .map(|per_minute| Buckets::new(per_minute, limits.burst.unwrap_or(per_minute), SCOPES_MAX));
        let live = limits.live.map(|max| Live { max, scopes: Mutex::default() });
        Arc::new(Self { rate, live, told: Mutex::default() })
    }

    /// Takes a place for a claim that may be made.
    pub fn take(self: &Arc<Self>, scope: ScopeDigest, now: Instant) -> Result<Place, Over> {
        if let Some(live) = &self.live
            && !live.reserve(scope)
        {
            return Err(Over { limit: Limit::Live, retry_after: RETRY_LIVE });
        }
        let mut place = self.beyond(scope);
        place.is_reserved = self.live.is_some();
        if let Some(rate) = &self.rate {
            // Dropped on refusal, the place gives back what it has.
            rate.take(&scope, now).map_err(|retry_after| Over { limit: Limit::Rate, retry_after })?;
            place.is_paid = true;
        }
        Ok(place)
    }

    /// No place, for a claim that will hardly be made; if it is, it counts.
    pub fn beyond(self: &Arc<Self>, scope: ScopeDigest) -> Place {
        Place { quota: self.clone(), scope, is_paid: false, is_reserved: false }
    }

    /// The claim of this key has ended.
    pub fn ended(&self, scope: &ScopeDigest, key: &StoreKey, token: &ClaimToken) {
        if let Some(live) = &self.live {
            live.lock().forget(scope, key, token);
        }
    }

    /// The claims of a caller to look at now, because they may have ended elsewhere.
    pub fn due_for_look(&self, scope: &ScopeDigest, now: Instant) -> Vec<(StoreKey, ClaimToken)> {
        self.live.as_ref().map(|live| live.lock().due_for_look(scope, now)).unwrap_or_default()
    }

    /// Counts a refusal, and tells of it in the log now and then, without saying who.
    pub fn note_refusal(&self, over: Over, now: Instant) {
        metrics::counter!("fencepost_claims_over_quota_total", "limit" => over.limit.word()).increment(1);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.since += 1;
        if told.at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL) {
            tracing::warn!(limit = over.limit.word(), refused = told.since, "callers are over their quota");
            *told = Told { at: Some(now), since: 0 };
        }
    }
}

/// A place of a claim whose statement runs; dropped, it is given back.
pub struct Place {
    quota: Arc<Quota>,
    scope: ScopeDigest,
    is_paid: bool,
    is_reserved: bool,
}

impl Place {
    /// The claim was made: the place is used.
    pub fn used(mut self, key: &StoreKey, token: ClaimToken, lease: Duration, now: Instant) {
        if let Some(rate) = &self.quota.rate
            && !std::mem::replace(&mut self.is_paid, false)
        {
            rate.charge(&self.scope, now);
        }
        if let Some(live) = &self.quota.live {
            let known = Known { token, seen: now, until: now + lease };
            live.lock().remember(self.scope, key, known, now);
        }
        // The reservation has become a claim: dropping gives it back.
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(rate) = &self.quota.rate
            && self.is_paid
        {
            rate.give_back(&self.scope, Instant::now());
        }
        if let Some(live) = &self.quota.live
            && self.is_reserved
        {
            live.lock().give_back(&self.scope);
        }
    }
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, Scopes> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, scope: ScopeDigest) -> bool {
        let mut scopes = self.lock();
        let places = scopes.by_scope.entry(scope).or_default();
        let used = places.claims.len().saturating_add(places.reserved as usize);
        let has_place = used < self.max as usize;
        if has_place {
            places.reserved += 1;
        }
        has_place
    }
}

impl Scopes {
    fn give_back(&mut self, scope: &ScopeDigest) {
        if let Some(places) = self.by_scope.get_mut(scope) {
            places.reserved = places.reserved.saturating_sub(1);
        }
        self.drop_empty(scope);
    }

    fn remember(&mut self, scope: ScopeDigest, key: &StoreKey, known: Known, now: Instant) {
        if self.count >= CLAIMS_MAX {
            self.forget_silent(now);
        }
        if self.count >= CLAIMS_MAX {
            return;
        }
        if self.by_scope.entry(scope).or_default().claims.insert(key.clone(), known).is_none() {
            self.count += 1;
        }
    }

    fn forget(&mut self, scope: &ScopeDigest, key: &StoreKey, token: &ClaimToken) {
        let Some(places) = self.by_scope.get_mut(scope) else { return };
        if places.claims.get(key).is_some_and(|known| known.token == *token) {
            places.claims.remove(key);
            self.count -= 1;
        }
        self.drop_empty(scope);
    }

    fn drop_empty(&mut self, scope: &ScopeDigest) {
        if self.by_scope.get(scope).is_some_and(|places| places.reserved == 0 && places.claims.is_empty()) {
            self.by_scope.remove(scope);
        }
    }

    /// Claims whose lease is over as far as is known here have most likely ended elsewhere.
    fn forget_silent(&mut self, now: Instant) {
        self.by_scope.retain(|_, places| {
            places.claims.retain(|_, known| known.until > now);
            places.reserved > 0 || !places.claims.is_empty()
        });
        self.count = self.by_scope.values().map(|places| places.claims.len()).sum();
    }

    fn due_for_look(&mut self, scope: &ScopeDigest, now: Instant) -> Vec<(StoreKey, ClaimToken)> {
        let Some(places) = self.by_scope.get_mut(scope) else { return Vec::new() };
        if places.looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK_INTERVAL) {
            return Vec::new();
        }
        places.looked = Some(now);
        let mut known: Vec<_> = places.claims.iter_mut().collect();
        known.sort_by_key(|(_, known)| known.seen);
        known.truncate(LOOK_MAX);
        known
            .into_iter()
            .map(|(key, known)| {
                known.seen = now;
                (key.clone(), known.token)
            })
            .collect()
    }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
