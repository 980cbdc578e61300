//! Answers of entries.

use crate::bed::*;
use crate::keys::seal;
use crate::served::{Served, claim_frame};
use fencepost_protocol::answer::encode_headers;
use fencepost_protocol::claims::{CompleteReply, ReleaseCause, UnknownReply};
use fencepost_protocol::paths;
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, Ruling, Settle, SettleReply, State};
use fencepost_store::http::Tokens;
use fencepost_store::seal::SealFault;
use fencepost_store::store::{Entry, Filter, Store, StoreError, StoreKind};
use std::sync::Arc;

const SECRET: &[u8] = b"planted-body-3f81";

fn secret_headers() -> Vec<u8> {
    encode_headers(&[(b"x-secret".to_vec(), b"planted-header-88ab".to_vec())])
}

fn completion(claim: &Claim, fence: i64) -> Complete {
    Complete { headers: secret_headers().into(), ..complete(claim, fence, SECRET) }
}

/// Through a store: the claim of a number, completed.
pub async fn completed(store: &Arc<dyn Store>, number: u64) {
    let claim = claim(number, 1);
    let ClaimOutcome::Claimed { fence, .. } = store.claim(Arc::new(claim.clone()), CALM).await.unwrap()
    else {
        panic!("not granted");
    };
    let reply = store.complete(completion(&claim, fence)).await.unwrap();
    assert_eq!(reply, CompleteReply::Stored);
}

/// What the next request with this key gets.
pub async fn retried(store: &Arc<dyn Store>, number: u64) -> Result<ClaimOutcome, StoreError> {
    store.claim(Arc::new(claim(number, 2)), CALM).await
}

pub fn is_the_answer(outcome: &ClaimOutcome) -> bool {
    matches!(outcome, ClaimOutcome::Completed(answer)
        if answer.status == 201 && answer.headers == secret_headers() && answer.body == SECRET)
}

fn columns(entry: &Entry) -> (Vec<u8>, Vec<u8>) {
    let State::Completed { headers, body, .. } = &entry.row.state else { panic!("no answer") };
    (headers.to_vec(), body.to_vec())
}

/// The columns of a row as they lie in the store.
pub async fn lying(store: &Arc<dyn Store>, number: u64) -> (Vec<u8>, Vec<u8>) {
    columns(&store.entry(&key(number), true).await.unwrap().unwrap())
}

pub fn has(columns: &(Vec<u8>, Vec<u8>), text: &[u8]) -> bool {
    let in_one = |column: &[u8]| column.windows(text.len()).any(|window| window == text);
    in_one(&columns.0) || in_one(&columns.1)
}

/// Answers of requests and of persons; lengths are those of the answer; open ones go on.
pub async fn sealed_answers_are_replayed_and_lie_encrypted(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    completed(&bed.store, 1).await;
    let sealed = seal(&[("k1", 1)]).store(bed.store.clone());
    completed(&sealed, 2).await;
    let unknown_claim = claim(3, 1);
    bed.granted(&unknown_claim).await;
    assert_eq!(sealed.unknown(unknown(&unknown_claim)).await.unwrap(), UnknownReply::Marked);
    bed.pass_ms(1_000);
    let seen = sealed.entry(&key(3), false).await.unwrap().unwrap();
    let by_hand = Ruling::Answer {
        status: 201,
        headers: secret_headers().into(),
        body: SECRET.to_vec().into(),
        ttl_ms: 60_000,
    };
    let order = Settle { version: seen.row.version(), ..order(&unknown_claim, by_hand) };
    assert_eq!(sealed.settle(order).await.unwrap(), SettleReply::Settled);
    let other = seal(&[("k1", 1)]).store(bed.other.clone());
    for number in 1..=3 {
        assert!(is_the_answer(&retried(&other, number).await.unwrap()), "{number}");
        let shown = sealed.entry(&key(number), true).await.unwrap().unwrap();
        assert_eq!(columns(&shown), (secret_headers(), SECRET.to_vec()), "{number}");
        let lying = lying(&bed.store, number).await;
        for text in [SECRET, b"planted-header-88ab"] {
            assert_eq!(has(&lying, text), number == 1, "{number}");
        }
        let lengths = (secret_headers().len() as u64, SECRET.len() as u64);
        assert_eq!((shown.headers_len, shown.body_len), lengths);
        let short = sealed.entry(&key(number), false).await.unwrap().unwrap();
        assert_eq!((short.headers_len, short.body_len), lengths);
        let listed = sealed.entries(Filter { limit: 9, ..Filter::default() }).await.unwrap();
        assert!(listed.iter().all(|entry| (entry.headers_len, entry.body_len) == lengths));
        assert_eq!(listed.len(), 3);
    }
    // An order about a version that is not there any more seals and does nothing.
    let ruling = Ruling::Free(ReleaseCause::NotRun);
    let late = Settle { version: seen.row.version(), ..crate::bed::order(&unknown_claim, ruling) };
    assert_eq!(sealed.settle(late).await.unwrap(), SettleReply::Changed);
}

