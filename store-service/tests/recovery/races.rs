//! The races between the original handler, recoverers and time, each in both orders, held by gates.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationRefusal;
use fencepost_protocol::grants::OperationStatus::{
    Admitted, Failed, NeedsReconciliation, Succeeded, Unknown,
};
use fencepost_store::grant::duration::Span;
use fencepost_store::grant::store::OwnerOutcome;
use fencepost_store::recovery::operation::Ended;
use fencepost_store::recovery::store::{Applied, Ending, Note, Owner};
use fencepost_store::recovery::worker::{Recovery, Round};
use fencepost_store::store::StoreKind;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::JoinHandle;

fn refused(reason: OperationRefusal) -> OwnerOutcome {
    OwnerOutcome::Refused(reason)
}

fn start(recovery: &Arc<Recovery>) -> JoinHandle<Round> {
    let recovery = recovery.clone();
    tokio::spawn(async move { recovery.run_once().await.unwrap() })
}

pub async fn a_handler_that_pauses_past_its_lease_resumes_while_recovery_looks(kind: StoreKind) {
    for outcome in [Succeeded, Failed, Unknown] {
        let bed = Bed::new(kind).await;
        let id = bed.admitted().await;
        bed.provider.create(id.as_str()).await.unwrap();
        bed.pass(Over::Lease).await;
        bed.provider.looking.shut();
        let round = start(&bed.usual(true));
        bed.provider.looking.wait_arrived(1).await.unwrap();
        // It may send nothing, and what it records changes nothing.
        assert_eq!(bed.handler_may_submit(&id).await, refused(OperationRefusal::OtherOwner));
        assert_eq!(bed.handler_records(&id, outcome).await, refused(OperationRefusal::OtherOwner));
        assert_eq!(bed.status(&id).await, Admitted);
        bed.provider.looking.open();
        assert_eq!(round.await.unwrap().operations[&Ended::Succeeded], 1);
        assert_eq!(bed.handler_records(&id, outcome).await, refused(OperationRefusal::OtherOwner));
        assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1));
        assert_eq!(bed.reference(&id).await.as_deref(), Some("cr_1"));
    }
}

pub async fn a_handler_that_resumes_before_recovery_looks_keeps_its_operation(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    // Its lease is over, and nobody has taken the operation: what it records counts.
    assert!(matches!(bed.handler_records(&id, Succeeded).await, OwnerOutcome::Done(_)));
    assert!(bed.usual(true).run_once().await.unwrap().operations.is_empty());
    assert_eq!(bed.reference(&id).await.as_deref(), Some("of the handler"));
    assert!(bed.provider.lookups().is_empty());
}

pub async fn a_late_unknown_and_a_recovered_success_in_both_orders(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    // Unknown first: recovery makes a success of it.
    let id = bed.admitted().await;
    bed.provider.create(id.as_str()).await.unwrap();
    assert!(matches!(bed.handler_records(&id, Unknown).await, OwnerOutcome::Done(_)));
    bed.pass(Over::Lease).await;
    bed.usual(true).run_once().await.unwrap();
    assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1));
    // The success first: Unknown changes nothing.
    let id = bed.admitted().await;
    bed.provider.create(id.as_str()).await.unwrap();
    bed.pass(Over::Lease).await;
    bed.usual(true).run_once().await.unwrap();
    assert_eq!(bed.status(&id).await, Succeeded);
    assert_eq!(bed.handler_records(&id, Unknown).await, refused(OperationRefusal::OtherOwner));
    assert_eq!(bed.status(&id).await, Succeeded);
    // Not even its own owner overwrites it.
    let owner = Owner { id: id.clone(), version: 2 };
    for (expected, outcome) in [(Admitted, Unknown), (Succeeded, Unknown), (Unknown, NeedsReconciliation)] {
        let ending = Ending { expected, outcome, reference: None, answer: None };
        let note = Note { actor: "test".into(), result: String::new(), detail: String::new() };
        assert_eq!(bed.recovery.record(owner.clone(), ending, note).await.unwrap(), Applied::Lost);
    }
    assert_eq!(bed.history(&id).await.len(), 3, "what did not apply is not in the history");
}

