//! One caller's quota: what is refused, what never is, and what others notice of it.

use crate::bed::*;
use crate::served::{Served, claim_request};
use crate::waiting::Gated;
use fencepost_protocol::claims::{ClaimRequest, CompleteReply, RenewResult, Renewal};
use fencepost_protocol::{ScopeDigest, encode, paths};
use fencepost_store::entry::{Claim, ClaimOutcome};
use fencepost_store::http::{Limits, Tokens};
use fencepost_store::quota::{Limit, Quota, QuotaLimits};
use fencepost_store::service::Service;
use fencepost_store::store::{Store, StoreKind};
use fencepost_store::waiters::Waiters;
use std::sync::Arc;
use std::time::Duration;

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(20);

fn limited(store: &Arc<dyn Store>, per_minute: Option<u32>, live: Option<u32>) -> Arc<Service> {
    let quota = Quota::new(QuotaLimits { per_minute, burst: None, live });
    Service::with_bounds(store.clone(), Waiters::default(), quota)
}

fn of_another(claim: Claim) -> Claim {
    Claim { scope: ScopeDigest::from_bytes([8; 16]), ..claim }
}

async fn ask(service: &Arc<Service>, claim: Claim) -> ClaimOutcome {
    service.claim(claim, NO_WAIT).await.unwrap().0
}

fn is_claimed(outcome: &ClaimOutcome) -> bool {
    matches!(outcome, ClaimOutcome::Claimed { .. })
}

fn limit(outcome: &ClaimOutcome) -> Option<Limit> {
    match outcome {
        ClaimOutcome::OverQuota(over) => Some(over.limit),
        _ => None,
    }
}

/// However many come at once, as many claims are made as the caller may have; the refused leave
/// nothing behind, and another caller does not notice.
pub async fn of_claims_at_once_exactly_the_burst_is_made(kind: StoreKind) {
    for (per_minute, live) in [(Some(5), None), (None, Some(5))] {
        let bed = Bed::real(kind).await;
        let service = limited(&bed.store, per_minute, live);
        let callers: Vec<_> = (0..60)
            .map(|number| {
                let service = service.clone();
                tokio::spawn(async move { (number, ask(&service, claim(number, 1)).await) })
            })
            .collect();
        let mut made = 0;
        for caller in callers {
            let (number, outcome) = caller.await.unwrap();
            let row = bed.store.entry(&key(number), false).await.unwrap();
            assert_eq!(row.is_some(), is_claimed(&outcome), "{outcome:?}");
            assert!(is_claimed(&outcome) || limit(&outcome).is_some(), "{outcome:?}");
            made += u32::from(is_claimed(&outcome));
        }
        assert_eq!(made, 5);
        assert!(is_claimed(&ask(&service, of_another(claim(100, 1))).await));
    }
}

/// A caller without a place gets every answer that needs none, and can end what it has.
pub async fn what_makes_no_claim_is_never_refused(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    for (turn, (per_minute, live)) in [(Some(2), None), (None, Some(2))].into_iter().enumerate() {
        let service = limited(&bed.store, per_minute, live);
        let number = |n: u64| 100 * turn as u64 + n;
        let (done, running) = (claim(number(1), 1), claim(number(2), 1));
        let fence = bed.granted(&done).await;
        bed.store.complete(complete(&done, fence, b"answer")).await.unwrap();
        let ClaimOutcome::Claimed { fence, .. } = ask(&service, running.clone()).await else { panic!() };
        assert!(is_claimed(&ask(&service, claim(number(3), 1)).await));
        assert!(limit(&ask(&service, claim(number(4), 1)).await).is_some());
        for caller in 2..20 {
            let outcome = ask(&service, claim(number(1), caller)).await;
            assert!(matches!(outcome, ClaimOutcome::Completed(_)), "{outcome:?}");
            let outcome = ask(&service, claim(number(2), caller)).await;
            assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}");
        }
        let other = Claim { fingerprint: fingerprint(9), ..claim(number(1), 2) };
        assert_eq!(ask(&service, other).await, ClaimOutcome::Mismatch);
        // A resend is the same claim.
        assert!(is_claimed(&ask(&service, running.clone()).await));
        let renewal =
            Renewal { key: running.key.clone(), token: running.token, claim_ttl_ms: TTL_MS, run_ms: 0 };
        assert_eq!(service.renew(vec![renewal]).await.unwrap(), [RenewResult::Renewed]);
        let waiting = {
            let (service, claim) = (service.clone(), claim(number(2), 99));
            tokio::spawn(async move { service.claim(claim, LONG).await.unwrap().0 })
        };
        until("the retry waits", async || service.waiters().len() == 1).await;
        let stored = service.complete(complete(&running, fence, b"answer")).await.unwrap();
        assert_eq!(stored, CompleteReply::Stored);
        assert!(matches!(waiting.await.unwrap(), ClaimOutcome::Completed(_)));
        service.release(release(&claim(number(3), 1))).await.unwrap();
        // Ended claims have given back their places, where places are what counts.
        let again = ask(&service, claim(number(4), 1)).await;
        assert_eq!(is_claimed(&again), live.is_some(), "{again:?}");
    }
}

