//! Schema of the SQLite file: append-only migrations in one transaction.

use super::super::{Clock, OpenError, random_store_id};
use super::statements;
use fencepost_protocol::StoreId;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use std::path::Path;

/// The schema version that this program works with.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

const MIGRATIONS: [&str; 9] = [
    include_str!("migrations/0001_entries.sql"),
    include_str!("migrations/0002_sweep_indexes.sql"),
    include_str!("migrations/0003_grants.sql"),
    include_str!("migrations/0004_audit.sql"),
    include_str!("migrations/0005_recovery.sql"),
    include_str!("migrations/0006_desk.sql"),
    include_str!("migrations/0007_grant_answers.sql"),
    include_str!("migrations/0008_audit_by_time.sql"),
    include_str!("migrations/0009_seal_keys.sql"),
];

/// Why the schema can't be used.
pub enum MigrateError {
    /// SQLite said no.
    Sqlite(rusqlite::Error),
    /// The file was written by a newer program.
    Newer(i64),
    /// The file is older and must not be changed now.
    Older(i64),
    /// Another reason.
    Open(OpenError),
}

impl From<rusqlite::Error> for MigrateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl MigrateError {
    /// One line for the user.
    pub fn explained(self, path: &Path) -> OpenError {
        let path_shown = path.display();
        match self {
            Self::Sqlite(error) => super::explain(path, &error),
            Self::Newer(found) => OpenError::Unusable(format!(
                "{path_shown} has schema version {found}; this program knows versions up to {SCHEMA_VERSION}: use \
                 the newer program"
            )),
            Self::Older(found) => OpenError::Unusable(format!(
                "{path_shown} has schema version {found}; version {SCHEMA_VERSION} is needed: run `fencepost-store \
                 migrate`, or start without --no-migrate"
            )),
            Self::Open(error) => error,
        }
    }
}

/// Brings the schema to `target` and returns the database's identity.
pub fn migrate(
    connection: &mut Connection,
    clock: &Clock,
    may_change: bool,
    target: i64,
) -> Result<StoreId, MigrateError> {
    // Immediate: of two programs that start together, the second one finds the work done.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(statements::MIGRATIONS_CREATE)?;
    let found: i64 = transaction.query_row(statements::MIGRATIONS_VERSION, [], |row| row.get(0))?;
    if found > SCHEMA_VERSION {
        return Err(MigrateError::Newer(found));
    }
    if found < target && !may_change {
        return Err(MigrateError::Older(found));
    }
    for (version, sql) in (1..).zip(MIGRATIONS) {
        if version > found && version <= target {
            transaction.execute_batch(sql)?;
            transaction.execute(statements::MIGRATIONS_ADD, (version, clock.now().0))?;
        }
    }
    if may_change {
        let fresh = random_store_id().map_err(MigrateError::Open)?;
        transaction.execute(statements::STORE_ID_CREATE, [&fresh.as_bytes()[..]])?;
    }
    let store_id: Option<Vec<u8>> =
        transaction.query_row(statements::STORE_ID, [], |row| row.get(0)).optional()?;
    transaction.commit()?;
    store_id.as_deref().and_then(StoreId::from_slice).ok_or_else(|| {
        MigrateError::Open(OpenError::Unusable("the SQLite file has no store id: table meta is empty".into()))
    })
}
