//! What recovery finds, and what it makes of it.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::grants::OperationStatus::{
    Admitted, Failed, NeedsReconciliation, Succeeded, Unknown,
};
use fencepost_store::desk::{Ending, OperationFilter, OperationOrder, OperationSettled};
use fencepost_store::grant::duration::Span;
use fencepost_store::recovery::operation::Ended;
use fencepost_store::recovery::store::{Applied, Note, Owner, Rest, StepName, TakeOver};
use fencepost_store::store::StoreKind;
use serde_json::json;

fn steps(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(step, result)| ((*step).to_owned(), (*result).to_owned())).collect()
}

pub async fn billing_success_whose_record_was_lost_is_found_and_not_repeated(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.admitted().await;
    let reference = bed.provider.create(id.as_str()).await.unwrap();
    // The handler dies here.
    bed.pass(Over::Lease).await;
    let round = bed.usual(true).run_once().await.unwrap();
    assert_eq!(round.operations[&Ended::Succeeded], 1);
    assert_eq!((bed.status(&id).await, bed.reference(&id).await), (Succeeded, Some(reference)));
    assert_eq!((bed.provider.effects(&id), bed.provider.submits()), (1, 0));
    let answer = bed.grants.store().answer(id.clone()).await.unwrap().unwrap();
    let headers = fencepost_protocol::answer::decode_headers(&answer.headers).unwrap();
    assert_eq!(
        (answer.status, &answer.body[..], headers.len()),
        (201, &b"cr_1"[..], 1),
        "for repeated calls"
    );
    let expected = steps(&[("take_over", ""), ("look_up", ""), ("record", "succeeded")]);
    assert_eq!(bed.history(&id).await, expected);
    let events = bed.grants.store().history(id.clone()).await.unwrap();
    assert!(events.iter().all(|event| event.actor == "recovery/one" && event.owner_version == 2));
    assert_eq!((events[1].status, events[2].status), (Admitted, Succeeded));
    assert!(bed.usual(true).run_once().await.unwrap().operations.is_empty(), "an end is left alone");
    bed.check_signatures();
}

pub async fn a_definite_refusal_of_the_provider_is_failed(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    bed.provider.refuse(&id);
    bed.usual(true).run_once().await.unwrap();
    assert_eq!(bed.status(&id).await, Failed);
    assert_eq!(bed.reference(&id).await.as_deref(), Some("account_closed"));
    assert_eq!((bed.provider.effects(&id), bed.provider.submits()), (0, 0));
}

pub async fn not_found_is_never_failed_and_ends_with_a_person(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    let recovery = bed.usual(false);
    for attempt in 1..=3 {
        let round = recovery.run_once().await.unwrap();
        let expected = if attempt < 3 { Ended::Postponed } else { Ended::ForPerson };
        assert_eq!(round.operations[&expected], 1, "{attempt}: {round:?}");
        assert!(recovery.run_once().await.unwrap().operations.is_empty(), "it rests");
        bed.pass(Over::Lease).await;
    }
    assert_eq!(bed.status(&id).await, NeedsReconciliation);
    assert_eq!((bed.provider.submits(), bed.provider.lookups().len()), (0, 3));
    assert_eq!(bed.recovery.backlog(10).await.unwrap().needs_reconciliation, 1);
    assert!(recovery.run_once().await.unwrap().operations.is_empty(), "it waits for a person");
}

