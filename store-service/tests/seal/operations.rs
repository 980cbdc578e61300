//! Answers of operations that grants admitted.

use crate::answers::has;
use crate::keys::seal;
use crate::support::{
    Signer, claims, config, connect, database, fresh_id, fresh_operation, grant_store, issuers, request,
};
use bytes::Bytes;
use fencepost_protocol::grants::{OperationId, OperationStatus};
use fencepost_store::grant::service::Grants;
use fencepost_store::grant::store::{Admitted, GrantStore, OperationAnswer, OwnerCall, OwnerOutcome};
use fencepost_store::recovery::postgres::PostgresRecovery;
use fencepost_store::recovery::store::{Applied, Ending, Note, Owner, RecoveryStore};
use fencepost_store::seal::{SealFault, SealStore, Table, count, renew};
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::sqlite::Sqlite;
use fencepost_store::store::{Clock, Store, StoreError, StoreKind};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SECRET: &[u8] = b"planted-operation-5d02";

struct Place {
    grants: Arc<dyn GrantStore>,
    recovery: Arc<dyn RecoveryStore>,
    seals: Arc<dyn SealStore>,
    signer: Signer,
    url: Option<String>,
    _folder: tempfile::TempDir,
}

impl Place {
    async fn new(kind: StoreKind) -> Self {
        let (folder, signer) = (tempfile::tempdir().unwrap(), Signer::new(1));
        let issuers = issuers(&config(&signer, json!({}), json!({})));
        let (store, url): (Arc<dyn Store>, _) = match kind {
            StoreKind::Postgres => {
                let url = database().await;
                let store = Postgres::open(&url, Clock::Real, true, Options::default()).await.unwrap();
                (Arc::new(store), Some(url))
            }
            StoreKind::Sqlite | StoreKind::Memory => {
                let path = folder.path().join("store.sqlite");
                (Arc::new(Sqlite::open(&path, Clock::Real, true).await.unwrap()), None)
            }
        };
        let (grants, recovery): (_, Arc<dyn RecoveryStore>) = match &url {
            Some(url) => {
                let timeout = Duration::from_secs(5);
                let recovery = PostgresRecovery::open(url, false, store.store_id(), timeout).unwrap();
                (grant_store(url, None, &issuers).await, Arc::new(recovery))
            }
            None => (store.grants(issuers.timings).unwrap(), store.recovery().unwrap()),
        };
        grants.pin(&issuers).await.unwrap();
        Self { grants, recovery, seals: store.seals().unwrap(), signer, url, _folder: folder }
    }

    async fn admitted(&self) -> OperationId {
        let issuers = issuers(&config(&self.signer, json!({}), json!({})));
        let grants = Grants::new(issuers, self.grants.clone());
        let ask = request(&self.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
        assert!(matches!(grants.admit(ask.clone()).await.unwrap(), Admitted::Now(_)));
        ask.operation_id
    }
}

fn answer() -> OperationAnswer {
    let headers = fencepost_protocol::answer::encode_headers(&[(b"x".to_vec(), SECRET.to_vec())]);
    OperationAnswer { status: 201, headers: headers.into(), body: Bytes::from_static(SECRET) }
}

fn finish(answer: OperationAnswer) -> OwnerCall {
    OwnerCall::Finish {
        expected: OperationStatus::Admitted,
        outcome: OperationStatus::Succeeded,
        reference: None,
        answer: Some(answer),
    }
}

/// By their owner and by recovery; one of another operation is refused; a renewal seals them anew.
pub async fn answers_of_operations_are_sealed_for_their_operation(kind: StoreKind) {
    let place = Place::new(kind).await;
    let with_key = seal(&[("k1", 1)]);
    let sealed = with_key.grants(place.grants.clone());
    let first = place.admitted().await;
    assert!(matches!(sealed.own(first.clone(), 1, finish(answer())).await, Ok(OwnerOutcome::Done(_))));
    let second = place.admitted().await;
    let ending = Ending {
        expected: OperationStatus::Admitted,
        outcome: OperationStatus::Succeeded,
        reference: None,
        answer: Some(answer()),
    };
    let note = Note { actor: "test".into(), result: String::new(), detail: String::new() };
    let owner = Owner { id: second.clone(), version: 1 };
    let recovery = with_key.recovery(place.recovery.clone());
    assert_eq!(recovery.record(owner, ending, note).await.unwrap(), Applied::Yes(()));
    let mut lying = Vec::new();
    for id in [&first, &second] {
        assert_eq!(sealed.answer(id.clone()).await.unwrap(), Some(answer()));
        let raw = place.grants.answer(id.clone()).await.unwrap().unwrap();
        assert!(!has(&(raw.headers.to_vec(), raw.body.to_vec()), SECRET));
        lying.push(raw);
    }
    // Moved to a third, past the boundary.
    let third = place.admitted().await;
    let moved = finish(lying.remove(0));
    assert!(matches!(place.grants.own(third.clone(), 1, moved).await, Ok(OwnerOutcome::Done(_))));
    let altered = Err(StoreError::Sealed(SealFault::Altered("k1".parse().unwrap())));
    assert_eq!(sealed.answer(third.clone()).await, altered);
    let none = fencepost_store::seal::Seal::new(None).grants(place.grants.clone());
    assert_eq!(none.answer(first.clone()).await, Err(StoreError::Sealed(SealFault::NoKeys)));
    // One that lies open, and a new key.
    let fourth = place.admitted().await;
    assert!(matches!(place.grants.own(fourth.clone(), 1, finish(answer())).await, Ok(OwnerOutcome::Done(_))));
    place.admitted().await;
    let both = seal(&[("k2", 2), ("k1", 1)]);
    let done = renew(&both, &*place.seals, Table::Operations, |_| ()).await.unwrap();
    assert_eq!((done.looked, done.sealed, done.failed), (5, 3, 1));
    let counts = count(&*place.seals, Table::Operations).await.unwrap();
    let (k1, k2) = ("k1".parse().unwrap(), "k2".parse().unwrap());
    assert_eq!((counts.open, counts.with(&k1), counts.with(&k2)), (0, 1, 3));
    let renewed = seal(&[("k2", 2)]).grants(place.grants.clone());
    for id in [first, second, fourth] {
        assert_eq!(renewed.answer(id).await.unwrap(), Some(answer()));
    }
    if let Some(url) = &place.url {
        let client = connect(url).await;
        let sql = "SELECT count(*) FROM fencepost.operations WHERE position($1::bytea IN answer_body) > 0";
        let open: i64 = client.query_one(sql, &[&SECRET]).await.unwrap().get(0);
        assert_eq!(open, 0);
    }
}
