//! Providers that are away.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationStatus::{Admitted, Succeeded};
use fencepost_store::recovery::answer::ANSWER_MAX;
use fencepost_store::recovery::held::HeldEnded;
use fencepost_store::recovery::operation::Ended;
use fencepost_store::store::StoreKind;
use serde_json::json;

pub async fn a_silent_provider_is_left_alone_and_uses_up_no_attempts(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(bed.admitted().await);
    }
    bed.pass(Over::Lease).await;
    bed.provider.say(Some((503, "")));
    let recovery = bed.usual(true);
    let round = recovery.run_once().await.unwrap();
    // Five answers that never came, and those that were on their way with them.
    let asked = bed.provider.lookups().len();
    assert!((5..=8).contains(&asked), "{asked}");
    // What was taken just before is not asked about any more.
    let postponed = round.operations[&Ended::Postponed] as usize;
    assert!((asked..=8).contains(&postponed), "{postponed}");
    assert!(recovery.run_once().await.unwrap().operations.is_empty(), "left alone");
    for id in &ids {
        assert_eq!(bed.status(id).await, Admitted);
    }
    // Another instance finds the provider there, and no attempt was used up.
    bed.provider.say(None);
    bed.pass(Over::Lease).await;
    let other = bed.recoverer("two", &bed.settings(true, json!({"give_up": {"attempts": 1}})));
    for id in &ids {
        bed.provider.create_now(id.as_str()).unwrap();
    }
    assert_eq!(other.run_once().await.unwrap().operations[&Ended::Succeeded], 12);
    assert_eq!(bed.provider.submits(), 0);
}

pub async fn a_provider_that_comes_back_is_asked_again(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (one, two) = (bed.admitted().await, bed.admitted().await);
    bed.pass(Over::Lease).await;
    bed.provider.say(Some((503, "")));
    let mut settings = bed.settings(true, json!({}));
    settings["providers"]["billing"]["breaker"] = json!({"failures": 2, "open_for": "1ms"});
    settings["providers"]["billing"]["concurrency"] = json!(1);
    let recovery = bed.recoverer("one", &settings);
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Postponed], 2);
    bed.provider.say(None);
    bed.pass(Over::Lease).await;
    crate::support::until("both have their end", async || {
        recovery.run_once().await.unwrap();
        bed.status(&one).await == Succeeded && bed.status(&two).await == Succeeded
    })
    .await;
    assert_eq!((bed.provider.effects(&one), bed.provider.effects(&two)), (1, 1));
}

/// Everything is older than the longest age, for example because recovery is new or was down, and the
/// provider is away at the start.
pub async fn a_provider_that_is_away_for_a_moment_sends_nothing_old_to_a_person(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(bed.admitted().await);
    }
    let (held, _) = bed.held(1).await;
    bed.pass(Over::Age).await;
    bed.pass(Over::Age).await;
    bed.provider.say(Some((503, "")));
    let mut settings = bed.settings(true, json!({}));
    settings["providers"]["billing"]["breaker"] = json!({"failures": 1, "open_for": "1ms"});
    let recovery = bed.recoverer("one", &settings);
    let round = recovery.run_once().await.unwrap();
    assert_eq!(round.operations.get(&Ended::ForPerson), None, "{round:?}");
    assert_eq!(round.keys.get(&HeldEnded::Marked), None, "{round:?}");
    for id in &ids {
        assert_eq!(bed.status(id).await, Admitted);
        bed.provider.create_now(id.as_str()).unwrap();
    }
    // It is back: all that is there is found.
    bed.provider.say(None);
    crate::support::until("all have their end", async || {
        bed.pass(Over::Lease).await;
        recovery.run_once().await.unwrap();
        for id in &ids {
            if bed.status(id).await != Succeeded {
                return false;
            }
        }
        true
    })
    .await;
    assert_eq!(bed.provider.submits(), 0);
    drop(held);
}

pub async fn an_answer_that_is_too_long_is_unclear_and_its_provider_is_there(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    bed.provider.say(Some((200, &"x".repeat(ANSWER_MAX + 1))));
    let mut settings = bed.settings(true, json!({}));
    settings["providers"]["billing"]["breaker"] = json!({"failures": 1, "open_for": "1h"});
    let recovery = bed.recoverer("one", &settings);
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Postponed], 1);
    assert_eq!(bed.history(&id).await.last().unwrap(), &("postpone".to_owned(), "unclear".to_owned()));
    bed.provider.say(None);
    bed.provider.create_now(id.as_str()).unwrap();
    bed.pass(Over::Lease).await;
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Succeeded], 1, "not left alone");
}
