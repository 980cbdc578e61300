//! `claim_unknown`: batches of unknown outcomes.

use super::batch::{Answers, Kind, RunError};
use super::freed::Freed;
use super::row::time;
use super::session::Session;
use super::statements::Name;
use super::{Clock, told_by, words};
use crate::entry;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{UnknownReply, UnknownRequest};
use std::sync::Arc;

/// The kind.
pub struct ClaimUnknown;

impl Kind for ClaimUnknown {
    type Op = UnknownRequest;
    type Reply = Freed<UnknownReply>;
    const NAME: &'static str = "claim_unknown";
    const BATCH_MAX: usize = 64;
    const DROP_GONE: bool = false;

    fn key(op: &UnknownRequest) -> Option<&StoreKey> {
        Some(&op.key)
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<UnknownRequest>],
    ) -> Result<Answers<Freed<UnknownReply>>, RunError> {
        let keys: Vec<&str> = ops.iter().map(|op| op.key.as_str()).collect();
        let tokens: Vec<&[u8]> = ops.iter().map(|op| &op.token.as_bytes()[..]).collect();
        let causes: Vec<String> = ops.iter().map(|op| words::unknown_cause(op.cause)).collect();
        let now = clock.fixed().map(time);
        let rows = session.query(Name::ClaimUnknown, &[&keys, &tokens, &causes, &now]).await?;
        told_by(
            &rows,
            ops,
            |op| &op.key,
            |op, seen| {
                if seen.wrote {
                    return Freed::told(UnknownReply::Marked, seen);
                }
                Freed::unchanged(entry::unknown(seen.row.as_ref(), op, seen.now))
            },
        )
    }
}
