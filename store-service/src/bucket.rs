//! Token buckets, one for each of many keys, in bounded memory.
//!
//! They count in this process only: with n instances a key has up to n times as much. They narrow a
//! flood and prove nothing.
//!
//! Full buckets are forgotten first, which loses nothing. When all that are remembered are in use,
//! the fullest go: whoever owns one gets back the little that it had spent, and nobody is refused
//! because of others.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
struct Level {
    tokens: f64,
    at: Instant,
}

/// Buckets that fill with time.
pub struct Buckets<K> {
    per_second: f64,
    burst: f64,
    kept_max: usize,
    levels: Mutex<HashMap<K, Level>>,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    /// Each fills with so many in a minute, and holds at most `burst`; at most `kept_max` are
    /// remembered.
    pub fn new(per_minute: u32, burst: u32, kept_max: usize) -> Self {
        let per_second = f64::from(per_minute) / 60.0;
        Self { per_second, burst: burst.into(), kept_max: kept_max.max(1), levels: Mutex::default() }
    }

    /// Takes one; or says after how long there is one.
    pub fn take(&self, key: &K, now: Instant) -> Result<(), Duration> {
        let mut levels = self.lock();
        let tokens = self.tokens(&levels, key, now);
        if tokens < 1.0 {
            let wait = (1.0 - tokens) / self.per_second;
            // Not finite where it never fills.
            return Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX));
        }
        self.set(&mut levels, key, tokens - 1.0, now);
        Ok(())
    }

    /// Takes one whether or not there is one: what is owed is paid back by filling.
    pub fn charge(&self, key: &K, now: Instant) {
        let mut levels = self.lock();
        let tokens = self.tokens(&levels, key, now);
        self.set(&mut levels, key, (tokens - 1.0).max(-self.burst), now);
    }

    /// Gives one back that was taken and not used.
    pub fn give_back(&self, key: &K, now: Instant) {
        let mut levels = self.lock();
        let tokens = self.tokens(&levels, key, now);
        self.set(&mut levels, key, (tokens + 1.0).min(self.burst), now);
    }

    fn filled(&self, level: &Level, now: Instant) -> f64 {
        let seconds = now.saturating_duration_since(level.at).as_secs_f64();
        (level.tokens + seconds * self.per_second).min(self.burst)
    }

    fn tokens(&self, levels: &HashMap<K, Level>, key: &K, now: Instant) -> f64 {
        levels.get(key).map_or(self.burst, |level| self.filled(level, now))
    }

    fn set(&self, levels: &mut HashMap<K, Level>, key: &K, tokens: f64, now: Instant) {
        if levels.len() >= self.kept_max && !levels.contains_key(key) {
            self.make_room(levels, now);
        }
        // Callers read the clock before they come here, so it may seem to run back.
        let at = levels.get(key).map_or(now, |level| level.at.max(now));
        levels.insert(key.clone(), Level { tokens, at });
    }

    /// Forgets the full ones; if that is not enough, the fullest quarter.
    fn make_room(&self, levels: &mut HashMap<K, Level>, now: Instant) {
        levels.retain(|_, level| self.filled(level, now) < self.burst);
        if levels.len() < self.kept_max {
            return;
        }
        let mut by_level: Vec<(f64, K)> =
            levels.iter().map(|(key, level)| (self.filled(level, now), key.clone())).collect();
        by_level.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        for (_, key) in by_level.iter().take(self.kept_max.div_ceil(4)) {
            levels.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Level>> {
        self.levels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let buckets = Buckets::new(2, 2, 8);
        let start = Instant::now();
        assert_eq!((buckets.take(&"a", start), buckets.take(&"a", start)), (Ok(()), Ok(())));
        assert_eq!(buckets.take(&"a", start), Err(MINUTE / 2));
        assert_eq!(buckets.take(&"b", start), Ok(()));
        assert!(buckets.take(&"a", start + Duration::from_secs(29)).is_err());
        assert_eq!(buckets.take(&"a", start + Duration::from_secs(31)), Ok(()));
    }

    #[test]
    fn what_was_not_used_is_given_back_and_never_more_than_the_bucket_holds() {
        let buckets = Buckets::new(1, 2, 8);
        let start = Instant::now();
        buckets.take(&"a", start).unwrap();
        buckets.take(&"a", start).unwrap();
        buckets.give_back(&"a", start);
        assert!(buckets.take(&"a", start).is_ok() && buckets.take(&"a", start).is_err());
        for _ in 0..9 {
            buckets.give_back(&"a", start);
        }
        assert_eq!((0..9).filter(|_| buckets.take(&"a", start).is_ok()).count(), 2);
    }

    #[test]
    fn what_was_taken_beyond_is_owed_up_to_one_bucket() {
        let buckets = Buckets::new(1, 2, 8);
        let start = Instant::now();
        for _ in 0..9 {
            buckets.charge(&"a", start);
        }
        assert_eq!(buckets.take(&"a", start), Err(MINUTE * 3));
        assert!(buckets.take(&"a", start + MINUTE * 3).is_ok());
    }

    #[test]
    fn many_keys_make_an_empty_bucket_neither_full_nor_the_memory_larger() {
        let buckets = Buckets::new(1, 4, 8);
        let start = Instant::now();
        while buckets.take(&0, start).is_ok() {}
        for key in 1..1_000 {
            assert!(buckets.take(&key, start).is_ok(), "a new key is never refused because of others");
            assert!(buckets.levels.lock().unwrap().len() <= 8);
        }
        assert!(buckets.take(&0, start).is_err(), "others do not empty the memory of a bucket that is empty");
    }
}
