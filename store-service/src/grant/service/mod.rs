//! Grants and operations as callers see them: every check that is not the store's, then the store.
//!
//! Nothing is cached but keys: a grant that was good a moment ago may be revoked now, so every
//! presentation goes to the store. Everything that does not say "admitted" is not an admission.

mod admit;
mod issue;
mod operations;
mod proof;

pub use operations::Finish;

use super::details::NotCovered;
use super::issuers::{Issuer, Issuers};
use super::jws::Unacceptable;
use super::limiter::Limiter;
use super::store::{Bounded, GrantStore};
use super::token::TokenRefusal;
use crate::store::StoreError;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What the cleanup of records of use does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupState {
    /// The bound on admissions is being looked at.
    Checking,
    /// It holds; records are deleted when it is safe.
    On,
    /// It does not hold, or that is not known: records are kept. Why.
    Off(String),
}

/// Why a call was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not well formed: what would be right.
    Malformed(&'static str),
    /// The token is not acceptable.
    NotValid(Unacceptable),
    /// The request names more, or something else, than the grant.
    NotCovered(NotCovered),
    /// The issuer's keys can't be had now.
    NoKeys,
    /// No issuer of this name whose grants live where the request says.
    NoIssuer,
    /// Nothing proves that the grant was issued.
    NoProof,
    /// Too often.
    TooOften,
    /// The requester is bound to other issuers.
    OtherIssuer,
    /// The store did not decide.
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NotCovered> for Refusal {
    fn from(reason: NotCovered) -> Self {
        Self::NotCovered(reason)
    }
}

impl From<TokenRefusal> for Refusal {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::Unacceptable(reason) => Self::NotValid(reason),
            TokenRefusal::NoKeys => Self::NoKeys,
        }
    }
}

/// The service's part for grants.
pub struct Grants {
    issuers: Issuers,
    store: Arc<dyn GrantStore>,
    revocations: Limiter,
    /// For each token of a caller.
    admissions: Option<Limiter>,
    /// For each issuer that has a limit.
    of_issuers: HashMap<String, Limiter>,
    cleanup: RwLock<CleanupState>,
}

impl Grants {
    /// With these issuers on this store.
    pub fn new(issuers: Issuers, store: Arc<dyn GrantStore>) -> Arc<Self> {
        let revocations = Limiter::new(issuers.revocations_per_minute);
        let admissions = issuers.admissions_per_minute.map(Limiter::new);
        let limited =
            |issuer: &Issuer| Some((issuer.name.clone(), Limiter::new(issuer.admissions_per_minute?)));
        let of_issuers = issuers.all().filter_map(limited).collect();
        let cleanup = RwLock::new(CleanupState::Checking);
        Arc::new(Self { issuers, store, revocations, admissions, of_issuers, cleanup })
    }

    /// The store.
    pub fn store(&self) -> &dyn GrantStore {
        &*self.store
    }

    /// The issuers.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// What the cleanup does.
    pub fn cleanup(&self) -> CleanupState {
        self.cleanup.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what was found out about the bound.
    pub fn note_bound(&self, found: Result<Bounded, StoreError>) {
        let state = match found {
            Ok(Bounded::Verified) => CleanupState::On,
            Ok(Bounded::No(reason)) => CleanupState::Off(reason),
            Err(error) => CleanupState::Off(error.to_string()),
        };
        let mut cleanup = self.cleanup.write().unwrap_or_else(PoisonError::into_inner);
        if let CleanupState::Off(reason) = &state
            && *cleanup != state
        {
            tracing::warn!(%reason, "records of used grants are kept: they can't be deleted safely");
        }
        *cleanup = state;
    }
}
