//! How often somebody may do something: a bucket for each actor that fills with time.
//!
//! Counts in this process only: with n instances an actor has up to n times as much. It narrows a
//! flood and proves nothing; what an actor may do at all is decided elsewhere.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Most actors that are remembered; full buckets are forgotten first, and nothing is lost by it.
const ACTORS_MAX: usize = 1_024;

/// Buckets.
pub struct Limiter {
    per_minute: f64,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Limiter {
    /// At most so many in a minute, for each actor.
    pub fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.into(), buckets: Mutex::new(HashMap::new()) }
    }

    /// Takes one from the actor's bucket; false when it is empty.
    pub fn take(&self, actor: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = |level: f64, at: Instant| {
            let minutes = now.saturating_duration_since(at).as_secs_f64() / 60.0;
            (level + minutes * self.per_minute).min(self.per_minute)
        };
        if buckets.len() >= ACTORS_MAX {
            buckets.retain(|_, (level, at)| filled(*level, *at) < self.per_minute);
        }
        let bucket = buckets.entry(actor.to_owned()).or_insert((self.per_minute, now));
        let level = filled(bucket.0, bucket.1);
        let granted = level >= 1.0;
        *bucket = (if granted { level - 1.0 } else { level }, now);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let limiter = Limiter::new(2);
        let start = Instant::now();
        assert!(limiter.take("a", start) && limiter.take("a", start));
        assert!(!limiter.take("a", start));
        assert!(limiter.take("b", start));
        assert!(!limiter.take("a", start + Duration::from_secs(29)));
        assert!(limiter.take("a", start + Duration::from_secs(31)));
    }
}
