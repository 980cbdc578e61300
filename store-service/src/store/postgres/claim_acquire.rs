//! `claim_fresh` and `claim_acquire`: batches of claims.
//!
//! Each batch begins with the small statement, which settles claims of new keys and those that a live row
//! answers. What it leaves open goes to the one that knows every transition.

use super::batch::{Answers, Kind, RunError, Told, settle, unsettled};
use super::freed::Freed;
use super::row::{Seen, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, by_key, words};
use crate::entry::{self, Change, Claim, ClaimOutcome, State, Step};
use fencepost_protocol::StoreKey;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_postgres::types::ToSql;

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
        let mut answers = fresh(session, clock, ops).await?;
        let left = unsettled(ops, &answers);
        if !left.is_empty() {
            settle(&mut answers, acquire(session, clock, &left).await?);
        }
        Ok(answers)
    }

    fn follow(op: &Op, seen: &Seen) -> Option<Freed<ClaimOutcome>> {
        match read(op, seen) {
            Told::Done(outcome) => Some(Freed::nobody(outcome)),
            Told::Again | Told::Alone => None,
        }
    }
}

/// What a batch asks for, column by column.
struct Asked<'a> {
    keys: Vec<&'a str>,
    tokens: Vec<&'a [u8]>,
    schemes: Vec<&'a str>,
    fingerprints: Vec<&'a [u8]>,
    scopes: Vec<&'a [u8]>,
    on_lost: Vec<&'a str>,
    claim_ttls: Vec<i32>,
    max_runs: Vec<i32>,
    unknown_ttls: Vec<i64>,
    body_max: i32,
    now: Option<SystemTime>,
}

impl<'a> Asked<'a> {
    fn new(ops: &'a [Arc<Op>], clock: &Clock) -> Self {
        let claims = || ops.iter().map(|op| &*op.claim);
        Self {
            keys: claims().map(|claim| claim.key.as_str()).collect(),
            tokens: claims().map(|claim| &claim.token.as_bytes()[..]).collect(),
            schemes: claims().map(|claim| claim.scheme.as_str()).collect(),
            fingerprints: claims().map(|claim| &claim.fingerprint.as_bytes()[..]).collect(),
            scopes: claims().map(|claim| &claim.scope.as_bytes()[..]).collect(),
            on_lost: claims().map(|claim| words::on_lost(claim.on_lost)).collect(),
            claim_ttls: claims().map(|claim| super::int4(claim.claim_ttl_ms)).collect(),
            max_runs: claims().map(|claim| super::int4(claim.max_run_ms)).collect(),
            unknown_ttls: claims().map(|claim| super::int8(claim.unknown_ttl_ms)).collect(),
            body_max: if ops.len() == 1 { i32::MAX } else { BODY_IN_BATCH_MAX },
            now: clock.fixed().map(time),
        }
    }

    /// The first parameters of both statements.
    fn columns(&self) -> [&(dyn ToSql + Sync); 9] {
        [
            &self.keys,
            &self.tokens,
            &self.schemes,
            &self.fingerprints,
            &self.scopes,
            &self.on_lost,
            &self.claim_ttls,
            &self.max_runs,
            &self.unknown_ttls,
        ]
    }
}

/// Makes the claims of keys that have no row, and reads the rows of the others. What that leaves
/// open is told to ask again.
async fn fresh(
    session: &Session,
    clock: &Clock,
    ops: &[Arc<Op>],
) -> Result<Answers<Freed<ClaimOutcome>>, RunError> {
    let asked = Asked::new(ops, clock);
    let params = [&asked.columns()[..], &[&asked.body_max, &asked.now]].concat();
    let rows = session.query(Name::ClaimFresh, &params).await?;
    told_with_rows(&rows, ops, |op, seen| match seen.wrote {
        true => made(op, seen),
        false => (freed(read(op, &seen), &seen), Some(seen)),
    })
}

/// A claim of a key without a row: what the row is follows from what was asked and the clock.
fn made(op: &Op, seen: Seen) -> (Told<Freed<ClaimOutcome>>, Option<Seen>) {
    let Step { change, reply } = entry::claim(None, &op.claim, seen.now, op.calm_ms);
    match change {
        Change::Put(row) => (Told::Done(Freed::nobody(reply)), Some(Seen { row: Some(*row), ..seen })),
        Change::Keep | Change::Drop => (Told::Again, None),
    }
}

/// Decides claims of any key.
async fn acquire(
    session: &Session,
    clock: &Clock,
    ops: &[Arc<Op>],
) -> Result<Answers<Freed<ClaimOutcome>>, RunError> {
    let asked = Asked::new(ops, clock);
    let calm = super::int8(ops.iter().map(|op| op.calm_ms).min().unwrap_or(0));
    let params = [&asked.columns()[..], &[&calm, &asked.body_max, &asked.now]].concat();
    let rows = session.query(Name::ClaimAcquire, &params).await?;
    told_with_rows(&rows, ops, |op, seen| (freed(told(op, &seen), &seen), Some(seen)))
}

/// What each operation is told, with the row for those who follow.
fn told_with_rows<R>(
    rows: &[tokio_postgres::Row],
    ops: &[Arc<Op>],
    tell: impl Fn(&Op, Seen) -> (Told<R>, Option<Seen>),
) -> Result<Answers<R>, RunError> {
    let mut seen = by_key(rows)?;
    let tell = |op: &Arc<Op>| match seen.remove(op.claim.key.as_str()) {
        None => (Told::Again, None),
        Some(seen) => tell(op, seen),
    };
    Ok(ops.iter().map(tell).collect())
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
