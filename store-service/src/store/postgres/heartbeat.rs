//! `heartbeat`: the identity of the database behind a session that takes writes.

use super::session::Session;
use super::statements::Name;
use fencepost_protocol::StoreId;
use tokio_postgres::Error;

/// The identity; `None` when there is none or the server takes no writes.
pub async fn store_id(session: &Session) -> Result<Option<StoreId>, Error> {
    let rows = session.query(Name::Heartbeat, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let writable: bool = row.try_get("writable")?;
    Ok(StoreId::from_slice(row.try_get("store_id")?).filter(|_| writable))
}
