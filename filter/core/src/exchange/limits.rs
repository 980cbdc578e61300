//! Every bound of an exchange, with its reason.

/// Part of a lease that is left unused, so that clock rates and delivery times never matter:
/// a claim that is older than its lease less this is not acted on.
pub const LEASE_MARGIN_MS: u64 = 500;

/// A park that ended this early was refused by the service's bounds: asking again at once would
/// turn into a loop, so the next question waits for [`REASK_MS`].
pub const PARK_MS_WORTHWHILE: u32 = 200;

/// Pause before a waiter that was not parked asks again.
pub const REASK_MS: u64 = 250;

/// First and longest pause between tries of a duty whose call failed.
pub const DUTY_RETRY_MS: core::ops::RangeInclusive<u64> = 250..=10_000;

/// How long a duty is tried before it is given up: as long as a tombstone lives.
pub const DUTY_MS_MAX: u64 = 600_000;

/// How much longer than `max_run` a running request may stay silent before its outcome counts as
/// unknown: the proxy's own timeout answers first, unless something is wrong.
pub const RUN_GRACE_MS: u64 = 10_000;

/// How long a call's reply may be overdue beyond the timeout that the host was given.
pub const CALL_GRACE_MS: u64 = 2_000;

/// How long headers are held for a body that the host has got and does not hand over: it would
/// hand over each piece at once.
pub const WITHHELD_BODY_MS_MAX: u64 = 1_000;

/// The same where the host does not say what it has got: a slow client looks alike.
pub const UNSEEN_BODY_MS_MAX: u64 = 5_000;

/// Part of its lease after which an operation is renewed: a renewal that fails twice still leaves
/// time for a third.
pub const RENEWALS_PER_LEASE: u64 = 4;

/// `Retry-After` of answers to a store outage: the service's own reconnects are as far apart.
pub const RETRY_AFTER_OUTAGE_MS: u64 = 2_000;

/// `Retry-After` where a request with the key is running.
pub const RETRY_AFTER_CONFLICT_MS: u64 = 1_000;

/// `Retry-After` where the outcome is unknown: it may take a person to end that.
pub const RETRY_AFTER_UNKNOWN_MS: u64 = 5_000;
