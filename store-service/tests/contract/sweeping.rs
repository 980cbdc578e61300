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
