//! `claim_release`: batches of releases.

use super::batch::{Answers, Kind, RunError, Told};
use super::freed::Freed;
use super::row::{Seen, time};
use super::session::Session;
use super::statements::Name;
use super::{Clock, told_by, words};
use crate::entry::{self, Release, State, TOMBSTONE_MS};
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{Refusal, ReleaseReply};
use std::sync::Arc;

/// The kind.
pub struct ClaimRelease;

impl Kind for ClaimRelease {
    type Op = Release;
    type Reply = Freed<ReleaseReply>;
    const NAME: &'static str = "claim_release";
    const BATCH_MAX: usize = 64;
    const DROP_GONE: bool = false;

    fn key(op: &Release) -> Option<&StoreKey> {
        Some(&op.key)
    }

    async fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Release>],
    ) -> Result<Answers<Freed<ReleaseReply>>, RunError> {
        let keys: Vec<&str> = ops.iter().map(|op| op.key.as_str()).collect();
        let tokens: Vec<&[u8]> = ops.iter().map(|op| &op.token.as_bytes()[..]).collect();
        let schemes: Vec<&str> = ops.iter().map(|op| op.scheme.as_str()).collect();
        let fingerprints: Vec<&[u8]> = ops.iter().map(|op| &op.fingerprint.as_bytes()[..]).collect();
        let scopes: Vec<&[u8]> = ops.iter().map(|op| &op.scope.as_bytes()[..]).collect();
        let causes: Vec<String> = ops.iter().map(|op| words::release_cause(op.cause)).collect();
        let tombstone = super::int8(TOMBSTONE_MS);
        let now = clock.fixed().map(time);
        let rows = session
            .query(
                Name::ClaimRelease,
                &[&keys, &tokens, &schemes, &fingerprints, &scopes, &causes, &tombstone, &now],
            )
            .await?;
        told_by(&rows, ops, |op| &op.key, told)
    }
}

fn told(op: &Release, seen: &Seen) -> Told<Freed<ReleaseReply>> {
    match seen.row.as_ref().map(|row| &row.state) {
        Some(State::Released { .. }) if seen.wrote => Freed::told(ReleaseReply::Released, seen),
        // Another token holds the key; ours is remembered beside it.
        Some(State::Claimed(_)) if seen.wrote => {
            // Nobody was freed by that.
            Told::Done(Freed::nobody(ReleaseReply::Refused { reason: Refusal::HeldByOther }))
        }
        _ if seen.wrote => Told::Again,
        _ => Freed::unchanged(entry::release(seen.row.as_ref(), op, seen.now)),
    }
}
