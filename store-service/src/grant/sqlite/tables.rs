//! Rows of the tables of grants, to and from what the decisions work with. Inside the write lock.

use super::statements;
use crate::desk::grant_subject;
use crate::entry::Micros;
use crate::grant::duration::Span;
use crate::grant::issuers::Form;
use crate::grant::store::{
    Admission, FIRST_OWNER, Issue, IssuedRow, OperationAnswer, OperationRow, Owned, Pin, read_status,
    status_word,
};
use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use fencepost_protocol::grants::OperationId;
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, Result, Row, Transaction, params};
use std::collections::BTreeMap;

/// An operation with its times.
pub struct Stored {
    /// All but the times.
    pub row: OperationRow,
    /// End of the ownership.
    pub lease_until: Micros,
    /// Until when anything may be sent.
    pub submit_by: Micros,
}

/// An issued grant and what became of it.
pub struct IssuedSeen {
    /// What it says.
    pub row: IssuedRow,
    /// Was it withdrawn?
    pub revoked: bool,
    /// What it was spent for.
    pub consumed_by: Option<OperationId>,
}

fn bad(what: &str) -> Error {
    Error::FromSqlConversionFailure(0, Type::Null, format!("an operation has a bad {what}").into())
}

fn id(text: String) -> Result<OperationId> {
    OperationId::parse(&text).map_err(|_| bad("operation id"))
}

fn form(word: &str) -> Form {
    if word == "row" { Form::Row } else { Form::Token }
}

/// Who claimed a key; the inner value is none for a revocation.
pub fn consumption(tx: &Transaction<'_>, key: &GrantKey) -> Result<Option<Option<OperationId>>> {
    let mut statement = tx.prepare_cached(statements::CONSUMPTION_READ)?;
    let found = statement.query_row(params![key.issuer, key.key_tenant, key.grant_id], |row| row.get(0));
    let found: Option<Option<String>> = found.optional()?;
    found.map(|operation| operation.map(id).transpose()).transpose()
}

/// Does a hold stand over the grant?
pub fn held(tx: &Transaction<'_>, admission: &Admission) -> Result<bool> {
    let key = &admission.key;
    let issued_from = (admission.form == Form::Token).then_some(admission.issued_from.0);
    tx.prepare_cached(statements::GRANT_HELD)?.query_row(
        params![key.issuer, key.key_tenant, key.grant_id, issued_from, grant_subject(key)],
        |row| row.get(0),
    )
}

/// The longest leeway, and the longest lifetime with its skew, that are pinned for an issuer.
pub fn longest_pinned(tx: &Transaction<'_>, issuer: &str) -> Result<(Span, Span)> {
    let span = |ms: i64| Span::ms(u64::try_from(ms).unwrap_or(0));
    tx.prepare_cached(statements::PIN_LONGEST)?
        .query_row([issuer], |row| Ok((span(row.get("leeway_ms")?), span(row.get("lifetime_ms")?))))
}

/// Claims a key.
pub fn consume(
    tx: &Transaction<'_>,
    key: &GrantKey,
    operation: Option<&OperationId>,
    now: Micros,
    retain_until: Micros,
) -> Result<()> {
    let operation = operation.map(OperationId::as_str);
    tx.prepare_cached(statements::CONSUMPTION_ADD)?
        .execute(params![key.issuer, key.key_tenant, key.grant_id, operation, now.0, retain_until.0])
        .map(|_| ())
}

/// Deletes records of use.
pub fn cleanup(tx: &Transaction<'_>, before: Micros, limit: u32) -> Result<u64> {
    let gone = tx.prepare_cached(statements::CONSUMPTION_CLEANUP)?.execute(params![before.0, limit])?;
    Ok(gone as u64)
}

/// One operation.
pub fn operation(tx: &Transaction<'_>, id: &OperationId) -> Result<Option<Stored>> {
    tx.prepare_cached(statements::OPERATION_READ)?.query_row([id.as_str()], stored).optional()
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    let digest: Vec<u8> = row.get("details_digest")?;
    let status: String = row.get("status")?;
    Ok(Stored {
        row: OperationRow {
            operation: id(row.get("operation_id")?)?,
            key: GrantKey {
                issuer: row.get("issuer")?,
                key_tenant: row.get("key_tenant")?,
                grant_id: row.get("grant_id")?,
            },
            caller_namespace: row.get("caller_namespace")?,
            caller_id: row.get("caller_id")?,
            tenant: row.get("tenant")?,
            details_digest: digest.try_into().map_err(|_| bad("digest"))?,
            details: row.get("details")?,
            status: read_status(&status).ok_or_else(|| bad("status"))?,
            reference: row.get("reference")?,
            owned: Owned { owner_version: row.get("owner_version")?, lease_left_ms: 0, submit_left_ms: 0 },
        },
        lease_until: Micros(row.get("lease_until")?),
        submit_by: Micros(row.get("submit_by")?),
    })
}

