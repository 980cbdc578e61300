//! Rows of the desk's statements, decoded.

use crate::desk::audit::subject_of_grant;
use crate::desk::free::BATCH as FREE_BATCH;
use crate::desk::{
    AuditPlace, AuditSeen, ERASE_BATCH, EraseCursor, Erased, FreeDone, Freed, GrantSeen, HoldSeen, Line,
    OperationSeen,
};
use crate::entry::Micros;
use crate::grant::store::read_status;
use crate::grant::token::GrantKey;
use crate::store::StoreError;
use crate::store::postgres::row::micros;
use fencepost_protocol::StoreKey;
use fencepost_protocol::grants::OperationId;
use std::time::SystemTime;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

/// A column.
pub fn get<'a, T: FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| StoreError::Broken(format!("column {name}: {error}")))
}

/// A flag in the only row.
pub fn flag(rows: &[Row], name: &str) -> Result<bool, StoreError> {
    let row = rows.first();
    get(row.ok_or_else(|| StoreError::Broken("a statement that gives one row gave none".into()))?, name)
}

/// A time.
pub fn at(row: &Row, name: &str) -> Result<Micros, StoreError> {
    Ok(micros(get::<SystemTime>(row, name)?))
}

/// A time that may be missing.
pub fn at_or_none(row: &Row, name: &str) -> Result<Option<Micros>, StoreError> {
    Ok(get::<Option<SystemTime>>(row, name)?.map(micros))
}

fn key(row: &Row) -> Result<GrantKey, StoreError> {
    Ok(GrantKey {
        issuer: get(row, "issuer")?,
        key_tenant: get(row, "key_tenant")?,
        grant_id: get(row, "grant_id")?,
    })
}

/// An operation.
pub fn operation(row: &Row) -> Result<OperationSeen, StoreError> {
    let bad = |what: &str| StoreError::Broken(format!("an operation has a bad {what}"));
    Ok(OperationSeen {
        id: OperationId::parse(get(row, "operation_id")?).map_err(|_| bad("operation id"))?,
        key: key(row)?,
        caller_namespace: get(row, "caller_namespace")?,
        caller_id: get(row, "caller_id")?,
        tenant: get(row, "tenant")?,
        details: get(row, "details")?,
        status: read_status(get(row, "status")?).ok_or_else(|| bad("status"))?,
        reference: get(row, "reference")?,
        cause: get(row, "cause")?,
        owner_version: get(row, "owner_version")?,
        lease_until: at(row, "lease_until")?,
        resting: get(row, "resting")?,
        submit_by: at(row, "submit_by")?,
        created_at: at(row, "created_at")?,
        updated_at: at(row, "updated_at")?,
        now: at(row, "now")?,
    })
}

/// A grant.
pub fn grant(row: &Row) -> Result<GrantSeen, StoreError> {
    Ok(GrantSeen {
        key: key(row)?,
        form: get(row, "form")?,
        tenant: get(row, "tenant")?,
        subject: get(row, "subject")?,
        bound: get(row, "bound")?,
        issued_at: at_or_none(row, "issued_at")?,
        expires_at: at_or_none(row, "expires_at")?,
        used_at: at_or_none(row, "used_at")?,
        revoked_at: at_or_none(row, "revoked_at")?,
        operation: get(row, "operation_id")?,
        held: get(row, "held")?,
        now: at(row, "now")?,
    })
}

/// A hold.
pub fn hold(row: &Row) -> Result<HoldSeen, StoreError> {
    Ok(HoldSeen {
        id: get(row, "id")?,
        prefix: get(row, "prefix")?,
        since: at(row, "since")?,
        keys_until: at_or_none(row, "keys_until")?,
        grants: get(row, "grants")?,
        began_at: at(row, "began_at")?,
        began_by: get(row, "began_by")?,
        reason: get(row, "reason")?,
        lifted_at: at_or_none(row, "lifted_at")?,
        now: at(row, "now")?,
    })
}

/// What a batch of freeing did.
pub fn freed(rows: &[Row]) -> Result<FreeDone, StoreError> {
    let row = only(rows)?;
    match get::<Option<bool>>(row, "lifted")? {
        None => return Ok(FreeDone::Absent),
        Some(false) => return Ok(FreeDone::Standing),
        Some(true) => {}
    }
    let next = next(row, FREE_BATCH)?;
    Ok(FreeDone::Done(Freed { freed: count(row, "freed")?, kept: count(row, "kept")?, next }))
}

/// What a batch of erasing among entries did.
pub fn erased_entries(rows: &[Row], behind: Option<EraseCursor>) -> Result<Erased, StoreError> {
    let row = only(rows)?;
    Ok(Erased {
        answers: count(row, "answers")?,
        operations: 0,
        left: count(row, "entries_left")?,
        looked: count(row, "looked")?,
        next: next(row, ERASE_BATCH)?.map(EraseCursor::Entry).or(behind),
    })
}

/// What a batch of erasing among operations did.
pub fn erased_operations(rows: &[Row]) -> Result<Erased, StoreError> {
    let row = only(rows)?;
    let looked = count(row, "looked")?;
    let last: Option<&str> = get(row, "last")?;
    let next = last.filter(|_| looked == u64::from(ERASE_BATCH)).map(OperationId::parse).transpose();
    let next = next.map_err(|_| StoreError::Broken("an operation has a bad operation id".into()))?;
    Ok(Erased {
        answers: 0,
        operations: count(row, "answers")?,
        left: count(row, "operations_left")?,
        looked,
        next: next.map(EraseCursor::Operation),
    })
}

fn only(rows: &[Row]) -> Result<&Row, StoreError> {
    let missing = || StoreError::Broken("a statement that gives one row gave none".into());
    rows.first().ok_or_else(missing)
}

fn count(row: &Row, name: &str) -> Result<u64, StoreError> {
    Ok(u64::try_from(get::<i64>(row, name)?).unwrap_or(0))
}

/// Where to go on behind a batch that was full.
fn next(row: &Row, batch: u32) -> Result<Option<StoreKey>, StoreError> {
    let last: Option<&str> = get(row, "last")?;
    let full = count(row, "looked")? == u64::from(batch);
    let parsed = last.filter(|_| full).map(StoreKey::parse).transpose();
    parsed.map_err(|error| StoreError::Broken(error.to_string()))
}

/// A line of the audit.
pub fn line(row: &Row) -> Result<Line, StoreError> {
    Ok(Line {
        at: at(row, "at")?,
        who: get(row, "who")?,
        action: get(row, "action")?,
        version_before: get(row, "version_before")?,
        state_before: get(row, "state_before")?,
        state_after: get(row, "state_after")?,
        reason: get(row, "reason")?,
    })
}

/// A line of any audit.
pub fn audit(row: &Row) -> Result<AuditSeen, StoreError> {
    let subject = match get::<Option<String>>(row, "issuer")? {
        Some(_) => subject_of_grant(&key(row)?),
        None => get(row, "subject")?,
    };
    Ok(AuditSeen {
        place: AuditPlace { at: at(row, "at")?, source: get(row, "source")?, id: get(row, "id")? },
        who: get(row, "who")?,
        kind: get(row, "kind")?,
        subject,
        action: get(row, "action")?,
        version: get(row, "version")?,
        state_before: get(row, "state_before")?,
        state_after: get(row, "state_after")?,
        forced: get(row, "forced")?,
        reason: get(row, "reason")?,
    })
}
