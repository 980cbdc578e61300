//! `claim_complete_own` and `claim_complete`: batches of answers.
//!
//! Each batch begins with the small statement, for claims that are still held. What it leaves goes to the
//! one that knows every transition.

use super::batch::{Answers, Kind, RunError, Told, settle, unsettled};
use super::freed::Freed;
use super::row::time;
use super::session::Session;
use super::statements::Name;
use super::{Clock, told_by};
use crate::entry::{self, Complete};
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::CompleteReply;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_postgres::Row;

/// The kind.
pub struct ClaimComplete;

impl Kind for ClaimComplete {
    type Op = Complete;
    type Reply = Freed<CompleteReply>;
    const NAME: &'static str = "claim_complete";
    const BATCH_MAX: usize = 32;
    const DROP_GONE: bool = false;

    fn key(op: &Complete) -> Option<&StoreKey> {
        Some(&op.key)
    }

    fn weight(op: &Complete) -> usize {
        op.headers.len() + op.body.len()
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Complete>],
    ) -> Result<Answers<Freed<CompleteReply>>, RunError> {
        let mut answers = own(session, clock, ops).await?;
        let left = unsettled(ops, &answers);
        if !left.is_empty() {
            settle(&mut answers, any(session, clock, &left).await?);
        }
        Ok(answers)
    }
}

/// What a batch brings, column by column.
struct Brought<'a> {
    keys: Vec<&'a str>,
    tokens: Vec<&'a [u8]>,
    statuses: Vec<i16>,
    headers: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    ttls: Vec<i64>,
    now: Option<SystemTime>,
}

impl<'a> Brought<'a> {
    fn new(ops: &'a [Arc<Complete>], clock: &Clock) -> Self {
        Self {
            keys: ops.iter().map(|op| op.key.as_str()).collect(),
            tokens: ops.iter().map(|op| &op.token.as_bytes()[..]).collect(),
            statuses: ops.iter().map(|op| i16::try_from(op.status).unwrap_or(i16::MAX)).collect(),
            headers: ops.iter().map(|op| &op.headers[..]).collect(),
            bodies: ops.iter().map(|op| &op.body[..]).collect(),
            ttls: ops.iter().map(|op| super::int8(op.ttl_ms)).collect(),
            now: clock.fixed().map(time),
        }
    }
}

/// Stores the answers of claims that their tokens still hold; the others are told to ask again.
async fn own(
    session: &Session,
    clock: &Clock,
    ops: &[Arc<Complete>],
) -> Result<Answers<Freed<CompleteReply>>, RunError> {
    let Brought { keys, tokens, statuses, headers, bodies, ttls, now } = &Brought::new(ops, clock);
    let rows =
        session.query(Name::ClaimCompleteOwn, &[keys, tokens, statuses, headers, bodies, ttls, now]).await?;
    let stored = |row| Ok::<_, RunError>((Row::try_get::<_, &str>(row, "key")?, row.try_get("waited")?));
    let stored: HashMap<&str, bool> = rows.iter().map(stored).collect::<Result<_, _>>()?;
    let done = |waited: &bool| Told::Done(Freed { reply: CompleteReply::Stored, waited: *waited });
    let tell = |op: &Arc<Complete>| (stored.get(op.key.as_str()).map_or(Told::Again, done), None);
    Ok(ops.iter().map(tell).collect())
}

/// Stores answers wherever they may be.
async fn any(
    session: &Session,
    clock: &Clock,
    ops: &[Arc<Complete>],
) -> Result<Answers<Freed<CompleteReply>>, RunError> {
    let Brought { keys, tokens, statuses, headers, bodies, ttls, now } = &Brought::new(ops, clock);
    let fences: Vec<i64> = ops.iter().map(|op| op.fence.get()).collect();
    let schemes: Vec<&str> = ops.iter().map(|op| op.scheme.as_str()).collect();
    let fingerprints: Vec<&[u8]> = ops.iter().map(|op| &op.fingerprint.as_bytes()[..]).collect();
    let scopes: Vec<&[u8]> = ops.iter().map(|op| &op.scope.as_bytes()[..]).collect();
    let rows = session
        .query(
            Name::ClaimComplete,
            &[keys, tokens, &fences, &schemes, &fingerprints, &scopes, statuses, headers, bodies, ttls, now],
        )
        .await?;
    told_by(
        &rows,
        ops,
        |op| &op.key,
        |op, seen| {
            if seen.wrote {
                return Freed::told(CompleteReply::Stored, seen);
            }
            Freed::unchanged(entry::complete(seen.row.as_ref(), op, seen.now))
        },
    )
}