/// What was sealed for one row opens in no other, and no changed byte opens at all; the key stays used.
pub async fn answer_in_another_row_or_altered_is_refused_and_runs_nothing(kind: StoreKind) {
    let bed = Bed::set(kind).await;
    let sealed = seal(&[("k1", 1)]).store(bed.store.clone());
    completed(&sealed, 1).await;
    let (headers, body) = lying(&bed.store, 1).await;
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let forged = [
        (headers.clone(), body.clone()),
        (flipped(&headers, 40), body.clone()),
        (flipped(&headers, 20), body.clone()),
        (headers.clone(), flipped(&body, 0)),
        (headers.clone(), body[1..].to_vec()),
        (headers[..headers.len() - 1].to_vec(), body.clone()),
        (headers[..30].to_vec(), body.clone()),
        (headers.clone(), Vec::new()),
    ];
    for (number, (headers, body)) in (2..).zip(forged) {
        let claim = claim(number, 1);
        let fence = bed.granted(&claim).await;
        // As somebody who writes to the database would: past the boundary.
        let row = Complete { headers: headers.into(), body: body.into(), ..complete(&claim, fence, b"") };
        assert_eq!(bed.store.complete(row).await.unwrap(), CompleteReply::Stored);
        for _ in 0..2 {
            let refused = retried(&sealed, number).await;
            assert!(matches!(&refused, Err(StoreError::Sealed(_))), "{number}: {refused:?}");
        }
        assert!(matches!(sealed.entry(&key(number), true).await, Err(StoreError::Sealed(_))));
        assert!(sealed.entry(&key(number), false).await.unwrap().is_some(), "without its answer it is seen");
    }
    let moved = Err(StoreError::Sealed(SealFault::Altered("k1".parse().unwrap())));
    assert_eq!(retried(&sealed, 2).await, moved);
    assert!(is_the_answer(&retried(&sealed, 1).await.unwrap()));
    // Told apart from another request as ever.
    let other = Claim { fingerprint: fingerprint(2), ..claim(2, 3) };
    assert_eq!(sealed.claim(Arc::new(other), CALM).await, Ok(ClaimOutcome::Mismatch));
}

/// No keys, another key of this id, and keys without this id: 503 with a code of its own.
pub async fn without_the_right_key_retries_get_503_and_run_nothing(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    completed(&seal(&[("k1", 1)]).store(bed.store.clone()), 1).await;
    let id = || "k1".parse().unwrap();
    for (wrong, fault) in [
        (fencepost_store::seal::Seal::new(None), SealFault::NoKeys),
        (seal(&[("k1", 2)]), SealFault::Altered(id())),
        (seal(&[("k2", 1)]), SealFault::UnknownKey(id())),
    ] {
        let store = wrong.store(bed.store.clone());
        assert_eq!(retried(&store, 1).await, Err(StoreError::Sealed(fault.clone())));
        let served = Served::start(store, Tokens::open()).await;
        let reply = served.post(paths::CLAIMS, claim_frame(&claim(1, 2), 0)).await;
        assert_eq!(reply.code(), (503, "answer_sealed".into()), "{fault}");
        assert!(served.service.calm().outage().is_none(), "the store is there: {fault}");
        let free = served.post(paths::CLAIMS, claim_frame(&claim(100, 1), 0)).await;
        assert_eq!(free.status, 200, "other keys go on");
        served.stop().await;
        let again = claim(100, 1);
        bed.store.release(release(&again)).await.unwrap();
    }
    let right = seal(&[("k2", 2), ("k1", 1)]).store(bed.store.clone());
    assert!(is_the_answer(&retried(&right, 1).await.unwrap()));
}
