//! What finishes a claim, once and in any order.

use crate::bed::*;
use crate::holding::together;
use fencepost_protocol::claims::{
    CompleteReply, Refusal, ReleaseReply, RenewResult, UnknownCause, UnknownReply,
};
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, SweepKind, TOMBSTONE_MS};
use fencepost_store::store::StoreKind;

/// The second answer of the same token changes nothing and is no error.
pub async fn complete_twice_keeps_the_first_answer(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let claim_1 = claim(1, 1);
    let fence = bed.granted(&claim_1).await;
    let first = bed.store.complete(complete(&claim_1, fence, b"first")).await.unwrap();
    assert_eq!(first, CompleteReply::Stored);
    bed.pass_ms(1_500);
    let second = bed.other.complete(complete(&claim_1, fence, b"second")).await.unwrap();
    assert_eq!(second, CompleteReply::AlreadyStored);
    let ClaimOutcome::Completed(answer) = bed.claim(&claim(1, 2)).await else { panic!() };
    assert_eq!((&answer.body[..], answer.age_ms, answer.left_ms), (&b"first"[..], 1_500, 86_398_500));
    // The holder itself, asking again, learns the same.
    assert!(matches!(bed.claim(&claim_1).await, ClaimOutcome::Completed(_)));
    assert_eq!(
        bed.store.release(release(&claim_1)).await.unwrap(),
        ReleaseReply::Refused { reason: Refusal::Completed }
    );
    assert_eq!(
        bed.store.unknown(unknown(&claim_1)).await.unwrap(),
        UnknownReply::Refused { reason: Refusal::Completed }
    );
}

/// An answer that comes after its claim was released is kept where nobody holds the key, under the
/// same fingerprint only; and refused where somebody does.
pub async fn complete_after_release_is_kept_only_where_nobody_holds_the_key(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (first, second) = (claim(1, 1), claim(1, 2));
    let fence = bed.granted(&first).await;
    assert_eq!(bed.store.release(release(&first)).await.unwrap(), ReleaseReply::Released);
    let changed = Claim { fingerprint: fingerprint(2), ..first.clone() };
    assert_eq!(
        bed.store.complete(complete(&changed, fence, b"changed")).await.unwrap(),
        CompleteReply::Refused { reason: Refusal::Mismatch }
    );
    let newer = bed.granted(&second).await;
    assert!(newer > fence);
    assert_eq!(
        bed.store.complete(complete(&first, fence, b"late")).await.unwrap(),
        CompleteReply::Refused { reason: Refusal::HeldByOther }
    );
    assert_eq!(bed.store.release(release(&second)).await.unwrap(), ReleaseReply::Released);
    let late = bed.store.complete(complete(&first, fence, b"late")).await.unwrap();
    assert_eq!(late, CompleteReply::Stored);
    assert!(matches!(bed.claim(&claim(1, 3)).await, ClaimOutcome::Completed(_)));
}

/// A release that arrives before its claim keeps that claim out, on an empty key, beside another
/// holder and beside another release; other callers are not kept out.
pub async fn release_before_its_claim_keeps_the_claim_out(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (a, b, c, d) = (claim(1, 1), claim(1, 2), claim(1, 3), claim(1, 4));
    assert_eq!(bed.store.release(release(&a)).await.unwrap(), ReleaseReply::Released);
    assert_eq!(bed.store.release(release(&a)).await.unwrap(), ReleaseReply::AlreadyReleased);
    assert_eq!(bed.store.release(release(&b)).await.unwrap(), ReleaseReply::Released);
    assert_eq!(bed.claim(&a).await, ClaimOutcome::Dead);
    assert_eq!(bed.claim(&b).await, ClaimOutcome::Dead);
    bed.granted(&c).await;
    for _ in 0..2 {
        assert_eq!(
            bed.store.release(release(&d)).await.unwrap(),
            ReleaseReply::Refused { reason: Refusal::HeldByOther }
        );
    }
    assert_eq!(bed.store.release(release(&c)).await.unwrap(), ReleaseReply::Released);
    for dead in [&a, &b, &c, &d] {
        assert_eq!(bed.claim(dead).await, ClaimOutcome::Dead);
    }
    // After the memory ends, nothing of them can be on its way any more.
    bed.pass_ms(TOMBSTONE_MS);
    bed.granted(&c).await;
}

/// A renewal that comes after the lease ran out keeps the claim, unless somebody has acted on it.
pub async fn renew_after_expiry_keeps_an_untouched_claim(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (untouched, lost) = (claim(1, 1), claim(2, 1));
    bed.granted(&untouched).await;
    bed.granted(&lost).await;
    bed.pass_ms(u64::from(TTL_MS) + 5_000);
    assert!(matches!(bed.claim(&claim(2, 9)).await, ClaimOutcome::Unknown { .. }));
    let absent = claim(3, 1);
    let results = bed.store.renew(vec![renewal(&lost), renewal(&absent), renewal(&untouched)]).await.unwrap();
    assert_eq!(
        results,
        [
            RenewResult::Refused { reason: Refusal::Unknown },
            RenewResult::Refused { reason: Refusal::Absent },
            RenewResult::Renewed,
        ]
    );
    assert_eq!(bed.claim(&claim(1, 9)).await, ClaimOutcome::InProgress { lease_left_ms: u64::from(TTL_MS) });
}

