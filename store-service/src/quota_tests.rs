//! What one caller may have, and what others have meanwhile.

use super::*;

const A: ScopeDigest = ScopeDigest::from_bytes([1; 16]);
const B: ScopeDigest = ScopeDigest::from_bytes([2; 16]);
const LEASE: Duration = Duration::from_secs(30);

fn key(number: u32) -> StoreKey {
    let mut digest = [0; 16];
    digest[..4].copy_from_slice(&number.to_be_bytes());
    StoreKey::new("t", &digest).unwrap()
}

fn token(number: u8) -> ClaimToken {
    ClaimToken::from_bytes([number; 16])
}

fn quota(per_minute: Option<u32>, live: Option<u32>) -> Arc<Quota> {
    Quota::new(QuotaLimits { per_minute, burst: None, live })
}

fn limit(result: Result<Place, Over>) -> Option<Limit> {
    result.err().map(|over| over.limit)
}

#[test]
fn places_in_flight_count_and_come_back_when_no_claim_was_made() {
    for (quota, reached) in [(quota(Some(2), None), Limit::Rate), (quota(None, Some(2)), Limit::Live)] {
        let now = Instant::now();
        let one = quota.take(A, now).ok().unwrap();
        let two = quota.take(A, now).ok().unwrap();
        assert_eq!(limit(quota.take(A, now)), Some(reached));
        assert!(quota.take(B, now).is_ok(), "another caller has its own");
        drop(one);
        assert!(quota.take(A, now).is_ok());
        two.used(&key(1), token(1), LEASE, now);
        let again = quota.take(A, now).ok().unwrap();
        assert_eq!(limit(quota.take(A, now)), Some(reached), "a claim that was made keeps its place");
        drop(again);
    }
}

#[test]
fn a_refusal_by_one_limit_takes_nothing_of_the_other() {
    let quota = quota(Some(1), Some(3));
    let now = Instant::now();
    quota.take(A, now).ok().unwrap().used(&key(1), token(1), LEASE, now);
    for _ in 0..9 {
        assert_eq!(limit(quota.take(A, now)), Some(Limit::Rate));
    }
    let later = now + Duration::from_secs(61);
    let held = quota.take(A, later);
    assert!(held.is_ok());
    let over = quota.take(A, later).err().unwrap();
    assert_eq!(over.limit, Limit::Rate);
    assert_eq!(over.retry_after, Duration::from_secs(60));
}

#[test]
fn an_ended_claim_frees_its_place_and_a_late_word_of_an_old_one_does_not() {
    let quota = quota(None, Some(1));
    let now = Instant::now();
    quota.take(A, now).ok().unwrap().used(&key(1), token(1), LEASE, now);
    quota.ended(&A, &key(1), &token(2));
    quota.ended(&B, &key(1), &token(1));
    assert_eq!(limit(quota.take(A, now)), Some(Limit::Live));
    quota.ended(&A, &key(1), &token(1));
    quota.ended(&A, &key(1), &token(1));
    assert!(quota.take(A, now).is_ok());
    assert!(quota.live.as_ref().unwrap().lock().by_scope.is_empty(), "nothing is left in memory");
}

#[test]
fn a_claim_without_a_place_counts_all_the_same() {
    let quota = quota(Some(1), Some(1));
    let now = Instant::now();
    quota.take(A, now).ok().unwrap().used(&key(1), token(1), LEASE, now);
    quota.beyond(A).used(&key(2), token(2), LEASE, now);
    quota.ended(&A, &key(1), &token(1));
    assert_eq!(limit(quota.take(A, now)), Some(Limit::Live));
    quota.ended(&A, &key(2), &token(2));
    assert_eq!(quota.take(A, now).err().unwrap().retry_after, Duration::from_secs(120));
}

#[test]
fn claims_due_for_look_are_told_now_and_then_and_each_in_its_turn() {
    let quota = quota(None, Some(1_000));
    let now = Instant::now();
    for number in 0..400 {
        quota.take(A, now).ok().unwrap().used(&key(number), token(1), LEASE, now);
    }
    let first = quota.due_for_look(&A, now + LOOK_INTERVAL);
    assert_eq!((first.len(), quota.due_for_look(&A, now + LOOK_INTERVAL).len()), (LOOK_MAX, 0));
    let second = quota.due_for_look(&A, now + LOOK_INTERVAL * 2);
    let seen: std::collections::HashSet<_> = first.into_iter().chain(second).map(|(key, _)| key).collect();
    assert_eq!(seen.len(), 400, "nobody's turn is missed");
    assert!(quota.due_for_look(&B, now).is_empty());
}

#[test]
fn memory_is_bounded_and_a_full_one_refuses_nobody() {
    let quota = quota(None, Some(4));
    let now = Instant::now();
    let scope = |number: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        ScopeDigest::from_bytes(bytes)
    };
    let all = u32::try_from(CLAIMS_MAX).unwrap();
    for number in 0..all + 10 {
        let place = quota.take(scope(number / 2), now);
        place.ok().unwrap().used(&key(number), token(1), LEASE, now);
    }
    assert_eq!(quota.live.as_ref().unwrap().lock().count, CLAIMS_MAX);
    let later = now + LEASE * 2;
    quota.take(A, later).ok().unwrap().used(&key(0), token(1), LEASE, later);
    assert_eq!(
        quota.live.as_ref().unwrap().lock().count,
        1,
        "what nobody heard of since its lease is forgotten"
    );
}
