//! Proxies and instances of the service: killed, hanging, reconfigured, restarted.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::fault::Fault;
use fencepost_faults::history::{End, Told};

#[tokio::test]
async fn an_instance_that_is_killed_costs_a_repetition_at_most() {
    let mut bed = Bed::shared().await;
    let running = bed.running("r", 0).await;
    Fault::ServiceKilled(0).strike(&bed.world).await.unwrap();
    bed.served(&Wish::inline("new"), 0).await;
    bed.served(&Wish::detached("new"), 1).await;
    running.all_answered().await;
    Fault::ServiceKilled(0).heal(&bed.world).await.unwrap();
    bed.holds().await;
}

#[tokio::test]
async fn an_instance_that_hangs_runs_nothing_twice() {
    let mut bed = Bed::shared().await;
    let running = bed.running("r", 0).await;
    Fault::ServiceFrozen(0).strike(&bed.world).await.unwrap();
    // Every other call meets the one that hangs.
    let refused = Wish::inline("refused");
    bed.until_refused(&refused, 0, "store_unavailable").await;
    bed.served(&Wish::inline("new"), 1).await;
    running.all_answered().await;
    Fault::ServiceFrozen(0).heal(&bed.world).await.unwrap();
    bed.holds().await;
}

#[tokio::test]
async fn what_ran_in_a_proxy_that_is_killed_is_unknown_and_runs_no_more() {
    let mut bed = Bed::shared().await;
    let done = Wish::inline("done");
    assert!(is_stored(&bed.send(&done, 0).await));
    let running = bed.running("r", 0).await;
    let lost = running.wishes();
    Fault::EnvoyKilled(0).strike(&bed.world).await.unwrap();
    assert_eq!(running.finish().await, [Told::Nothing, Told::Nothing, Told::Nothing]);
    bed.served(&Wish::inline("new"), 1).await;
    Fault::EnvoyKilled(0).heal(&bed.world).await.unwrap();
    bed.served(&Wish::inline("newer"), 0).await;
    bed.holds().await;
    for wish in &lost {
        assert_eq!((bed.end(wish), bed.runs(wish)), (End::Unknown, 1), "{:?}", wish.subject);
    }
    assert!(matches!(bed.end(&done), End::Answered(_)));
}

#[tokio::test]
async fn a_proxy_that_hangs_past_its_lease_and_goes_on_changes_no_outcome() {
    let mut bed = Bed::shared().await;
    let running = bed.running("r", 0).await;
    let keys = running.wishes();
    Fault::EnvoyFrozen(0).strike(&bed.world).await.unwrap();
    bed.until_refused(&keys[0], 1, "outcome_unknown").await;
    bed.until_refused(&keys[1], 1, "outcome_unknown").await;
    Fault::EnvoyFrozen(0).heal(&bed.world).await.unwrap();
    drop(running.finish().await);
    bed.holds().await;
    assert_eq!((bed.runs(&keys[0]), bed.runs(&keys[1])), (1, 1));
}

#[tokio::test]
async fn a_new_configuration_while_requests_run_loses_nothing() {
    let mut bed = Bed::shared().await;
    let running = bed.running("r", 0).await;
    for _ in 0..2 {
        Fault::EnvoyReloaded(0).strike(&bed.world).await.unwrap();
        bed.served(&Wish::inline("new"), 0).await;
    }
    running.all_answered().await;
    bed.holds().await;
}

#[tokio::test]
async fn everything_is_restarted_in_turn_and_nothing_that_was_told_is_lost() {
    let mut bed = Bed::with_standby().await;
    let done = [Wish::inline("done"), Wish::detached("done"), credit("done")];
    for wish in &done {
        assert!(is_stored(&bed.send(wish, 0).await));
    }
    let running = bed.running("r", 1).await;
    // The proxy drains: what runs there is finished first.
    let finishing = tokio::spawn(running.finish());
    Fault::RollingRestart.strike(&bed.world).await.unwrap();
    drop(finishing.await.unwrap());
    bed.served(&Wish::inline("new"), 0).await;
    bed.served(&Wish::detached("new"), 1).await;
    bed.holds().await;
    for wish in &done {
        assert!(matches!(bed.end(wish), End::Answered(_)), "{:?}", wish.subject);
    }
}
