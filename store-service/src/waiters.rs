//! Parked claims: callers that wait for a key to become free.
//!
//! A caller notes the key's epoch before it asks the store, and parks only if the epoch is still
//! the same: a wake-up that came between the store's answer and the parking is never lost. Epochs
//! are shared by keys of one shard; a wake-up of another key only costs a question.
//!
//! Wake-ups are local to this process. What another instance frees is found by the slow poll.

use fencepost_protocol::StoreKey;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Most parked callers of one key: each is asked again when the key changes.
pub const PER_KEY_MAX: usize = 1_000;

/// Most parked callers in the process: each holds a stream and asks on the slow poll.
pub const TOTAL_MAX: usize = 20_000;

const SHARDS: usize = 1_024;

/// The parked callers of this process.
pub struct Waiters {
    hasher: RandomState,
    epochs: Vec<AtomicU64>,
    parked: Mutex<Parked>,
    per_key_max: usize,
    total_max: usize,
}

#[derive(Default)]
struct Parked {
    keys: HashMap<StoreKey, (usize, Arc<Notify>)>,
    total: usize,
}

/// A place among the parked; leaving is dropping it.
pub struct Ticket {
    waiters: Arc<Waiters>,
    key: StoreKey,
    notify: Arc<Notify>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self::new(PER_KEY_MAX, TOTAL_MAX)
    }
}

impl Waiters {
    /// With these bounds.
    pub fn new(per_key_max: usize, total_max: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            epochs: (0..SHARDS).map(|_| AtomicU64::new(0)).collect(),
            parked: Mutex::default(),
            per_key_max,
            total_max,
        }
    }

    /// The key's epoch now.
    pub fn epoch(&self, key: &StoreKey) -> u64 {
        self.shard(key).map_or(0, |epoch| epoch.load(Ordering::SeqCst))
    }

    /// Parks one more caller of this key, unless too many are.
    pub fn park(self: &Arc<Self>, key: &StoreKey) -> Option<Ticket> {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        if parked.total >= self.total_max {
            return None;
        }
        let (count, notify) = parked.keys.entry(key.clone()).or_default();
        if *count >= self.per_key_max {
            return None;
        }
        *count += 1;
        let notify = notify.clone();
        parked.total += 1;
        Some(Ticket { waiters: self.clone(), key: key.clone(), notify })
    }

    /// The key changed: everybody who waits for it asks again.
    pub fn wake(&self, key: &StoreKey) {
        if let Some(epoch) = self.shard(key) {
            epoch.fetch_add(1, Ordering::SeqCst);
        }
        let parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, notify)) = parked.keys.get(key) {
            notify.notify_waiters();
        }
    }

    /// How many are parked.
    pub fn len(&self) -> usize {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    /// Is nobody parked?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, key: &StoreKey) -> Option<&AtomicU64> {
        self.epochs.get(self.hasher.hash_one(key) as usize % SHARDS)
    }
}

impl Ticket {
    /// Waits until the key changes, unless it did since the caller noted this epoch.
    pub async fn changed_since(&self, epoch: u64) {
        let notified = self.notify.notified();
        tokio::pin!(notified);
        // From here on a wake-up is noticed; one before it shows in the epoch.
        notified.as_mut().enable();
        if self.waiters.epoch(&self.key) == epoch {
            notified.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut parked = self.waiters.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.total = parked.total.saturating_sub(1);
        if let Some((count, _)) = parked.keys.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                parked.keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> StoreKey {
        StoreKey::new("t", &[1; 16]).unwrap()
    }

    #[tokio::test]
    async fn a_wake_up_between_answer_and_parking_is_not_lost() {
        let waiters = Arc::new(Waiters::default());
        let epoch = waiters.epoch(&key());
        waiters.wake(&key());
        waiters.park(&key()).unwrap().changed_since(epoch).await;
    }

    #[tokio::test]
    async fn a_wake_up_reaches_everybody_parked() {
        let waiters = Arc::new(Waiters::default());
        let epoch = waiters.epoch(&key());
        let tickets: Vec<_> = (0..100).map(|_| waiters.park(&key()).unwrap()).collect();
        let all = futures_util::future::join_all(tickets.iter().map(|ticket| ticket.changed_since(epoch)));
        let (_, ()) = tokio::join!(all, async {
            tokio::task::yield_now().await;
            waiters.wake(&key());
        });
    }

    #[test]
    fn parking_is_bounded_per_key_and_in_total_and_gives_its_place_back() {
        let waiters = Arc::new(Waiters::new(2, 3));
        let other = StoreKey::new("t", &[2; 16]).unwrap();
        let (a, _b) = (waiters.park(&key()).unwrap(), waiters.park(&key()).unwrap());
        assert!(waiters.park(&key()).is_none());
        let _c = waiters.park(&other).unwrap();
        assert!(waiters.park(&other).is_none());
        drop(a);
        assert!(waiters.park(&other).is_some());
        assert_eq!(waiters.len(), 2);
    }
}
