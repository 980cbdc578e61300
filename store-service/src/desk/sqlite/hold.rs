//! Holds. Inside the write lock.

use super::{statements, write_line};
use crate::desk::{HoldDone, HoldOrder, HoldSeen, Line, hold_subject};
use crate::entry::Micros;
use rusqlite::{Result, Row, Transaction, params};

/// Holds, the newest first, or one.
pub fn holds(tx: &Transaction<'_>, now: Micros, only: Option<i64>) -> Result<Vec<HoldSeen>> {
    let mut statement = tx.prepare_cached(statements::HOLD_LIST)?;
    let rows = statement.query_map([only], |row| hold(row, now))?;
    rows.collect()
}

fn hold(row: &Row<'_>, now: Micros) -> Result<HoldSeen> {
    Ok(HoldSeen {
        id: row.get("id")?,
        prefix: row.get("prefix")?,
        since: Micros(row.get("since")?),
        keys_until: row.get::<_, Option<i64>>("keys_until")?.map(Micros),
        grants: row.get("grants")?,
        began_at: Micros(row.get("began_at")?),
        began_by: row.get("began_by")?,
        reason: row.get("reason")?,
        lifted_at: row.get::<_, Option<i64>>("lifted_at")?.map(Micros),
        now,
    })
}

/// Begins a hold.
pub fn begin_hold(tx: &Transaction<'_>, now: Micros, order: &HoldOrder) -> Result<HoldDone> {
    let since = order.since.unwrap_or(now);
    if since > now {
        return Ok(HoldDone::Ahead);
    }
    let until = order.keys_for_ms.map(|ms| now.plus_ms(ms).0);
    tx.prepare_cached(statements::HOLD_BEGIN)?.execute(params![
        order.prefix,
        since.0,
        until,
        order.grants,
        now.0,
        order.who,
        order.reason,
    ])?;
    let id = tx.last_insert_rowid();
    note(tx, now, id, &order.who, "hold_begin", ["none", "in_force"], &order.reason)?;
    Ok(holds(tx, now, Some(id))?.pop().map_or(HoldDone::Absent, HoldDone::Begun))
}

/// Ends a hold.
pub fn lift_hold(tx: &Transaction<'_>, now: Micros, id: i64, who: &str, reason: &str) -> Result<HoldDone> {
    if tx.prepare_cached(statements::HOLD_LIFT)?.execute([id, now.0])? == 0 {
        return Ok(HoldDone::Absent);
    }
    note(tx, now, id, who, "hold_lift", ["in_force", "lifted"], reason)?;
    Ok(holds(tx, now, Some(id))?.pop().map_or(HoldDone::Absent, HoldDone::Lifted))
}

/// Writes a line about a hold.
pub fn note(
    tx: &Transaction<'_>,
    now: Micros,
    id: i64,
    who: &str,
    action: &str,
    [before, after]: [&str; 2],
    reason: &str,
) -> Result<()> {
    let line = Line {
        at: now,
        who: who.to_owned(),
        action: action.to_owned(),
        version_before: String::new(),
        state_before: before.to_owned(),
        state_after: after.to_owned(),
        reason: reason.to_owned(),
    };
    write_line(tx, &hold_subject(id), &line)
}
