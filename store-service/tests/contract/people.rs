//! What people decide about entries, and the ways in which an unknown outcome ends.

use crate::bed::*;
use fencepost_protocol::claims::{CompleteReply, ReleaseCause, UnknownCause, UnknownReply};
use fencepost_store::entry::{Claim, ClaimOutcome, Micros, Ruling, Settle, SettleReply, Version};
use fencepost_store::service::Service;
use fencepost_store::store::{Filter, StateName, StoreKind};
use std::time::Duration;

const NOT_RUN: Ruling = Ruling::Free(ReleaseCause::NotRun);
const FREE: Ruling = Ruling::Free(ReleaseCause::Other);

/// A key whose outcome is unknown, and the fence of its claim.
async fn unknown_entry(bed: &Bed, claim: &Claim) -> i64 {
    let fence = bed.granted(claim).await;
    assert_eq!(bed.store.unknown(unknown(claim)).await.unwrap(), UnknownReply::Marked);
    fence
}

/// After its lifetime the key may run again.
pub async fn unknown_outcome_ends_by_its_lifetime(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fence = unknown_entry(&bed, &claim(1, 1)).await;
    bed.pass_ms(3_600_000 - 1);
    let expected = ClaimOutcome::Unknown { cause: UnknownCause::Timeout, left_ms: 1 };
    assert_eq!(bed.claim(&claim(1, 2)).await, expected);
    bed.pass_ms(1);
    assert!(bed.store.entry(&key(1), true).await.unwrap().is_none());
    assert!(bed.granted(&claim(1, 2)).await > fence);
}

/// A person says that it did not run, or what the answer is; the audit says who and why.
pub async fn unknown_outcome_ends_by_a_person(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    unknown_entry(&bed, &claim(1, 1)).await;
    unknown_entry(&bed, &claim(2, 1)).await;
    bed.pass_ms(1_000);
    assert_eq!(bed.settle(order(&claim(1, 1), NOT_RUN)).await, SettleReply::Settled);
    bed.granted(&claim(1, 2)).await;
    assert_eq!(bed.settle(order(&claim(2, 1), answer(b"by hand"))).await, SettleReply::Settled);
    bed.pass_ms(1_000);
    let ClaimOutcome::Completed(told) = bed.claim(&claim(2, 2)).await else { panic!() };
    assert_eq!(
        (told.status, &told.body[..], told.age_ms, told.left_ms),
        (201, &b"by hand"[..], 1_000, 86_399_000)
    );
    // Another payload is told apart as before.
    let changed = Claim { fingerprint: fingerprint(2), ..claim(2, 3) };
    assert_eq!(bed.claim(&changed).await, ClaimOutcome::Mismatch);
    for (number, action, after) in [(1, "settle_not_run", "released"), (2, "settle_answer", "completed")] {
        let audit = bed.other.audit(&key(number)).await.unwrap();
        let [line] = &audit[..] else { panic!("{audit:?}") };
        assert_eq!((line.at, &line.who[..], &line.action[..]), (Micros(START.0 + 1_000_000), "ann", action));
        assert_eq!((&line.state_before[..], &line.state_after[..], line.forced), ("unknown", after, false));
        assert_eq!(line.reason, "looked at the bank's side");
        assert_eq!(line.version.updated_at, START);
    }
}

/// The answer comes after all: from its holder, and after a person has freed the key as well.
pub async fn unknown_outcome_ends_by_an_answer_that_still_arrives(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fences = [unknown_entry(&bed, &claim(1, 1)).await, unknown_entry(&bed, &claim(2, 1)).await];
    // From somebody else it is not believed.
    let stranger = bed.store.complete(complete(&claim(1, 9), fences[0], b"no")).await.unwrap();
    assert!(matches!(stranger, CompleteReply::Refused { .. }));
    assert_eq!(bed.settle(order(&claim(2, 1), NOT_RUN)).await, SettleReply::Settled);
    for (number, fence) in [(1, fences[0]), (2, fences[1])] {
        let late = bed.other.complete(complete(&claim(number, 1), fence, b"late")).await.unwrap();
        assert_eq!(late, CompleteReply::Stored);
        let ClaimOutcome::Completed(told) = bed.claim(&claim(number, 2)).await else { panic!() };
        assert_eq!(&told.body[..], b"late");
    }
}