/// The database says which claims are live: one that another instance completed, and one whose
/// lease ran out unheard, have no place any more; one that another instance renews keeps its own.
pub async fn places_of_claims_that_ended_elsewhere_are_found(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let service = limited(&bed.store, None, Some(3));
    let mut fences = Vec::new();
    for number in 1..=3 {
        let outcome = ask(&service, claim(number, 1)).await;
        let ClaimOutcome::Claimed { fence, .. } = outcome else { panic!("{outcome:?}") };
        fences.push(fence);
    }
    assert_eq!(limit(&ask(&service, claim(4, 1)).await), Some(Limit::Live));
    bed.other.complete(complete(&claim(1, 1), fences[0], b"answer")).await.unwrap();
    until("the completed claim's place is found", async || is_claimed(&ask(&service, claim(4, 1)).await))
        .await;
    bed.pass_ms(u64::from(TTL_MS) / 2);
    let renew = |number| Renewal { key: key(number), token: token(1), claim_ttl_ms: TTL_MS, run_ms: 0 };
    bed.other.renew(vec![renew(2), renew(4)]).await.unwrap();
    bed.pass_ms(u64::from(TTL_MS) / 2 + 1);
    until("the lost claim's place is found", async || is_claimed(&ask(&service, claim(5, 1)).await)).await;
    for number in 6..20 {
        assert_eq!(limit(&ask(&service, claim(number, 1)).await), Some(Limit::Live));
    }
}

/// A caller without a place asks about a key that somebody holds, and the key falls free before its
/// claim is sent: the claim is made, and counts.
pub async fn claim_whose_key_fell_free_after_the_look_is_counted(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let gated = Gated::new(bed.store.clone());
    let store: Arc<dyn Store> = gated.clone();
    let service = limited(&store, None, Some(1));
    gated.gate.add_permits(100);
    assert!(is_claimed(&ask(&service, claim(1, 1)).await));
    bed.granted(&claim(2, 1)).await;
    let asking = {
        let service = service.clone();
        tokio::spawn(async move { ask(&service, claim(2, 2)).await })
    };
    gated.looked.acquire().await.unwrap().forget();
    bed.store.release(release(&claim(2, 1))).await.unwrap();
    gated.look_gate.add_permits(100);
    assert!(is_claimed(&asking.await.unwrap()));
    service.release(release(&claim(1, 1))).await.unwrap();
    assert_eq!(limit(&ask(&service, claim(3, 1)).await), Some(Limit::Live));
    service.release(release(&claim(2, 2))).await.unwrap();
    assert!(is_claimed(&ask(&service, claim(3, 1)).await));
}

/// Who knows what a quota is learns when to come back; who does not is told what keeps it from
/// running the request, and has nothing to give back.
pub async fn refused_claim_is_told_in_words_that_its_caller_knows(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = limited(&bed.store, Some(1), None);
    let served = Served::of(service, Tokens::open(), Limits::default(), None).await;
    let ask = async |claim: ClaimRequest| {
        let reply = served.post(paths::CLAIMS, encode(&claim, &[]).unwrap()).await;
        assert_eq!(reply.status, 200);
        reply.json()
    };
    assert_eq!(ask(claim_request(&claim(1, 1), 0)).await["outcome"], "claimed");
    let refused = ask(claim_request(&claim(2, 1), 2_000)).await;
    assert_eq!(refused["outcome"], "over_quota");
    let retry_after = refused["retry_after_ms"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&retry_after), "{refused}");
    let older = ClaimRequest { knows_quota: false, ..claim_request(&claim(2, 1), 0) };
    assert_eq!(ask(older).await["outcome"], "dead");
    assert!(bed.store.entry(&key(2), false).await.unwrap().is_none());
}