/// What was done about an operation.
pub fn history(tx: &Transaction<'_>, id: &OperationId) -> Result<Vec<OperationEvent>> {
    let mut statement = tx.prepare_cached(statements::OPERATION_HISTORY)?;
    let lines = statement.query_map([id.as_str()], |row| {
        let status: String = row.get("status")?;
        Ok(OperationEvent {
            at: Micros(row.get("at")?),
            owner_version: row.get("owner_version")?,
            actor: row.get("actor")?,
            step: row.get("step")?,
            result: row.get("result")?,
            status: read_status(&status).ok_or_else(|| bad("status"))?,
            detail: row.get("detail")?,
        })
    })?;
    lines.collect()
}

/// The answer that was stored with an operation's outcome.
pub fn answer(tx: &Transaction<'_>, id: &OperationId) -> Result<Option<OperationAnswer>> {
    let read = |row: &Row<'_>| {
        Ok(OperationAnswer {
            status: row.get("answer_status")?,
            headers: row.get::<_, Vec<u8>>("answer_headers")?.into(),
            body: row.get::<_, Vec<u8>>("answer_body")?.into(),
        })
    };
    tx.prepare_cached(statements::OPERATION_ANSWER)?.query_row([id.as_str()], read).optional()
}

/// Stores it; the final outcome is written already.
pub fn add_answer(tx: &Transaction<'_>, id: &OperationId, answer: &OperationAnswer) -> Result<()> {
    tx.prepare_cached(statements::OPERATION_ANSWER_ADD)?
        .execute(params![id.as_str(), answer.status, &answer.headers[..], &answer.body[..]])
        .map(|_| ())
}

/// Is there an operation with this id, or of this grant?
pub fn clash(tx: &Transaction<'_>, admission: &Admission) -> Result<bool> {
    let key = &admission.key;
    tx.prepare_cached(statements::OPERATION_CLASH)?
        .query_row(params![admission.operation.as_str(), key.issuer, key.key_tenant, key.grant_id], |row| {
            row.get(0)
        })
}

/// Records an operation.
pub fn add_operation(
    tx: &Transaction<'_>,
    admission: &Admission,
    lease_until: Micros,
    submit_by: Micros,
    now: Micros,
) -> Result<()> {
    let key = &admission.key;
    tx.prepare_cached(statements::OPERATION_ADD)?
        .execute(params![
            admission.operation.as_str(),
            key.issuer,
            key.key_tenant,
            key.grant_id,
            admission.caller_namespace,
            admission.caller_id,
            admission.tenant,
            &admission.details_digest[..],
            admission.details,
            FIRST_OWNER,
            lease_until.0,
            submit_by.0,
            now.0,
        ])
        .map(|_| ())
}

/// Writes what an owner's call changed.
pub fn write_operation(tx: &Transaction<'_>, stored: &Stored, now: Micros) -> Result<()> {
    let row = &stored.row;
    tx.prepare_cached(statements::OPERATION_WRITE)?
        .execute(params![
            row.operation.as_str(),
            status_word(row.status),
            row.reference,
            row.owned.owner_version,
            stored.lease_until.0,
            now.0,
        ])
        .map(|_| ())
}

/// The row of an issued grant.
pub fn issued(tx: &Transaction<'_>, key: &GrantKey) -> Result<Option<IssuedSeen>> {
    let read = |row: &Row<'_>| {
        let word: String = row.get("form")?;
        let consumed_by: Option<String> = row.get("consumed_by_operation")?;
        Ok(IssuedSeen {
            row: IssuedRow {
                form: form(&word),
                tenant: row.get("tenant")?,
                subject: row.get("subject")?,
                bound: row.get("bound")?,
                expires_at: row.get::<_, Option<i64>>("expires_at")?.map(Micros),
                leeway: Span::ms(u64::try_from(row.get::<_, i64>("leeway_ms")?).unwrap_or(0)),
                archived: row.get::<_, Option<i64>>("archived_at")?.is_some(),
            },
            revoked: row.get::<_, Option<i64>>("revoked_at")?.is_some(),
            consumed_by: consumed_by.map(id).transpose()?,
        })
    };
    let mut statement = tx.prepare_cached(statements::ISSUED_READ)?;
    statement.query_row(params![key.issuer, key.key_tenant, key.grant_id], read).optional()
}

