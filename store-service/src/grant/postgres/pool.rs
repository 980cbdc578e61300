//! Connections of one kind: those that admit, and those that do the rest.
//!
//! A statement runs on a task of its own, so a caller that goes away leaves no connection half read.
//! One that takes too long costs its connection, and whether it was applied is then not known:
//! nobody runs anything on that. The connections that admit run nothing but single statements in
//! autocommit, each bounded by the server (`transaction_timeout`) where it can do that.

use super::statements::{BOUND_SET, BOUND_SETTINGS, Sql};
use crate::grant::duration::Span;
use crate::store::postgres::fault::Fault;
use crate::store::postgres::migrate;
use crate::store::postgres::session::Connector;
use crate::store::{OpenError, StoreError};
use crate::trace;
use fencepost_protocol::StoreId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::Instrument;

/// First server version with `transaction_timeout`.
pub const BOUND_VERSION: i32 = 170_000;

/// How often a statement that was undone because of others is run again.
const CLASHES_MAX: u32 = 3;

/// How long a statement that took too long is asked to stop.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

/// Parameters that a task can own.
pub type Params = Vec<Box<dyn ToSql + Sync + Send>>;

/// Why a statement gave no rows.
#[derive(Debug)]
pub enum Failure {
    /// A unique constraint stood against it: its name. Everything the statement did is undone.
    Unique(String),
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// Where no unique violation is expected.
    pub fn unexpected(self) -> StoreError {
        match self {
            Self::Unique(constraint) => StoreError::Broken(format!("unexpected conflict on {constraint}")),
            Self::Store(error) => error,
        }
    }
}

/// What a server says about the life of a transaction.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its version.
    pub version_num: i32,
    /// `transaction_timeout`; none before PostgreSQL 17.
    pub timeout_ms: Option<i64>,
    /// Do commits wait for standbys?
    pub replicated: bool,
}

impl Settings {
    /// Does the server end every transaction within the bound?
    pub fn within(&self, bound: Span) -> bool {
        self.timeout_ms.is_some_and(|ms| (1..=bound.as_i64()).contains(&ms))
    }
}

/// How the server plans the statements of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plans {
    /// Each once: all go by the same index, whatever their values are.
    Once,
    /// As it likes: the filters of lists decide which index serves.
    Free,
}

