//! The desk on PostgreSQL: any number of instances, decided by the database. It connects when
//! somebody first uses it.

mod params;
mod read;
pub mod statements;

use super::{
    Again, AgainOrder, AuditFilter, AuditSeen, Desk, EraseOrder, ErasePlace, Erased, FreeDone, FreeOrder,
    GrantFilter, GrantSeen, HoldDone, HoldOrder, HoldSeen, Line, Note, OperationFilter, OperationOrder,
    OperationSeen, OperationSettled, free, settle,
};
use crate::entry::TOMBSTONE_MS;
use crate::grant::postgres::pool::{Failure, Params, Plans, Pool};
use crate::grant::postgres::row::event;
use crate::grant::postgres::statements::{OPERATION_HISTORY, Sql};
use crate::grant::store::status_word;
use crate::grant::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::postgres::row::time;
use crate::store::{OpenError, StoreError, words};
use async_trait::async_trait;
use fencepost_protocol::StoreId;
use fencepost_protocol::claims::ReleaseCause;
use fencepost_protocol::grants::OperationId;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

/// Connections: people are few.
const CONNECTIONS: usize = 2;

/// How long a statement may take: longer than what a request waits for, because a list may read much.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The desk on PostgreSQL.
pub struct PostgresDesk {
    pool: Arc<Pool>,
}

impl PostgresDesk {
    /// On a database whose schema is there already.
    pub fn new(url: &str, unnamed_statements: bool, store_id: StoreId) -> Result<Self, OpenError> {
        Ok(Self {
            pool: Pool::new(url, unnamed_statements, store_id, TIMEOUT, Plans::Free, None, CONNECTIONS)?,
        })
    }

    /// Its connections, for what else is on no request's path.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.pool.clone()
    }

    async fn run(&self, sql: &'static Sql, params: Params) -> Result<Vec<Row>, StoreError> {
        self.pool.run(sql, params).await.map_err(Failure::unexpected)
    }
}

