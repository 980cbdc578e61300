//! What is kept about seals on PostgreSQL, on the connections of the desk.

pub mod statements;

use super::keeper::{SealRow, SealStore, Seen, Stored, Table};
use crate::grant::postgres::pool::{Failure, Params, Pool};
use crate::grant::postgres::statements::Sql;
use crate::store::StoreError;
use crate::store::postgres::row::{micros, time};
use async_trait::async_trait;
use bytes::Bytes;
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};
use std::sync::Arc;
use tokio_postgres::Row;

/// Seals on PostgreSQL.
pub struct PostgresSeals {
    pool: Arc<Pool>,
}

impl PostgresSeals {
    /// On connections that no request waits for.
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool }
    }

    async fn run(&self, sql: &'static Sql, params: Params) -> Result<Vec<Row>, StoreError> {
        self.pool.run(sql, params).await.map_err(Failure::unexpected)
    }
}

#[async_trait]
impl SealStore for PostgresSeals {
    async fn keys(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.run(&statements::SEAL_KEY_LIST, vec![]).await?;
        rows.iter().map(|row| row.try_get("id").map_err(unreadable)).collect()
    }

    async fn add_key(&self, id: &str) -> Result<(), StoreError> {
        self.run(&statements::SEAL_KEY_ADD, vec![Box::new(id.to_owned())]).await.map(drop)
    }

    async fn drop_key(&self, id: &str) -> Result<(), StoreError> {
        self.run(&statements::SEAL_KEY_DROP, vec![Box::new(id.to_owned())]).await.map(drop)
    }

    async fn page(&self, table: Table, after: &str, limit: u32) -> Result<Vec<Seen>, StoreError> {
        let sql = match table {
            Table::Entries => &statements::SEAL_ENTRY_PAGE,
            Table::Operations => &statements::SEAL_OPERATION_PAGE,
        };
        let rows = self.run(sql, vec![Box::new(after.to_owned()), Box::new(i64::from(limit))]).await?;
        let seen = |row: &Row| Ok(Seen { name: row.try_get("name")?, head: row.try_get("head")? });
        rows.iter().map(|row| seen(row).map_err(unreadable)).collect()
    }

    async fn row(&self, table: Table, name: &str) -> Result<Option<SealRow>, StoreError> {
        let sql = match table {
            Table::Entries => &statements::SEAL_ENTRY_READ,
            Table::Operations => &statements::SEAL_OPERATION_READ,
        };
        let rows = self.run(sql, vec![Box::new(name.to_owned())]).await?;
        rows.first().map(|row| decode(table, name, row)).transpose()
    }

    async fn replace(&self, old: &SealRow, headers: Bytes, body: Bytes) -> Result<bool, StoreError> {
        let (sql, name) = match old {
            SealRow::Entry { key, .. } => (&statements::SEAL_ENTRY_WRITE, key.as_str()),
            SealRow::Operation { id, .. } => (&statements::SEAL_OPERATION_WRITE, id.as_str()),
        };
        let answer = old.answer();
        let params: Params = vec![
            Box::new(name.to_owned()),
            Box::new(answer.version),
            Box::new(time(answer.updated_at)),
            Box::new(answer.headers.to_vec()),
            Box::new(headers.to_vec()),
            Box::new(body.to_vec()),
        ];
        Ok(!self.run(sql, params).await?.is_empty())
    }
}

fn decode(table: Table, name: &str, row: &Row) -> Result<SealRow, StoreError> {
    let bytes = |column| row.try_get::<_, &[u8]>(column).map(Bytes::copy_from_slice).map_err(unreadable);
    let status: i16 = row.try_get("status").map_err(unreadable)?;
    let answer = Stored {
        status: u16::try_from(status).map_err(|_| broken("status"))?,
        headers: bytes("headers")?,
        body: bytes("body")?,
        version: row.try_get("version").map_err(unreadable)?,
        updated_at: micros(row.try_get("updated_at").map_err(unreadable)?),
    };
    Ok(match table {
        Table::Entries => SealRow::Entry {
            key: StoreKey::parse(name).map_err(|_| broken("key"))?,
            scheme: Scheme::parse(row.try_get("scheme").map_err(unreadable)?)
                .map_err(|_| broken("scheme"))?,
            fingerprint: Fingerprint::from_slice(&bytes("fingerprint")?)
                .ok_or_else(|| broken("fingerprint"))?,
            answer,
        },
        Table::Operations => {
            SealRow::Operation { id: OperationId::parse(name).map_err(|_| broken("operation_id"))?, answer }
        }
    })
}

fn broken(column: &str) -> StoreError {
    StoreError::Broken(format!("the column {column} of an answer can't be read"))
}

fn unreadable(error: tokio_postgres::Error) -> StoreError {
    StoreError::Broken(crate::store::postgres::session::told(&error))
}
