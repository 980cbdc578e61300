//! What recovery writes to the SQLite file, on its only connection: each call decides inside the
//! write lock, by the clock as it is there, and its history is in the same transaction.

pub mod statements;

use super::store::{
    Applied, Backlog, Ending, HeldKey, MarkedKey, Note, Owner, RecoveryStore, Rest, StepName, TakeOver, Taken,
};
use crate::entry::{Micros, Version};
use crate::grant::duration::Span;
use crate::grant::sqlite::tables::{self, Stored};
use crate::grant::store::{Owned, OwnerCall, OwnerOutcome, owner_refusal, status_word};
use crate::store::StoreError;
use crate::store::sqlite::Beside;
use async_trait::async_trait;
use fencepost_protocol::grants::{OperationId, OperationRefusal, OperationStatus};
use fencepost_protocol::{ScopeDigest, StoreKey};
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, Row, Transaction, params};

type Sql<T> = rusqlite::Result<T>;

/// What recovery writes to the file of a store.
pub struct SqliteRecovery {
    beside: Beside,
}

impl SqliteRecovery {
    /// On the store's connection.
    pub fn new(beside: Beside) -> Self {
        Self { beside }
    }
}

/// What a step changes, and how the history calls it.
struct Line<'a> {
    step: &'a str,
    note: &'a Note,
}

fn note(tx: &Transaction<'_>, now: Micros, stored: &Stored, line: &Line<'_>) -> Sql<()> {
    tx.prepare_cached(statements::EVENT_ADD)?
        .execute(params![
            now.0,
            stored.row.operation.as_str(),
            stored.row.owned.owner_version,
            line.note.actor,
            line.step,
            line.note.result,
            status_word(stored.row.status),
            line.note.detail,
        ])
        .map(|_| ())
}

fn open(stored: &Stored) -> bool {
    matches!(stored.row.status, OperationStatus::Admitted | OperationStatus::Unknown)
}

/// The operation, if it is open and has this owner.
fn mine(tx: &Transaction<'_>, owner: &Owner) -> Sql<Option<Stored>> {
    let stored = tables::operation(tx, &owner.id)?;
    Ok(stored.filter(|stored| open(stored) && stored.row.owned.owner_version == owner.version))
}

fn take_over(tx: &Transaction<'_>, now: Micros, take: &TakeOver) -> Sql<Vec<Taken>> {
    let issuers = take.issuers.as_ref().map(|issuers| serde_json::json!(issuers).to_string());
    let before = take.older_than.map(|span| now.0.saturating_sub(span.as_i64().saturating_mul(1_000)));
    let mut statement = tx.prepare_cached(statements::RECOVERY_DUE)?;
    let due = statement.query_map(params![issuers, before, now.0, take.limit], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, i64>(2)?))
    })?;
    let due: Vec<_> = due.collect::<Sql<_>>()?;
    let mut taken = Vec::with_capacity(due.len());
    for (id, attempts, created_at) in due {
        let id = OperationId::parse(&id).map_err(|_| bad("operation id"))?;
        let Some(mut stored) = tables::operation(tx, &id)? else { continue };
        stored.row.owned.owner_version += 1;
        stored.lease_until = now.plus_ms(take.lease.as_ms());
        tables::write_operation(tx, &stored, now)?;
        note(tx, now, &stored, &Line { step: "take_over", note: &take.note })?;
        taken.push(Taken { row: stored.row(now), attempts, age_ms: now.ms_after(Micros(created_at)) });
    }
    Ok(taken)
}

fn step(
    tx: &Transaction<'_>,
    now: Micros,
    owner: &Owner,
    lease: Span,
    line: &Line<'_>,
) -> Sql<Applied<Owned>> {
    let Some(mut stored) = mine(tx, owner)? else { return Ok(Applied::Lost) };
    stored.lease_until = stored.lease_until.max(now.plus_ms(lease.as_ms()));
    tables::write_operation(tx, &stored, now)?;
    note(tx, now, &stored, line)?;
    Ok(Applied::Yes(stored.row(now).owned))
}

