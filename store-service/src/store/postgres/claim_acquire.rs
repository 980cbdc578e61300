//! `claim_acquire`: batches of claims.

use super::batch::{Answers, Kind, RunError, Told};
use super::freed::Freed;
use super::row::{Seen, decode, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, words};
use crate::entry::{self, Change, Claim, ClaimOutcome, State};
use fencepost_protocol::StoreKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Longest body, in bytes, that travels in a batch: many long ones would make a reply that no
/// memory bound covers. A longer one is read by a statement of its own.
const BODY_IN_BATCH_MAX: i32 = 1024 * 1024;

/// A claim and for how long its instance has been calm.
pub struct Op {
    /// The claim.
    pub claim: Arc<Claim>,
    /// Milliseconds.
    pub calm_ms: u64,
}

/// The kind.
pub struct ClaimAcquire;

impl Kind for ClaimAcquire {
    type Op = Op;
    type Reply = Freed<ClaimOutcome>;
    const NAME: &'static str = "claim_acquire";
    const BATCH_MAX: usize = 64;
    const DROP_GONE: bool = true;

    fn key(op: &Op) -> Option<&StoreKey> {
        Some(&op.claim.key)
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Op>],
    ) -> Result<Answers<Freed<ClaimOutcome>>, RunError> {
        let claims: Vec<&Claim> = ops.iter().map(|op| &*op.claim).collect();
        let keys: Vec<&str> = claims.iter().map(|claim| claim.key.as_str()).collect();
        let tokens: Vec<&[u8]> = claims.iter().map(|claim| &claim.token.as_bytes()[..]).collect();
        let schemes: Vec<&str> = claims.iter().map(|claim| claim.scheme.as_str()).collect();
        let fingerprints: Vec<&[u8]> = claims.iter().map(|claim| &claim.fingerprint.as_bytes()[..]).collect();
        let scopes: Vec<&[u8]> = claims.iter().map(|claim| &claim.scope.as_bytes()[..]).collect();
        let on_lost: Vec<&str> = claims.iter().map(|claim| words::on_lost(claim.on_lost)).collect();
        let claim_ttls: Vec<i32> = claims.iter().map(|claim| super::int4(claim.claim_ttl_ms)).collect();
        let max_runs: Vec<i32> = claims.iter().map(|claim| super::int4(claim.max_run_ms)).collect();
        let unknown_ttls: Vec<i64> = claims.iter().map(|claim| super::int8(claim.unknown_ttl_ms)).collect();
        let calm = super::int8(ops.iter().map(|op| op.calm_ms).min().unwrap_or(0));
        let body_max = if ops.len() == 1 { i32::MAX } else { BODY_IN_BATCH_MAX };
        let now = clock.fixed().map(time);
        let rows = session
            .query(
                Name::ClaimAcquire,
                &[
                    &keys,
                    &tokens,
                    &schemes,
                    &fingerprints,
                    &scopes,
                    &on_lost,
                    &claim_ttls,
                    &max_runs,
                    &unknown_ttls,
                    &calm,
                    &body_max,
                    &now,
                ],
            )
            .await?;
        let mut seen = HashMap::with_capacity(rows.len());
        for row in &rows {
            seen.insert(row.try_get::<_, &str>("key")?, decode(row)?);
        }
        let tell = |op: &Arc<Op>| match seen.remove(op.claim.key.as_str()) {
            None => (Told::Again, None),
            Some(seen) => (freed(told(op, &seen), &seen), Some(seen)),
        };
        Ok(ops.iter().map(tell).collect())
    }

    fn follow(op: &Op, seen: &Seen) -> Option<Freed<ClaimOutcome>> {
        match read(op, seen) {
            Told::Done(outcome) => Some(Freed::nobody(outcome)),
            Told::Again | Told::Alone => None,
        }
    }
}

/// A held claim that became unknown frees whoever waits for it.
fn freed(told: Told<ClaimOutcome>, seen: &Seen) -> Told<Freed<ClaimOutcome>> {
    match told {
        Told::Done(outcome @ ClaimOutcome::Claimed { .. }) => Told::Done(Freed::nobody(outcome)),
        Told::Done(outcome) => Freed::told(outcome, seen),
        Told::Again => Told::Again,
        Told::Alone => Told::Alone,
    }
}

/// What the statement says to the asker.
fn told(op: &Op, seen: &Seen) -> Told<ClaimOutcome> {
    match &seen.row {
        // Written, and the row has our token: it is our claim. Written with another token: a held
        // claim became unknown, and the row says so.
        Some(row) if seen.wrote && row.token == op.claim.token => match &row.state {
            State::Claimed(lease) => {
                Told::Done(ClaimOutcome::Claimed { fence: row.fence, lease_until: lease.until })
            }
            // Held: nothing was granted, and the row says so.
            State::Unknown { .. } => read(op, seen),
            State::Completed { .. } | State::Released { .. } => Told::Again,
        },
        _ => read(op, seen),
    }
}

/// What the row says to somebody for whom nothing was written.
fn read(op: &Op, seen: &Seen) -> Told<ClaimOutcome> {
    let step = entry::claim(seen.row.as_ref(), &op.claim, seen.now, op.calm_ms);
    match (step.change, step.reply) {
        (Change::Keep, ClaimOutcome::Completed(_)) if seen.withheld => Told::Alone,
        (Change::Keep, outcome) => Told::Done(outcome),
        (Change::Put(_) | Change::Drop, _) => Told::Again,
    }
}
