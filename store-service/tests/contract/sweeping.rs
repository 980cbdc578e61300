//! What the sweeper does, in batches.

use crate::bed::*;
use fencepost_protocol::claims::{CompleteReply, UnknownCause};
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, SweepKind};
use fencepost_store::store::StoreKind;

/// Each duty changes what is due and nothing else, at most as many rows as it may.
pub async fn sweeper_works_in_bounded_batches(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for number in 0..25 {
        bed.granted(&claim(number, 1)).await;
        bed.granted(&rerun(100 + number, 1)).await;
        let done = claim(200 + number, 1);
        let fence = bed.granted(&done).await;
        let answer = Complete { ttl_ms: 200_000, ..complete(&done, fence, b"answer") };
        assert_eq!(bed.store.complete(answer).await.unwrap(), CompleteReply::Stored);
    }
    let sweep = |kind| bed.store.sweep(kind, CALM, 10);
    for kind in SweepKind::ALL {
        assert_eq!(sweep(kind).await.unwrap(), 0, "nothing is due");
    }
    bed.pass_ms(TTL_MS.into());
    for expected in [10, 10, 5, 0] {
        assert_eq!(sweep(SweepKind::MarkLost).await.unwrap(), expected);
    }
    assert_eq!(sweep(SweepKind::DropAbandoned).await.unwrap(), 0);
    assert_eq!(sweep(SweepKind::DropEnded).await.unwrap(), 0);
    let expected = ClaimOutcome::Unknown { cause: UnknownCause::LeaseExpired, left_ms: 3_600_000 };
    assert_eq!(bed.claim(&claim(3, 9)).await, expected);
    // A claim that may run again is kept for takers until nobody can be interested any more.
    bed.pass_ms(200_000 - u64::from(TTL_MS));
    for expected in [10, 10, 5, 0] {
        assert_eq!(sweep(SweepKind::DropEnded).await.unwrap(), expected);
    }
    bed.pass_ms(u64::from(TTL_MS + MAX_RUN_MS) + 3_600_000 - 200_000 - 1);
    assert_eq!(sweep(SweepKind::DropAbandoned).await.unwrap(), 0);
    bed.pass_ms(1);
    for expected in [10, 10, 5, 0] {
        assert_eq!(sweep(SweepKind::DropAbandoned).await.unwrap(), expected);
    }
}

/// The lifetime of an answer does not count from the claim.
pub async fn an_answer_lives_from_its_completion_however_long_it_took(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let slow = claim(1, 1);
    let fence = bed.granted(&slow).await;
    bed.pass_ms(25_000);
    bed.store.complete(Complete { ttl_ms: 30_000, ..complete(&slow, fence, b"answer") }).await.unwrap();
    bed.pass_ms(29_999);
    assert_eq!(bed.store.sweep(SweepKind::DropEnded, CALM, 10).await.unwrap(), 0);
    let retry = bed.claim(&claim(1, 2)).await;
    assert!(matches!(retry, ClaimOutcome::Completed { .. }), "{retry:?}");
    bed.pass_ms(1);
    let retry = bed.claim(&claim(1, 3)).await;
    assert!(matches!(retry, ClaimOutcome::Claimed { .. }), "{retry:?}");
}

/// The lag counts rows past their end and no others, and is over when they are swept.
pub async fn sweepers_lag_is_the_age_of_the_oldest_row_past_its_end(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    assert_eq!(bed.store.sweep_lag().await.unwrap(), 0, "there is no row");
    // A claim has no end of its own.
    bed.granted(&claim(1, 1)).await;
    for (number, ttl_ms) in [(2, 10_000), (3, 60_000)] {
        let done = claim(number, 1);
        let fence = bed.granted(&done).await;
        bed.store.complete(Complete { ttl_ms, ..complete(&done, fence, b"answer") }).await.unwrap();
    }
    bed.pass_ms(9_999);
    assert_eq!(bed.store.sweep_lag().await.unwrap(), 0, "nothing is past its end");
    bed.pass_ms(1 + 30_000);
    assert_eq!(bed.store.sweep_lag().await.unwrap(), 30_000);
    assert_eq!(bed.store.sweep(SweepKind::DropEnded, CALM, 10).await.unwrap(), 1);
    assert_eq!(bed.store.sweep_lag().await.unwrap(), 0, "the other one has not ended");
    bed.pass_ms(25_000);
    assert_eq!(bed.store.sweep_lag().await.unwrap(), 5_000);
}

/// Sweeps of several instances and claims at the same time get in nobody's way.
pub async fn sweeps_and_claims_at_once_lose_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for number in 0..200 {
        bed.granted(&Claim { unknown_ttl_ms: 1, ..claim(number, 1) }).await;
    }
    bed.pass_ms(TTL_MS.into());
    let sweep = |turn: usize| {
        let store = bed.instance(turn);
        async move {
            let mut changed = 0;
            loop {
                match store.sweep(SweepKind::MarkLost, CALM, 7).await.unwrap() {
                    0 => return changed,
                    more => changed += more,
                }
            }
        }
    };
    let claims = async {
        let mut lost = 0;
        for number in (0..200).rev() {
            let outcome = bed.claim(&claim(number, 2)).await;
            assert!(matches!(outcome, ClaimOutcome::Unknown { .. }), "{outcome:?}");
            lost += 1;
        }
        lost
    };
    let (first, second, lost) = tokio::join!(sweep(0), sweep(1), claims);
    assert!(first + second <= 200);
    assert_eq!(lost, 200);
    bed.pass_ms(1);
    let mut dropped = 0;
    loop {
        match bed.store.sweep(SweepKind::DropEnded, CALM, 64).await.unwrap() {
            0 => break,
            more => dropped += more,
        }
    }
    assert_eq!(dropped, 200);
}
