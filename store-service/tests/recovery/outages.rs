//! Providers that are away.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationStatus::{Admitted, Succeeded};
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
    assert_eq!(round.operations[&Ended::Postponed], u32::try_from(asked).unwrap());
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