/// Between looking and deciding the entry changed: nothing is done.
pub async fn order_applies_to_the_version_that_was_seen_and_to_no_other(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fence = unknown_entry(&bed, &claim(1, 1)).await;
    let seen = bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version();
    assert_eq!(seen, Version { fence, updated_at: START });
    bed.pass_ms(1);
    bed.store.complete(complete(&claim(1, 1), fence, b"late")).await.unwrap();
    for ruling in [NOT_RUN, FREE, answer(b"by hand")] {
        let order = Settle { version: seen, force: true, ..order(&claim(1, 1), ruling) };
        assert_eq!(bed.other.settle(order).await.unwrap(), SettleReply::Changed);
    }
    let ClaimOutcome::Completed(told) = bed.claim(&claim(1, 2)).await else { panic!() };
    assert_eq!(&told.body[..], b"late");
    assert_eq!(bed.store.audit(&key(1)).await.unwrap(), []);
    let nowhere = order(&claim(5, 1), FREE);
    assert_eq!(bed.store.settle(nowhere).await.unwrap(), SettleReply::Absent);
}

/// A claim that lives, or whose upstream may still run under `rerun`, is touched only by force.
pub async fn order_is_refused_while_the_request_may_be_running(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    bed.granted(&claim(1, 1)).await;
    bed.granted(&rerun(2, 1)).await;
    let ttl = u64::from(TTL_MS);
    let run = u64::from(TTL_MS + MAX_RUN_MS);
    for (number, left_ms) in [(1, ttl), (2, run)] {
        let reply = bed.settle(order(&claim(number, 1), NOT_RUN)).await;
        assert_eq!(reply, SettleReply::Running { left_ms });
    }
    bed.pass_ms(ttl);
    let late = bed.settle(order(&rerun(2, 1), answer(b"by hand"))).await;
    assert_eq!(late, SettleReply::Running { left_ms: run - ttl });
    assert_eq!(bed.settle(order(&claim(1, 1), NOT_RUN)).await, SettleReply::Settled);
    let forced = Settle { force: true, ..order(&rerun(2, 1), NOT_RUN) };
    assert_eq!(bed.settle(forced).await, SettleReply::Settled);
    assert!(bed.store.audit(&key(2)).await.unwrap()[0].forced);
    bed.granted(&claim(1, 2)).await;
    bed.granted(&rerun(2, 2)).await;
}

/// An answer stays until it is released; then the request runs again.
pub async fn answer_is_released_before_it_is_replaced(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fence = bed.granted(&claim(1, 1)).await;
    bed.store.complete(complete(&claim(1, 1), fence, b"wrong")).await.unwrap();
    assert_eq!(bed.settle(order(&claim(1, 1), answer(b"right"))).await, SettleReply::Standing);
    assert_eq!(bed.settle(order(&claim(1, 1), FREE)).await, SettleReply::Settled);
    assert_eq!(bed.settle(order(&claim(1, 1), FREE)).await, SettleReply::Standing);
    assert_eq!(bed.settle(order(&claim(1, 1), answer(b"right"))).await, SettleReply::Settled);
    let ClaimOutcome::Completed(told) = bed.claim(&claim(1, 2)).await else { panic!() };
    assert_eq!(&told.body[..], b"right");
    assert_eq!(bed.store.audit(&key(1)).await.unwrap().len(), 2);
}

