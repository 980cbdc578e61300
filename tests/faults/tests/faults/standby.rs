//! A synchronous standby: promoted, killed, hanging, out of reach.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::fault::{Fault, Place};
use fencepost_faults::history::End;
use fencepost_rig::link::Weather;

#[tokio::test]
async fn a_promoted_synchronous_standby_has_everything_that_was_told() {
    let mut bed = Bed::with_standby().await;
    let done = [Wish::inline("done"), Wish::detached("done"), credit("done")];
    for wish in &done {
        assert!(is_stored(&bed.send(wish, 0).await));
    }
    let running = bed.running("r", 0).await;
    Fault::FailedOver.strike(&bed.world).await.unwrap();
    running.all_answered().await;
    bed.served(&Wish::inline("new"), 1).await;
    Fault::FailedOver.heal(&bed.world).await.unwrap();
    // And back again, so that the second server's standby is tried as well.
    Fault::FailedOver.strike(&bed.world).await.unwrap();
    bed.served(&Wish::detached("newer"), 0).await;
    bed.holds().await;
    for wish in &done {
        assert!(matches!(bed.end(wish), End::Answered(_)), "{:?}", wish.subject);
    }
}

#[tokio::test]
async fn without_the_synchronous_standby_nothing_is_confirmed_and_nothing_is_lost() {
    let mut bed = Bed::with_standby().await;
    let faults = [Fault::StandbyKilled, Fault::StandbyFrozen, Fault::Link(Place::Standby, Weather::Cut)];
    for (n, fault) in faults.into_iter().enumerate() {
        let running = bed.running(&format!("r{n}"), 0).await;
        fault.strike(&bed.world).await.unwrap();
        let new = Wish::inline(&format!("new{n}"));
        assert_eq!(refusal(&bed.send(&new, 1).await), "store_unavailable", "{fault}");
        assert_eq!(bed.runs(&new), 0, "{fault}");
        running.all_answered().await;
        fault.heal(&bed.world).await.unwrap();
        bed.served(&new, 1).await;
    }
    bed.holds().await;
}
