//! Rows of the statements.

use crate::entry::Micros;
use crate::grant::store::{OperationAnswer, OperationRow, Owned, read_status};
use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use fencepost_protocol::grants::OperationId;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::Row;

pub fn one(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| StoreError::Broken("a statement that gives one row gave none".into()))
}

pub fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| StoreError::Broken(format!("column {name}: {error}")))
}

pub fn left(row: &Row, name: &str) -> Result<u64, StoreError> {
    Ok(u64::try_from(get::<i64>(row, name)?).unwrap_or(0))
}

pub fn owned(row: &Row) -> Result<Owned, StoreError> {
    Ok(Owned {
        owner_version: get(row, "owner_version")?,
        lease_left_ms: left(row, "lease_left_ms")?,
        submit_left_ms: left(row, "submit_left_ms")?,
    })
}

pub fn owned_or_none(row: &Row) -> Result<Option<Owned>, StoreError> {
    match get::<Option<i32>>(row, "owner_version")? {
        Some(_) => owned(row).map(Some),
        None => Ok(None),
    }
}

pub fn operation_row(row: &Row) -> Result<OperationRow, StoreError> {
    let bad = |what: &str| StoreError::Broken(format!("an operation has a bad {what}"));
    let digest: &[u8] = get(row, "details_digest")?;
    Ok(OperationRow {
        operation: OperationId::parse(get(row, "operation_id")?).map_err(|_| bad("operation id"))?,
        key: GrantKey {
            issuer: get(row, "issuer")?,
            key_tenant: get(row, "key_tenant")?,
            grant_id: get(row, "grant_id")?,
        },
        caller_namespace: get(row, "caller_namespace")?,
        caller_id: get(row, "caller_id")?,
        tenant: get(row, "tenant")?,
        details_digest: digest.try_into().map_err(|_| bad("digest"))?,
        details: get(row, "details")?,
        status: read_status(get(row, "status")?).ok_or_else(|| bad("status"))?,
        reference: get(row, "reference")?,
        owned: owned(row)?,
    })
}

pub fn answer(row: &Row) -> Result<OperationAnswer, StoreError> {
    let bad = |_| StoreError::Broken("an operation's answer has a bad status".into());
    Ok(OperationAnswer {
        status: u16::try_from(get::<i32>(row, "answer_status")?).map_err(bad)?,
        headers: get::<Vec<u8>>(row, "answer_headers")?.into(),
        body: get::<Vec<u8>>(row, "answer_body")?.into(),
    })
}

pub fn event(row: &Row) -> Result<OperationEvent, StoreError> {
    let bad = || StoreError::Broken("an event has a bad status".into());
    Ok(OperationEvent {
        at: micros(get(row, "at")?),
        owner_version: get(row, "owner_version")?,
        actor: get(row, "actor")?,
        step: get(row, "step")?,
        result: get(row, "result")?,
        status: read_status(get(row, "status")?).ok_or_else(bad)?,
        detail: get(row, "detail")?,
    })
}

pub fn system_time(at: Micros) -> SystemTime {
    let us = u64::try_from(at.0).unwrap_or(0);
    UNIX_EPOCH + Duration::from_micros(us)
}

pub fn micros(at: SystemTime) -> Micros {
    let us = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Micros(i64::try_from(us).unwrap_or(i64::MAX))
}