/// Connections of one kind.
pub struct Pool {
    connector: Connector,
    unnamed: bool,
    store_id: StoreId,
    timeout: Duration,
    plans: Plans,
    /// Of connections that admit.
    bound: Option<Span>,
    /// A connection that admits was seen without the bound.
    unbounded: AtomicBool,
    slots: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

/// One connection with the statements that it has prepared.
pub struct Connection {
    /// The driver's.
    pub client: Client,
    tls: MakeRustlsConnect,
    prepared: HashMap<&'static str, Statement>,
}

impl Pool {
    /// A pool; connects at the first use.
    pub fn new(
        url: &str,
        unnamed: bool,
        store_id: StoreId,
        timeout: Duration,
        plans: Plans,
        bound: Option<Span>,
        size: usize,
    ) -> Result<Arc<Self>, OpenError> {
        Ok(Arc::new(Self {
            connector: Connector::new(url, unnamed)?,
            unnamed,
            store_id,
            timeout,
            plans,
            bound,
            unbounded: AtomicBool::new(false),
            slots: Semaphore::new(size),
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Was a connection that admits ever seen without the bound?
    pub fn unbounded(&self) -> bool {
        self.unbounded.load(Ordering::SeqCst)
    }

    /// Runs a statement and commits it.
    pub async fn run(self: &Arc<Self>, sql: &'static Sql, params: Params) -> Result<Vec<Row>, Failure> {
        let pool = self.clone();
        let span = trace::statement_alone(sql.name);
        let task = tokio::spawn(async move { pool.run_here(sql, &params).await }.instrument(span));
        task.await
            .unwrap_or_else(|_| Err(StoreError::Broken("the statement's task ended early".into()).into()))
    }

    async fn run_here(&self, sql: &'static Sql, params: &Params) -> Result<Vec<Row>, Failure> {
        let start = Instant::now();
        let late = || Failure::Store(StoreError::Unavailable("PostgreSQL did not answer in time".into()));
        let slot = tokio::time::timeout(self.timeout, self.slots.acquire()).await.map_err(|_| late())?;
        let _slot = slot.map_err(|_| late())?;
        let left = || self.timeout.saturating_sub(start.elapsed());
        let mut connection = match self.take() {
            Some(connection) => connection,
            None => {
                let opened = tokio::time::timeout(left(), self.connect()).await.map_err(|_| late())?;
                opened.map_err(|error| StoreError::Unavailable(error.to_string()))?
            }
        };
        let mut clashes = 0;
        loop {
            let Ok(result) = tokio::time::timeout(left(), connection.query(sql, params, self.unnamed)).await
            else {
                connection.discard();
                return Err(late());
            };
            metrics::histogram!("fencepost_grant_statement_seconds", "statement" => sql.name)
                .record(start.elapsed());
            let error = match result {
                Ok(rows) => {
                    self.give(connection);
                    return Ok(rows);
                }
                Err(error) => error,
            };
            match sort(&error) {
                Sorted::Unique(constraint) => {
                    self.give(connection);
                    return Err(Failure::Unique(constraint));
                }
                Sorted::Fault(Fault::Clash(reason)) => {
                    clashes += 1;
                    if clashes > CLASHES_MAX {
                        self.give(connection);
                        return Err(StoreError::Unavailable(reason).into());
                    }
                }
                // The connection goes with it.
                Sorted::Fault(Fault::Lost(reason)) => return Err(StoreError::Unavailable(reason).into()),
                Sorted::Fault(Fault::Unavailable(reason)) => {
                    self.give(connection);
                    return Err(StoreError::Unavailable(reason).into());
                }
                Sorted::Fault(Fault::Broken(reason)) => {
                    self.give(connection);
                    return Err(StoreError::Broken(format!("{}: {reason}", sql.name)).into());
                }
            }
        }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if !connection.client.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    fn give(&self, connection: Connection) {
        if !connection.client.is_closed() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }

    /// A new connection to the right database, bounded where it has to be and can be.
    pub async fn connect(&self) -> Result<Connection, OpenError> {
        let client = self.connector.client().await?;
        if self.plans == Plans::Once {
            self.connector.plan_once(&client).await?;
        }
        let found = migrate::store_id(&client).await?;
        if found != self.store_id {
            return Err(OpenError::Unusable(format!(
                "the address of admissions leads to the database {}; expected {}, that of --store",
                found.to_hex(),
                self.store_id.to_hex()
            )));
        }
        let mut connection = Connection { client, tls: self.connector.tls(), prepared: HashMap::new() };
        if let Some(bound) = self.bound {
            let failed = |error: Error| OpenError::Unreachable(crate::store::postgres::session::told(&error));
            if !self.unnamed && connection.settings().await.map_err(failed)?.version_num >= BOUND_VERSION {
                let ms: Params = vec![Box::new(bound.as_i64())];
                connection.query(&BOUND_SET, &ms, true).await.map_err(failed)?;
            }
            if !connection.settings().await.map_err(failed)?.within(bound) {
                self.unbounded.store(true, Ordering::SeqCst);
            }
        }
        Ok(connection)
    }
}

impl Connection {
    /// Runs a statement.
    pub async fn query(
        &mut self,
        sql: &'static Sql,
        params: &Params,
        unnamed: bool,
    ) -> Result<Vec<Row>, Error> {
        let values = params.iter().map(|param| param.as_ref() as &(dyn ToSql + Sync));
        if unnamed {
            let typed: Vec<_> = values.zip(sql.types.iter().cloned()).collect();
            return self.client.query_typed(sql.text, &typed).await;
        }
        let statement = match self.prepared.get(sql.name) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare_typed(sql.text, sql.types).await?;
                self.prepared.insert(sql.name, statement.clone());
                statement
            }
        };
        let values: Vec<_> = values.collect();
        self.client.query(&statement, &values).await
    }

    /// What the server says about the life of a transaction here.
    pub async fn settings(&mut self) -> Result<Settings, Error> {
        let row = self.client.query_typed(BOUND_SETTINGS.text, &[]).await?;
        let Some(row) = row.first() else {
            return Ok(Settings { version_num: 0, timeout_ms: None, replicated: true });
        };
        Ok(Settings {
            version_num: row.try_get("version_num")?,
            timeout_ms: row.try_get("timeout_ms")?,
            replicated: row.try_get("replicated")?,
        })
    }

    /// Ends it; a statement that still runs on the server is asked to stop.
    fn discard(self) {
        let token = self.client.cancel_token();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(CANCEL_TIMEOUT, token.cancel_query(self.tls)).await;
        });
    }
}

enum Sorted {
    Unique(String),
    Fault(Fault),
}

fn sort(error: &Error) -> Sorted {
    match error.as_db_error() {
        Some(db) if db.code().code() == "23505" => {
            Sorted::Unique(db.constraint().unwrap_or_default().to_owned())
        }
        // The bound: the server ends the connection, and has undone the statement.
        Some(db) if db.code().code() == "25P04" => {
            Sorted::Fault(Fault::Lost("the server's transaction_timeout ended the statement".into()))
        }
        _ => Sorted::Fault(Fault::of(error)),
    }
}
