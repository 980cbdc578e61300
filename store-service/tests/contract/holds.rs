//! Holds after a restored backup, and erasing what one caller was answered.

use crate::bed::*;
use fencepost_protocol::claims::{ReleaseCause, UnknownCause};
use fencepost_protocol::{ScopeDigest, StoreKey};
use fencepost_store::desk::{
    Desk, EraseCursor, EraseOrder, FreeDone, FreeOrder, Freed, HoldDone, HoldOrder, HoldSeen, Whose,
    hold_subject, whose_subject,
};
use fencepost_store::entry::{Claim, ClaimOutcome, Micros, Ruling, SettleReply};
use fencepost_store::store::{Filter, StoreKind};
use futures_util::future::join_all;
use std::sync::Arc;

const DAY_MS: u64 = 86_400_000;

fn desk(bed: &Bed) -> Arc<dyn Desk> {
    bed.store.desk().unwrap()
}

fn hold_order() -> HoldOrder {
    HoldOrder {
        prefix: None,
        since: None,
        keys_for_ms: Some(DAY_MS),
        grants: true,
        who: "ann".into(),
        reason: "restored last night's backup".into(),
    }
}

async fn begun(bed: &Bed, order: HoldOrder) -> HoldSeen {
    match desk(bed).begin_hold(order).await.unwrap() {
        HoldDone::Begun(hold) => hold,
        other => panic!("{other:?}"),
    }
}

/// A claim that is over at once, and may be run again by anybody.
async fn abandoned(bed: &Bed, number: u64) -> Claim {
    let claim = Claim { claim_ttl_ms: 1, max_run_ms: 0, ..rerun(number, 1) };
    bed.granted(&claim).await;
    until("the lease is over", async || {
        let entry = bed.store.entry(&key(number), false).await.unwrap().unwrap();
        let fencepost_store::entry::State::Claimed(lease) = entry.row.state else { panic!() };
        lease.run_until < entry.now
    })
    .await;
    claim
}

fn is_held(outcome: &ClaimOutcome) -> bool {
    matches!(outcome, ClaimOutcome::Unknown { cause: UnknownCause::Held, .. })
}

/// Whatever a lost row might forbid is refused; what the rows that are there say, they say.
pub async fn what_may_have_run_in_a_lost_window_is_held_until_a_person_speaks_for_it(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let fence = bed.granted(&claim(1, 1)).await;
    bed.store.complete(complete(&claim(1, 1), fence, b"before")).await.unwrap();
    let freed = bed.granted(&claim(2, 1)).await;
    bed.store.release(release(&claim(2, 1))).await.unwrap();
    let rerun = abandoned(&bed, 3).await;
    let own = bed.granted(&claim(4, 1)).await;

    let hold = begun(&bed, hold_order()).await;
    let lines = desk(&bed).lines(hold_subject(hold.id)).await.unwrap();
    assert_eq!((&lines[0].who[..], &lines[0].action[..]), ("ann", "hold_begin"));

    // A key that the backup knows nothing of; its retries and other payloads.
    assert!(is_held(&bed.claim(&claim(5, 1)).await));
    let entry = bed.other.entry(&key(5), false).await.unwrap().unwrap();
    assert!(entry.row.until().unwrap() > entry.now.plus_ms(DAY_MS - 60_000));
    assert!(is_held(&bed.other.claim(Arc::new(claim(5, 1)), CALM).await.unwrap()), "the same token");
    assert!(is_held(&bed.claim(&claim(5, 2)).await));
    let other = Claim { fingerprint: fingerprint(9), ..claim(5, 3) };
    assert_eq!(bed.claim(&other).await, ClaimOutcome::Mismatch);
    // A key that was free in the backup.
    assert!(is_held(&bed.claim(&claim(2, 2)).await));
    assert!(bed.store.entry(&key(2), false).await.unwrap().unwrap().row.fence >= freed);
    // A claim of the backup that would be taken over: it may have been answered since.
    let taken = bed.claim(&Claim { token: token(2), ..rerun }).await;
    assert!(matches!(taken, ClaimOutcome::Unknown { cause: UnknownCause::LeaseExpired, .. }), "{taken:?}");
    // What is known is answered, and a holder has its claim.
    assert!(matches!(bed.claim(&claim(1, 2)).await, ClaimOutcome::Completed(_)));
    assert_eq!(bed.granted(&claim(4, 1)).await, own);
    // Somebody who gives back what it never had says nothing about the lost window.
    bed.store.release(release(&claim(6, 1))).await.unwrap();
    assert!(is_held(&bed.claim(&claim(6, 2)).await));

    // A person does.
    let free = order(&claim(5, 1), Ruling::Free(ReleaseCause::NotRun));
    assert_eq!(bed.settle(free).await, SettleReply::Settled);
    let fence = bed.granted(&claim(5, 4)).await;
    bed.store.complete(complete(&claim(5, 4), fence, b"after")).await.unwrap();
    assert!(matches!(bed.claim(&claim(5, 5)).await, ClaimOutcome::Completed(_)));

    // Afterwards new keys run; what was held stays so.
    let lifted = desk(&bed).lift_hold(hold.id, "bob".into(), "nobody retries any more".into()).await.unwrap();
    assert!(matches!(lifted, HoldDone::Lifted(HoldSeen { lifted_at: Some(_), .. })), "{lifted:?}");
    bed.granted(&claim(7, 1)).await;
    assert!(is_held(&bed.claim(&claim(2, 3)).await));
    let again = desk(&bed).lift_hold(hold.id, "bob".into(), "r".into()).await.unwrap();
    assert_eq!(again, HoldDone::Absent);
    assert_eq!(desk(&bed).lines(hold_subject(hold.id)).await.unwrap().len(), 2);
}

