//! A random schedule of faults. The same seed gives the same schedule.
//!
//! What clients do beside it is seeded as well, but how their requests meet the faults is up to the
//! machine: a replay tries the same mixture, not the same instant.

use crate::fault::{Fault, Place};
use fencepost_rig::link::Weather;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fmt;
use std::time::Duration;

/// Faults that strike together, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Fair weather before it.
    pub after: Duration,
    /// What strikes; of the database's faults at most one, because no more is claimed to be survived.
    pub faults: Vec<Fault>,
    /// How long it lasts.
    pub lasts: Duration,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.faults.iter().map(Fault::to_string).collect();
        write!(f, "after {:?}, for {:?}: {}", self.after, self.lasts, faults.join(" + "))
    }
}

/// An endless schedule.
pub struct Schedule {
    random: StdRng,
    /// Every kind is struck once before any is struck again.
    pack: Vec<usize>,
}

impl Schedule {
    /// By its seed.
    pub fn of(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), pack: Vec::new() }
    }

    fn pick<T: Copy>(&mut self, from: &[T], otherwise: T) -> T {
        from.get(self.random.random_range(0..from.len().max(1))).copied().unwrap_or(otherwise)
    }

    fn weather(&mut self) -> Weather {
        let delay = Duration::from_millis(self.random.random_range(5..300));
        let all = [Weather::Cut, Weather::Silent, Weather::AnswersLost, Weather::Slow(delay)];
        self.pick(&all, Weather::Cut)
    }

    fn at_the_front(&mut self, kind: usize) -> Fault {
        let side = self.random.random_range(0..2);
        match kind {
            0 => Fault::ServiceKilled(side),
            1 => Fault::ServiceFrozen(side),
            2 => Fault::EnvoyKilled(side),
            3 => Fault::EnvoyFrozen(side),
            4 => Fault::EnvoyReloaded(side),
            5 => Fault::Link(Place::Client(side), self.weather()),
            6 => Fault::Link(Place::Service(side), self.weather()),
            _ => Fault::Link(Place::Database(side), self.weather()),
        }
    }

    fn at_the_database(&mut self, kind: usize) -> Fault {
        match kind {
            8 => Fault::DatabaseKilled,
            9 => Fault::DatabaseFrozen,
            10 => Fault::DatabaseStopped,
            11 => Fault::StandbyKilled,
            12 => Fault::StandbyFrozen,
            13 => Fault::Link(Place::Standby, self.weather()),
            14 => Fault::FailedOver,
            _ => Fault::RollingRestart,
        }
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.pack.is_empty() {
            self.pack = (0..16).collect();
        }
        let drawn = self.random.random_range(0..self.pack.len());
        let kind = self.pack.swap_remove(drawn);
        let mut faults = vec![if kind < 8 { self.at_the_front(kind) } else { self.at_the_database(kind) }];
        // A rolling restart needs everything whole.
        if kind >= 8 && kind != 15 && self.random.random_range(0..3) == 0 {
            let beside = self.pick(&[1, 3, 5, 6], 6);
            faults.push(self.at_the_front(beside));
        }
        Some(Step {
            after: Duration::from_millis(self.random.random_range(200..1_200)),
            faults,
            lasts: Duration::from_millis(self.random.random_range(100..2_500)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_named_without_its_side_and_its_length() {
        let slow = Fault::Link(Place::Database(1), Weather::Slow(Duration::from_millis(20)));
        assert_eq!(slow.kind(), "Link Database Slow");
        assert_eq!(Fault::Link(Place::Standby, Weather::AnswersLost).kind(), "Link Standby AnswersLost");
        assert_eq!(Fault::ServiceKilled(0).kind(), "ServiceKilled");
        assert_eq!(Fault::FailedOver.kind(), "FailedOver");
    }

    #[test]
    fn a_seed_gives_one_schedule_and_every_kind_comes_in_it() {
        let steps = |seed| Schedule::of(seed).take(16).collect::<Vec<_>>();
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
        let text: String = steps(7).iter().map(Step::to_string).collect();
        for kind in
            ["ServiceKilled", "EnvoyFrozen", "Standby", "FailedOver", "RollingRestart", "DatabaseKilled"]
        {
            assert!(text.contains(kind), "{kind} in {text}");
        }
    }
}
