//! Erasing answers in bounded batches. Inside the write lock.

use super::{statements, write_line};
use crate::desk::erase::{BATCH, STATUS, STEP, marker};
use crate::desk::{EraseCursor, EraseOrder, ErasePlace, Erased, Line, whose_subject};
use crate::entry::Micros;
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{ScopeDigest, StoreKey};
use rusqlite::{Result, Transaction, params};

/// One batch.
pub fn erase(tx: &Transaction<'_>, now: Micros, order: &EraseOrder) -> Result<Erased> {
    match order.place() {
        ErasePlace::Entries(scope, after) => entries(tx, now, order, scope, after),
        ErasePlace::Operations(after) => operations(tx, now, order, after),
    }
}

fn entries(
    tx: &Transaction<'_>,
    now: Micros,
    order: &EraseOrder,
    scope: &ScopeDigest,
    after: Option<&StoreKey>,
) -> Result<Erased> {
    let (headers, body) = marker();
    let mut erased = Erased::default();
    let mut last = None;
    let mut statement = tx.prepare_cached(statements::ENTRY_PAGE)?;
    let mut rows = statement.query(params![after.map(StoreKey::as_str), BATCH])?;
    while let Some(row) = rows.next()? {
        erased.looked += 1;
        let Ok(key) = StoreKey::parse(row.get_ref("key")?.as_str()?) else { continue };
        let mine = row.get_ref("scope")?.as_blob()? == scope.as_bytes()
            && order.prefixes.as_ref().is_none_or(|some| some.iter().any(|prefix| prefix == key.prefix()));
        let until: Option<i64> = row.get("until")?;
        if mine {
            match row.get_ref("state")?.as_str()? {
                "completed" if until.is_some_and(|until| until > now.0) => {
                    let changed = tx.prepare_cached(statements::ENTRY_ERASE)?.execute(params![
                        key.as_str(),
                        STATUS,
                        headers,
                        body,
                        now.0
                    ])?;
                    erased.answers += changed as u64;
                }
                "claimed" | "unknown" => erased.left += 1,
                _ => {}
            }
        }
        last = Some(key);
    }
    let full = erased.looked == u64::from(BATCH);
    erased.next = last.filter(|_| full).map(EraseCursor::Entry).or_else(|| order.behind_entries());
    if erased.answers > 0 {
        note(tx, now, order, "completed", format!("{} answers erased", erased.answers))?;
    }
    Ok(erased)
}

fn operations(
    tx: &Transaction<'_>,
    now: Micros,
    order: &EraseOrder,
    after: Option<&OperationId>,
) -> Result<Erased> {
    let (headers, body) = marker();
    let (namespace, caller) = order.whose.names();
    let mut erased = Erased::default();
    let mut last = None;
    let mut statement = tx.prepare_cached(statements::OPERATION_PAGE)?;
    let after = after.map(OperationId::as_str);
    let mut rows = statement.query(params![after, BATCH, order.whose.as_detail(), namespace, caller])?;
    while let Some(row) = rows.next()? {
        erased.looked += 1;
        let Ok(id) = OperationId::parse(row.get_ref("operation_id")?.as_str()?) else { continue };
        if row.get("mine")? {
            let status = row.get_ref("status")?.as_str()?;
            if matches!(status, "succeeded" | "failed") {
                let changed = tx.prepare_cached(statements::OPERATION_ERASE)?.execute(params![
                    id.as_str(),
                    STATUS,
                    headers,
                    body,
                    now.0
                ])?;
                if changed > 0 {
                    let owner: i32 = row.get("owner_version")?;
                    let line =
                        params![now.0, id.as_str(), owner, order.who, STEP, status, status, order.reason];
                    tx.prepare_cached(statements::OPERATION_TOLD)?.execute(line)?;
                    erased.operations += 1;
                }
            } else {
                erased.left += 1;
            }
        }
        last = Some(id);
    }
    erased.next = last.filter(|_| erased.looked == u64::from(BATCH)).map(EraseCursor::Operation);
    if erased.operations > 0 {
        note(tx, now, order, "ended", format!("{} answers of operations erased", erased.operations))?;
    }
    Ok(erased)
}

fn note(tx: &Transaction<'_>, now: Micros, order: &EraseOrder, before: &str, after: String) -> Result<()> {
    let line = Line {
        at: now,
        who: order.who.clone(),
        action: "erase".into(),
        version_before: String::new(),
        state_before: before.into(),
        state_after: after,
        reason: order.reason.clone(),
    };
    write_line(tx, &whose_subject(&order.whose), &line)
}