/// All of a herd is told; none of them runs.
pub async fn of_a_herd_on_a_held_key_nobody_runs(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    begun(&bed, hold_order()).await;
    let herd = (0..128).map(|turn| {
        let (store, claim) = (bed.instance(turn), Arc::new(claim(1, turn as u64)));
        async move { store.claim(claim, CALM).await.unwrap() }
    });
    assert!(join_all(herd).await.iter().all(is_held));
}

/// A hold of other keys, and one of no keys at all.
pub async fn hold_is_about_the_keys_that_it_names(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let old = abandoned(&bed, 1).await;
    begun(&bed, HoldOrder { prefix: Some("other".into()), grants: false, ..hold_order() }).await;
    bed.granted(&claim(2, 1)).await;
    begun(&bed, HoldOrder { prefix: Some("test".into()), grants: false, keys_for_ms: None, ..hold_order() })
        .await;
    bed.granted(&claim(3, 1)).await;
    // Begun before: not run again, though new keys run.
    let told = bed.claim(&Claim { token: token(2), ..old }).await;
    assert!(matches!(told, ClaimOutcome::Unknown { cause: UnknownCause::LeaseExpired, .. }), "{told:?}");
    // Begun after: taken over as ever.
    let young = abandoned(&bed, 4).await;
    bed.granted(&Claim { token: token(2), ..young }).await;
    let ahead = HoldOrder { since: Some(Micros(i64::MAX / 2_000_000 * 1_000_000)), ..hold_order() };
    assert_eq!(desk(&bed).begin_hold(ahead).await.unwrap(), HoldDone::Ahead);
    assert_eq!(desk(&bed).holds().await.unwrap().len(), 2);
}

/// A hold is over when its time is: without anybody's doing.
pub async fn held_keys_are_free_when_the_hold_is_over(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    begun(&bed, HoldOrder { keys_for_ms: Some(700), ..hold_order() }).await;
    assert!(is_held(&bed.claim(&claim(1, 1)).await));
    until("the hold is over", async || matches!(bed.claim(&claim(1, 2)).await, ClaimOutcome::Claimed { .. }))
        .await;
    bed.granted(&claim(2, 1)).await;
}

async fn free(bed: &Bed, hold: i64) -> FreeDone {
    let order = FreeOrder { hold, after: None, who: "bob".into(), reason: "looked through".into() };
    desk(bed).free_held(order).await.unwrap()
}

fn freed(freed: u64, kept: u64) -> FreeDone {
    FreeDone::Done(Freed { freed, kept, next: None })
}

