//! A provider that does not answer is left alone for a while, then tried with one request.
//!
//! Of this instance alone: several instances find out for themselves. Times come from the caller.

use std::time::{Duration, Instant};

/// When it opens, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BreakerLimits {
    /// After so many requests without an answer, one after the other.
    pub failures: u32,
    /// For so long.
    pub open_for: Duration,
}

/// How many requests may be made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admits {
    /// None.
    None,
    /// One, to see.
    One,
    /// As many as the provider's concurrency allows.
    Any,
}

/// The state of one provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    failures: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    /// Closed: requests pass.
    pub fn new(limits: BreakerLimits) -> Self {
        Self { limits, failures: 0, open_until: None }
    }

    /// May requests be made?
    pub fn admits(&self, now: Instant) -> Admits {
        match self.open_until {
            None => Admits::Any,
            Some(until) if until > now => Admits::None,
            Some(_) => Admits::One,
        }
    }

    /// Notes whether the provider answered.
    pub fn note(&mut self, answered: bool, now: Instant) {
        if answered {
            self.failures = 0;
            self.open_until = None;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limits.failures {
            self.open_until = now.checked_add(self.limits.open_for);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_provider_is_left_alone_then_tried_with_one_request() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut breaker = Breaker::new(BreakerLimits { failures: 3, open_for: Duration::from_secs(30) });
        breaker.note(false, at(0));
        breaker.note(false, at(1));
        breaker.note(true, at(2));
        breaker.note(false, at(3));
        breaker.note(false, at(4));
        assert_eq!(breaker.admits(at(4)), Admits::Any, "an answer between starts the count again");
        breaker.note(false, at(5));
        assert_eq!(breaker.admits(at(34)), Admits::None);
        assert_eq!(breaker.admits(at(35)), Admits::One);
        breaker.note(false, at(36));
        assert_eq!(breaker.admits(at(65)), Admits::None);
        assert_eq!(breaker.admits(at(66)), Admits::One);
        breaker.note(true, at(67));
        assert_eq!(breaker.admits(at(67)), Admits::Any);
    }
}
