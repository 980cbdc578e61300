//! What recovery writes to PostgreSQL: any number of instances, decided by the database.
//!
//! One statement for each call, in autocommit; `sql/` has one file for each, and its head says what it
//! locks and why it is right. On connections of its own, so that recovery keeps nobody waiting.

pub mod statements;

use super::store::{
    Applied, Backlog, Ending, HeldKey, MarkedKey, Note, Owner, RecoveryStore, Rest, StepName, TakeOver, Taken,
};
use crate::entry::Version;
use crate::grant::duration::Span;
use crate::grant::postgres::pool::{Failure, Params, Plans, Pool};
use crate::grant::postgres::row::{get, micros, one, operation_row, owned};
use crate::grant::postgres::statements::{OPERATION_MAY_SUBMIT, OPERATION_STATUS, Sql};
use crate::grant::store::{Owned, OwnerCall, OwnerOutcome, owner_refusal, status_word};
use crate::store::{OpenError, StoreError};
use async_trait::async_trait;
use fencepost_protocol::grants::{OperationRefusal, OperationStatus};
use fencepost_protocol::{ScopeDigest, StoreId, StoreKey};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_postgres::Row;

/// Connections of recovery.
const CONNECTIONS: usize = 2;

/// What recovery writes to PostgreSQL.
pub struct PostgresRecovery {
    pool: Arc<Pool>,
}

impl PostgresRecovery {
    /// On a database whose schema is there already; connects at the first use.
    pub fn open(
        url: &str,
        unnamed_statements: bool,
        store_id: StoreId,
        timeout: Duration,
    ) -> Result<Self, OpenError> {
        Ok(Self {
            pool: Pool::new(url, unnamed_statements, store_id, timeout, Plans::Free, None, CONNECTIONS)?,
        })
    }

    async fn run(&self, sql: &'static Sql, params: Params) -> Result<Vec<Row>, StoreError> {
        self.pool.run(sql, params).await.map_err(Failure::unexpected)
    }

    async fn applied(&self, sql: &'static Sql, params: Params) -> Result<Applied<()>, StoreError> {
        Ok(if self.run(sql, params).await?.is_empty() { Applied::Lost } else { Applied::Yes(()) })
    }
}

fn owner_params(owner: &Owner) -> Params {
    vec![Box::new(owner.id.as_str().to_owned()), Box::new(owner.version)]
}

fn note_params(note: Note) -> [Box<dyn tokio_postgres::types::ToSql + Sync + Send>; 2] {
    [Box::new(note.result), Box::new(note.detail)]
}

#[async_trait]
impl RecoveryStore for PostgresRecovery {
    async fn take_over(&self, take: TakeOver) -> Result<Vec<Taken>, StoreError> {
        let params: Params = vec![
            Box::new(take.issuers),
            Box::new(take.older_than.map(Span::as_i64)),
            Box::new(take.lease.as_i64()),
            Box::new(take.note.actor),
            Box::new(i64::from(take.limit)),
            Box::new(take.note.detail),
        ];
        self.run(&statements::RECOVERY_TAKE_OVER, params).await?.iter().map(taken).collect()
    }

    async fn step(
        &self,
        owner: Owner,
        step: StepName,
        lease: Span,
        note: Note,
    ) -> Result<Applied<Owned>, StoreError> {
        let mut params = owner_params(&owner);
        params.push(Box::new(lease.as_i64()));
        params.push(Box::new(note.actor.clone()));
        params.push(Box::new(step.word()));
        params.extend(note_params(note));
        let rows = self.run(&statements::RECOVERY_STEP, params).await?;
        rows.first().map_or(Ok(Applied::Lost), |row| owned(row).map(Applied::Yes))
    }

    async fn may_submit(&self, owner: Owner, expected: OperationStatus) -> Result<OwnerOutcome, StoreError> {
        let mut params = owner_params(&owner);
        params.push(Box::new(status_word(expected)));
        let rows = self.run(&OPERATION_MAY_SUBMIT, params).await?;
        if let Some(row) = rows.first() {
            return owned(row).map(OwnerOutcome::Done);
        }
        // Why not; the read reports, and decides nothing.
        let rows = self.run(&OPERATION_STATUS, vec![Box::new(owner.id.as_str().to_owned())]).await?;
        let seen = rows.first().map(operation_row).transpose()?;
        let call = OwnerCall::MaySubmit { expected };
        let refused = owner_refusal(&call, owner.version, seen.as_ref());
        Ok(refused.unwrap_or(OwnerOutcome::Refused(OperationRefusal::Other)))
    }

    async fn record(&self, owner: Owner, ending: Ending, note: Note) -> Result<Applied<()>, StoreError> {
        let mut params = owner_params(&owner);
        params.push(Box::new(status_word(ending.expected)));
        params.push(Box::new(status_word(ending.outcome)));
        params.push(Box::new(ending.reference));
        params.push(Box::new(note.actor.clone()));
        params.extend(note_params(note));
        params.push(Box::new(ending.answer.as_ref().map(|answer| i32::from(answer.status))));
        params.push(Box::new(ending.answer.as_ref().map(|answer| answer.headers.to_vec())));
        params.push(Box::new(ending.answer.map(|answer| answer.body.to_vec())));
        self.applied(&statements::RECOVERY_RECORD, params).await
    }

