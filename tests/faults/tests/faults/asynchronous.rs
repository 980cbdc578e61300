//! What is not promised: a standby that is promoted has forgotten what it never got, be it asynchronous
//! or synchronous with somebody who cancelled the wait for it. The service warns of the former.

use crate::bed::*;
use fencepost_faults::checker::Violation;
use fencepost_faults::client::Wish;
use fencepost_faults::fault::{Fault, Place};
use fencepost_rig::client::Call;
use fencepost_rig::link::Weather;
use std::time::{Duration, Instant};

/// What `/readyz` of an instance warns of.
async fn warnings(bed: &Bed, n: usize) -> Vec<String> {
    let answer = Call::get("/readyz").send(bed.world.services[n].addr()).await.unwrap();
    let warnings = answer.json()["warnings"].clone();
    warnings.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

async fn wait_warned(bed: &Bed, n: usize, words: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !warnings(bed, n).await.iter().any(|one| one.contains(words)) {
        assert!(Instant::now() < deadline, "no warning of {words:?}: {:?}", warnings(bed, n).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_asynchronous_standby_loses_confirmed_claims_and_the_service_says_so_before() {
    let mut bed = Bed::with_standby().await;
    bed.world.primary().wait_for_standbys(false).await.unwrap();
    bed.world.services[0].stop().await.unwrap();
    bed.world.services[0].start_again().await.unwrap();
    wait_warned(&bed, 0, "empty synchronous_standby_names").await;
    let log = std::fs::read_to_string(bed.world.services[0].log_path()).unwrap();
    assert!(log.contains("found standbys and an empty synchronous_standby_names"));

    let kept = Wish::inline("kept");
    assert!(is_stored(&bed.send(&kept, 0).await));
    let all = "SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication";
    bed.world.primary().wait_told(all, |told| told == "t").await.unwrap();
    Fault::Link(Place::Standby, Weather::Silent).strike(&bed.world).await.unwrap();
    let lost = Wish::inline("lost");
    assert!(is_stored(&bed.send(&lost, 0).await), "confirmed by the primary alone");
    Fault::FailedOver.strike(&bed.world).await.unwrap();
    bed.served(&lost, 1).await;
    let violations = bed.judged().await;
    assert!(violations.contains(&Violation::RanTwice(lost.subject.clone(), 2)), "{violations:?}");
    assert!(violations.contains(&Violation::AnswersDiffer(lost.subject.clone())), "{violations:?}");
    assert_eq!(bed.runs(&kept), 1, "what the standby had got is kept");
    wait_warned(&bed, 0, "a standby was promoted").await;
}

#[tokio::test]
async fn a_synchronous_standby_is_nothing_to_warn_of() {
    let bed = Bed::with_standby().await;
    for service in &bed.world.services {
        service.stop().await.unwrap();
        service.start_again().await.unwrap();
    }
    assert_eq!((warnings(&bed, 0).await, warnings(&bed, 1).await), (vec![], vec![]));
}

/// PostgreSQL ends a cancelled wait with a warning and the word that the statement is done.
#[tokio::test]
async fn a_wait_for_the_standby_that_somebody_cancels_is_confirmed_all_the_same() {
    let mut bed = Bed::with_standby().await;
    bed.served(&Wish::inline("before"), 0).await;
    Fault::Link(Place::Standby, Weather::Silent).strike(&bed.world).await.unwrap();
    let primary = bed.world.primary();
    let cancelling = tokio::spawn(async move {
        let waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        loop {
            primary.ask("postgres", waiting).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let lost = Wish::inline("lost");
    let told = bed.served(&lost, 0).await;
    cancelling.abort();
    assert!(cancelling.await.unwrap_err().is_cancelled());
    assert!(is_answer(&told));
    Fault::FailedOver.strike(&bed.world).await.unwrap();
    bed.served(&lost, 1).await;
    let violations = bed.judged().await;
    assert!(violations.contains(&Violation::RanTwice(lost.subject.clone(), 2)), "{violations:?}");
}
