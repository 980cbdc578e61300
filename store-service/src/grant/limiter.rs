//! How often somebody may do something: a bucket for each actor, as much as a minute's worth.
//!
//! What an actor may do at all is decided elsewhere.

use crate::bucket::Buckets;
use std::time::Instant;

/// Most actors that are remembered.
const ACTORS_MAX: usize = 1_024;

/// Buckets of actors.
pub struct Limiter(Buckets<String>);

impl Limiter {
    /// At most so many in a minute, for each actor.
    pub fn new(per_minute: u32) -> Self {
        Self(Buckets::new(per_minute, per_minute, ACTORS_MAX))
    }

    /// Takes one from the actor's bucket; false when it is empty.
    pub fn take(&self, actor: &str, now: Instant) -> bool {
        self.0.take(&actor.to_owned(), now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_actor_has_as_many_as_a_minute_brings() {
        let limiter = Limiter::new(2);
        let start = Instant::now();
        assert!(limiter.take("a", start) && limiter.take("a", start));
        assert!(!limiter.take("a", start) && limiter.take("b", start));
        assert!(!limiter.take("a", start + Duration::from_secs(29)));
        assert!(limiter.take("a", start + Duration::from_secs(31)));
    }
}
