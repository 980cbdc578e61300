//! Schema: append-only migrations in one transaction under an advisory lock.
//!
//! Instances that start together all come here; one migrates, the others wait and find the work
//! done. An older instance keeps working beside a newer schema only where the newer program says
//! so, so it refuses to start on a version that it does not know.

use super::session::{told, unreachable};
use super::{OpenError, random_store_id};
use fencepost_protocol::StoreId;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel};

/// The schema version that this program works with.
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

const MIGRATIONS: [&str; 11] = [
    include_str!("migrations/0001_entries.sql"),
    include_str!("migrations/0002_waited_and_sweep_indexes.sql"),
    include_str!("migrations/0003_grants.sql"),
    include_str!("migrations/0004_audit_and_instances.sql"),
    include_str!("migrations/0005_recovery.sql"),
    include_str!("migrations/0006_desk.sql"),
    include_str!("migrations/0007_grant_answers.sql"),
    include_str!("migrations/0008_indexes_of_every_claim.sql"),
    include_str!("migrations/0009_audit_by_time.sql"),
    include_str!("migrations/0010_seal_keys.sql"),
    include_str!("migrations/0011_entry_is_whole.sql"),
];

const LOCK: &str = include_str!("sql/migrations_lock.sql");
const CREATE: &str = include_str!("sql/migrations_create.sql");
const EXISTS: &str = include_str!("sql/migrations_exists.sql");
const VERSION: &str = include_str!("sql/migrations_version.sql");
const ADD: &str = include_str!("sql/migrations_add.sql");
const STORE_ID_CREATE: &str = include_str!("sql/store_id_create.sql");
const STORE_ID: &str = include_str!("sql/store_id.sql");

/// Brings the schema to `target`.
pub async fn migrate(client: &mut Client, target: i64) -> Result<(), OpenError> {
    // A schema that is there needs no rights to change it, and no lock.
    if version(client).await? == target {
        return Ok(());
    }
    let failed = |error: tokio_postgres::Error| {
        OpenError::Unusable(format!(
            "the schema can't be brought up to date ({}); expected a role that may create the schema fencepost and \
             its tables, or `fencepost-store migrate` with such a role and `serve --no-migrate`",
            told(&error)
        ))
    };
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await
        .map_err(|error| unreachable(&error))?;
    transaction.query_typed(LOCK, &[]).await.map_err(failed)?;
    transaction.batch_execute(CREATE).await.map_err(failed)?;
    let rows = transaction.query_typed(VERSION, &[]).await.map_err(failed)?;
    let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get("version")).map_err(failed)?;
    known(found)?;
    for (version, sql) in (1_i64..).zip(MIGRATIONS) {
        if version > found && version <= target {
            tracing::info!(version, "updating the schema");
            transaction.batch_execute(sql).await.map_err(failed)?;
            transaction.query_typed(ADD, &[(&version, Type::INT8)]).await.map_err(failed)?;
        }
    }
    let fresh = random_store_id()?;
    let bytes = &fresh.as_bytes()[..];
    transaction.query_typed(STORE_ID_CREATE, &[(&bytes, Type::BYTEA)]).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Checks that the schema is the one that this program works with.
pub async fn check(client: &Client) -> Result<(), OpenError> {
    let found = version(client).await?;
    if found < SCHEMA_VERSION {
        return Err(OpenError::Unusable(format!(
            "found schema version {found}; version {SCHEMA_VERSION} is needed: run `fencepost-store migrate`, or \
             start without --no-migrate"
        )));
    }
    Ok(())
}

/// The database's identity.
pub async fn store_id(client: &Client) -> Result<StoreId, OpenError> {
    let rows = client.query_typed(STORE_ID, &[]).await.map_err(|error| unreachable(&error))?;
    let bytes: Option<Vec<u8>> =
        rows.first().map(|row| row.try_get("store_id")).transpose().map_err(|error| unreachable(&error))?;
    bytes.and_then(|bytes| StoreId::from_slice(&bytes)).ok_or_else(|| {
        OpenError::Unusable("the database has no store id: table fencepost.meta is empty".into())
    })
}

/// The newest version that was applied; unknown ones are refused.
async fn version(client: &Client) -> Result<i64, OpenError> {
    let read = |error: tokio_postgres::Error| unreachable(&error);
    let rows = client.query_typed(EXISTS, &[]).await.map_err(read)?;
    let exists = rows.first().map_or(Ok(false), |row| row.try_get("found")).map_err(read)?;
    if !exists {
        return Ok(0);
    }
    let rows = client.query_typed(VERSION, &[]).await.map_err(read)?;
    let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get("version")).map_err(read)?;
    known(found)?;
    Ok(found)
}

fn known(found: i64) -> Result<(), OpenError> {
    if found > SCHEMA_VERSION {
        return Err(OpenError::Unusable(format!(
            "found schema version {found}; this program knows versions up to {SCHEMA_VERSION}: use the newer program"
        )));
    }
    Ok(())
}