#[async_trait]
impl Desk for PostgresDesk {
    async fn operations(&self, filter: OperationFilter) -> Result<Vec<OperationSeen>, StoreError> {
        let statuses: Option<Vec<&'static str>> =
            filter.statuses.map(|all| all.into_iter().map(status_word).collect());
        let params: Params = vec![
            Box::new(statuses),
            Box::new(filter.issuer),
            Box::new(filter.tenant),
            Box::new(filter.caller_namespace),
            Box::new(filter.caller_id),
            Box::new(filter.older_than_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX))),
            Box::new(filter.after.map(|id| id.as_str().to_owned())),
            Box::new(i64::from(filter.limit)),
            Box::new(filter.cause),
        ];
        self.run(&statements::OPERATION_LIST, params).await?.iter().map(read::operation).collect()
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationSeen>, StoreError> {
        let rows = self.run(&statements::OPERATION_SHOW, vec![Box::new(id.as_str().to_owned())]).await?;
        rows.first().map(read::operation).transpose()
    }

    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        self.run(&OPERATION_HISTORY, vec![Box::new(id.as_str().to_owned())])
            .await?
            .iter()
            .map(event)
            .collect()
    }

    async fn settle_operation(&self, order: OperationOrder) -> Result<OperationSettled, StoreError> {
        let params: Params = vec![
            Box::new(order.id.as_str().to_owned()),
            Box::new(order.version.owner),
            Box::new(time(order.version.updated_at)),
            Box::new(status_word(order.ending.status())),
            Box::new(order.reference.clone()),
            Box::new(order.who.clone()),
            Box::new(order.ending.action()),
            Box::new(order.reason.clone()),
        ];
        let rows = self.run(&statements::OPERATION_SETTLE, params).await?;
        if read::flag(&rows, "wrote")? {
            return Ok(OperationSettled::Settled);
        }
        let seen = self.operation(order.id.clone()).await?;
        Ok(match settle(seen.as_ref(), &order, seen.as_ref().map_or(order.version.updated_at, |s| s.now)) {
            // What stood against it is over since: the person looks again, and says it again.
            OperationSettled::Settled => OperationSettled::Changed,
            other => other,
        })
    }

    async fn grants(&self, filter: GrantFilter) -> Result<Vec<GrantSeen>, StoreError> {
        let mut params: Params = vec![
            Box::new(filter.state.map(super::GrantState::word)),
            Box::new(filter.issuer),
            Box::new(filter.tenant),
            Box::new(filter.subject),
        ];
        for key in [filter.only, filter.after] {
            let (issuer, tenant, id) = match key {
                Some(key) => (Some(key.issuer), Some(key.key_tenant), Some(key.grant_id)),
                None => (None, None, None),
            };
            params.extend::<Params>(vec![Box::new(issuer), Box::new(tenant), Box::new(id)]);
        }
        params.push(Box::new(i64::from(filter.limit)));
        params.push(Box::new(filter.held));
        self.run(&statements::GRANT_LIST, params).await?.iter().map(read::grant).collect()
    }

    async fn release_grant(&self, key: GrantKey, who: String, reason: String) -> Result<(), StoreError> {
        self.note(Note::release_grant(&key, who, reason)).await
    }

    async fn holds(&self) -> Result<Vec<HoldSeen>, StoreError> {
        self.run(&statements::HOLD_LIST, Vec::new()).await?.iter().map(read::hold).collect()
    }

    async fn begin_hold(&self, order: HoldOrder) -> Result<HoldDone, StoreError> {
        let params: Params = vec![
            Box::new(order.prefix),
            Box::new(order.since.map(time)),
            Box::new(order.keys_for_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX))),
            Box::new(order.grants),
            Box::new(order.who),
            Box::new(order.reason),
        ];
        let rows = self.run(&statements::HOLD_BEGIN, params).await?;
        rows.first().map_or(Ok(HoldDone::Ahead), |row| Ok(HoldDone::Begun(read::hold(row)?)))
    }

    async fn lift_hold(&self, id: i64, who: String, reason: String) -> Result<HoldDone, StoreError> {
        let params: Params = vec![Box::new(id), Box::new(who), Box::new(reason)];
        let rows = self.run(&statements::HOLD_LIFT, params).await?;
        rows.first().map_or(Ok(HoldDone::Absent), |row| Ok(HoldDone::Lifted(read::hold(row)?)))
    }

    async fn free_held(&self, order: FreeOrder) -> Result<FreeDone, StoreError> {
        let params: Params = vec![
            Box::new(order.hold),
            Box::new(order.after.map(|key| key.as_str().to_owned())),
            Box::new(i64::from(free::BATCH)),
            Box::new(words::release_cause(ReleaseCause::Other)),
            Box::new(i64::try_from(TOMBSTONE_MS).unwrap_or(i64::MAX)),
            Box::new(order.who),
            Box::new(order.reason),
        ];
        read::freed(&self.run(&statements::HOLD_FREE, params).await?)
    }

    async fn look_again(&self, order: AgainOrder) -> Result<Again, StoreError> {
        let rows = self.run(&statements::HELD_AGAIN, params::held_again(&order)).await?;
        Ok(if read::flag(&rows, "wrote")? { Again::Told } else { Again::NotGivenUp })
    }

    async fn erase(&self, order: EraseOrder) -> Result<Erased, StoreError> {
        match order.place() {
            ErasePlace::Entries(scope, after) => {
                let params = params::entry_erase(&order, scope, after);
                read::erased_entries(
                    &self.run(&statements::ENTRY_ERASE, params).await?,
                    order.behind_entries(),
                )
            }
            ErasePlace::Operations(after) => {
                let params = params::operation_erase(&order, after);
                read::erased_operations(&self.run(&statements::OPERATION_ERASE, params).await?)
            }
        }
    }

    async fn lines(&self, subject: String) -> Result<Vec<Line>, StoreError> {
        self.run(&statements::DESK_LINES, vec![Box::new(subject)]).await?.iter().map(read::line).collect()
    }

    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditSeen>, StoreError> {
        let params = params::audit_list(&filter);
        self.run(&statements::AUDIT_LIST, params).await?.iter().map(read::audit).collect()
    }

    async fn note(&self, note: Note) -> Result<(), StoreError> {
        let params: Params = vec![
            Box::new(note.who),
            Box::new(note.action),
            Box::new(note.subject),
            Box::new(note.version),
            Box::new(note.state),
            Box::new(note.reason),
        ];
        self.run(&statements::DESK_NOTE, params).await.map(|_| ())
    }
}
