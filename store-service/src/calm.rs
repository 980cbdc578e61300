//! How long this instance has been able to hear renewals.
//!
//! After a start or a database outage every lease may look over although its holder is alive and
//! could not renew. Until the instance has been calm for a lease, it takes nothing over and calls
//! nothing lost.

use crate::store::StoreError;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Watches outages.
pub struct Calm {
    since: Mutex<Result<Instant, String>>,
}

impl Default for Calm {
    fn default() -> Self {
        Self { since: Mutex::new(Ok(Instant::now())) }
    }
}

impl Calm {
    /// Milliseconds since the start or the last outage; zero during one.
    pub fn ms(&self) -> u64 {
        match &*self.since.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(since) => u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
            Err(_) => 0,
        }
    }

    /// Why the store is not there, while it is not.
    pub fn outage(&self) -> Option<String> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).as_ref().err().cloned()
    }

    /// Another instance was out of the store's reach, with the renewals of its callers: leases are
    /// counted from now, as after an outage of our own.
    pub fn disturb(&self) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(since) = &mut *since {
            *since = Instant::now();
        }
    }

    /// Takes note of an answer or a failure of the store.
    pub fn note<T>(&self, result: &Result<T, StoreError>) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        match (result, &mut *since) {
            (Ok(_), Ok(_)) | (Err(StoreError::Broken(_) | StoreError::Sealed(_)), _) => {}
            (Ok(_), calm @ Err(_)) => {
                tracing::info!("the store answers again");
                *calm = Ok(Instant::now());
            }
            (Err(StoreError::Unavailable(reason)), calm) => {
                if calm.is_ok() {
                    tracing::warn!(%reason, "the store does not answer");
                }
                *calm = Err(reason.clone());
            }
        }
    }
}