/// An unknown outcome closes a held key; one under `rerun` opens when its upstream has stopped.
pub async fn unknown_outcome_follows_the_policy_of_its_claim(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let (held, open) = (claim(1, 1), rerun(2, 1));
    bed.granted(&held).await;
    let fence = bed.granted(&open).await;
    bed.pass_ms(1_000);
    for claim in [&held, &open] {
        assert_eq!(bed.store.unknown(unknown(claim)).await.unwrap(), UnknownReply::Marked);
    }
    assert_eq!(bed.store.unknown(unknown(&held)).await.unwrap(), UnknownReply::AlreadyMarked);
    let expected = ClaimOutcome::Unknown { cause: UnknownCause::Timeout, left_ms: 3_600_000 };
    assert_eq!(bed.claim(&claim(1, 2)).await, expected);
    assert_eq!(
        bed.claim(&Claim { fingerprint: fingerprint(2), ..claim(1, 2) }).await,
        ClaimOutcome::Mismatch
    );
    let left = u64::from(TTL_MS + MAX_RUN_MS) - 1_000;
    assert_eq!(bed.claim(&rerun(2, 2)).await, ClaimOutcome::InProgress { lease_left_ms: left });
    bed.pass_ms(left);
    assert!(bed.granted(&rerun(2, 2)).await > fence);
    // The held one ends with its lifetime.
    bed.pass_ms(3_600_000);
    bed.granted(&claim(1, 3)).await;
}

/// A claim that is asked again with the same token is the same claim, before and after its lease.
pub async fn claim_asked_again_with_its_token_is_the_same_claim(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let claim = claim(1, 1);
    let fence = bed.granted(&claim).await;
    assert_eq!(bed.granted(&claim).await, fence);
    bed.pass_ms(u64::from(TTL_MS) * 10);
    let outcomes = together(&bed, vec![claim.clone(); 8]).await;
    assert!(outcomes.iter().all(|o| matches!(o, ClaimOutcome::Claimed { fence: f, .. } if *f == fence)));
}

/// Fences grow across the end and the deletion of an entry.
pub async fn fence_grows_across_deletion(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let mut newest = 0;
    for token in 0..6 {
        let claim = claim(1, token);
        let fence = bed.granted(&claim).await;
        assert!(fence > newest);
        newest = fence;
        if token % 2 == 0 {
            let mut answer = complete(&claim, fence, b"");
            answer.ttl_ms = 1;
            assert_eq!(bed.store.complete(answer).await.unwrap(), CompleteReply::Stored);
            bed.pass_ms(1);
        } else {
            assert_eq!(bed.store.release(release(&claim)).await.unwrap(), ReleaseReply::Released);
            bed.pass_ms(TOMBSTONE_MS);
        }
        if token % 3 != 0 {
            assert_eq!(bed.store.sweep(SweepKind::DropEnded, CALM, 10).await.unwrap(), 1);
        }
    }
}

/// Bytes that are no text come back as they went in, however many read them at once.
pub async fn read_storm_is_byte_for_byte(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let headers = fencepost_protocol::answer::encode_headers(&[
        (b"x-\0".to_vec(), vec![0, 255, 254, b'\n']),
        (b"x-\0".to_vec(), vec![]),
        (vec![0xc3], b"latin1 \xe9".to_vec()),
    ]);
    for (key, len) in [(1, 0), (2, 1), (3, 300_000), (4, 3_000_000)] {
        let claim_1 = claim(key, 1);
        let fence = bed.granted(&claim_1).await;
        let body: Vec<u8> =
            (0..len).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let answer = Complete { headers: headers.clone().into(), ..complete(&claim_1, fence, &body) };
        assert_eq!(bed.store.complete(answer).await.unwrap(), CompleteReply::Stored);
        let outcomes = together(&bed, (10..74).map(|caller| claim(key, caller)).collect()).await;
        for outcome in outcomes {
            let ClaimOutcome::Completed(answer) = outcome else { panic!("{outcome:?}") };
            assert_eq!(answer.status, 201);
            assert!(answer.headers == headers && answer.body == body, "key {key}: other bytes");
        }
    }
}

/// A fence that this store never gave out is not believed: the key keeps its numbers.
pub async fn invented_fence_does_not_spend_the_numbers(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let claim_1 = claim(1, 1);
    let mut answer = complete(&claim_1, (1 << 53) - 1, b"");
    answer.ttl_ms = 1;
    assert_eq!(bed.store.complete(answer).await.unwrap(), CompleteReply::Stored);
    bed.pass_ms(1);
    assert!(bed.granted(&claim(1, 2)).await < START.0 + 1_000_000);
}

/// Only the last eight dead tokens are remembered.
pub async fn dead_tokens_are_bounded(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    bed.granted(&claim(1, 100)).await;
    for late in 0..9 {
        let refused = ReleaseReply::Refused { reason: Refusal::HeldByOther };
        assert_eq!(bed.store.release(release(&claim(1, late))).await.unwrap(), refused);
    }
    assert_eq!(bed.store.release(release(&claim(1, 100))).await.unwrap(), ReleaseReply::Released);
    for late in 1..9 {
        assert_eq!(bed.claim(&claim(1, late)).await, ClaimOutcome::Dead, "token {late}");
    }
    bed.granted(&claim(1, 0)).await;
}