pub async fn the_original_call_in_flight_is_waited_for_where_keys_are_not_atomic(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    bed.provider.not_atomic();
    let id = bed.admitted().await;
    bed.provider.before_effect.shut();
    let original = tokio::spawn({
        let (provider, id) = (bed.provider.clone(), id.clone());
        async move { provider.create(id.as_str()).await }
    });
    bed.provider.before_effect.wait_arrived(1).await.unwrap();
    bed.pass(Over::Lease).await;
    let recovery = bed.usual(false);
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Postponed], 1);
    assert_eq!((bed.status(&id).await, bed.provider.submits()), (Admitted, 0));
    bed.provider.before_effect.open();
    original.await.unwrap().unwrap();
    bed.pass(Over::Lease).await;
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Succeeded], 1);
    assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1));
}

pub async fn the_original_call_and_recovery_make_one_effect_where_keys_are_atomic(kind: StoreKind) {
    for original_first in [true, false] {
        let bed = Bed::new(kind).await;
        let id = bed.admitted().await;
        bed.provider.before_effect.shut();
        let original = tokio::spawn({
            let (provider, id) = (bed.provider.clone(), id.clone());
            async move { provider.create(id.as_str()).await }
        });
        bed.provider.before_effect.wait_arrived(1).await.unwrap();
        bed.pass(Over::Lease).await;
        let round = start(&bed.usual(true));
        if original_first {
            bed.provider.before_effect.wait_arrived(2).await.unwrap();
            bed.provider.before_effect.admit(1);
            original.await.unwrap().unwrap();
            bed.provider.before_effect.open();
            round.await.unwrap();
        } else {
            // Recovery's request passes the one that came before it.
            bed.provider.before_effect.wait_arrived(2).await.unwrap();
            bed.provider.create_now(id.as_str()).unwrap();
            bed.provider.before_effect.open();
            round.await.unwrap();
            original.await.unwrap().unwrap();
        }
        assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1), "{original_first}");
        assert_eq!(bed.provider.submits(), 1);
    }
}

pub async fn nothing_is_sent_after_the_providers_window(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (lost, made) = (bed.admitted().await, bed.admitted().await);
    bed.provider.create(made.as_str()).await.unwrap();
    bed.pass(Over::Window).await;
    bed.pass(Over::Lease).await;
    bed.usual(true).run_once().await.unwrap();
    // What is found is recorded, whenever that is.
    assert_eq!(bed.status(&made).await, Succeeded);
    assert_eq!(bed.status(&lost).await, NeedsReconciliation);
    assert_eq!((bed.provider.submits(), bed.provider.effects(&lost)), (0, 0));
    let events = bed.grants.store().history(lost).await.unwrap();
    assert!(events.last().unwrap().detail.starts_with("window_passed"), "{events:?}");
}

pub async fn the_window_that_ends_between_look_up_and_sending_stops_the_sending(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    bed.provider.looking.shut();
    let round = start(&bed.usual(true));
    bed.provider.looking.wait_arrived(1).await.unwrap();
    bed.pass(Over::Window).await;
    bed.provider.looking.open();
    assert_eq!(round.await.unwrap().operations[&Ended::ForPerson], 1);
    assert_eq!((bed.status(&id).await, bed.provider.submits()), (NeedsReconciliation, 0));
}

pub async fn a_recoverer_that_pauses_past_its_lease_changes_nothing(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    bed.provider.looking.shut();
    let first = start(&bed.usual(true));
    bed.provider.looking.wait_arrived(1).await.unwrap();
    bed.pass(Over::Lease).await;
    let second = start(&bed.recoverer("two", &bed.settings(true, json!({}))));
    bed.provider.looking.wait_arrived(2).await.unwrap();
    // The second one finishes, then the first one learns that nothing was found when it asked.
    bed.provider.looking.open();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(
        (first.operations.get(&Ended::Lost), second.operations.get(&Ended::Succeeded)),
        (Some(&1), Some(&1))
    );
    assert_eq!((bed.status(&id).await, bed.provider.effects(&id), bed.provider.submits()), (Succeeded, 1, 1));
    let events = bed.grants.store().history(id).await.unwrap();
    let by_first: Vec<_> = events.iter().filter(|event| event.actor == "recovery/one").collect();
    assert_eq!(by_first.len(), 2, "it took over and looked, and did nothing else: {events:?}");
}

