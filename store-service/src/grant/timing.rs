//! Every duration that the guarantees on grants depend on, in one object, with what must hold
//! between them. They only work together, so a start with values that don't is refused, with a
//! message that names both.

use super::duration::Span;
use serde::Deserialize;

/// The durations. Leeway, longest lifetime and issue-time skew belong to the issuers, because they
/// are bound to the grants that were issued under them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionTimings {
    /// How long an executor waits for the provider.
    pub effect_timeout: Span,
    /// Ownership after an admission, from the instant at which the operation's row is written.
    pub execution_lease: Span,
    /// Ownership after a take-over.
    pub recovery_lease: Span,
    /// What stays of a lease when everything in it has taken its longest.
    pub lease_margin: Span,
    /// How long after its admission anything may be sent for an operation.
    pub submission_window: Span,
    /// How long the provider remembers an idempotency key, as it documents.
    pub provider_retention: Span,
    /// Kept off that, for clocks that differ and for time on the way.
    pub provider_margin: Span,
    /// Longest time from the end of a lease until recovery looks at the operation.
    pub recovery_delay: Span,
    /// Longest time of one look-up or one create call of recovery, its store calls included.
    pub recovery_step: Span,
    /// How long anybody waits for one call of the store.
    pub store_call_timeout: Span,
    /// Longest life of an admission on the database server: `transaction_timeout`.
    pub admission_bound: Span,
    /// Longest wait of a commit for synchronous standbys, which no timeout of the server cuts: a
    /// promise of whoever runs the standbys.
    pub replication_wait: Span,
    /// Largest step of the database server's clock, either way.
    pub clock_step_max: Span,
    /// How long after its last deadline a record of use is kept.
    pub cleanup_margin: Span,
}

impl Default for ExecutionTimings {
    fn default() -> Self {
        Self {
            effect_timeout: Span::seconds(15),
            execution_lease: Span::seconds(60),
            recovery_lease: Span::seconds(120),
            lease_margin: Span::seconds(10),
            submission_window: Span::seconds(22 * 3_600),
            provider_retention: Span::seconds(24 * 3_600),
            provider_margin: Span::seconds(3_600),
            recovery_delay: Span::seconds(60),
            recovery_step: Span::seconds(30),
            store_call_timeout: Span::seconds(5),
            admission_bound: Span::seconds(10),
            replication_wait: Span::seconds(0),
            clock_step_max: Span::seconds(5),
            cleanup_margin: Span::seconds(300),
        }
    }
}

impl ExecutionTimings {
    /// Checks every value and every relation; the message names the values and what would be right.
    pub fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("effect_timeout", self.effect_timeout),
            ("execution_lease", self.execution_lease),
            ("recovery_lease", self.recovery_lease),
            ("lease_margin", self.lease_margin),
            ("submission_window", self.submission_window),
            ("provider_retention", self.provider_retention),
            ("recovery_step", self.recovery_step),
            ("store_call_timeout", self.store_call_timeout),
            ("admission_bound", self.admission_bound),
            ("cleanup_margin", self.cleanup_margin),
        ] {
            if value == Span::default() {
                return Err(format!("timings.{name}: found 0; expected more than zero"));
            }
        }
        self.check_leases()?;
        less(
            ("submission_window", self.submission_window),
            (
                "provider_retention - provider_margin",
                self.provider_retention.less(self.provider_margin).plus(Span::ms(1)),
            ),
            "at most",
            "a provider may take a key that it has forgotten for a new request",
        )?;
        less(
            (
                "execution_lease + recovery_delay + recovery_step",
                self.execution_lease.plus(self.recovery_delay).plus(self.recovery_step),
            ),
            ("submission_window", self.submission_window),
            "less than",
            "else recovery could never send anything again",
        )?;
        less(
            (
                "admission_bound + replication_wait + clock_step_max",
                self.admission_bound.plus(self.replication_wait).plus(self.clock_step_max),
            ),
            ("cleanup_margin", self.cleanup_margin),
            "less than",
            "an admission that began before a deadline may still commit that long after it",
        )
    }

    fn check_leases(&self) -> Result<(), String> {
        for (name, lease) in
            [("execution_lease", self.execution_lease), ("recovery_lease", self.recovery_lease)]
        {
            let left = lease.less(self.lease_margin);
            let left_name = format!("{name} - lease_margin");
            let why = "whoever waits for the provider must still own the operation when it answers";
            less(("effect_timeout", self.effect_timeout), (&left_name, left), "less than", why)?;
            let why = "an answer of the store must be of use when it arrives";
            less(("store_call_timeout", self.store_call_timeout), (&left_name, left), "less than", why)?;
        }
        let everything = self
            .replication_wait
            .plus(self.store_call_timeout)
            .plus(self.effect_timeout)
            .plus(self.store_call_timeout);
        less(
            ("replication_wait + effect_timeout + 2 x store_call_timeout", everything),
            ("execution_lease - lease_margin", self.execution_lease.less(self.lease_margin)),
            "less than",
            "the lease covers the commit, the check before sending, the provider and the recording",
        )?;
        less(
            ("recovery_step", self.recovery_step),
            ("recovery_lease - lease_margin", self.recovery_lease.less(self.lease_margin)),
            "less than",
            "recovery renews its lease before each step and must own the operation through it",
        )?;
        less(
            ("effect_timeout", self.effect_timeout),
            ("recovery_step", self.recovery_step.plus(Span::ms(1))),
            "at most",
            "a step of recovery waits for the provider",
        )
    }
}