/// A hold that is lifted says nothing about another one that stands.
pub async fn lifted_hold_frees_only_what_no_other_hold_holds(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let all = begun(&bed, hold_order()).await.id;
    let other =
        begun(&bed, HoldOrder { prefix: Some("other".into()), grants: false, ..hold_order() }).await.id;
    let prod = Claim { key: StoreKey::new("other", &[1; 16]).unwrap(), ..claim(1, 1) };
    assert!(is_held(&bed.claim(&claim(1, 1)).await));
    assert!(is_held(&bed.claim(&prod).await));
    let timed_out = claim(2, 1);
    assert!(is_held(&bed.claim(&timed_out).await));
    let free_it = order(&timed_out, Ruling::Free(ReleaseCause::NotRun));
    assert_eq!(bed.settle(free_it).await, SettleReply::Settled);
    bed.granted(&Claim { token: token(3), ..timed_out.clone() }).await;
    bed.store.unknown(unknown(&Claim { token: token(3), ..timed_out.clone() })).await.unwrap();

    assert_eq!(free(&bed, all).await, FreeDone::Standing);
    assert_eq!(free(&bed, 99).await, FreeDone::Absent);
    desk(&bed).lift_hold(all, "bob".into(), "r".into()).await.unwrap();
    assert_eq!(free(&bed, all).await, freed(1, 1));
    assert!(is_held(&bed.claim(&Claim { token: token(2), ..prod.clone() }).await), "the other hold stands");
    bed.granted(&claim(1, 2)).await;
    let told = bed.claim(&Claim { token: token(4), ..timed_out }).await;
    assert!(matches!(told, ClaimOutcome::Unknown { cause: UnknownCause::Timeout, .. }), "{told:?}");
    let audit = bed.store.audit(&key(1)).await.unwrap();
    assert_eq!((&audit[0].who[..], &audit[0].state_after[..]), ("bob", "released"));
    assert_eq!(desk(&bed).lines(hold_subject(all)).await.unwrap().len(), 3);

    desk(&bed).lift_hold(other, "bob".into(), "r".into()).await.unwrap();
    assert_eq!(free(&bed, other).await, freed(1, 0));
    bed.granted(&Claim { token: token(2), ..prod }).await;
    assert_eq!(free(&bed, other).await, freed(0, 0), "again");
}

/// A list marks what a hold that stands keeps from running, and nothing else.
pub async fn lists_say_what_a_standing_hold_holds(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let fence = bed.granted(&claim(1, 1)).await;
    bed.store.complete(complete(&claim(1, 1), fence, b"before")).await.unwrap();
    bed.granted(&claim(2, 1)).await;
    bed.store.release(release(&claim(2, 1))).await.unwrap();
    abandoned(&bed, 3).await;
    bed.granted(&claim(4, 1)).await;
    bed.granted(&claim(6, 1)).await;
    bed.store.unknown(unknown(&claim(6, 1))).await.unwrap();
    let list = async |held: Option<bool>| {
        let found = bed.other.entries(Filter { held, limit: 100, ..Filter::default() }).await.unwrap();
        found.into_iter().map(|entry| (entry.key, entry.held.unwrap())).collect::<Vec<_>>()
    };
    let all = |held: bool, numbers: &[u64]| numbers.iter().map(|of| (key(*of), held)).collect::<Vec<_>>();
    assert_eq!(list(Some(true)).await, []);

    begun(&bed, HoldOrder { prefix: Some("other".into()), grants: false, ..hold_order() }).await;
    assert_eq!(list(Some(true)).await, [], "of other keys");
    let hold = begun(&bed, hold_order()).await;
    assert!(is_held(&bed.claim(&claim(5, 1)).await));
    assert_eq!(list(Some(true)).await, all(true, &[2, 3, 5]));
    assert_eq!(list(Some(false)).await, all(false, &[1, 4, 6]));
    assert_eq!(list(None).await.len(), 6);
    let of_cause = Filter { cause: Some("held".into()), limit: 100, ..Filter::default() };
    assert_eq!(bed.other.entries(of_cause).await.unwrap().len(), 1);

    let free = order(&claim(5, 1), Ruling::Free(ReleaseCause::NotRun));
    assert_eq!(bed.settle(free).await, SettleReply::Settled);
    assert_eq!(list(Some(true)).await, all(true, &[2, 3]), "a person has spoken for it");
    desk(&bed).lift_hold(hold.id, "bob".into(), "r".into()).await.unwrap();
    assert_eq!(list(Some(true)).await, []);
}

fn erase_order(scope: ScopeDigest) -> EraseOrder {
    let (who, reason) = ("ann".into(), "asked to forget".into());
    EraseOrder { whose: Whose::Scope(scope), prefixes: None, after: None, who, reason }
}

