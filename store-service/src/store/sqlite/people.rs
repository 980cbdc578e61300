//! What people read and decide, inside the writer's transaction.

use super::super::{Audit, Clock, Entry, Filter, StateName};
use super::{row, statements, writer};
use crate::entry::{self, Change, Micros, Settle, SettleReply, Version};
use fencepost_protocol::StoreKey;
use rusqlite::Transaction;

type Result<T> = rusqlite::Result<T>;

/// One live entry.
pub fn show(tx: &Transaction<'_>, clock: &Clock, key: StoreKey, answer: bool) -> Result<Option<Entry>> {
    let row = row::read(&mut tx.prepare_cached(statements::ENTRY_READ)?, &key)?;
    let now = clock.now();
    Ok(row.filter(|row| row.live(now)).map(|row| Entry::of(key, row, answer, now)))
}

/// Live entries.
pub fn list(tx: &Transaction<'_>, clock: &Clock, filter: &Filter) -> Result<Vec<Entry>> {
    let now = clock.now();
    let prefixes = filter.prefixes.as_ref().map(|prefixes| serde_json::json!(prefixes).to_string());
    let mut statement = tx.prepare_cached(statements::ENTRY_LIST)?;
    let mut rows = statement.query((
        filter.state.map(StateName::word),
        prefixes,
        filter.scope.as_ref().map(|scope| &scope.as_bytes()[..]),
        filter.after.as_ref().map(StoreKey::as_str),
        now.0,
        filter.limit,
        &filter.cause,
        filter.held,
        filter.claimed_by(now).map(|by| by.0),
    ))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        // A key that this version can't read is left out rather than hiding all others.
        let Ok(key) = StoreKey::parse(row.get_ref("key")?.as_str()?) else { continue };
        entries.push(Entry {
            key,
            row: row::decode(row)?,
            headers_len: row.get::<_, u32>("headers_len")?.into(),
            body_len: row.get::<_, u32>("body_len")?.into(),
            held: Some(row.get("held")?),
            now,
        });
    }
    Ok(entries)
}

/// What people did to an entry.
pub fn audit(tx: &Transaction<'_>, key: &StoreKey) -> Result<Vec<Audit>> {
    let mut statement = tx.prepare_cached(statements::ENTRY_AUDIT)?;
    let lines = statement.query_map([key.as_str()], |row| {
        Ok(Audit {
            at: Micros(row.get("at")?),
            who: row.get("who")?,
            action: row.get("action")?,
            version: Version {
                fence: row.get("version_fence")?,
                updated_at: Micros(row.get("version_updated_at")?),
            },
            state_before: row.get("state_before")?,
            state_after: row.get("state_after")?,
            forced: row.get("forced")?,
            reason: row.get("reason")?,
        })
    })?;
    lines.collect()
}

/// Does what a person decided, and writes it down.
pub fn settle(tx: &Transaction<'_>, clock: &Clock, order: &Settle) -> Result<SettleReply> {
    let old = row::read(&mut tx.prepare_cached(statements::ENTRY_READ)?, &order.key)?;
    let now = clock.now();
    let step = entry::settle(old.as_ref(), order, now);
    if let (Some(old), Change::Put(new)) = (&old, &step.change) {
        tx.prepare_cached(statements::ENTRY_AUDIT_ADD)?.execute((
            now.0,
            &order.who,
            order.ruling.action(),
            order.key.as_str(),
            old.fence,
            old.updated_at.0,
            StateName::of(&old.state).word(),
            StateName::of(&new.state).word(),
            order.force,
            &order.reason,
        ))?;
    }
    writer::change(tx, &order.key, step.change)?;
    Ok(step.reply)
}