/// Lists say why an operation has no end, and find those of one cause.
pub async fn operations_without_an_end_are_listed_by_cause(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let desk = bed.store().desk().unwrap();
    let cause = async |id: &OperationId| desk.operation(id.clone()).await.unwrap().unwrap().cause;
    let of = async |word: &str| {
        let filter = OperationFilter { cause: Some(word.into()), limit: 10, ..OperationFilter::default() };
        let found = desk.operations(filter).await.unwrap();
        assert!(found.iter().all(|seen| seen.cause.as_deref() == Some(word)));
        found.into_iter().map(|seen| seen.id).collect::<Vec<_>>()
    };
    let id = bed.stalled().await;
    assert_eq!(cause(&id).await, None, "nothing was concluded");
    bed.usual(false).run_once().await.unwrap();
    assert_eq!(of("not_found").await, vec![id.clone()]);
    bed.pass(Over::Lease).await;
    let once = bed.recoverer("one", &bed.settings(false, json!({"give_up": {"attempts": 1}})));
    once.run_once().await.unwrap();
    assert_eq!((bed.status(&id).await, of("attempts").await), (NeedsReconciliation, vec![id.clone()]));
    let order = OperationOrder {
        id: id.clone(),
        version: desk.operation(id.clone()).await.unwrap().unwrap().version(),
        ending: Ending::LookAgain,
        reference: None,
        who: "ann".into(),
        reason: "r".into(),
    };
    assert_eq!(desk.settle_operation(order).await.unwrap(), OperationSettled::Settled);
    assert_eq!(of("look_again").await, vec![id.clone()]);
    let own = bed.admitted().await;
    bed.handler_records(&own, Unknown).await;
    assert_eq!((of("owner").await, of("not_found").await), (vec![own], vec![]));
    bed.provider.create_now(id.as_str()).unwrap();
    bed.pass(Over::Lease).await;
    bed.usual(false).run_once().await.unwrap();
    assert_eq!((bed.status(&id).await, cause(&id).await), (Succeeded, None));
}

pub async fn what_was_never_sent_is_sent_once_inside_the_contract(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    bed.usual(true).run_once().await.unwrap();
    assert_eq!((bed.status(&id).await, bed.reference(&id).await.as_deref()), (Succeeded, Some("cr_1")));
    assert_eq!((bed.provider.effects(&id), bed.provider.submits()), (1, 1));
    let expected =
        steps(&[("take_over", ""), ("look_up", ""), ("submit", "not_found"), ("record", "succeeded")]);
    assert_eq!(bed.history(&id).await, expected);
    bed.check_signatures();
}

pub async fn an_operation_without_a_provider_goes_to_a_person_in_the_end(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    let other = json!({"providers": {"other": {
        "sign": {"key_id": "k1", "key_file": "recovery.key"},
        "keys": {"prefixes": ["none"], "lookup": {"url": "http://127.0.0.1:1/{key}/{fence}"}},
    }}});
    let recovery = bed.recoverer("one", &bed.settings(true, other));
    assert!(recovery.run_once().await.unwrap().operations.is_empty());
    assert_eq!(bed.status(&id).await, Admitted);
    bed.pass(Over::Age).await;
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::ForPerson], 1);
    assert_eq!(bed.status(&id).await, NeedsReconciliation);
    let events = bed.grants.store().history(id).await.unwrap();
    assert!(events.last().unwrap().detail.starts_with("no_provider"), "{events:?}");
}

pub async fn nothing_is_looked_up_while_the_owner_lives(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.admitted().await;
    assert!(bed.usual(true).run_once().await.unwrap().operations.is_empty());
    assert!(bed.provider.lookups().is_empty());
    assert_eq!(bed.status(&id).await, Admitted);
}

pub async fn an_unclear_answer_settles_nothing(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let id = bed.stalled().await;
    let recovery = bed.usual(true);
    for (status, body) in [
        (404, "no such page"),
        (200, r#"{"operation_id": "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f", "outcome": "succeeded"}"#),
    ] {
        bed.provider.say(Some((status, body)));
        assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Postponed], 1, "{status} {body}");
        assert_eq!(bed.status(&id).await, Admitted);
        bed.pass(Over::Lease).await;
    }
    bed.provider.say(Some((400, r#"{"operation_id": "ID", "outcome": "refused"}"#)));
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::ForPerson], 1);
    assert_eq!((bed.status(&id).await, bed.provider.submits()), (NeedsReconciliation, 0));
}

