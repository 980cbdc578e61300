//! `claim_complete`: batches of answers.

use super::batch::{Answers, Kind, RunError};
use super::freed::Freed;
use super::row::time;
use super::session::Session;
use super::statements::Name;
use super::{Clock, told_by};
use crate::entry::{self, Complete};
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::CompleteReply;
use std::sync::Arc;

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
        let keys: Vec<&str> = ops.iter().map(|op| op.key.as_str()).collect();
        let tokens: Vec<&[u8]> = ops.iter().map(|op| &op.token.as_bytes()[..]).collect();
        let fences: Vec<i64> = ops.iter().map(|op| op.fence.get()).collect();
        let schemes: Vec<&str> = ops.iter().map(|op| op.scheme.as_str()).collect();
        let fingerprints: Vec<&[u8]> = ops.iter().map(|op| &op.fingerprint.as_bytes()[..]).collect();
        let scopes: Vec<&[u8]> = ops.iter().map(|op| &op.scope.as_bytes()[..]).collect();
        let statuses: Vec<i16> = ops.iter().map(|op| i16::try_from(op.status).unwrap_or(i16::MAX)).collect();
        let headers: Vec<&[u8]> = ops.iter().map(|op| &op.headers[..]).collect();
        let bodies: Vec<&[u8]> = ops.iter().map(|op| &op.body[..]).collect();
        let ttls: Vec<i64> = ops.iter().map(|op| super::int8(op.ttl_ms)).collect();
        let now = clock.fixed().map(time);
        let rows = session
            .query(
                Name::ClaimComplete,
                &[
                    &keys,
                    &tokens,
                    &fences,
                    &schemes,
                    &fingerprints,
                    &scopes,
                    &statuses,
                    &headers,
                    &bodies,
                    &ttls,
                    &now,
                ],
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
}
