//! Parked claims: callers that wait for a key to become free.
//!
//! A caller notes the key's epoch before it asks the store, and parks only if the epoch is still
//! the same: a wake-up that came between the store's answer and the parking is never lost. Epochs
//! are shared by keys of one shard; a wake-up of another key only costs a question.
//!
//! Wake-ups come from this process and, through the store's ears, from other instances. As they
//! may be lost on the way, callers look for themselves as well, when the lease ends and on a slow
//! poll: one caller of a key for all of them, by turns, so that a thousand callers cost no more
//! questions than one.

use fencepost_protocol::StoreKey;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Most parked callers of one key: each is asked again when the key changes.
pub const PER_KEY_MAX: usize = 1_000;

/// Most parked callers in the process: each holds a stream.
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
    keys: HashMap<StoreKey, Slot>,
    total: usize,
}

/// The parked callers of one key.
#[derive(Default)]
struct Slot {
    count: usize,
    notify: Arc<Notify>,
    /// When one of them looks again.
    next_look: Option<Instant>,
    /// Epoch in which the claim was marked as waited for.
    marked: Option<u64>,
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
        let mut parked = self.lock();
        let refused =
            |bound| metrics::counter!("fencepost_parking_refused_total", "bound" => bound).increment(1);
        if parked.total >= self.total_max {
            refused("process");
            return None;
        }
        if parked.keys.get(key).is_some_and(|slot| slot.count >= self.per_key_max) {
            refused("key");
            return None;
        }
        let slot = parked.keys.entry(key.clone()).or_default();
        slot.count += 1;
        let notify = slot.notify.clone();
        parked.total += 1;
        Some(Ticket { waiters: self.clone(), key: key.clone(), notify })
    }

    /// The key changed: everybody who waits for it asks again.
    pub fn wake(&self, key: &StoreKey) {
        if let Some(epoch) = self.shard(key) {
            epoch.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(slot) = self.lock().keys.get(key) {
            slot.notify.notify_waiters();
        }
    }

    /// Any key may have changed: everybody asks again.
    pub fn wake_all(&self) {
        for epoch in &self.epochs {
            epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.lock().keys.values().for_each(|slot| slot.notify.notify_waiters());
    }

    /// How many are parked.
    pub fn len(&self) -> usize {
        self.lock().total
    }

    /// Is nobody parked?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Parked> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Ticket {
    /// The caller has just looked and found the claim live: nobody needs to look again before `next`.
    pub fn looked(&self, next: Instant) {
        self.slot(|slot| slot.next_look = Some(next));
    }

    /// When a caller of this key looks again.
    pub fn next_look(&self) -> Option<Instant> {
        self.slot(|slot| slot.next_look)
    }

    /// Is it this caller's turn to look, for all of them? If it goes away meanwhile, another one
    /// looks after `pause`.
    pub fn take_turn(&self, now: Instant, pause: Duration) -> bool {
        self.slot(|slot| {
            let due = slot.next_look.is_none_or(|next| next <= now);
            if due {
                slot.next_look = Some(now + pause);
            }
            due
        })
    }

    /// Is the claim marked as waited for, as far as anybody knew in this epoch?
    pub fn marked(&self, epoch: u64) -> bool {
        self.slot(|slot| slot.marked == Some(epoch))
    }

    /// The claim was found marked, by a caller that listened since this epoch.
    pub fn set_marked(&self, epoch: u64) {
        self.slot(|slot| slot.marked = Some(epoch));
    }

    fn slot<R>(&self, with: impl FnOnce(&mut Slot) -> R) -> R {
        // Cannot miss: the slot lives as long as a ticket for it.
        with(self.waiters.lock().keys.entry(self.key.clone()).or_default())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut parked = self.waiters.lock();
        parked.total = parked.total.saturating_sub(1);
        if let Some(slot) = parked.keys.get_mut(&self.key) {
            slot.count = slot.count.saturating_sub(1);
            if slot.count == 0 {
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

    #[tokio::test]
    async fn lost_notices_are_made_up_for_by_waking_everybody() {
        let waiters = Arc::new(Waiters::default());
        let other = StoreKey::new("t", &[2; 16]).unwrap();
        let (a, b) = (waiters.park(&key()).unwrap(), waiters.park(&other).unwrap());
        let (epoch_a, epoch_b) = (waiters.epoch(&key()), waiters.epoch(&other));
        waiters.wake_all();
        tokio::join!(a.changed_since(epoch_a), b.changed_since(epoch_b));
    }

    #[test]
    fn one_caller_looks_for_all_of_a_key() {
        let waiters = Arc::new(Waiters::default());
        let tickets: Vec<_> = (0..100).map(|_| waiters.park(&key()).unwrap()).collect();
        let (now, pause) = (Instant::now(), Duration::from_secs(1));
        let turns = |now| tickets.iter().filter(|ticket| ticket.take_turn(now, pause)).count();
        assert_eq!(turns(now), 1);
        assert_eq!(turns(now + pause / 2), 0);
        // The one that looked is gone without a word: another one does.
        assert_eq!(turns(now + pause), 1);
        tickets[0].looked(now + pause * 5);
        assert_eq!(turns(now + pause * 3), 0);
        assert_eq!(turns(now + pause * 5), 1);
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
