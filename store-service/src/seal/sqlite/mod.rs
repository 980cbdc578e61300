//! What is kept about seals in the SQLite file, on its only connection.

pub mod statements;

use super::keeper::{SealRow, SealStore, Seen, Stored, Table};
use crate::entry::Micros;
use crate::store::StoreError;
use crate::store::sqlite::Beside;
use async_trait::async_trait;
use bytes::Bytes;
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};
use rusqlite::{OptionalExtension, params};

/// Seals in the file of a store.
pub struct SqliteSeals {
    beside: Beside,
}

impl SqliteSeals {
    /// On the store's connection.
    pub fn new(beside: Beside) -> Self {
        Self { beside }
    }
}

/// What a row of the read statements has.
struct Columns {
    scheme: Option<String>,
    fingerprint: Option<Vec<u8>>,
    answer: Stored,
}

#[async_trait]
impl SealStore for SqliteSeals {
    async fn keys(&self) -> Result<Vec<String>, StoreError> {
        let work = |tx: &rusqlite::Transaction<'_>, _| {
            let mut statement = tx.prepare_cached(statements::SEAL_KEY_LIST)?;
            statement.query_map([], |row| row.get("id"))?.collect()
        };
        self.beside.run(work).await
    }

    async fn add_key(&self, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        let add = move |tx: &rusqlite::Transaction<'_>, now: Micros| {
            tx.prepare_cached(statements::SEAL_KEY_ADD)?.execute((id, now.0)).map(drop)
        };
        self.beside.run(add).await
    }

    async fn drop_key(&self, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        let work = move |tx: &rusqlite::Transaction<'_>, _| {
            tx.prepare_cached(statements::SEAL_KEY_DROP)?.execute([id]).map(drop)
        };
        self.beside.run(work).await
    }

    async fn page(&self, table: Table, after: &str, limit: u32) -> Result<Vec<Seen>, StoreError> {
        let after = after.to_owned();
        let sql = match table {
            Table::Entries => statements::SEAL_ENTRY_PAGE,
            Table::Operations => statements::SEAL_OPERATION_PAGE,
        };
        let work = move |tx: &rusqlite::Transaction<'_>, _| {
            let mut statement = tx.prepare_cached(sql)?;
            let seen = |row: &rusqlite::Row<'_>| Ok(Seen { name: row.get("name")?, head: row.get("head")? });
            statement.query_map((after, limit), seen)?.collect()
        };
        self.beside.run(work).await
    }

    async fn row(&self, table: Table, name: &str) -> Result<Option<SealRow>, StoreError> {
        let asked = name.to_owned();
        let sql = match table {
            Table::Entries => statements::SEAL_ENTRY_READ,
            Table::Operations => statements::SEAL_OPERATION_READ,
        };
        let work = move |tx: &rusqlite::Transaction<'_>, _| {
            tx.prepare_cached(sql)?.query_row([asked], |row| columns(table, row)).optional()
        };
        self.beside.run(work).await?.map(|columns| whole(table, name, columns)).transpose()
    }

    async fn replace(&self, old: &SealRow, headers: Bytes, body: Bytes) -> Result<bool, StoreError> {
        let (sql, name) = match old {
            SealRow::Entry { key, .. } => (statements::SEAL_ENTRY_WRITE, key.as_str().to_owned()),
            SealRow::Operation { id, .. } => (statements::SEAL_OPERATION_WRITE, id.as_str().to_owned()),
        };
        let answer = old.answer().clone();
        let work = move |tx: &rusqlite::Transaction<'_>, _| {
            let Stored { version, updated_at, headers: read, .. } = answer;
            let changed = tx.prepare_cached(sql)?.execute(params![
                name,
                version,
                updated_at.0,
                &read[..],
                &headers[..],
                &body[..]
            ])?;
            Ok(changed == 1)
        };
        self.beside.run(work).await
    }
}

fn columns(table: Table, row: &rusqlite::Row<'_>) -> rusqlite::Result<Columns> {
    let answer = Stored {
        status: row.get("status")?,
        headers: Bytes::from(row.get::<_, Vec<u8>>("headers")?),
        body: Bytes::from(row.get::<_, Vec<u8>>("body")?),
        version: row.get("version")?,
        updated_at: Micros(row.get("updated_at")?),
    };
    Ok(match table {
        Table::Entries => {
            Columns { scheme: row.get("scheme")?, fingerprint: row.get("fingerprint")?, answer }
        }
        Table::Operations => Columns { scheme: None, fingerprint: None, answer },
    })
}

fn whole(table: Table, name: &str, columns: Columns) -> Result<SealRow, StoreError> {
    let broken = || StoreError::Broken("a row of an answer can't be read".into());
    let Columns { scheme, fingerprint, answer } = columns;
    Ok(match table {
        Table::Entries => SealRow::Entry {
            key: StoreKey::parse(name).map_err(|_| broken())?,
            scheme: Scheme::parse(scheme.as_deref().unwrap_or_default()).map_err(|_| broken())?,
            fingerprint: Fingerprint::from_slice(&fingerprint.unwrap_or_default()).ok_or_else(broken)?,
            answer,
        },
        Table::Operations => {
            SealRow::Operation { id: OperationId::parse(name).map_err(|_| broken())?, answer }
        }
    })
}