    async fn postpone(&self, owner: Owner, rest: Rest, note: Note) -> Result<Applied<()>, StoreError> {
        let mut params = owner_params(&owner);
        params.push(Box::new(rest.span.as_i64()));
        params.push(Box::new(rest.counted));
        params.push(Box::new(note.actor.clone()));
        params.extend(note_params(note));
        self.applied(&statements::RECOVERY_POSTPONE, params).await
    }

    async fn backlog(&self, max: u32) -> Result<Backlog, StoreError> {
        let rows = self.run(&statements::RECOVERY_BACKLOG, vec![Box::new(i64::from(max))]).await?;
        let row = one(&rows)?;
        let number = |name| get::<i64>(row, name).map(|number| u64::try_from(number).unwrap_or(0));
        Ok(Backlog {
            stalled: number("stalled")?,
            needs_reconciliation: number("needs_reconciliation")?,
            marked_keys: number("marked")?,
        })
    }

    async fn held_take(
        &self,
        prefixes: Vec<String>,
        lease: Span,
        actor: String,
        limit: u32,
    ) -> Result<Vec<HeldKey>, StoreError> {
        let params: Params =
            vec![Box::new(prefixes), Box::new(lease.as_i64()), Box::new(actor), Box::new(i64::from(limit))];
        self.run(&statements::HELD_TAKE, params).await?.iter().map(held).collect()
    }

    async fn held_postpone(
        &self,
        key: StoreKey,
        turn: i64,
        rest: Rest,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        let params: Params = vec![
            Box::new(key.to_string()),
            Box::new(turn),
            Box::new(rest.span.as_i64()),
            Box::new(rest.counted),
            Box::new(result),
        ];
        self.applied(&statements::HELD_POSTPONE, params).await
    }

    async fn held_mark(
        &self,
        key: StoreKey,
        turn: i64,
        reason: String,
        result: String,
    ) -> Result<Applied<()>, StoreError> {
        let params: Params =
            vec![Box::new(key.to_string()), Box::new(turn), Box::new(reason), Box::new(result)];
        self.applied(&statements::HELD_MARK, params).await
    }

    async fn held_list(
        &self,
        prefixes: Option<Vec<String>>,
        after: Option<StoreKey>,
        limit: u32,
    ) -> Result<Vec<MarkedKey>, StoreError> {
        let after = after.map(|key| key.to_string());
        let params: Params = vec![Box::new(prefixes), Box::new(after), Box::new(i64::from(limit))];
        self.run(&statements::HELD_LIST, params).await?.iter().map(marked).collect()
    }

    async fn held_tidy(&self, after: Option<String>, limit: u32) -> Result<Option<String>, StoreError> {
        let params: Params = vec![Box::new(after), Box::new(i64::from(limit))];
        let rows = self.run(&statements::HELD_TIDY, params).await?;
        get(one(&rows)?, "last")
    }
}

fn taken(row: &Row) -> Result<Taken, StoreError> {
    Ok(Taken {
        row: operation_row(row)?,
        attempts: u32::try_from(get::<i32>(row, "recovery_attempts")?).unwrap_or(0),
        age_ms: u64::try_from(get::<i64>(row, "age_ms")?).unwrap_or(0),
    })
}

fn key(row: &Row) -> Result<StoreKey, StoreError> {
    StoreKey::parse(get(row, "key")?).map_err(|error| StoreError::Broken(format!("a held key: {error}")))
}

fn version(row: &Row) -> Result<Version, StoreError> {
    let updated_at: SystemTime = get(row, "version_updated_at")?;
    Ok(Version { fence: get(row, "version_fence")?, updated_at: micros(updated_at) })
}

fn attempts(row: &Row) -> Result<u32, StoreError> {
    Ok(u32::try_from(get::<i32>(row, "attempts")?).unwrap_or(0))
}

fn held(row: &Row) -> Result<HeldKey, StoreError> {
    let scope: &[u8] = get(row, "scope")?;
    Ok(HeldKey {
        key: key(row)?,
        version: version(row)?,
        scope: ScopeDigest::from_slice(scope)
            .ok_or_else(|| StoreError::Broken("a held key has a bad scope".into()))?,
        turn: get(row, "turn")?,
        attempts: attempts(row)?,
        age_ms: u64::try_from(get::<i64>(row, "age_ms")?).unwrap_or(0),
    })
}

fn marked(row: &Row) -> Result<MarkedKey, StoreError> {
    let marked_at: SystemTime = get(row, "marked_at")?;
    Ok(MarkedKey {
        key: key(row)?,
        version: version(row)?,
        attempts: attempts(row)?,
        result: get(row, "result")?,
        reason: get(row, "for_person")?,
        marked_at: micros(marked_at),
        by: get(row, "taken_by")?,
    })
}