fn record(
    tx: &Transaction<'_>,
    now: Micros,
    owner: &Owner,
    ending: &Ending,
    about: &Note,
) -> Sql<Applied<()>> {
    let stored = mine(tx, owner)?.filter(|stored| stored.row.status == ending.expected);
    let Some(mut stored) = stored else { return Ok(Applied::Lost) };
    stored.row.status = ending.outcome;
    stored.row.reference = ending.reference.clone().or(stored.row.reference);
    tables::write_operation(tx, &stored, now)?;
    if let Some(answer) = &ending.answer {
        tables::add_answer(tx, &owner.id, answer)?;
    }
    note(tx, now, &stored, &Line { step: "record", note: about })?;
    Ok(Applied::Yes(()))
}

fn postpone(tx: &Transaction<'_>, now: Micros, owner: &Owner, rest: Rest, about: &Note) -> Sql<Applied<()>> {
    let Some(mut stored) = mine(tx, owner)? else { return Ok(Applied::Lost) };
    stored.lease_until = now.plus_ms(rest.span.as_ms());
    tables::write_operation(tx, &stored, now)?;
    if rest.counted {
        tx.prepare_cached(statements::RECOVERY_COUNT)?.execute([owner.id.as_str()])?;
    }
    note(tx, now, &stored, &Line { step: "postpone", note: about })?;
    Ok(Applied::Yes(()))
}

fn held_take(
    tx: &Transaction<'_>,
    now: Micros,
    prefixes: &[String],
    lease: Span,
    actor: &str,
    limit: u32,
) -> Sql<Vec<HeldKey>> {
    let mut statement = tx.prepare_cached(statements::HELD_DUE)?;
    let prefixes = serde_json::json!(prefixes).to_string();
    let due: Vec<HeldKey> =
        statement.query_map(params![prefixes, now.0, limit], |row| due(row, now))?.collect::<Sql<_>>()?;
    for held in &due {
        tx.prepare_cached(statements::HELD_TAKE)?.execute(params![
            held.key.as_str(),
            held.version.fence,
            held.version.updated_at.0,
            held.turn,
            held.attempts,
            now.plus_ms(lease.as_ms()).0,
            actor,
        ])?;
    }
    Ok(due)
}

fn due(row: &Row<'_>, now: Micros) -> Sql<HeldKey> {
    let scope: Vec<u8> = row.get("scope")?;
    let updated_at = Micros(row.get("updated_at")?);
    let same: bool = row.get("same")?;
    Ok(HeldKey {
        key: key(row)?,
        version: Version { fence: row.get("fence")?, updated_at },
        scope: ScopeDigest::from_slice(&scope).ok_or_else(|| bad("scope"))?,
        turn: row.get::<_, Option<i64>>("turn")?.unwrap_or(0) + 1,
        attempts: if same { row.get("attempts")? } else { 0 },
        age_ms: now.ms_after(updated_at),
    })
}

fn marked(row: &Row<'_>) -> Sql<MarkedKey> {
    Ok(MarkedKey {
        key: key(row)?,
        version: Version {
            fence: row.get("version_fence")?,
            updated_at: Micros(row.get("version_updated_at")?),
        },
        attempts: row.get("attempts")?,
        result: row.get("result")?,
        reason: row.get("for_person")?,
        marked_at: Micros(row.get("marked_at")?),
        by: row.get("taken_by")?,
    })
}

fn key(row: &Row<'_>) -> Sql<StoreKey> {
    StoreKey::parse(row.get_ref("key")?.as_str()?).map_err(|_| bad("key"))
}

fn bad(what: &str) -> Error {
    Error::FromSqlConversionFailure(0, Type::Null, format!("a row of recovery has a bad {what}").into())
}

fn applied(changed: usize) -> Applied<()> {
    if changed == 0 { Applied::Lost } else { Applied::Yes(()) }
}

#[async_trait]
impl RecoveryStore for SqliteRecovery {
    async fn take_over(&self, take: TakeOver) -> Result<Vec<Taken>, StoreError> {
        self.beside.run(move |tx, now| take_over(tx, now, &take)).await
    }

    async fn step(
        &self,
        owner: Owner,
        name: StepName,
        lease: Span,
        note: Note,
    ) -> Result<Applied<Owned>, StoreError> {
        self.beside
            .run(move |tx, now| step(tx, now, &owner, lease, &Line { step: name.word(), note: &note }))
            .await
    }

