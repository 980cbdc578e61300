//! Links: cut, slow, silent, and answers that get lost on them.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::fault::{Fault, Place};
use fencepost_faults::history::Told;
use fencepost_rig::link::Weather;
use std::time::Duration;

const SLOW: Weather = Weather::Slow(Duration::from_millis(120));

#[tokio::test]
async fn an_answer_lost_on_its_way_to_the_client_is_there_for_its_retry() {
    let mut bed = Bed::shared().await;
    let lost = Fault::Link(Place::Client(0), Weather::AnswersLost);
    lost.strike(&bed.world).await.unwrap();
    for wish in [Wish::inline("k"), Wish::detached("k"), credit("k")] {
        let held = bed.world.to_envoy[0].held();
        let call = bed.start(&wish, 0);
        bed.world.to_envoy[0].wait_held(held).await.unwrap();
        lost.heal(&bed.world).await.unwrap();
        assert_eq!(call.await.unwrap(), Told::Nothing);
        assert!(is_answer(&bed.send(&wish, 1).await));
        lost.strike(&bed.world).await.unwrap();
    }
    lost.heal(&bed.world).await.unwrap();
    bed.holds().await;
}

#[tokio::test]
async fn a_claim_whose_acknowledgement_is_lost_after_its_commit_is_found_again() {
    let mut bed = Bed::shared().await;
    let lost = [0, 1].map(|n| Fault::Link(Place::Database(n), Weather::AnswersLost));
    for wish in [Wish::inline("k"), Wish::detached("k"), credit("k")] {
        let held = [0, 1].map(|n| bed.world.to_database[n].held());
        for fault in lost {
            fault.strike(&bed.world).await.unwrap();
        }
        let call = bed.start(&wish, 0);
        tokio::select! {
            held = bed.world.to_database[0].wait_held(held[0]) => held.unwrap(),
            held = bed.world.to_database[1].wait_held(held[1]) => held.unwrap(),
        }
        for fault in lost {
            fault.heal(&bed.world).await.unwrap();
        }
        drop(call.await.unwrap());
        if wish.subject.grant.is_none() {
            bed.served(&wish, 1).await;
        }
    }
    bed.holds().await;
}

#[tokio::test]
async fn an_answer_whose_acknowledgement_is_lost_after_its_commit_is_stored_once() {
    let mut bed = Bed::shared().await;
    let running = bed.running("r", 0).await;
    let lost = [0, 1].map(|n| Fault::Link(Place::Database(n), Weather::AnswersLost));
    let held = [0, 1].map(|n| bed.world.to_database[n].held());
    for fault in lost {
        fault.strike(&bed.world).await.unwrap();
    }
    let finishing = tokio::spawn(running.finish());
    tokio::select! {
        held = bed.world.to_database[0].wait_held(held[0]) => held.unwrap(),
        held = bed.world.to_database[1].wait_held(held[1]) => held.unwrap(),
    }
    for fault in lost {
        fault.heal(&bed.world).await.unwrap();
    }
    for told in finishing.await.unwrap() {
        assert!(is_answer(&told), "{told:?}");
    }
    bed.holds().await;
}

#[tokio::test]
async fn without_a_way_to_the_service_nothing_is_forwarded() {
    for weather in [Weather::Cut, Weather::Silent, Weather::AnswersLost] {
        let mut bed = Bed::shared().await;
        for n in [0, 1] {
            Fault::Link(Place::Service(n), weather).strike(&bed.world).await.unwrap();
        }
        for wish in [Wish::inline("k"), Wish::detached("k"), credit("k")] {
            assert_eq!(refusal(&bed.send(&wish, 0).await), "store_unavailable", "{weather:?}");
            assert_eq!(bed.runs(&wish), 0);
        }
        for n in [0, 1] {
            Fault::Link(Place::Service(n), weather).heal(&bed.world).await.unwrap();
        }
        bed.served(&Wish::inline("k"), 0).await;
        bed.holds().await;
    }
}

#[tokio::test]
async fn a_bad_link_to_one_instance_runs_nothing_twice() {
    let mut bed = Bed::shared().await;
    for place in [Place::Service(0), Place::Database(0)] {
        for weather in [Weather::Cut, SLOW, Weather::Silent, Weather::AnswersLost] {
            let name = format!("{place:?}-{weather:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            let running = bed.running(&name, 0).await;
            Fault::Link(place, weather).strike(&bed.world).await.unwrap();
            let new = Wish::inline(&format!("new-{name}"));
            drop(bed.send(&new, 1).await);
            running.all_answered().await;
            Fault::Link(place, weather).heal(&bed.world).await.unwrap();
            bed.served(&new, 0).await;
        }
    }
    bed.holds().await;
}
