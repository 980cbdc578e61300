//! `entry_settle`: the order of a person about one entry. Runs alone.

use super::batch::{Answers, Kind, RunError, Told};
use super::freed::Freed;
use super::row::{BadRow, Seen, decode, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, words};
use crate::entry::{self, Ruling, Settle, SettleReply, TOMBSTONE_MS};
use fencepost_protocol::StoreKey;
use std::sync::Arc;

/// The kind.
pub struct EntrySettle;

impl Kind for EntrySettle {
    type Op = Settle;
    type Reply = Freed<SettleReply>;
    const NAME: &'static str = "entry_settle";
    const BATCH_MAX: usize = 1;
    const DROP_GONE: bool = false;

    fn key(_: &Settle) -> Option<&StoreKey> {
        None
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Settle>],
    ) -> Result<Answers<Freed<SettleReply>>, RunError> {
        let mut told = Vec::with_capacity(ops.len());
        for op in ops {
            let seen = settle(session, clock, op).await?;
            told.push((tell(op, &seen), None));
        }
        Ok(told)
    }
}

fn tell(op: &Settle, seen: &Seen) -> Told<Freed<SettleReply>> {
    if seen.wrote {
        return Freed::told(SettleReply::Settled, seen);
    }
    Freed::unchanged(entry::settle(seen.row.as_ref(), op, seen.now))
}

async fn settle(session: &Session, clock: &Clock, op: &Settle) -> Result<Seen, RunError> {
    let now = clock.fixed().map(time);
    let version_time = time(op.version.updated_at);
    let (state, cause, status, headers, body, ttl) = match &op.ruling {
        Ruling::Free(cause) => {
            ("released", Some(words::release_cause(*cause)), None, None, None, super::int8(TOMBSTONE_MS))
        }
        Ruling::Answer { status, headers, body, ttl_ms } => (
            "completed",
            None,
            Some(i16::try_from(*status).unwrap_or(i16::MAX)),
            Some(&headers[..]),
            Some(&body[..]),
            super::int8(*ttl_ms),
        ),
    };
    let rows = session
        .query(
            Name::EntrySettle,
            &[
                &op.key.as_str(),
                &op.version.fence,
                &version_time,
                &state,
                &cause,
                &status,
                &headers,
                &body,
                &ttl,
                &op.force,
                &op.ruling.action(),
                &op.who,
                &op.reason,
                &now,
                &op.token.as_bytes().as_slice(),
            ],
        )
        .await?;
    let row = rows.first().ok_or_else(|| BadRow("an order told nothing".into()))?;
    Ok(decode(row)?)
}
