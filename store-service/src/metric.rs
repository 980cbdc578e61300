//! Metrics: what they mean, and counters that exist before they count.
//!
//! A counter that appears with its first event has no value before it, so a rate or an alert misses
//! that event: those that alerts look at start at zero. Names stand where they are counted; here
//! and in `docs/service.md` they are described, and a test compares.

use crate::seal::SealFault;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// A counter's name, and a label of it with the values that are known.
type Counter = (&'static str, Option<(&'static str, &'static [&'static str])>);

/// Zero from the start.
const AT_ZERO: &[Counter] = &[
    (
        "fencepost_claims_total",
        Some((
            "outcome",
            &[
                "claimed",
                "completed",
                "in_progress",
                "mismatch",
                "unknown",
                "other_scheme",
                "dead",
                "over_quota",
            ],
        )),
    ),
    ("fencepost_claims_over_quota_total", Some(("limit", &["rate", "live"]))),
    ("fencepost_claims_given_back_total", None),
    ("fencepost_parking_refused_total", Some(("bound", &["key", "process"]))),
    ("fencepost_notices_heard_total", None),
    ("fencepost_notices_unsent_total", None),
    ("fencepost_disturbed_beats_total", None),
    ("fencepost_orders_total", Some(("action", &["release", "settle"]))),
    (
        "fencepost_problems_total",
        Some(("code", &["store_unavailable", "store_broken", "answer_sealed", "unauthorized"])),
    ),
    ("fencepost_seal_failures_total", Some(("cause", &SealFault::CAUSES))),
    ("fencepost_grant_cleanup_failures_total", None),
    ("fencepost_recovery_failures_total", None),
    (
        "fencepost_statement_failures_total",
        Some((
            "statement",
            &["claim_acquire", "claim_complete", "claim_release", "claim_unknown", "claim_renew", "chore"],
        )),
    ),
];

/// Describes all metrics, and starts what can be started. After the recorder is installed.
pub fn declare() {
    describe();
    for (name, label) in AT_ZERO {
        match label {
            None => counter!(*name).increment(0),
            Some((label, values)) => {
                for value in *values {
                    counter!(*name, *label => *value).increment(0);
                }
            }
        }
    }
}

fn describe() {
    for (name, text) in [
        ("fencepost_claims_total", "Claims by what became of them"),
        ("fencepost_claims_over_quota_total", "Claims refused because of their caller's quota, by the limit"),
        ("fencepost_problems_total", "Error replies by their code"),
        ("fencepost_claims_given_back_total", "Claims won for callers that were gone"),
        ("fencepost_swept_total", "Rows that the sweeper changed"),
        ("fencepost_parking_refused_total", "Claims that may not wait, by the bound that is reached"),
        ("fencepost_notices_heard_total", "What other instances told"),
        ("fencepost_notices_unsent_total", "What could not be told to other instances"),
        ("fencepost_disturbed_beats_total", "Heartbeats that found another instance without the database"),
        ("fencepost_orders_total", "What operators did"),
        ("fencepost_again_total", "Operations asked again, because their row changed in between"),
        ("fencepost_statement_failures_total", "Statements that failed"),
        ("fencepost_seal_failures_total", "Answers that could not be sealed or opened, by cause"),
        ("fencepost_grant_admissions_total", "Admissions of grants by outcome"),
        ("fencepost_operation_calls_total", "Calls on operations by outcome"),
        ("fencepost_grant_revocations_total", "Revocations of grants by outcome"),
        ("fencepost_grant_key_reads_total", "Readings of issuers' keys"),
        ("fencepost_grant_records_deleted_total", "Records of grants that were past their time"),
        ("fencepost_grant_rows_archived_total", "Grants kept as rows that were archived"),
        ("fencepost_grant_cleanup_failures_total", "Rounds of cleaning up grants that failed"),
        ("fencepost_recovery_operations_total", "Operations that recovery looked at, by outcome"),
        ("fencepost_recovery_keys_total", "Held keys that recovery looked at, by outcome"),
        ("fencepost_recovery_calls_total", "Requests to providers by result"),
        ("fencepost_recovery_failures_total", "Rounds of recovery that ended early"),
    ] {
        describe_counter!(name, text);
    }
    for (name, text) in [
        ("fencepost_parked_callers", "Claims that wait now"),
        ("fencepost_listening", "1 while other instances tell what they free"),
        ("fencepost_sweep_lag_seconds", "Time since the end of the oldest row that is still there"),
        ("fencepost_calm_seconds", "Time since the start or the last outage of the store"),
        ("fencepost_recovery_waiting", "What waits for recovery or for a person"),
        ("fencepost_recovery_breaker_open", "1 while a provider is left alone"),
    ] {
        describe_gauge!(name, text);
    }
    for (name, text) in [
        ("fencepost_call_seconds", "Duration of calls, parking included"),
        ("fencepost_statement_seconds", "Duration of PostgreSQL statements"),
        ("fencepost_grant_statement_seconds", "Duration of PostgreSQL statements of grants"),
        ("fencepost_recovery_call_seconds", "Duration of requests to providers"),
    ] {
        describe_histogram!(name, Unit::Seconds, text);
    }
    describe_histogram!("fencepost_batch_size", Unit::Count, "Operations in one PostgreSQL statement");
}
