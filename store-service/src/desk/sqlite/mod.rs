//! The desk in the SQLite file: each decision reads and writes inside the file's write lock, by the
//! clock as it is there.

mod audit;
mod erase;
mod free;
mod hold;
pub mod statements;

use super::{
    Again, AgainOrder, AuditFilter, AuditSeen, Desk, EraseOrder, Erased, FreeDone, FreeOrder, GrantFilter,
    GrantSeen, GrantState, HoldDone, HoldOrder, HoldSeen, Line, Note, OperationFilter, OperationOrder,
    OperationSeen, OperationSettled, again, entry_subject, settle,
};
use crate::entry::Micros;
use crate::grant::sqlite::tables;
use crate::grant::store::{read_status, status_word};
use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use crate::store::sqlite::Beside;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;
use rusqlite::types::Type;
use rusqlite::{Error, Result, Row, Transaction, params};

/// The desk in the file of a store.
pub struct SqliteDesk {
    beside: Beside,
}

impl SqliteDesk {
    /// On the store's connection.
    pub fn new(beside: Beside) -> Self {
        Self { beside }
    }
}

#[async_trait]
impl Desk for SqliteDesk {
    async fn operations(
        &self,
        filter: OperationFilter,
    ) -> std::result::Result<Vec<OperationSeen>, StoreError> {
        self.beside.run(move |tx, now| operations(tx, now, &filter, None)).await
    }

    async fn operation(&self, id: OperationId) -> std::result::Result<Option<OperationSeen>, StoreError> {
        self.beside.run(move |tx, now| operation(tx, now, &id)).await
    }

    async fn history(&self, id: OperationId) -> std::result::Result<Vec<OperationEvent>, StoreError> {
        self.beside.run(move |tx, _| tables::history(tx, &id)).await
    }

    async fn settle_operation(
        &self,
        order: OperationOrder,
    ) -> std::result::Result<OperationSettled, StoreError> {
        self.beside.run(move |tx, now| settle_operation(tx, now, &order)).await
    }

    async fn grants(&self, filter: GrantFilter) -> std::result::Result<Vec<GrantSeen>, StoreError> {
        self.beside.run(move |tx, now| grants(tx, now, filter)).await
    }

    async fn release_grant(
        &self,
        key: GrantKey,
        who: String,
        reason: String,
    ) -> std::result::Result<(), StoreError> {
        self.note(Note::release_grant(&key, who, reason)).await
    }

    async fn holds(&self) -> std::result::Result<Vec<HoldSeen>, StoreError> {
        self.beside.run(move |tx, now| hold::holds(tx, now, None)).await
    }

    async fn begin_hold(&self, order: HoldOrder) -> std::result::Result<HoldDone, StoreError> {
        self.beside.run(move |tx, now| hold::begin_hold(tx, now, &order)).await
    }

    async fn lift_hold(
        &self,
        id: i64,
        who: String,
        reason: String,
    ) -> std::result::Result<HoldDone, StoreError> {
        self.beside.run(move |tx, now| hold::lift_hold(tx, now, id, &who, &reason)).await
    }

    async fn free_held(&self, order: FreeOrder) -> std::result::Result<FreeDone, StoreError> {
        self.beside.run(move |tx, now| free::free(tx, now, &order)).await
    }

    async fn look_again(&self, order: AgainOrder) -> std::result::Result<Again, StoreError> {
        self.beside.run(move |tx, now| look_again(tx, now, order)).await
    }

    async fn erase(&self, order: EraseOrder) -> std::result::Result<Erased, StoreError> {
        self.beside.run(move |tx, now| erase::erase(tx, now, &order)).await
    }

    async fn lines(&self, subject: String) -> std::result::Result<Vec<Line>, StoreError> {
        self.beside.run(move |tx, _| lines(tx, &subject)).await
    }

    async fn audit(&self, filter: AuditFilter) -> std::result::Result<Vec<AuditSeen>, StoreError> {
        self.beside.run(move |tx, _| audit::list(tx, &filter)).await
    }

    async fn note(&self, note: Note) -> std::result::Result<(), StoreError> {
        let line = move |now| Line {
            at: now,
            who: note.who,
            action: note.action.to_owned(),
            version_before: note.version,
            state_before: note.state.clone(),
            state_after: note.state,
            reason: note.reason,
        };
        let subject = note.subject;
        self.beside.run(move |tx, now| write_line(tx, &subject, &line(now))).await
    }
}

fn operations(
    tx: &Transaction<'_>,
    now: Micros,
    filter: &OperationFilter,
    only: Option<&OperationId>,
) -> Result<Vec<OperationSeen>> {
    let words = |all: &Vec<_>| serde_json::json!(all.iter().copied().map(status_word).collect::<Vec<_>>());
    let before = filter.older_than_ms.map(|ms| {
        let us = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        now.0.saturating_sub(us)
    });
    let mut statement = tx.prepare_cached(statements::OPERATION_LIST)?;
    let rows = statement.query_map(
        params![
            filter.statuses.as_ref().map(|all| words(all).to_string()),
            filter.issuer,
            filter.tenant,
            filter.caller_namespace,
            filter.caller_id,
            before,
            filter.after.as_ref().map(OperationId::as_str),
            only.map(OperationId::as_str),
            filter.limit,
            filter.cause,
        ],
        |row| seen(row, now),
    )?;
    rows.collect()
}

