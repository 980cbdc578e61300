//! `claim_look`: batches of looks at keys whose callers are over their quota.

use super::batch::{Answers, Kind, RunError, Told};
use super::row::{Seen, decode, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, view};
use fencepost_protocol::StoreKey;
use std::collections::HashMap;
use std::sync::Arc;
use view::Entry;

/// The kind.
pub struct ClaimLook;

impl Kind for ClaimLook {
    type Op = StoreKey;
    type Reply = Option<Entry>;
    const NAME: &'static str = "claim_look";
    const BATCH_MAX: usize = 256;
    const DROP_GONE: bool = true;

    fn key(op: &StoreKey) -> Option<&StoreKey> {
        Some(op)
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<StoreKey>],
    ) -> Result<Answers<Option<Entry>>, RunError> {
        let keys: Vec<&str> = ops.iter().map(|key| key.as_str()).collect();
        let now = clock.fixed().map(time);
        let rows = session.query(Name::ClaimLook, &[&keys, &now]).await?;
        let mut seen = HashMap::with_capacity(rows.len());
        for row in &rows {
            seen.insert(row.try_get::<_, &str>("key")?, decode(row)?);
        }
        let tell = |key: &Arc<StoreKey>| {
            let seen = seen.remove(key.as_str());
            (Told::Done(seen.as_ref().and_then(|seen| entry(key, seen))), seen)
        };
        Ok(ops.iter().map(tell).collect())
    }

    fn follow(op: &StoreKey, seen: &Seen) -> Option<Option<Entry>> {
        Some(entry(op, seen))
    }
}

fn entry(key: &StoreKey, seen: &Seen) -> Option<Entry> {
    let row = seen.row.clone()?;
    Some(Entry { key: key.clone(), row, headers_len: 0, body_len: 0, held: None, now: seen.now })
}