/// Records an issued grant.
pub fn add_issued(tx: &Transaction<'_>, issue: &Issue, now: Micros) -> Result<()> {
    let key = &issue.key;
    tx.prepare_cached(statements::ISSUED_ADD)?
        .execute(params![
            key.issuer,
            key.key_tenant,
            key.grant_id,
            if issue.form == Form::Row { "row" } else { "log" },
            issue.tenant,
            issue.subject,
            issue.bound,
            now.0,
            issue.expires_at.map(|at| at.0),
            issue.leeway.as_i64(),
        ])
        .map(|_| ())
}

/// Spends a grant that is a row.
pub fn consume_issued(
    tx: &Transaction<'_>,
    key: &GrantKey,
    operation: &OperationId,
    now: Micros,
) -> Result<()> {
    tx.prepare_cached(statements::ISSUED_CONSUME)?
        .execute(params![key.issuer, key.key_tenant, key.grant_id, now.0, operation.as_str()])
        .map(|_| ())
}

/// Withdraws a grant that is a row.
pub fn revoke_issued(tx: &Transaction<'_>, key: &GrantKey, now: Micros) -> Result<()> {
    tx.prepare_cached(statements::ISSUED_REVOKE)?
        .execute(params![key.issuer, key.key_tenant, key.grant_id, now.0])
        .map(|_| ())
}

/// Archives rows, and notes it for each issuer.
pub fn archive(tx: &Transaction<'_>, before: Micros, limit: u32, now: Micros) -> Result<u64> {
    let mut of_issuers = BTreeMap::<String, (u64, u64, i64)>::new();
    let mut statement = tx.prepare_cached(statements::ISSUED_ARCHIVE)?;
    let mut rows = statement.query(params![before.0, limit, now.0])?;
    let mut changed = 0;
    while let Some(row) = rows.next()? {
        let (archived, used, last) = of_issuers.entry(row.get("issuer")?).or_default();
        *archived += 1;
        *used += u64::from(row.get::<_, Option<i64>>("consumed_at")?.is_some());
        *last = (*last).max(row.get("expires_at")?);
        changed += 1;
    }
    for (issuer, (archived, used, last)) in of_issuers {
        tx.prepare_cached(statements::ARCHIVAL_ADD)?.execute(params![
            now.0,
            issuer,
            i64::try_from(archived).unwrap_or(i64::MAX),
            i64::try_from(used).unwrap_or(i64::MAX),
            last
        ])?;
    }
    Ok(changed)
}

/// Appends to the audit.
pub fn audit(
    tx: &Transaction<'_>,
    now: Micros,
    actor: &str,
    action: &str,
    outcome: &str,
    key: &GrantKey,
    reason: &str,
) -> Result<()> {
    tx.prepare_cached(statements::AUDIT_ADD)?
        .execute(params![now.0, actor, action, outcome, key.issuer, key.key_tenant, key.grant_id, reason])
        .map(|_| ())
}

/// Pins what grants are issued under, once, and says what is pinned.
pub fn pin(tx: &Transaction<'_>, pin: &Pin, now: Micros) -> Result<Pin> {
    let read = |row: &Row<'_>| {
        let word: String = row.get(0)?;
        Ok(Pin {
            form: form(&word),
            key_by_tenant: row.get(1)?,
            leeway_ms: row.get(2)?,
            lifetime_ms_max: row.get(3)?,
            iat_skew_ms: row.get(4)?,
            ..pin.clone()
        })
    };
    let mut statement = tx.prepare_cached(statements::PIN_READ)?;
    if let Some(pinned) = statement.query_row(params![pin.issuer, pin.version], read).optional()? {
        return Ok(pinned);
    }
    tx.prepare_cached(statements::PIN_ADD)?.execute(params![
        pin.issuer,
        pin.version,
        pin.form.name(),
        pin.key_by_tenant,
        pin.leeway_ms,
        pin.lifetime_ms_max,
        pin.iat_skew_ms,
        now.0,
    ])?;
    Ok(pin.clone())
}