fn operation(tx: &Transaction<'_>, now: Micros, id: &OperationId) -> Result<Option<OperationSeen>> {
    let one = OperationFilter { limit: 1, ..OperationFilter::default() };
    Ok(operations(tx, now, &one, Some(id))?.pop())
}

fn settle_operation(tx: &Transaction<'_>, now: Micros, order: &OperationOrder) -> Result<OperationSettled> {
    let old = operation(tx, now, &order.id)?;
    let settled = settle(old.as_ref(), order, now);
    if let (OperationSettled::Settled, Some(old)) = (settled, old) {
        let status = status_word(order.ending.status());
        tx.prepare_cached(statements::OPERATION_END)?.execute(params![
            order.id.as_str(),
            status,
            order.reference,
            now.0
        ])?;
        tx.prepare_cached(statements::OPERATION_TOLD)?.execute(params![
            now.0,
            order.id.as_str(),
            old.owner_version,
            order.who,
            order.ending.action(),
            status_word(old.status),
            status,
            order.reason,
        ])?;
    }
    Ok(settled)
}

fn grants(tx: &Transaction<'_>, now: Micros, filter: GrantFilter) -> Result<Vec<GrantSeen>> {
    let parts = |key: Option<GrantKey>| match key {
        Some(key) => (Some(key.issuer), Some(key.key_tenant), Some(key.grant_id)),
        None => (None, None, None),
    };
    let (only, after) = (parts(filter.only), parts(filter.after));
    let mut statement = tx.prepare_cached(statements::GRANT_LIST)?;
    let rows = statement.query_map(
        params![
            filter.state.map(GrantState::word),
            filter.issuer,
            filter.tenant,
            filter.subject,
            only.0,
            only.1,
            only.2,
            after.0,
            after.1,
            after.2,
            filter.limit,
            now.0,
            filter.held,
        ],
        |row| grant(row, now),
    )?;
    rows.collect()
}

fn look_again(tx: &Transaction<'_>, now: Micros, order: AgainOrder) -> Result<Again> {
    let version = order.version;
    let changed = tx.prepare_cached(statements::HELD_AGAIN)?.execute(params![
        order.key.as_str(),
        version.fence,
        version.updated_at.0,
        now.0
    ])?;
    if changed == 0 {
        return Ok(Again::NotGivenUp);
    }
    let line = Line {
        at: now,
        who: order.who,
        action: again::ACTION.into(),
        version_before: version.to_string(),
        state_before: "for_person".into(),
        state_after: "unknown".into(),
        reason: order.reason,
    };
    write_line(tx, &entry_subject(order.key.as_str()), &line)?;
    Ok(Again::Told)
}

fn lines(tx: &Transaction<'_>, subject: &str) -> Result<Vec<Line>> {
    let mut statement = tx.prepare_cached(statements::DESK_LINES)?;
    let lines = statement.query_map([subject], |row| {
        Ok(Line {
            at: Micros(row.get("at")?),
            who: row.get("who")?,
            action: row.get("action")?,
            version_before: row.get("version_before")?,
            state_before: row.get("state_before")?,
            state_after: row.get("state_after")?,
            reason: row.get("reason")?,
        })
    })?;
    lines.collect()
}

fn write_line(tx: &Transaction<'_>, subject: &str, line: &Line) -> Result<()> {
    tx.prepare_cached(statements::DESK_NOTE)?
        .execute(params![
            line.at.0,
            line.who,
            line.action,
            subject,
            line.version_before,
            line.state_before,
            line.state_after,
            line.reason,
        ])
        .map(|_| ())
}

fn bad(what: &str) -> Error {
    Error::FromSqlConversionFailure(0, Type::Null, format!("an operation has a bad {what}").into())
}

fn key(row: &Row<'_>) -> Result<GrantKey> {
    Ok(GrantKey {
        issuer: row.get("issuer")?,
        key_tenant: row.get("key_tenant")?,
        grant_id: row.get("grant_id")?,
    })
}

fn seen(row: &Row<'_>, now: Micros) -> Result<OperationSeen> {
    let id: String = row.get("operation_id")?;
    let status: String = row.get("status")?;
    Ok(OperationSeen {
        id: OperationId::parse(&id).map_err(|_| bad("operation id"))?,
        key: key(row)?,
        caller_namespace: row.get("caller_namespace")?,
        caller_id: row.get("caller_id")?,
        tenant: row.get("tenant")?,
        details: row.get("details")?,
        status: read_status(&status).ok_or_else(|| bad("status"))?,
        reference: row.get("reference")?,
        cause: row.get("cause")?,
        owner_version: row.get("owner_version")?,
        lease_until: Micros(row.get("lease_until")?),
        resting: row.get("resting")?,
        submit_by: Micros(row.get("submit_by")?),
        created_at: Micros(row.get("created_at")?),
        updated_at: Micros(row.get("updated_at")?),
        now,
    })
}

fn grant(row: &Row<'_>, now: Micros) -> Result<GrantSeen> {
    let at = |name: &str| Ok::<_, Error>(row.get::<_, Option<i64>>(name)?.map(Micros));
    Ok(GrantSeen {
        key: key(row)?,
        form: row.get("form")?,
        tenant: row.get("tenant")?,
        subject: row.get("subject")?,
        bound: row.get("bound")?,
        issued_at: at("issued_at")?,
        expires_at: at("expires_at")?,
        used_at: at("used_at")?,
        revoked_at: at("revoked_at")?,
        operation: row.get("operation_id")?,
        held: row.get("held")?,
        now,
    })
}
