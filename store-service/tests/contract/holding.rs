//! Who holds a key: one at most, and the right one.

use crate::bed::*;
use fencepost_protocol::claims::{CompleteReply, Refusal, ReleaseReply, RenewResult, UnknownCause};
use fencepost_store::entry::{Claim, ClaimOutcome, Release};
use fencepost_store::store::StoreKind;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Barrier;

/// All claims at once, from both instances; what each was told, in order.
pub async fn together(bed: &Bed, claims: Vec<Claim>) -> Vec<ClaimOutcome> {
    let gate = Arc::new(Barrier::new(claims.len()));
    let tasks: Vec<_> = claims
        .into_iter()
        .enumerate()
        .map(|(turn, claim)| {
            let (store, gate) = (bed.instance(turn), gate.clone());
            tokio::spawn(async move {
                gate.wait().await;
                store.claim(Arc::new(claim), CALM).await.unwrap()
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

fn count(outcomes: &[ClaimOutcome], which: impl Fn(&ClaimOutcome) -> bool) -> usize {
    outcomes.iter().filter(|outcome| which(outcome)).count()
}

fn is_claimed(outcome: &ClaimOutcome) -> bool {
    matches!(outcome, ClaimOutcome::Claimed { .. })
}

/// Of 128 callers at once exactly one gets the claim, ten times.
pub async fn one_winner_among_128_callers(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    for round in 0..10 {
        let outcomes = together(&bed, (0..128).map(|caller| claim(round, caller)).collect()).await;
        assert_eq!(count(&outcomes, is_claimed), 1, "round {round}");
        let waiting = count(&outcomes, |outcome| matches!(outcome, ClaimOutcome::InProgress { .. }));
        assert_eq!(waiting, 127, "round {round}");
    }
}

/// However many callers claim and release in loops, the number of holders is never above one, and
/// every fence is above all earlier ones.
pub async fn at_most_one_holder_under_claim_and_release_loops(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let holders: Arc<[AtomicUsize; 2]> = Arc::default();
    let newest: Arc<[AtomicU64; 2]> = Arc::default();
    let wins = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16_usize)
        .map(|caller| {
            let (store, holders, newest, wins) =
                (bed.instance(caller), holders.clone(), newest.clone(), wins.clone());
            tokio::spawn(async move {
                for turn in 0..60_usize {
                    let claim = claim(turn as u64 % 2, (caller * 1_000 + turn) as u64);
                    let outcome = store.claim(Arc::new(claim.clone()), CALM).await.unwrap();
                    let ClaimOutcome::Claimed { fence, .. } = outcome else { continue };
                    let (holders, newest) = (&holders[turn % 2], &newest[turn % 2]);
                    wins.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    let fence = u64::try_from(fence).unwrap();
                    assert!(newest.swap(fence, Ordering::SeqCst) < fence, "the fence fell");
                    tokio::task::yield_now().await;
                    assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
                    assert_eq!(store.release(release(&claim)).await.unwrap(), ReleaseReply::Released);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(wins.load(Ordering::SeqCst) > 1);
}

/// Two claims of one key under `rerun`: the first one's lease and run are over, the second took it
/// over.
async fn taken_over(bed: &Bed) -> (Claim, i64, Claim, i64) {
    let (stale, fresh) = (rerun(1, 1), rerun(1, 2));
    let old_fence = bed.granted(&stale).await;
    bed.pass_ms(u64::from(TTL_MS + MAX_RUN_MS));
    let new_fence = bed.granted(&fresh).await;
    assert!(new_fence > old_fence);
    (stale, old_fence, fresh, new_fence)
}

/// The answer that the key has now.
async fn answer(bed: &Bed) -> Vec<u8> {
    match bed.claim(&rerun(1, 99)).await {
        ClaimOutcome::Completed(answer) => answer.body.to_vec(),
        other => panic!("not completed: {other:?}"),
    }
}

/// A stale holder that finishes after its successor changes nothing.
pub async fn stale_holder_that_finishes_last_changes_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (stale, old_fence, fresh, new_fence) = taken_over(&bed).await;
    let stored = bed.store.complete(complete(&fresh, new_fence, b"fresh")).await.unwrap();
    assert_eq!(stored, CompleteReply::Stored);
    let refused = bed.store.complete(complete(&stale, old_fence, b"stale")).await.unwrap();
    assert_eq!(refused, CompleteReply::Refused { reason: Refusal::Completed });
    assert_eq!(answer(&bed).await, b"fresh");
}

/// A stale holder that finishes before its successor changes nothing.
pub async fn stale_holder_that_finishes_first_changes_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (stale, old_fence, fresh, new_fence) = taken_over(&bed).await;
    let refused = bed.store.complete(complete(&stale, old_fence, b"stale")).await.unwrap();
    assert_eq!(refused, CompleteReply::Refused { reason: Refusal::HeldByOther });
    assert_eq!(
        bed.store.renew(vec![renewal(&stale)]).await.unwrap(),
        [RenewResult::Refused { reason: Refusal::HeldByOther }]
    );
    let stored = bed.store.complete(complete(&fresh, new_fence, b"fresh")).await.unwrap();
    assert_eq!(stored, CompleteReply::Stored);
    assert_eq!(answer(&bed).await, b"fresh");
}

/// A stale holder that fails after the take-over frees nothing and closes nothing.
pub async fn stale_holder_that_fails_after_takeover_changes_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (stale, _, fresh, new_fence) = taken_over(&bed).await;
    assert_eq!(
        bed.store.release(release(&stale)).await.unwrap(),
        ReleaseReply::Refused { reason: Refusal::HeldByOther }
    );
    assert_eq!(
        bed.store.unknown(unknown(&stale)).await.unwrap(),
        fencepost_protocol::claims::UnknownReply::Refused { reason: Refusal::HeldByOther }
    );
    assert!(matches!(bed.claim(&rerun(1, 3)).await, ClaimOutcome::InProgress { .. }));
    assert_eq!(bed.granted(&fresh).await, new_fence);
    // And its own claim, should it still be on its way somewhere, never gets the key again.
    assert_eq!(bed.store.release(release(&fresh)).await.unwrap(), ReleaseReply::Released);
    assert_eq!(bed.claim(&stale).await, ClaimOutcome::Dead);
}

/// Four payloads race for one key: whoever wins, all others of its payload wait for it and all
/// other payloads are told that the key is taken by another one.
pub async fn racing_fingerprints_have_one_winner_that_all_losers_name(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    for round in 0..5 {
        let claims: Vec<_> = (0..64_u8)
            .map(|caller| Claim { fingerprint: fingerprint(caller % 4), ..claim(round, caller.into()) })
            .collect();
        let outcomes = together(&bed, claims.clone()).await;
        let winners: Vec<_> =
            claims.iter().zip(&outcomes).filter(|(_, outcome)| is_claimed(outcome)).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let (winner, _) = winners[0];
        for (loser, outcome) in claims.iter().zip(&outcomes).filter(|(loser, _)| loser.token != winner.token)
        {
            if loser.fingerprint == winner.fingerprint {
                assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}");
            } else {
                assert_eq!(*outcome, ClaimOutcome::Mismatch);
            }
        }
        let ClaimOutcome::Claimed { fence, .. } = winners[0].1 else { panic!() };
        for claim in &claims {
            let reply = bed.store.complete(complete(claim, *fence, b"answer")).await.unwrap();
            assert_eq!(reply == CompleteReply::Stored, claim.token == winner.token, "{reply:?}");
        }
    }
}

/// Half of a herd that comes after a claim carries a changed payload: exactly that half is told so.
pub async fn tampered_herd_is_told_apart(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    bed.granted(&claim(1, 1_000)).await;
    let claims: Vec<_> = (0..100_u8)
        .map(|caller| Claim { fingerprint: fingerprint(1 + caller % 2), ..claim(1, caller.into()) })
        .collect();
    let outcomes = together(&bed, claims).await;
    for (caller, outcome) in outcomes.iter().enumerate() {
        match caller % 2 {
            0 => assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}"),
            _ => assert_eq!(*outcome, ClaimOutcome::Mismatch),
        }
    }
}

/// Under `rerun` an expired claim goes to exactly one of many, and only once its upstream has
/// certainly stopped.
pub async fn expired_claim_is_taken_over_by_exactly_one_where_rerun(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let old = bed.granted(&rerun(1, 1_000)).await;
    bed.pass_ms(u64::from(TTL_MS));
    let early = together(&bed, (0..32).map(|caller| rerun(1, caller)).collect()).await;
    let left = u64::from(MAX_RUN_MS);
    assert!(early.iter().all(|o| *o == ClaimOutcome::InProgress { lease_left_ms: left }), "{early:?}");
    bed.pass_ms(left);
    let outcomes = together(&bed, (100..164).map(|caller| rerun(1, caller)).collect()).await;
    let fences: HashSet<_> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            ClaimOutcome::Claimed { fence, .. } => Some(*fence),
            _ => None,
        })
        .collect();
    assert_eq!(count(&outcomes, is_claimed), 1);
    assert!(fences.iter().all(|fence| *fence > old));
}

/// Under `hold` an expired claim goes to nobody: its outcome is unknown, for all alike.
pub async fn expired_claim_is_held_where_hold(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    bed.granted(&claim(1, 1_000)).await;
    bed.pass_ms(u64::from(TTL_MS + MAX_RUN_MS));
    let outcomes = together(&bed, (0..64).map(|caller| claim(1, caller)).collect()).await;
    for outcome in outcomes {
        let expected = ClaimOutcome::Unknown { cause: UnknownCause::LeaseExpired, left_ms: 3_600_000 };
        assert_eq!(outcome, expected);
    }
    // Its own late answer still ends the doubt.
    let own = claim(1, 1_000);
    let stored = bed.store.complete(complete(&own, 5, b"late")).await.unwrap();
    assert_eq!(stored, CompleteReply::Stored);
    assert!(matches!(bed.claim(&claim(1, 7)).await, ClaimOutcome::Completed(_)));
}

/// Until an instance has heard renewals for a lease, it takes nothing over and calls nothing lost;
/// a renewal in that time keeps the claim.
pub async fn renewals_win_over_retries_after_a_restart(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for (key, claim) in [(1, claim(1, 1)), (2, rerun(2, 1))] {
        bed.granted(&claim).await;
        bed.pass_ms(u64::from(TTL_MS + MAX_RUN_MS) * 2);
        let retry = Arc::new(Claim { token: token(2), ..claim.clone() });
        let young = bed.store.claim(retry.clone(), u64::from(TTL_MS) - 1).await.unwrap();
        assert_eq!(young, ClaimOutcome::InProgress { lease_left_ms: 1 }, "key {key}");
        for kind in fencepost_store::entry::SweepKind::ALL {
            assert_eq!(bed.store.sweep(kind, u64::from(TTL_MS) - 1, 100).await.unwrap(), 0);
        }
        assert_eq!(bed.store.renew(vec![renewal(&claim)]).await.unwrap(), [RenewResult::Renewed]);
        let calm = bed.store.claim(retry, CALM).await.unwrap();
        assert_eq!(calm, ClaimOutcome::InProgress { lease_left_ms: u64::from(TTL_MS) }, "key {key}");
    }
}

/// A claim given back for a caller that went away is that claim only: one made again by a resend
/// with the same token is in use and stays.
pub async fn claim_made_again_is_not_given_back_for_its_first_caller(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let claim = claim(1, 1);
    let lease = |outcome| match outcome {
        ClaimOutcome::Claimed { lease_until, .. } => lease_until,
        other => panic!("not granted: {other:?}"),
    };
    let first = lease(bed.claim(&claim).await);
    let second = lease(bed.claim(&claim).await);
    assert_ne!(first, second);
    let give_back = |only| Release { only_lease: Some(only), ..release(&claim) };
    assert_eq!(
        bed.store.release(give_back(first)).await.unwrap(),
        ReleaseReply::Refused { reason: Refusal::Other }
    );
    assert!(matches!(
        bed.claim(&Claim { token: token(2), ..claim.clone() }).await,
        ClaimOutcome::InProgress { .. }
    ));
    assert_eq!(bed.store.release(give_back(second)).await.unwrap(), ReleaseReply::Released);
    assert_eq!(bed.claim(&claim).await, ClaimOutcome::Dead);
    bed.granted(&Claim { token: token(2), ..claim }).await;
}