    async fn may_submit(&self, owner: Owner, expected: OperationStatus) -> Result<OwnerOutcome, StoreError> {
        let ask = move |tx: &Transaction<'_>, now| {
            let row = tables::operation(tx, &owner.id)?.map(|stored| stored.row(now));
            let call = OwnerCall::MaySubmit { expected };
            Ok(match (owner_refusal(&call, owner.version, row.as_ref()), row) {
                (Some(refused), _) => refused,
                (None, Some(row)) => OwnerOutcome::Done(row.owned),
                (None, None) => OwnerOutcome::Refused(OperationRefusal::Absent),
            })
        };
        self.beside.run(ask).await
    }

    async fn record(&self, owner: Owner, ending: Ending, note: Note) -> Result<Applied<()>, StoreError> {
        self.beside.run(move |tx, now| record(tx, now, &owner, &ending, &note)).await
    }

    async fn postpone(&self, owner: Owner, rest: Rest, note: Note) -> Result<Applied<()>, StoreError> {
        self.beside.run(move |tx, now| postpone(tx, now, &owner, rest, &note)).await
    }

    async fn backlog(&self, max: u32) -> Result<Backlog, StoreError> {
        let count = move |tx: &Transaction<'_>, now: Micros| {
            tx.prepare_cached(statements::RECOVERY_BACKLOG)?.query_row(params![now.0, max], |row| {
                Ok(Backlog {
                    stalled: row.get::<_, u32>(0)?.into(),
                    needs_reconciliation: row.get::<_, u32>(1)?.into(),
                    marked_keys: row.get::<_, u32>(2)?.into(),
                })
            })
        };
        self.beside.run(count).await
    }

    async fn held_take(
        &self,
        prefixes: Vec<String>,
        lease: Span,
        actor: String,
        limit: u32,
    ) -> Result<Vec<HeldKey>, StoreError> {
        self.beside.run(move |tx, now| held_take(tx, now, &prefixes, lease, &actor, limit)).await
    }

    async fn held_postpone(
        &self,
        key: StoreKey,
        turn: i64,
        rest: Rest,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        let write = move |tx: &Transaction<'_>, now: Micros| {
            let next_at = now.plus_ms(rest.span.as_ms()).0;
            let more = u32::from(rest.counted);
            let mut statement = tx.prepare_cached(statements::HELD_POSTPONE)?;
            statement.execute(params![key.as_str(), turn, next_at, more, result]).map(applied)
        };
        self.beside.run(write).await
    }

    async fn held_mark(
        &self,
        key: StoreKey,
        turn: i64,
        reason: String,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        let write = move |tx: &Transaction<'_>, now: Micros| {
            let mut statement = tx.prepare_cached(statements::HELD_MARK)?;
            statement.execute(params![key.as_str(), turn, reason, result, now.0]).map(applied)
        };
        self.beside.run(write).await
    }

    async fn held_list(
        &self,
        prefixes: Option<Vec<String>>,
        after: Option<StoreKey>,
        limit: u32,
    ) -> Result<Vec<MarkedKey>, StoreError> {
        let read = move |tx: &Transaction<'_>, now: Micros| {
            let prefixes = prefixes.map(|prefixes| serde_json::json!(prefixes).to_string());
            let after = after.as_ref().map(StoreKey::as_str);
            let mut statement = tx.prepare_cached(statements::HELD_LIST)?;
            statement.query_map(params![prefixes, after, now.0, limit], marked)?.collect()
        };
        self.beside.run(read).await
    }

    async fn held_tidy(&self, after: Option<String>, limit: u32) -> Result<Option<String>, StoreError> {
        let write = move |tx: &Transaction<'_>, now: Micros| {
            let last: Option<String> = tx
                .prepare_cached(statements::HELD_LAST)?
                .query_row(params![after, limit.saturating_sub(1)], |row| row.get(0))
                .optional()?;
            tx.prepare_cached(statements::HELD_TIDY)?.execute(params![after, last, now.0])?;
            Ok(last)
        };
        self.beside.run(write).await
    }
}