/// A resend of the claim that a person freed is not a claim of the freed key.
pub async fn freed_key_runs_again_and_its_old_token_claims_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fence = unknown_entry(&bed, &claim(1, 1)).await;
    assert_eq!(bed.settle(order(&claim(1, 1), FREE)).await, SettleReply::Settled);
    assert_eq!(bed.claim(&claim(1, 1)).await, ClaimOutcome::Dead);
    assert!(bed.granted(&claim(1, 2)).await > fence);
    assert_eq!(
        bed.store.release(release(&claim(1, 2))).await.unwrap(),
        fencepost_protocol::claims::ReleaseReply::Released
    );
    assert_eq!(bed.claim(&claim(1, 1)).await, ClaimOutcome::Dead);
    bed.granted(&claim(1, 3)).await;
}

/// Two people look and both decide: one of them is told to look again.
pub async fn of_orders_at_once_exactly_one_is_done(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for round in 0..10 {
        unknown_entry(&bed, &claim(round, 1)).await;
        let version = bed.store.entry(&key(round), false).await.unwrap().unwrap().row.version();
        bed.pass_ms(1);
        let orders = (0..16_usize).map(|person| {
            let store = bed.instance(person);
            let ruling = if person % 3 == 0 { NOT_RUN } else { answer(&[u8::try_from(person).unwrap()]) };
            let order =
                Settle { version, who: format!("person {person}"), ..order(&claim(round, 1), ruling) };
            tokio::spawn(async move { store.settle(order).await.unwrap() })
        });
        let orders: Vec<_> = orders.collect();
        let mut done = Vec::new();
        for (person, order) in orders.into_iter().enumerate() {
            match order.await.unwrap() {
                SettleReply::Settled => done.push(format!("person {person}")),
                SettleReply::Changed => {}
                other => panic!("{other:?}"),
            }
        }
        let audit = bed.store.audit(&key(round)).await.unwrap();
        assert_eq!(audit.iter().map(|line| line.who.clone()).collect::<Vec<_>>(), done);
        assert_eq!(done.len(), 1);
    }
}

/// Whoever waits for a claim that a person ends is told at once.
pub async fn order_about_a_live_claim_answers_who_waits(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    bed.granted(&claim(1, 1)).await;
    let waiting: Vec<_> = (2..10)
        .map(|caller| {
            let service = service.clone();
            tokio::spawn(
                async move { service.claim(claim(1, caller), Duration::from_secs(60)).await.unwrap().0 },
            )
        })
        .collect();
    until("callers are parked", async || service.waiters().len() == 8).await;
    let version = bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version();
    let order = Settle { version, force: true, ..order(&claim(1, 1), answer(b"by hand")) };
    assert_eq!(service.settle(order).await.unwrap(), SettleReply::Settled);
    for caller in waiting {
        assert!(matches!(caller.await.unwrap(), ClaimOutcome::Completed(_)));
    }
}