fn less(small: (&str, Span), large: (&str, Span), words: &str, why: &str) -> Result<(), String> {
    if small.1 < large.1 {
        return Ok(());
    }
    // "at most" is written as "less than one millisecond more".
    let bound = if words == "at most" { large.1.less(Span::ms(1)) } else { large.1 };
    Err(format!(
        "timings: found {} = {} and {} = {bound}; expected the first to be {words} the second: {why}",
        small.0, small.1, large.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_every_relation() {
        assert_eq!(ExecutionTimings::default().check(), Ok(()));
    }

    #[test]
    fn each_relation_is_checked_and_both_values_are_named() {
        let base = ExecutionTimings::default();
        let s = Span::seconds;
        for (bad, small, large) in [
            (
                ExecutionTimings { effect_timeout: s(50), ..base },
                "effect_timeout = 50s",
                "lease_margin = 50s",
            ),
            (
                ExecutionTimings {
                    recovery_lease: s(20),
                    recovery_step: s(9),
                    effect_timeout: s(10),
                    ..base
                },
                "effect_timeout = 10s",
                "recovery_lease - lease_margin = 10s",
            ),
            (
                ExecutionTimings { store_call_timeout: s(50), ..base },
                "store_call_timeout = 50s",
                "execution_lease - lease_margin = 50s",
            ),
            (
                ExecutionTimings { replication_wait: s(25), ..base },
                "2 x store_call_timeout = 50s",
                "execution_lease - lease_margin = 50s",
            ),
            (
                ExecutionTimings { recovery_step: s(110), ..base },
                "recovery_step = 110s",
                "recovery_lease - lease_margin = 110s",
            ),
            (
                ExecutionTimings { recovery_step: s(14), ..base },
                "effect_timeout = 15s",
                "recovery_step = 14s",
            ),
            (
                ExecutionTimings { submission_window: s(23 * 3_600 + 1), ..base },
                "submission_window = 82801s",
                "provider_margin = 23h",
            ),
            (
                ExecutionTimings { submission_window: s(150), ..base },
                "recovery_step = 150s",
                "submission_window = 150s",
            ),
            (
                ExecutionTimings { cleanup_margin: s(15), ..base },
                "clock_step_max = 15s",
                "cleanup_margin = 15s",
            ),
        ] {
            let message = bad.check().unwrap_err();
            assert!(message.contains(small) && message.contains(large), "{message}");
        }
        let zero = ExecutionTimings { cleanup_margin: s(0), ..base };
        assert_eq!(zero.check().unwrap_err(), "timings.cleanup_margin: found 0; expected more than zero");
    }
}