pub async fn a_person_has_recovery_look_again(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (id, open) = (bed.stalled().await, bed.admitted().await);
    let once = bed.recoverer("one", &bed.settings(false, json!({"give_up": {"attempts": 1}})));
    assert_eq!(once.run_once().await.unwrap().operations[&Ended::ForPerson], 1);
    bed.pass(Over::Lease).await;
    bed.provider.create_now(id.as_str()).unwrap();
    let desk = bed.store().desk().unwrap();
    let order = async |id: &OperationId| OperationOrder {
        id: id.clone(),
        version: desk.operation(id.clone()).await.unwrap().unwrap().version(),
        ending: Ending::LookAgain,
        reference: None,
        who: "ann".into(),
        reason: "the provider lost its index, and has it again".into(),
    };
    // What nobody waits for is left as it is.
    let refused = desk.settle_operation(order(&open).await).await.unwrap();
    assert_eq!((refused, bed.status(&open).await), (OperationSettled::Open, Admitted));
    let again = order(&id).await;
    assert_eq!(desk.settle_operation(again.clone()).await.unwrap(), OperationSettled::Settled);
    assert_eq!(bed.status(&id).await, Unknown);
    assert_eq!(desk.settle_operation(again).await.unwrap(), OperationSettled::Changed, "once");
    if kind == StoreKind::Sqlite {
        // The clock stands still there.
        bed.pass(Over::Lease).await;
    }
    // As if it had never looked: one attempt is there again.
    let round = bed.usual(false).run_once().await.unwrap();
    assert_eq!((bed.status(&id).await, bed.provider.effects(&id)), (Succeeded, 1), "{round:?}");
    let events = bed.grants.store().history(id).await.unwrap();
    let told = events.iter().find(|event| event.step == "look_again").unwrap();
    assert_eq!((&told.actor[..], &told.result[..], told.status), ("ann", "needs_reconciliation", Unknown));
}

/// What recovery has put aside until its next look-up is free for a person's word; while it works, or once
/// it has sent something, nobody says `failed`.
pub async fn a_person_ends_an_operation_while_recovery_rests(kind: StoreKind) {
    for ending in [Ending::Succeeded, Ending::Failed] {
        for sent in [false, true] {
            ends_while_recovery_rests(kind, ending, sent).await;
        }
    }
}

async fn ends_while_recovery_rests(kind: StoreKind, ending: Ending, sent: bool) {
    let bed = Bed::new(kind).await;
    let desk = bed.store().desk().unwrap();
    let settle = async |id: &OperationId, ending: Ending| {
        let seen = desk.operation(id.clone()).await.unwrap().unwrap();
        let order = OperationOrder {
            id: id.clone(),
            version: seen.version(),
            ending,
            reference: None,
            who: "ann".into(),
            reason: "the provider said so on the telephone".into(),
        };
        (seen.resting, desk.settle_operation(order).await.unwrap())
    };
    let note = || Note { actor: "recovery/one".into(), result: String::new(), detail: String::new() };
    let minute = Span::seconds(60);
    let taken = async |id: &OperationId| {
        let take = TakeOver { issuers: None, older_than: None, lease: minute, limit: 10, note: note() };
        let taken = bed.recovery.take_over(take).await.unwrap();
        assert_eq!((taken.len(), &taken[0].row.operation), (1, id));
        Owner { id: id.clone(), version: taken[0].row.owned.owner_version }
    };
    let id = bed.stalled().await;
    let owner = taken(&id).await;
    let running = |(resting, done): (bool, OperationSettled)| {
        assert!(!resting && matches!(done, OperationSettled::Running { .. }), "{done:?}");
    };
    for step in [StepName::LookUp, StepName::Submit].into_iter().take(1 + usize::from(sent)) {
        let step = bed.recovery.step(owner.clone(), step, minute, note()).await.unwrap();
        assert!(matches!(step, Applied::Yes(_)));
        running(settle(&id, ending).await);
    }
    let rest = Rest { span: minute, counted: true };
    assert_eq!(bed.recovery.postpone(owner.clone(), rest, note()).await.unwrap(), Applied::Yes(()));
    if sent {
        running(settle(&id, ending).await);
        bed.pass(Over::Lease).await;
        assert_eq!(settle(&id, ending).await.1, OperationSettled::Settled);
    } else {
        assert_eq!(settle(&id, ending).await, (true, OperationSettled::Settled));
    }
    // It has come to its end for everybody.
    bed.pass(Over::Lease).await;
    let step = bed.recovery.step(owner, StepName::Submit, minute, note()).await.unwrap();
    assert_eq!((step, bed.status(&id).await), (Applied::Lost, ending.status()));
    assert!(bed.usual(true).run_once().await.unwrap().operations.is_empty());
    assert_eq!(bed.provider.submits(), 0);
}