pub async fn a_recoverer_that_was_replaced_records_nothing_while_the_next_one_looks(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.admitted().await;
    bed.provider.create_now(id.as_str()).unwrap();
    bed.pass(Over::Lease).await;
    bed.provider.looking.shut();
    let first = start(&bed.usual(true));
    bed.provider.looking.wait_arrived(1).await.unwrap();
    bed.pass(Over::Lease).await;
    let second = start(&bed.recoverer("two", &bed.settings(true, json!({}))));
    bed.provider.looking.wait_arrived(2).await.unwrap();
    // The first one's answer comes while the operation is open, and owned by the second one.
    bed.provider.looking.admit(1);
    assert_eq!(first.await.unwrap().operations[&Ended::Lost], 1);
    assert_eq!(bed.status(&id).await, Admitted);
    bed.provider.looking.open();
    assert_eq!(second.await.unwrap().operations[&Ended::Succeeded], 1);
    let events = bed.grants.store().history(id).await.unwrap();
    assert_eq!(events.last().unwrap().actor, "recovery/two");
}

pub async fn a_recoverer_that_pauses_before_sending_sends_nothing(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    let owner = Owner { id: id.clone(), version: 2 };
    let note = Note { actor: "recovery/paused".into(), result: String::new(), detail: String::new() };
    // A recoverer that has taken over and found nothing, and pauses right before its last check.
    let take = fencepost_store::recovery::store::TakeOver {
        issuers: None,
        older_than: None,
        lease: Span::seconds(120),
        limit: 1,
        note: note.clone(),
    };
    assert_eq!(bed.recovery.take_over(take).await.unwrap()[0].row.owned.owner_version, 2);
    bed.pass(Over::Lease).await;
    let may = bed.recovery.may_submit(owner.clone(), Admitted).await.unwrap();
    assert_eq!(may, refused(OperationRefusal::LeaseOver));
    bed.usual(true).run_once().await.unwrap();
    let may = bed.recovery.may_submit(owner.clone(), Admitted).await.unwrap();
    assert_eq!(may, refused(OperationRefusal::OtherOwner));
    let rest = fencepost_store::recovery::store::Rest { span: Span::seconds(1), counted: true };
    assert_eq!(bed.recovery.postpone(owner.clone(), rest, note.clone()).await.unwrap(), Applied::Lost);
    let step = fencepost_store::recovery::store::StepName::Submit;
    let begun = bed.recovery.step(owner, step, Span::seconds(1), note).await.unwrap();
    assert_eq!(begun, Applied::Lost);
    assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1));
}

pub async fn two_recoverers_never_both_own_an_operation(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(bed.admitted().await);
    }
    bed.pass(Over::Lease).await;
    let settings = bed.settings(true, json!({}));
    let rounds: Vec<_> = (0..4).map(|n| start(&bed.recoverer(&format!("r{n}"), &settings))).collect();
    let mut ended = 0;
    for round in rounds {
        let round = round.await.unwrap();
        ended += round.operations.get(&Ended::Succeeded).copied().unwrap_or(0);
        assert_eq!(
            round.operations.values().sum::<u32>(),
            round.operations.get(&Ended::Succeeded).copied().unwrap_or(0)
        );
    }
    assert_eq!(ended, 20);
    for id in &ids {
        assert_eq!((bed.status(id).await, bed.provider.effects(id)), (Succeeded, 1));
        let events = bed.grants.store().history(id.clone()).await.unwrap();
        let actors: HashSet<_> = events.iter().map(|event| event.actor.clone()).collect();
        assert_eq!(actors.len(), 1, "{events:?}");
        assert_eq!(events.iter().filter(|event| event.step == "take_over").count(), 1);
    }
    assert_eq!(bed.provider.submits(), 20);
}

pub async fn what_was_ended_while_recovery_looks_stays_as_it_is(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.admitted().await;
    bed.provider.create(id.as_str()).await.unwrap();
    bed.pass(Over::Lease).await;
    bed.provider.looking.shut();
    let round = start(&bed.usual(true));
    bed.provider.looking.wait_arrived(1).await.unwrap();
    // Somebody settles it under the owner's version.
    let ending =
        Ending { expected: Admitted, outcome: Failed, reference: Some("by a person".into()), answer: None };
    let note = Note { actor: "ann".into(), result: String::new(), detail: "looked at the bank".into() };
    let owner = Owner { id: id.clone(), version: 2 };
    assert_eq!(bed.recovery.record(owner, ending, note).await.unwrap(), Applied::Yes(()));
    bed.provider.looking.open();
    assert_eq!(round.await.unwrap().operations[&Ended::Lost], 1);
    assert_eq!((bed.status(&id).await, bed.reference(&id).await.as_deref()), (Failed, Some("by a person")));
}
