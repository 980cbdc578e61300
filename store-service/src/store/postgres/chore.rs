//! Operations that run alone: sweeping, the heartbeat, and claims given back for callers that went
//! away.

use super::batch::{Answers, Kind, RunError, Told};
use super::row::{BadRow, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, words};
use crate::entry::{Micros, Release, SweepKind, TOMBSTONE_MS};
use fencepost_protocol::{StoreId, StoreKey};
use std::sync::Arc;

/// Silence of another instance after which it counts as out of reach of the database: a few beats.
const SILENT_MS: u64 = 3_000;

/// ... and after which it counts as gone: by then health checks have led its callers elsewhere.
const GONE_MS: u64 = 13_000;

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
    /// How far behind the sweeper is.
    SweepLag,
    /// Gives back the claim whose lease ends exactly then.
    GiveBack(Release, Micros),
    /// Is the server there and still the same database, and do the other instances reach it?
    Beat {
        /// The database.
        expected: StoreId,
        /// This instance.
        instance: String,
    },
    /// This instance stops in order.
    Leave(String),
}

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    /// Rows that changed; of [`Op::SweepLag`], milliseconds.
    pub changed: u64,
    /// Keys among them that callers wait for.
    pub waited: Vec<StoreKey>,
    /// Was another instance out of reach of the database a moment ago?
    pub disturbed: bool,
}

/// The kind.
pub struct Chore;

impl Kind for Chore {
    type Op = Op;
    type Reply = Done;
    const NAME: &'static str = "chore";
    const BATCH_MAX: usize = 1;
    const DROP_GONE: bool = false;

    fn key(_: &Op) -> Option<&StoreKey> {
        None
    }

    async fn run(session: &Session, clock: &Clock, ops: &[Arc<Op>]) -> Result<Answers<Done>, RunError> {
        let mut told = Vec::with_capacity(ops.len());
        for op in ops {
            told.push((Told::Done(one(session, clock, op).await?), None));
        }
        Ok(told)
    }
}

async fn one(session: &Session, clock: &Clock, op: &Op) -> Result<Done, RunError> {
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
            let keys: Option<Vec<&str>> = match kind {
                SweepKind::MarkLost => row.try_get("waited_keys")?,
                SweepKind::DropAbandoned | SweepKind::DropEnded => None,
            };
            let waited = keys.unwrap_or_default().into_iter().filter_map(|key| StoreKey::parse(key).ok());
            Ok(Done {
                changed: u64::try_from(changed).unwrap_or(0),
                waited: waited.collect(),
                disturbed: false,
            })
        }
        Op::SweepLag => {
            let rows = session.query(Name::SweepLag, &[&now]).await?;
            let row = rows.first().ok_or_else(|| BadRow("the sweeper's lag was not told".into()))?;
            let lag_ms: i64 = row.try_get("lag_ms")?;
            Ok(Done { changed: u64::try_from(lag_ms).unwrap_or(0), ..Done::default() })
        }
        Op::GiveBack(release, lease_until) => {
            let (key, token) = (release.key.as_str(), &release.token.as_bytes()[..]);
            let (until, cause) = (time(*lease_until), words::release_cause(release.cause));
            let tombstone = super::int8(TOMBSTONE_MS);
            let rows =
                session.query(Name::ClaimGiveBack, &[&key, &token, &until, &cause, &tombstone, &now]).await?;
            let waited = rows.first().map_or(Ok(false), |row| row.try_get("waited"))?;
            let waited = if waited { vec![release.key.clone()] } else { Vec::new() };
            Ok(Done { changed: rows.len() as u64, waited, disturbed: false })
        }
        Op::Beat { expected, instance } => {
            let (silent, gone) = (super::int8(SILENT_MS), super::int8(GONE_MS));
            let rows = session.query(Name::InstanceBeat, &[instance, &silent, &gone, &now]).await?;
            let row = rows.first().ok_or_else(another_database)?;
            if StoreId::from_slice(row.try_get("store_id")?) != Some(*expected) {
                return Err(another_database().into());
            }
            Ok(Done { disturbed: row.try_get("disturbed")?, ..Done::default() })
        }
        Op::Leave(instance) => {
            session.query(Name::InstanceLeave, &[instance]).await?;
            Ok(Done::default())
        }
    }
}

fn another_database() -> BadRow {
    BadRow("the database behind the address is another one now".into())
}