/// Lists are complete, in the order of the keys, page by page.
pub async fn entries_are_listed_in_order_and_without_their_answers(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    for number in 0..10 {
        let claim = claim(number, 1);
        let fence = bed.granted(&claim).await;
        match number % 3 {
            0 => drop(bed.store.unknown(unknown(&claim)).await.unwrap()),
            1 => drop(bed.store.complete(complete(&claim, fence, b"secret")).await.unwrap()),
            _ => {}
        }
    }
    let list = async |filter: Filter| {
        let entries = bed.other.entries(filter).await.unwrap();
        for entry in &entries {
            assert!(!format!("{entry:?}").contains("secret"));
        }
        entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    let all = Filter { limit: 100, ..Filter::default() };
    assert_eq!(list(all.clone()).await, (0..10).map(key).collect::<Vec<_>>());
    let unknown = Filter { state: Some(StateName::Unknown), limit: 3, ..Filter::default() };
    assert_eq!(list(unknown.clone()).await, [0, 3, 6].map(key));
    assert_eq!(list(Filter { after: Some(key(6)), ..unknown }).await, [key(9)]);
    let cause = |word: &str| Filter { cause: Some(word.into()), ..all.clone() };
    assert_eq!(list(cause("timeout")).await, [0, 3, 6, 9].map(key));
    assert_eq!(list(cause("held")).await, []);
    assert_eq!(list(Filter { held: Some(true), ..all.clone() }).await, []);
    assert_eq!(list(Filter { held: Some(false), ..all.clone() }).await.len(), 10);
    assert_eq!(list(Filter { prefixes: Some(vec!["other".into()]), ..all.clone() }).await, []);
    assert_eq!(list(Filter { prefixes: Some(Vec::new()), ..all.clone() }).await, []);
    let old = |ms| Filter { older_than_ms: Some(ms), ..all.clone() };
    assert_eq!(list(old(1)).await, []);
    bed.pass_ms(5_000);
    bed.granted(&claim(10, 1)).await;
    assert_eq!(list(old(5_000)).await, (0..10).map(key).collect::<Vec<_>>());
    assert_eq!(list(old(5_001)).await, []);
    let completed = bed.store.entry(&key(1), false).await.unwrap().unwrap();
    assert_eq!((completed.body_len, format!("{completed:?}").contains("secret")), (6, false));
    let with_answer = bed.store.entry(&key(1), true).await.unwrap().unwrap();
    assert!(format!("{with_answer:?}").contains("secret"));
    // What has expired is not there, although nobody has swept.
    bed.pass_ms(86_400_000);
    assert_eq!(list(all).await, [2, 5, 8, 10].map(key));
}

/// Not even by hand is the audit changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_only_grows() {
    let bed = Bed::set(StoreKind::Postgres).await;
    unknown_entry(&bed, &claim(1, 1)).await;
    assert_eq!(bed.settle(order(&claim(1, 1), FREE)).await, SettleReply::Settled);
    let client = connect(bed.url.as_ref().unwrap()).await;
    for change in [
        "UPDATE fencepost.entry_audit SET who = 'nobody'",
        "DELETE FROM fencepost.entry_audit",
        "TRUNCATE fencepost.entry_audit",
    ] {
        let refused = client.execute(change, &[]).await.unwrap_err();
        assert!(format!("{refused:?}").contains("only grows"), "{refused:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    let version = fencepost_store::store::sqlite::SCHEMA_VERSION;
    fencepost_store::store::sqlite::migrate_to(&path, version).unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute(
        "INSERT INTO entry_audit (at, who, action, key, version_fence, version_updated_at, state_before, state_after,
                                  forced, reason)
         VALUES (1, 'ann', 'release', 'k', 1, 1, 'unknown', 'released', 0, 'r')",
        [],
    )
    .unwrap();
    let replace = "REPLACE INTO entry_audit SELECT id, at, 'nobody', action, key, version_fence, version_updated_at,
                                                   state_before, state_after, forced, reason FROM entry_audit";
    for change in ["UPDATE entry_audit SET who = 'nobody'", "DELETE FROM entry_audit", replace] {
        assert!(file.execute(change, []).unwrap_err().to_string().contains("only grows"));
    }
}

/// The answer of the request itself, after a person has given one, is told that it is not stored:
/// its client is not to believe that a retry gets the same.
pub async fn answer_that_comes_after_a_persons_is_told_so(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let fence = unknown_entry(&bed, &claim(1, 1)).await;
    assert_eq!(bed.settle(order(&claim(1, 1), answer(b"by hand"))).await, SettleReply::Settled);
    let late = bed.other.complete(complete(&claim(1, 1), fence, b"late")).await.unwrap();
    assert_eq!(late, CompleteReply::Refused { reason: fencepost_protocol::claims::Refusal::Completed });
    let told = bed.store.claim(std::sync::Arc::new(claim(1, 2)), CALM).await.unwrap();
    let ClaimOutcome::Completed(told) = told else { panic!("{told:?}") };
    assert_eq!(&told.body[..], b"by hand");
}
