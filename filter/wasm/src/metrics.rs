//! Counters, one for each outcome; defined once, when the plugin is configured.

use crate::abi;
use fencepost_filter_core::exchange::Outcome;

/// Ids of the counters, in the order of [`Outcome::ALL`].
#[derive(Default)]
pub struct Counters {
    ids: Vec<(Outcome, u32)>,
}

impl Counters {
    /// Defines `fencepost.OUTCOME` for every outcome.
    pub fn define() -> Self {
        let define = |outcome: Outcome| {
            abi::define_counter(&format!("fencepost.{}", outcome.as_str())).ok().map(|id| (outcome, id))
        };
        Self { ids: Outcome::ALL.iter().copied().filter_map(define).collect() }
    }

    /// Counts one.
    pub fn count(&self, outcome: Outcome) {
        if let Some((_, id)) = self.ids.iter().find(|(other, _)| *other == outcome) {
            abi::count(*id);
        }
    }
}
