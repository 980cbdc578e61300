//! Held keys: answered where the answer is found, marked for a person where not, released by nobody.

use crate::bed::{Bed, Over};
use crate::entries;
use fencepost_protocol::claims::{CompleteReply, ReleaseCause};
use fencepost_store::desk::{Again, AgainOrder, entry_subject};
use fencepost_store::entry::{ClaimOutcome, Ruling, Settle, SettleReply, Version};
use fencepost_store::recovery::held::HeldEnded;
use fencepost_store::store::StoreKind;
use serde_json::{Value, json};

fn found() -> Value {
    json!({"outcome": "succeeded", "answer": {
        "status": 201, "headers": [["content-type", "application/json"]], "body": "{\"id\": 1}",
    }})
}

/// The body of a replay; none where the outcome is unknown.
fn replayed(outcome: &ClaimOutcome) -> Option<Vec<u8>> {
    match outcome {
        ClaimOutcome::Completed(answer) => Some(answer.body.to_vec()),
        ClaimOutcome::Unknown { .. } => None,
        other => panic!("{other:?}"),
    }
}

pub async fn a_held_key_that_is_found_is_completed_and_audited(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (claim, _) = bed.held(1).await;
    let (other, _) = bed.held(2).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    let round = bed.usual(true).run_once().await.unwrap();
    assert_eq!((round.keys[&HeldEnded::Completed], round.keys[&HeldEnded::Postponed]), (1, 1));
    assert_eq!(replayed(&bed.retry(&claim).await).unwrap(), b"{\"id\": 1}");
    assert_eq!(replayed(&bed.retry(&other).await), None);
    let audit = bed.store().audit(&claim.key).await.unwrap();
    assert_eq!(
        (audit.len(), audit[0].who.as_str(), audit[0].action.as_str()),
        (1, "recovery", "settle_answer")
    );
    assert!(audit[0].reason.contains("billing") && audit[0].reason.contains("recovery/one"), "{audit:?}");
    assert!(!audit[0].forced);
    bed.check_signatures();
}

pub async fn a_held_key_that_is_not_found_stays_held_and_is_marked(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (claim, fence) = bed.held(1).await;
    let recovery = bed.usual(true);
    for attempt in 1..=3 {
        let round = recovery.run_once().await.unwrap();
        let expected = if attempt < 3 { HeldEnded::Postponed } else { HeldEnded::Marked };
        assert_eq!(round.keys[&expected], 1, "{attempt}");
        assert!(recovery.run_once().await.unwrap().keys.is_empty(), "it rests");
        pass(&bed).await;
    }
    assert!(recovery.run_once().await.unwrap().keys.is_empty(), "it is for a person");
    assert_eq!(bed.provider.lookups().len(), 3);
    assert_eq!(replayed(&bed.retry(&claim).await), None, "nobody released it");
    let marked = bed.recovery.held_list(None, None, 10).await.unwrap();
    assert_eq!((marked.len(), marked[0].key.clone(), marked[0].version.fence), (1, claim.key.clone(), fence));
    assert_eq!((marked[0].attempts, marked[0].result.as_str()), (3, "not_found"));
    assert!(marked[0].reason.contains("does not mean that it did not run"), "{marked:?}");
    assert_eq!(bed.recovery.backlog(10).await.unwrap().marked_keys, 1);
    let none = bed.recovery.held_list(Some(vec!["other".into()]), None, 10).await.unwrap();
    assert!(none.is_empty());
    assert!(bed.recovery.held_list(None, Some(claim.key.clone()), 10).await.unwrap().is_empty());
    // The version that the mark shows is what a person's order names.
    let order =
        Settle { version: marked[0].version, ..entries::order(&claim, Ruling::Free(ReleaseCause::NotRun)) };
    assert_eq!(bed.service.settle(order).await.unwrap(), SettleReply::Settled);
    assert!(matches!(bed.retry(&claim).await, ClaimOutcome::Claimed { .. }));
}

/// Once for each mark, for the version that was seen, and written down.
pub async fn a_person_has_recovery_look_again_for_a_key(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (claim, _) = bed.held(1).await;
    let recovery = bed.recoverer("one", &bed.settings(true, json!({"give_up": {"attempts": 1}})));
    let desk = bed.store().desk().unwrap();
    let version = bed.store().entry(&claim.key, false).await.unwrap().unwrap().row.version();
    let order = AgainOrder {
        key: claim.key.clone(),
        version,
        who: "ann".into(),
        reason: "the provider lost its index, and has it again".into(),
    };
    assert_eq!(desk.look_again(order.clone()).await.unwrap(), Again::NotGivenUp, "nobody has looked");
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Marked], 1);
    assert!(recovery.run_once().await.unwrap().keys.is_empty(), "it is for a person");

    let stale = AgainOrder { version: Version { fence: version.fence + 1, ..version }, ..order.clone() };
    assert_eq!(desk.look_again(stale).await.unwrap(), Again::NotGivenUp);
    assert_eq!(desk.look_again(order.clone()).await.unwrap(), Again::Told);
    assert_eq!(desk.look_again(order.clone()).await.unwrap(), Again::NotGivenUp, "once");
    assert!(bed.recovery.held_list(None, None, 10).await.unwrap().is_empty());
    assert_eq!(replayed(&bed.retry(&claim).await), None, "it stays held");
    // Nothing is found yet: it is for a person again, with the same version.
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Marked], 1);
    assert_eq!(desk.look_again(order.clone()).await.unwrap(), Again::Told);
    bed.provider.answer_key(claim.key.as_str(), found());
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Completed], 1);
    assert_eq!(replayed(&bed.retry(&claim).await).unwrap(), b"{\"id\": 1}");
    assert_eq!(desk.look_again(order).await.unwrap(), Again::NotGivenUp, "it has its answer");
    let lines = desk.lines(entry_subject(claim.key.as_str())).await.unwrap();
    assert_eq!(lines.len(), 2);
    let told = &lines[0];
    assert_eq!(
        (&told.who[..], &told.action[..], told.version_before.clone()),
        ("ann", "look_again", version.to_string())
    );
}