/// The answers go, the keys stay used; nothing else is touched.
pub async fn erased_answer_is_gone_and_its_key_stays_used(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let (alice, bob) = (ScopeDigest::from_bytes([1; 16]), ScopeDigest::from_bytes([2; 16]));
    for (number, scope) in [(1, alice), (2, alice), (3, bob)] {
        let claim = Claim { scope, ..claim(number, 1) };
        let fence = bed.granted(&claim).await;
        bed.store.complete(complete(&claim, fence, b"alice's secret")).await.unwrap();
    }
    let running = Claim { scope: alice, ..claim(4, 1) };
    bed.granted(&running).await;
    let held = Claim { scope: alice, ..claim(5, 1) };
    bed.granted(&held).await;
    bed.store.unknown(unknown(&held)).await.unwrap();
    let before = bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version();

    let bound = EraseOrder { prefixes: Some(vec!["other".into()]), ..erase_order(alice) };
    let erased = desk(&bed).erase(bound).await.unwrap();
    assert_eq!((erased.answers, erased.next), (0, None), "operations have no prefix");
    let erased = desk(&bed).erase(erase_order(alice)).await.unwrap();
    let next = Some(EraseCursor::Operations);
    assert_eq!((erased.answers, erased.left, erased.looked, erased.next), (2, 2, 5, next));
    for number in [1, 2] {
        let ClaimOutcome::Completed(told) = bed.claim(&claim(number, 2)).await else { panic!() };
        let body: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
        assert_eq!((told.status, &body["code"]), (410, &serde_json::json!("answer_erased")));
    }
    let ClaimOutcome::Completed(told) = bed.claim(&claim(3, 2)).await else { panic!() };
    assert_eq!(&told.body[..], b"alice's secret", "of somebody else");
    assert!(matches!(bed.claim(&claim(4, 2)).await, ClaimOutcome::InProgress { .. }));
    assert!(matches!(bed.claim(&claim(5, 2)).await, ClaimOutcome::Unknown { .. }));
    let after = bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version();
    assert_ne!(before, after, "an order about what was seen before does nothing");
    // Again: there is nothing left, and nothing to write down.
    assert_eq!(desk(&bed).erase(erase_order(alice)).await.unwrap().answers, 0);
    let lines = desk(&bed).lines(whose_subject(&Whose::Scope(alice))).await.unwrap();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&line.action[..], &line.state_after[..]), ("erase", "2 answers erased"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasing_works_in_bounded_batches__postgres() {
    let bed = Bed::real(StoreKind::Postgres).await;
    let client = connect(bed.url.as_ref().unwrap()).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until,
                                            status, headers, body, completed_at, created_at, updated_at)
             SELECT 'test:' || lpad(to_hex(n), 32, '0'), 'completed', decode(repeat('ab', 16), 'hex'), 1, '1-a',
                    decode(repeat('ab', 32), 'hex'), decode(repeat(CASE WHEN n % 3 = 0 THEN '01' ELSE '02' END, 16),
                    'hex'), '{}', now() + interval '1 day', 200, '', 'secret', now(), now(), now()
             FROM generate_series(1, 12000) AS n",
        )
        .await
        .unwrap();
    let scope = ScopeDigest::from_bytes([1; 16]);
    let (mut answers, mut batches, mut after) = (0, 0, None);
    while after != Some(EraseCursor::Operations) {
        let erased = desk(&bed).erase(EraseOrder { after, ..erase_order(scope) }).await.unwrap();
        assert!(erased.looked <= 5_000);
        answers += erased.answers;
        batches += 1;
        after = erased.next;
    }
    assert_eq!((answers, batches), (4_000, 3));
    let left = "SELECT count(*) FROM fencepost.entries WHERE body = 'secret'";
    let left: i64 = client.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 8_000);
}

/// Stamps the promises for the stores that keep them.
macro_rules! held {
    ($($promise:ident),* $(,)?) => {
        pastey::paste! {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __sqlite>]() {
                    $promise(StoreKind::Sqlite).await;
                }
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __postgres>]() {
                    $promise(StoreKind::Postgres).await;
                }
            )*
        }
    };
}

held! {
    what_may_have_run_in_a_lost_window_is_held_until_a_person_speaks_for_it,
    of_a_herd_on_a_held_key_nobody_runs,
    hold_is_about_the_keys_that_it_names,
    held_keys_are_free_when_the_hold_is_over,
    lifted_hold_frees_only_what_no_other_hold_holds,
    erased_answer_is_gone_and_its_key_stays_used,
    lists_say_what_a_standing_hold_holds,
}
