//! The grace after an outage that only one of several instances saw.

use crate::bed::*;
use fencepost_protocol::claims::RenewResult;
use fencepost_store::entry::{Claim, ClaimOutcome};
use fencepost_store::service::Service;
use fencepost_store::store::{Beat, StoreKind};
use std::time::Duration;

/// A lease that is short for the real clock, by which an instance is calm.
const SHORT_MS: u32 = 300;

fn short(key: u64, token: u64) -> Claim {
    Claim { claim_ttl_ms: SHORT_MS, ..claim(key, token) }
}

async fn calm(service: &Service) {
    until("the instance is calm", async || service.calm().ms() > u64::from(SHORT_MS)).await;
}

async fn told(service: &std::sync::Arc<Service>, claim: Claim) -> ClaimOutcome {
    service.claim(claim, Duration::ZERO).await.unwrap().0
}

/// One instance loses the database and with it the renewals of its callers: the other one, which
/// saw nothing of it, does not call their claims lost before they had time to renew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_that_one_instance_saw_gives_grace_in_all() {
    let bed = Bed::set(StoreKind::Postgres).await;
    let (cut_off, other) = (Service::new(bed.store.clone()), Service::new(bed.other.clone()));
    bed.granted(&short(1, 1)).await;
    bed.granted(&short(2, 1)).await;
    assert_eq!(cut_off.heartbeat().await, Ok(Beat::Calm));
    assert_eq!(other.heartbeat().await, Ok(Beat::Calm));
    // From here on the first one is silent.
    bed.pass_ms(2_000);
    assert_eq!(other.heartbeat().await, Ok(Beat::Calm), "a late beat is no outage");
    bed.pass_ms(1_500);
    calm(&other).await;
    assert_eq!(other.heartbeat().await, Ok(Beat::Disturbed));
    let outcome = told(&other, short(1, 2)).await;
    assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}");
    assert_eq!(fencepost_store::sweep::run_once(&other).await.unwrap(), 0);
    // It is back, and its callers renew.
    assert_eq!(cut_off.heartbeat().await, Ok(Beat::Calm));
    let renewed = fencepost_protocol::claims::Renewal { claim_ttl_ms: TTL_MS, ..renewal(&short(1, 1)) };
    assert_eq!(cut_off.renew(vec![renewed]).await.unwrap(), [RenewResult::Renewed]);
    assert_eq!(other.heartbeat().await, Ok(Beat::Calm));
    calm(&other).await;
    assert!(matches!(told(&other, short(1, 2)).await, ClaimOutcome::InProgress { .. }));
    // Who did not renew in that time is lost.
    assert!(matches!(told(&other, short(2, 2)).await, ClaimOutcome::Unknown { .. }));
}

/// An instance that died holds the others up for a bounded time; one that stopped in order, not at
/// all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_instance_holds_up_the_others_for_a_bounded_time_only() {
    let bed = Bed::set(StoreKind::Postgres).await;
    let other = Service::new(bed.other.clone());
    bed.store.heartbeat().await.unwrap();
    bed.granted(&short(1, 1)).await;
    bed.pass_ms(12_000);
    assert_eq!(other.heartbeat().await, Ok(Beat::Disturbed));
    bed.pass_ms(1_001);
    assert_eq!(other.heartbeat().await, Ok(Beat::Calm));
    calm(&other).await;
    assert!(matches!(told(&other, short(1, 2)).await, ClaimOutcome::Unknown { .. }));
    // And one that stops in order.
    bed.store.heartbeat().await.unwrap();
    bed.store.leave().await;
    bed.pass_ms(5_000);
    assert_eq!(other.heartbeat().await, Ok(Beat::Calm));
}
