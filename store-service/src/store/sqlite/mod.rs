//! The SQLite store: one file, one process, one writer.
//!
//! A thread of its own owns the only connection. Operations that queue up while it works go
//! together into the next `BEGIN IMMEDIATE` transaction, so one flush to disk serves many; callers
//! are answered after the commit. Each decision is the pure transition, made inside the write lock
//! by a clock that is read there.
//!
//! `locking_mode=EXCLUSIVE` keeps every other process out: two services on one file would each
//! believe that they alone hold renewals, waiters and the grace after a start.
//!
//! WAL with `synchronous=FULL`: what was answered survives a power cut.

mod beside;
mod migrate;
mod people;
mod row;
mod statements;
mod writer;

use super::{Audit, Beat, Clock, Entry, Filter, OpenError, Store, StoreError, StoreKind};
use crate::desk::Desk;
use crate::desk::sqlite::SqliteDesk;
use crate::entry::{Claim, ClaimOutcome, Complete, Release, Settle, SettleReply, SweepKind};
use crate::grant::sqlite::SqliteGrants;
use crate::grant::store::GrantStore;
use crate::grant::timing::ExecutionTimings;
use crate::recovery::sqlite::SqliteRecovery;
use crate::recovery::store::RecoveryStore;
use crate::seal::SealStore;
use crate::seal::sqlite::SqliteSeals;
use async_trait::async_trait;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreId, StoreKey};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use writer::Job;

pub use beside::Beside;
pub use migrate::SCHEMA_VERSION;

/// Most operations that wait for the writer: more are refused at once, rather than answered long
/// after their caller gave up.
const QUEUE_MAX: usize = 16_384;

/// How long an opening waits for a predecessor that is just stopping.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3);

/// Entries in a SQLite file.
pub struct Sqlite {
    store_id: StoreId,
    jobs: mpsc::Sender<Job>,
}

impl Sqlite {
    /// Opens the file, or makes it, and checks its schema; `migrate` brings it up to date first.
    pub async fn open(path: &Path, clock: Clock, migrate: bool) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let (opened, result) = oneshot::channel();
        let run = move || match open(&path, &clock, migrate) {
            Ok((connection, store_id)) => {
                let _ = opened.send(Ok(store_id));
                writer::run(connection, &clock, queue);
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        };
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(run)
            .map_err(|error| OpenError::Unreachable(format!("can't start a thread: {error}")))?;
        let store_id = result
            .await
            .map_err(|_| OpenError::Unusable("the SQLite thread ended while opening".into()))??;
        Ok(Self { store_id, jobs })
    }

    async fn ask<R>(&self, job: impl FnOnce(writer::Answer<R>) -> Job) -> Result<R, StoreError> {
        let (answer, result) = oneshot::channel();
        self.jobs.try_send(job(answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::Unavailable("too many operations wait for the SQLite writer".into())
            }
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })?;
        result.await.map_err(|_| stopped())?
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the SQLite writer has stopped".into())
}

/// Takes the file for this process and brings its schema up to date.
fn open(path: &Path, clock: &Clock, migrate: bool) -> Result<(Connection, StoreId), OpenError> {
    let explain = |error: rusqlite::Error| explain(path, &error);
    let connection = Connection::open(path).map_err(explain)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(explain)?;
    // The locking mode comes first: with it the WAL needs no shared memory file.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(explain)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(explain)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::Unusable(format!(
            "{}: journal mode is {mode}; the store needs a file system on which SQLite can use WAL",
            path.display()
        )));
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(explain)?;
    connection.set_prepared_statement_cache_capacity(32);
    let mut connection = connection;
    let store_id = migrate::migrate(&mut connection, clock, migrate, migrate::SCHEMA_VERSION)
        .map_err(|error| error.explained(path))?;
    Ok((connection, store_id))
}

/// Creates or updates the schema up to `version`; for tests of updates.
pub fn migrate_to(path: &Path, version: i64) -> Result<StoreId, OpenError> {
    let mut connection = Connection::open(path).map_err(|error| explain(path, &error))?;
    migrate::migrate(&mut connection, &Clock::Real, true, version).map_err(|error| error.explained(path))
}

fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            OpenError::Unusable(format!(
                "{} is in use by another process; a SQLite store belongs to one service process (stop the other \
                 one, name another file, or use PostgreSQL for several instances)",
                path.display()
            ))
        }
        Some(rusqlite::ErrorCode::CannotOpen) => OpenError::Unusable(format!(
            "{} can't be opened ({error}); expected a file in a directory that exists and can be written",
            path.display()
        )),
        Some(rusqlite::ErrorCode::NotADatabase) => {
            OpenError::Unusable(format!("{} is not a SQLite database; name another file", path.display()))
        }
        _ => OpenError::Unusable(format!("{}: {error}", path.display())),
    }
}

#[async_trait]
impl Store for Sqlite {
    fn kind(&self) -> StoreKind {
        StoreKind::Sqlite
    }

    fn store_id(&self) -> StoreId {
        self.store_id
    }

    fn grants(&self, timings: ExecutionTimings) -> Option<Arc<dyn GrantStore>> {
        Some(Arc::new(SqliteGrants::new(self.beside(), timings)))
    }

    fn desk(&self) -> Option<Arc<dyn Desk>> {
        Some(Arc::new(SqliteDesk::new(self.beside())))
    }

    fn recovery(&self) -> Option<Arc<dyn RecoveryStore>> {
        Some(Arc::new(SqliteRecovery::new(self.beside())))
    }

    fn seals(&self) -> Option<Arc<dyn SealStore>> {
        Some(Arc::new(SqliteSeals::new(self.beside())))
    }

    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError> {
        self.ask(|answer| Job::Claim(claim, calm_ms, answer)).await
    }

    async fn complete(&self, complete: Complete) -> Result<CompleteReply, StoreError> {
        self.ask(|answer| Job::Complete(complete, answer)).await
    }

    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError> {
        self.ask(|answer| Job::Release(release, answer)).await
    }

    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        self.ask(|answer| Job::Unknown(request, answer)).await
    }

    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        self.ask(|answer| Job::Renew(renewals, answer)).await
    }

    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError> {
        self.ask(|answer| Job::Sweep(kind, calm_ms, limit, answer)).await
    }

    async fn sweep_lag(&self) -> Result<u64, StoreError> {
        let lag = |tx: &rusqlite::Transaction<'_>, now: crate::entry::Micros| {
            tx.prepare_cached(statements::SWEEP_LAG)?.query_row([now.0], |row| row.get::<_, i64>(0))
        };
        Ok(u64::try_from(self.beside().run(lag).await? / 1_000).unwrap_or(0))
    }

    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError> {
        self.ask(|reply| Job::Show(key.clone(), answer, reply)).await
    }

    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError> {
        self.ask(|answer| Job::List(filter, answer)).await
    }

    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError> {
        self.ask(|answer| Job::Audit(key.clone(), answer)).await
    }

    async fn settle(&self, order: Settle) -> Result<SettleReply, StoreError> {
        self.ask(|answer| Job::Settle(order, answer)).await
    }

    async fn heartbeat(&self) -> Result<Beat, StoreError> {
        self.ask(Job::Heartbeat).await.map(|()| Beat::Calm)
    }
}
