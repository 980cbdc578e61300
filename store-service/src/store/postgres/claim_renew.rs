//! `claim_renew`: batches of renewals.

use super::batch::{Answers, Kind, RunError, Told};
use super::row::time;
use super::session::Session;
use super::statements::Name;
use super::{Clock, told_by};
use crate::entry;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{RENEW_MAX, RenewResult, Renewal};
use std::sync::Arc;

/// The kind.
pub struct ClaimRenew;

impl Kind for ClaimRenew {
    type Op = Renewal;
    type Reply = RenewResult;
    const NAME: &'static str = "claim_renew";
    const BATCH_MAX: usize = RENEW_MAX;
    const DROP_GONE: bool = false;

    fn key(op: &Renewal) -> Option<&StoreKey> {
        Some(&op.key)
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Renewal>],
    ) -> Result<Answers<RenewResult>, RunError> {
        let keys: Vec<&str> = ops.iter().map(|op| op.key.as_str()).collect();
        let tokens: Vec<&[u8]> = ops.iter().map(|op| &op.token.as_bytes()[..]).collect();
        let claim_ttls: Vec<i32> = ops.iter().map(|op| super::int4(op.claim_ttl_ms)).collect();
        let runs: Vec<i32> = ops.iter().map(|op| super::int4(op.run_ms)).collect();
        let now = clock.fixed().map(time);
        let rows = session.query(Name::ClaimRenew, &[&keys, &tokens, &claim_ttls, &runs, &now]).await?;
        told_by(
            &rows,
            ops,
            |op| &op.key,
            |op, seen| {
                if seen.wrote {
                    return Told::Done(RenewResult::Renewed);
                }
                super::unchanged(entry::renew(seen.row.as_ref(), op, seen.now))
            },
        )
    }
}
