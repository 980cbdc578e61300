//! Operations that run alone: sweeping, the heartbeat, and claims given back for callers that went
//! away.

use super::batch::{Answers, Kind, RunError, Told};
use super::row::{BadRow, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, heartbeat, words};
use crate::entry::{Micros, Release, SweepKind, TOMBSTONE_MS};
use fencepost_protocol::{StoreId, StoreKey};
use std::sync::Arc;

/// One of them.
pub enum Op {
    /// A batch of a sweeper duty.
    Sweep {
        /// Duty.
        kind: SweepKind,
        /// How long the instance has been calm.
        calm_ms: u64,
        /// Most rows.
        limit: u32,
    },
    /// Gives back the claim whose lease ends exactly then.
    GiveBack(Release, Micros),
    /// Is the server there and still the same database?
    Heartbeat(StoreId),
}

/// The kind.
pub struct Chore;

impl Kind for Chore {
    type Op = Op;
    /// Rows that changed.
    type Reply = u64;
    const NAME: &'static str = "chore";
    const BATCH_MAX: usize = 1;
    const DROP_GONE: bool = false;

    fn key(_: &Op) -> Option<&StoreKey> {
        None
    }

    async fn run(session: &Session, clock: &Clock, ops: &[Arc<Op>]) -> Result<Answers<u64>, RunError> {
        let mut told = Vec::with_capacity(ops.len());
        for op in ops {
            told.push((Told::Done(one(session, clock, op).await?), None));
        }
        Ok(told)
    }
}

async fn one(session: &Session, clock: &Clock, op: &Op) -> Result<u64, RunError> {
    let now = clock.fixed().map(time);
    match op {
        Op::Sweep { kind, calm_ms, limit } => {
            let (calm, limit) = (super::int8(*calm_ms), i64::from(*limit));
            let rows = match kind {
                SweepKind::MarkLost => session.query(Name::SweepMarkLost, &[&now, &calm, &limit]).await?,
                SweepKind::DropAbandoned => {
                    session.query(Name::SweepDropAbandoned, &[&now, &calm, &limit]).await?
                }
                SweepKind::DropEnded => session.query(Name::SweepDropEnded, &[&now, &limit]).await?,
            };
            let row = rows.first().ok_or_else(|| BadRow("a sweep told nothing".into()))?;
            let changed: i64 = row.try_get("changed")?;
            Ok(u64::try_from(changed).unwrap_or(0))
        }
        Op::GiveBack(release, lease_until) => {
            let (key, token) = (release.key.as_str(), &release.token.as_bytes()[..]);
            let (until, cause) = (time(*lease_until), words::release_cause(release.cause));
            let tombstone = super::int8(TOMBSTONE_MS);
            let rows =
                session.query(Name::ClaimGiveBack, &[&key, &token, &until, &cause, &tombstone, &now]).await?;
            Ok(rows.len() as u64)
        }
        Op::Heartbeat(expected) => match heartbeat::store_id(session).await? {
            Some(found) if found == *expected => Ok(0),
            _ => Err(BadRow("the database behind the address is another one now".into()).into()),
        },
    }
}
