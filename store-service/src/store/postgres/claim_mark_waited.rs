//! `claim_mark_waited`: batches of marks on claims that callers of this instance wait for.

use super::Clock;
use super::batch::{Answers, Kind, RunError, Told};
use super::row::Seen;
use super::session::Session;
use super::statements::Name;
use crate::entry::Micros;
use crate::store::Mark;
use fencepost_protocol::StoreKey;
use std::collections::HashSet;
use std::sync::Arc;

/// The kind.
pub struct ClaimMarkWaited;

impl Kind for ClaimMarkWaited {
    type Op = StoreKey;
    type Reply = Mark;
    const NAME: &'static str = "claim_mark_waited";
    const BATCH_MAX: usize = 256;
    const DROP_GONE: bool = true;

    fn key(op: &StoreKey) -> Option<&StoreKey> {
        Some(op)
    }

    async fn run(session: &Session, _: &Clock, ops: &[Arc<StoreKey>]) -> Result<Answers<Mark>, RunError> {
        let keys: Vec<&str> = ops.iter().map(|key| key.as_str()).collect();
        let rows = session.query(Name::ClaimMarkWaited, &[&keys]).await?;
        let mut waited = HashSet::with_capacity(rows.len());
        for row in &rows {
            if row.try_get("waited")? {
                waited.insert(row.try_get::<_, &str>("key")?);
            }
        }
        let tell = |key: &Arc<StoreKey>| {
            let wrote = waited.contains(key.as_str());
            let seen = Seen { wrote, waited: wrote, now: Micros(0), row: None, withheld: false };
            (Told::Done(told(&seen)), Some(seen))
        };
        Ok(ops.iter().map(tell).collect())
    }

    fn follow(_: &StoreKey, seen: &Seen) -> Option<Mark> {
        Some(told(seen))
    }
}

fn told(seen: &Seen) -> Mark {
    if seen.waited { Mark::Waited } else { Mark::Changed }
}
