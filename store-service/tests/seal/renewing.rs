//! The change of keys.

use crate::answers::{completed, has, is_the_answer, lying, retried};
use crate::bed::*;
use crate::keys::seal;
use fencepost_protocol::claims::ReleaseCause;
use fencepost_store::desk::{EraseOrder, Whose, erase_marker};
use fencepost_store::entry::{Ruling, Settle, SettleReply};
use fencepost_store::seal::{Table, count, renew};
use fencepost_store::store::StoreKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than a page of rows: open ones, and some of an old key.
const ROWS: u64 = 620;

/// Every retry gets the answer, before, during and after; versions stay; then the old key may go.
pub async fn renewal_seals_open_and_old_answers_while_they_are_replayed(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let old = seal(&[("k1", 1)]).store(bed.store.clone());
    for number in 0..ROWS {
        completed(if number % 2 == 0 { &old } else { &bed.store }, number).await;
    }
    bed.granted(&claim(ROWS, 1)).await;
    let keeper = bed.store.seals().unwrap();
    let (k1, k2) = ("k1".parse().unwrap(), "k2".parse().unwrap());
    let before = count(&*keeper, Table::Entries).await.unwrap();
    assert_eq!((before.open, before.with(&k1), before.with(&k2)), (ROWS / 2, ROWS / 2, 0));
    let seen = bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version();
    let both = seal(&[("k2", 2), ("k1", 1)]);
    let serving = both.store(bed.other.clone());
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let (serving, over) = (serving.clone(), over.clone());
            tokio::spawn(async move {
                let mut read = 0;
                while !over.load(Ordering::SeqCst) || read < ROWS {
                    let outcome = retried(&serving, (read * 7 + reader) % ROWS).await.unwrap();
                    assert!(is_the_answer(&outcome), "{outcome:?}");
                    read += 1;
                }
            })
        })
        .collect();
    let mut told = Vec::new();
    let done = renew(&both, &*keeper, Table::Entries, |progress| told.push(progress.clone())).await.unwrap();
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!((done.looked, done.sealed, done.passed, done.failed), (ROWS + 1, ROWS, 0, 0));
    assert!(told.len() > 1 && told.windows(2).all(|two| two[0].after < two[1].after), "{told:?}");
    let after = count(&*keeper, Table::Entries).await.unwrap();
    assert_eq!((after.open, after.with(&k1), after.with(&k2)), (0, 0, ROWS));
    let again = renew(&both, &*keeper, Table::Entries, |_| ()).await.unwrap();
    assert_eq!((again.looked, again.sealed), (ROWS + 1, 0), "what is done is passed over");
    let new_only = seal(&[("k2", 2)]).store(bed.store.clone());
    assert!(is_the_answer(&retried(&new_only, 1).await.unwrap()));
    assert_eq!(bed.store.entry(&key(1), false).await.unwrap().unwrap().row.version(), seen);
}

/// Erased, stored anew in between, or sealed with a key that is not there.
pub async fn renewal_leaves_what_was_erased_changed_or_can_t_be_opened(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let keeper = bed.store.seals().unwrap();
    for number in 1..=2 {
        completed(&bed.store, number).await;
    }
    let order = EraseOrder {
        whose: Whose::Scope(claim(1, 1).scope),
        prefixes: None,
        after: None,
        who: "ann".into(),
        reason: "asked to".into(),
    };
    let desk = bed.store.desk().unwrap();
    assert_eq!(desk.erase(order.clone()).await.unwrap().answers, 2);
    completed(&seal(&[("lost", 9)]).store(bed.store.clone()), 3).await;
    completed(&bed.store, 4).await;
    let k1 = seal(&[("k1", 1)]);
    // Read, then freed and answered anew before it is written.
    let read = keeper.row(Table::Entries, key(4).as_str()).await.unwrap().unwrap();
    let ruling = Ruling::Free(ReleaseCause::Other);
    assert_eq!(
        bed.settle(Settle { force: true, ..crate::bed::order(&claim(4, 1), ruling) }).await,
        SettleReply::Settled
    );
    let anew = claim(4, 7);
    let fence = bed.granted(&anew).await;
    bed.store.complete(complete(&anew, fence, b"anew")).await.unwrap();
    let stale = keeper.replace(&read, b"stale".to_vec().into(), b"stale".to_vec().into()).await.unwrap();
    assert!(!stale, "the answer there is another one");
    let done = renew(&k1, &*keeper, Table::Entries, |_| ()).await.unwrap();
    assert_eq!((done.looked, done.sealed, done.failed), (4, 1, 1));
    assert_eq!(lying(&bed.store, 1).await, erase_marker(), "what says that it was erased is no answer");
    assert_eq!(
        desk.erase(order).await.unwrap().answers,
        2,
        "the others; the erased ones are not erased again"
    );
    assert!(!has(&lying(&bed.store, 4).await, b"anew"));
}