/// Rests are over. On SQLite the clock moves, but not past the end of what is held.
async fn pass(bed: &Bed) {
    bed.pass(Over::Lease).await;
}

pub async fn a_late_answer_and_a_found_answer_in_both_orders(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    // The request's own answer comes while recovery looks: it stays.
    let (claim, fence) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    bed.provider.looking.shut();
    let recovery = bed.usual(true);
    let round = tokio::spawn({
        let recovery = recovery.clone();
        async move { recovery.run_once().await.unwrap() }
    });
    bed.provider.looking.wait_arrived(1).await.unwrap();
    let late = bed.service.complete(entries::complete(&claim, fence, b"own")).await.unwrap();
    assert!(matches!(late, CompleteReply::Stored), "{late:?}");
    bed.provider.looking.open();
    assert_eq!(round.await.unwrap().keys[&HeldEnded::Lost], 1);
    assert_eq!(replayed(&bed.retry(&claim).await).unwrap(), b"own");
    // Recovery first: the request's own answer is told that it was not stored.
    let (claim, fence) = bed.held(2).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Completed], 1);
    let late = bed.service.complete(entries::complete(&claim, fence, b"own")).await.unwrap();
    assert!(matches!(late, CompleteReply::Refused { .. }), "{late:?}");
    assert_eq!(replayed(&bed.retry(&claim).await).unwrap(), b"{\"id\": 1}");
}

pub async fn a_persons_order_while_recovery_looks_wins(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (claim, _) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    bed.provider.looking.shut();
    let recovery = bed.usual(true);
    let round = tokio::spawn(async move { recovery.run_once().await.unwrap() });
    bed.provider.looking.wait_arrived(1).await.unwrap();
    let seen = bed.store().entry(&claim.key, false).await.unwrap().unwrap().row.version();
    let order = Settle { version: seen, ..entries::order(&claim, entries::answer(b"by a person")) };
    assert_eq!(bed.service.settle(order).await.unwrap(), SettleReply::Settled);
    bed.provider.looking.open();
    assert_eq!(round.await.unwrap().keys[&HeldEnded::Lost], 1);
    assert_eq!(replayed(&bed.retry(&claim).await).unwrap(), b"by a person");
    let audit = bed.store().audit(&claim.key).await.unwrap();
    assert_eq!((audit.len(), audit[0].who.as_str()), (1, "ann"));
}

pub async fn of_two_recoverers_one_looks_a_key_up(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    for number in 1..=10 {
        bed.held(number).await;
    }
    let settings = bed.settings(true, json!({}));
    let rounds: Vec<_> = (0..4)
        .map(|n| {
            let recovery = bed.recoverer(&format!("r{n}"), &settings);
            tokio::spawn(async move { recovery.run_once().await.unwrap() })
        })
        .collect();
    let mut looked = 0;
    for round in rounds {
        looked += round.await.unwrap().keys.get(&HeldEnded::Postponed).copied().unwrap_or(0);
    }
    assert_eq!((looked, bed.provider.lookups().len()), (10, 10));
    // One that comes out of its pause after another one's turn changes nothing.
    let stale = bed.recovery.held_take(vec!["test".into()], lease(), "stale".into(), 1).await.unwrap();
    assert!(stale.is_empty(), "they rest");
    pass(&bed).await;
    let stale = bed.recovery.held_take(vec!["test".into()], lease(), "stale".into(), 1).await.unwrap();
    pass(&bed).await;
    bed.recovery.held_take(vec!["test".into()], lease(), "next".into(), 1).await.unwrap();
    let (key, turn) = (stale[0].key.clone(), stale[0].turn);
    let mark = bed.recovery.held_mark(key, turn, "late".into(), "not_found".into()).await.unwrap();
    assert_eq!(mark, fencepost_store::recovery::store::Applied::Lost);
    assert!(bed.recovery.held_list(None, None, 10).await.unwrap().is_empty());
}

fn lease() -> fencepost_store::grant::duration::Span {
    fencepost_store::grant::duration::Span::seconds(60)
}

pub async fn a_marker_goes_with_its_entry(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (claim, _) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), json!({"outcome": "succeeded"}));
    let recovery = bed.usual(true);
    // It ran, and nobody has its answer: no machine can end that.
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Marked], 1);
    let marked = bed.recovery.held_list(None, None, 10).await.unwrap();
    let order =
        Settle { version: marked[0].version, ..entries::order(&claim, Ruling::Free(ReleaseCause::NotRun)) };
    assert_eq!(bed.service.settle(order).await.unwrap(), SettleReply::Settled);
    assert!(bed.recovery.held_list(None, None, 10).await.unwrap().is_empty());
    assert_eq!(bed.recovery.backlog(10).await.unwrap().marked_keys, 1);
    recovery.run_once().await.unwrap();
    assert_eq!(bed.recovery.backlog(10).await.unwrap().marked_keys, 0, "forgotten");
    // Held again by another claim, it is looked up anew.
    let again = fencepost_store::entry::Claim { token: entries::token(77), ..claim.clone() };
    let claimed = bed.store().claim(std::sync::Arc::new(again.clone()), u64::MAX).await.unwrap();
    assert!(matches!(claimed, ClaimOutcome::Claimed { .. }));
    bed.store().unknown(entries::unknown(&again)).await.unwrap();
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Marked], 1);
}
