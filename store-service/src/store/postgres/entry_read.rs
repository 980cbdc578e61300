//! What people read: one entry, a list of them, the audit of one. Each runs alone.

use super::batch::{Answers, Kind, RunError, Told};
use super::row::{BadRow, decode, micros, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, view};
use crate::entry::Version;
use fencepost_protocol::StoreKey;
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use view::{Audit, Entry, Filter};

/// One of them.
pub enum Op {
    /// One entry, with or without its answer.
    Show(StoreKey, bool),
    /// Several.
    List(Filter),
    /// What people did to one.
    Audit(StoreKey),
}

/// What was read.
pub enum Read {
    /// Entries.
    Entries(Vec<Entry>),
    /// Lines of the audit.
    Audit(Vec<Audit>),
}

/// The kind.
pub struct EntryRead;

impl Kind for EntryRead {
    type Op = Op;
    type Reply = Read;
    const NAME: &'static str = "entry_read";
    const BATCH_MAX: usize = 1;
    const DROP_GONE: bool = true;

    fn key(_: &Op) -> Option<&StoreKey> {
        None
    }

    async fn run(session: &Session, clock: &Clock, ops: &[Arc<Op>]) -> Result<Answers<Read>, RunError> {
        let mut told = Vec::with_capacity(ops.len());
        for op in ops {
            told.push((Told::Done(read(session, clock, op).await?), None));
        }
        Ok(told)
    }
}

async fn read(session: &Session, clock: &Clock, op: &Op) -> Result<Read, RunError> {
    let now = clock.fixed().map(time);
    match op {
        Op::Show(key, answer) => {
            let rows = session.query(Name::EntryShow, &[&key.as_str(), answer, &now]).await?;
            Ok(Read::Entries(rows.iter().map(entry).collect::<Result<_, _>>()?))
        }
        Op::List(filter) => {
            let state = filter.state.map(view::StateName::word);
            let scope = filter.scope.as_ref().map(|scope| &scope.as_bytes()[..]);
            let after = filter.after.as_ref().map(StoreKey::as_str);
            let limit = i64::from(filter.limit);
            let (prefixes, cause, held) = (&filter.prefixes, &filter.cause, &filter.held);
            let age = filter.older_than_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
            let params: [&(dyn ToSql + Sync); 9] =
                [&state, prefixes, &scope, &after, &limit, &now, cause, held, &age];
            let rows = session.query(Name::EntryList, &params).await?;
            let listed = |row: &tokio_postgres::Row| Ok(Entry { held: row.try_get("held")?, ..entry(row)? });
            Ok(Read::Entries(rows.iter().map(listed).collect::<Result<_, BadRow>>()?))
        }
        Op::Audit(key) => {
            let rows = session.query(Name::EntryAudit, &[&key.as_str()]).await?;
            Ok(Read::Audit(rows.iter().map(audit).collect::<Result<_, _>>()?))
        }
    }
}

fn entry(row: &tokio_postgres::Row) -> Result<Entry, BadRow> {
    let seen = decode(row)?;
    let key = StoreKey::parse(row.try_get("key")?).map_err(|error| BadRow(error.to_string()))?;
    let length = |name| row.try_get::<_, i64>(name).map(|length| u64::try_from(length).unwrap_or(0));
    Ok(Entry {
        key,
        row: seen.row.ok_or_else(|| BadRow("an entry without a state".into()))?,
        headers_len: length("headers_len")?,
        body_len: length("body_len")?,
        held: None,
        now: seen.now,
    })
}

fn audit(row: &tokio_postgres::Row) -> Result<Audit, BadRow> {
    Ok(Audit {
        at: micros(row.try_get("at")?),
        who: row.try_get("who")?,
        action: row.try_get("action")?,
        version: Version {
            fence: row.try_get("version_fence")?,
            updated_at: micros(row.try_get("version_updated_at")?),
        },
        state_before: row.try_get("state_before")?,
        state_after: row.try_get("state_after")?,
        forced: row.try_get("forced")?,
        reason: row.try_get("reason")?,
    })
}
