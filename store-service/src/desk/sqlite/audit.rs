//! Lines of every audit, read in one order.

use super::{key, statements};
use crate::desk::audit::subject_of_grant;
use crate::desk::{AuditFilter, AuditKind, AuditPlace, AuditSeen};
use crate::entry::Micros;
use rusqlite::{Result, Row, Transaction, params};

/// The newest first.
pub fn list(tx: &Transaction<'_>, filter: &AuditFilter) -> Result<Vec<AuditSeen>> {
    let kinds = filter.kinds.as_ref().map(|kinds| {
        let words: Vec<_> = kinds.iter().copied().map(AuditKind::word).collect();
        serde_json::json!(words).to_string()
    });
    let prefixes = filter.prefixes.as_ref().map(|prefixes| serde_json::json!(prefixes).to_string());
    let grant = filter.grant();
    let operation = filter.operation();
    let mut statement = tx.prepare_cached(statements::AUDIT_LIST)?;
    let rows = statement.query_map(
        params![
            kinds,
            filter.action,
            filter.who,
            filter.since.map(|at| at.0),
            filter.until.map(|at| at.0),
            filter.written(),
            operation.as_ref().map(|id| id.as_str()),
            grant.as_ref().map(|key| &key.issuer),
            grant.as_ref().map(|key| &key.key_tenant),
            grant.as_ref().map(|key| &key.grant_id),
            prefixes,
            filter.after.map(|place| place.at.0),
            filter.after.map(|place| place.source),
            filter.after.map(|place| place.id),
            filter.limit,
        ],
        seen,
    )?;
    rows.collect()
}

fn seen(row: &Row<'_>) -> Result<AuditSeen> {
    let subject = match row.get::<_, Option<String>>("issuer")? {
        Some(_) => subject_of_grant(&key(row)?),
        None => row.get("subject")?,
    };
    Ok(AuditSeen {
        place: AuditPlace { at: Micros(row.get("at")?), source: row.get("source")?, id: row.get("id")? },
        who: row.get("who")?,
        kind: row.get("kind")?,
        subject,
        action: row.get("action")?,
        version: row.get("version")?,
        state_before: row.get("state_before")?,
        state_after: row.get("state_after")?,
        forced: row.get("forced")?,
        reason: row.get("reason")?,
    })
}
