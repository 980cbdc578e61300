//! Freeing what a lifted hold has held. Inside the write lock.

use super::hold::{holds, note};
use super::statements;
use crate::desk::free::BATCH;
use crate::desk::{FreeDone, FreeOrder, Freed};
use crate::entry::{Micros, TOMBSTONE_MS};
use crate::store::words;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::ReleaseCause;
use rusqlite::{Result, Transaction, params};

/// One bounded batch.
pub fn free(tx: &Transaction<'_>, now: Micros, order: &FreeOrder) -> Result<FreeDone> {
    let Some(hold) = holds(tx, now, Some(order.hold))?.pop() else { return Ok(FreeDone::Absent) };
    if hold.lifted_at.is_none() {
        return Ok(FreeDone::Standing);
    }
    let mut page = tx.prepare_cached(statements::HELD_PAGE)?;
    let after = order.after.as_ref().map(StoreKey::as_str);
    let mut rows = page.query(params![after, BATCH, now.0, hold.prefix, hold.began_at.0])?;
    let (mut freed, mut looked, mut last) = (Freed::default(), 0, None);
    while let Some(row) = rows.next()? {
        looked += 1;
        let Ok(key) = StoreKey::parse(row.get_ref("key")?.as_str()?) else { continue };
        if row.get("mine")? {
            if row.get("held_still")? {
                freed.kept += 1;
            } else {
                let (fence, updated_at): (i64, i64) = (row.get("fence")?, row.get("updated_at")?);
                let cause = words::release_cause(ReleaseCause::Other);
                let until = now.plus_ms(TOMBSTONE_MS).0;
                tx.prepare_cached(statements::HELD_FREE)?.execute(params![
                    key.as_str(),
                    cause,
                    until,
                    now.0
                ])?;
                let line = params![now.0, order.who, key.as_str(), fence, updated_at, order.reason];
                tx.prepare_cached(statements::HELD_NOTE)?.execute(line)?;
                freed.freed += 1;
            }
        }
        last = Some(key);
    }
    freed.next = last.filter(|_| looked == BATCH);
    if freed.freed > 0 {
        let after = format!("{} keys freed", freed.freed);
        note(tx, now, order.hold, &order.who, "hold_free", ["lifted", &after], &order.reason)?;
    }
    Ok(FreeDone::Done(freed))
}
