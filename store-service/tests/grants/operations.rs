//! Operations: one owner at a time moves them, nothing overwrites an end.

use crate::support::*;
use fencepost_protocol::grants::{
    LeaseKind, MaySubmitRequest, OperationId, OperationRefusal, OperationStatus, RecordRequest,
    RenewOperationRequest, TakeOverRequest,
};
use fencepost_store::grant::service::{Grants, Refusal};
use fencepost_store::grant::store::{Admitted, OwnerOutcome};
use serde_json::json;
use std::sync::Arc;

struct Bed {
    grants: Arc<Grants>,
    client: tokio_postgres::Client,
    signer: Signer,
}

impl Bed {
    async fn new() -> Self {
        let (url, signer) = (database().await, Signer::new(1));
        let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
        Self { grants, client: connect(&url).await, signer }
    }

    async fn admitted(&self) -> OperationId {
        let ask = request(&self.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
        assert!(matches!(self.grants.admit(ask.clone()).await.unwrap(), Admitted::Now(_)));
        ask.operation_id
    }

    /// Moves the operation's times back, as if so much time had passed for it.
    async fn lapse(&self, id: &OperationId, column: &str) {
        let sql = format!(
            "UPDATE fencepost.operations SET {column} = clock_timestamp() - interval '1 second'
             WHERE operation_id = '{id}'"
        );
        self.client.batch_execute(&sql).await.unwrap();
    }

    async fn may_submit(
        &self,
        id: &OperationId,
        owner_version: i32,
        expected: OperationStatus,
    ) -> OwnerOutcome {
        let ask = MaySubmitRequest { owner_version, expected_status: expected };
        self.grants.may_submit(id.clone(), ask).await.unwrap()
    }

    async fn record(
        &self,
        id: &OperationId,
        owner_version: i32,
        expected: OperationStatus,
        outcome: OperationStatus,
    ) -> OwnerOutcome {
        let ask = RecordRequest {
            owner_version,
            expected_status: expected,
            outcome,
            reference: Some("cr_1".into()),
        };
        self.grants.record(id.clone(), ask).await.unwrap()
    }

    async fn take_over(&self, id: &OperationId, owner_version: i32) -> OwnerOutcome {
        self.grants.take_over(id.clone(), TakeOverRequest { owner_version }).await.unwrap()
    }

    async fn status(&self, id: &OperationId) -> OperationStatus {
        self.grants.operation(id.clone(), &agent(), "").await.unwrap().unwrap().status
    }
}

use OperationStatus::{Admitted as Open, Failed, NeedsReconciliation, Succeeded, Unknown};

fn done(outcome: &OwnerOutcome) -> bool {
    matches!(outcome, OwnerOutcome::Done(_))
}

fn refused(reason: OperationRefusal) -> OwnerOutcome {
    OwnerOutcome::Refused(reason)
}

#[tokio::test]
async fn nothing_may_be_sent_after_submit_by_or_after_losing_ownership() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    assert!(done(&bed.may_submit(&id, 1, Open).await));
    assert_eq!(bed.may_submit(&id, 2, Open).await, refused(OperationRefusal::OtherOwner));
    assert_eq!(bed.may_submit(&id, 1, Unknown).await, refused(OperationRefusal::OtherStatus));
    bed.lapse(&id, "submit_by").await;
    assert_eq!(bed.may_submit(&id, 1, Open).await, refused(OperationRefusal::SubmitOver));
    let id = bed.admitted().await;
    bed.lapse(&id, "lease_until").await;
    assert_eq!(bed.may_submit(&id, 1, Open).await, refused(OperationRefusal::LeaseOver));
    assert!(done(&bed.take_over(&id, 1).await));
    assert_eq!(bed.may_submit(&id, 1, Open).await, refused(OperationRefusal::OtherOwner));
    // Recovery is bound by submit_by as well, and may still take over to look the effect up.
    bed.lapse(&id, "submit_by").await;
    assert_eq!(bed.may_submit(&id, 2, Open).await, refused(OperationRefusal::SubmitOver));
    bed.lapse(&id, "lease_until").await;
    assert!(done(&bed.take_over(&id, 2).await));
    let absent = bed.may_submit(&fresh_operation(), 1, Open).await;
    assert_eq!(absent, refused(OperationRefusal::Absent));
}

#[tokio::test]
async fn a_handler_that_pauses_past_its_lease_changes_nothing_when_it_resumes() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    assert_eq!(bed.take_over(&id, 1).await, refused(OperationRefusal::LeaseLive));
    bed.lapse(&id, "lease_until").await;
    match bed.take_over(&id, 1).await {
        OwnerOutcome::Done(owned) => assert_eq!(owned.owner_version, 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(bed.record(&id, 1, Open, Succeeded).await, refused(OperationRefusal::OtherOwner));
    assert!(done(&bed.record(&id, 2, Open, Succeeded).await));
    // A late Unknown of the first one can't overwrite what recovery recorded.
    assert_eq!(bed.record(&id, 1, Open, Unknown).await, refused(OperationRefusal::OtherOwner));
    assert_eq!(bed.status(&id).await, Succeeded);
}

#[tokio::test]
async fn nothing_overwrites_an_end() {
    let bed = Bed::new().await;
    for end in [Succeeded, Failed, NeedsReconciliation] {
        let id = bed.admitted().await;
        assert!(done(&bed.record(&id, 1, Open, end).await));
        for other in [Succeeded, Failed, Unknown, NeedsReconciliation] {
            if other != end {
                for expected in [Open, end, Unknown] {
                    let found = bed.record(&id, 1, expected, other).await;
                    assert!(!done(&found), "{end:?} -> {other:?}");
                }
            }
        }
        bed.lapse(&id, "lease_until").await;
        assert_eq!(bed.take_over(&id, 1).await, refused(OperationRefusal::OtherStatus));
        let renew = RenewOperationRequest { owner_version: 1, lease: LeaseKind::Execution };
        let found = bed.grants.renew(id.clone(), renew).await.unwrap();
        assert_eq!(found, refused(OperationRefusal::OtherStatus));
        assert_eq!(bed.may_submit(&id, 1, end).await, refused(OperationRefusal::OtherStatus));
        assert_eq!(bed.status(&id).await, end);
    }
}

#[tokio::test]
async fn a_recording_whose_reply_was_lost_may_be_repeated() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    assert!(done(&bed.record(&id, 1, Open, Succeeded).await));
    assert_eq!(bed.record(&id, 1, Open, Succeeded).await, OwnerOutcome::Before);
    let other = RecordRequest {
        owner_version: 1,
        expected_status: Open,
        outcome: Succeeded,
        reference: Some("cr_2".into()),
    };
    let found = bed.grants.record(id.clone(), other).await.unwrap();
    assert_eq!(found, refused(OperationRefusal::OtherStatus));
}

#[tokio::test]
async fn an_unknown_outcome_is_taken_over_and_settled_by_recovery() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    assert!(done(&bed.record(&id, 1, Open, Unknown).await));
    bed.lapse(&id, "lease_until").await;
    assert!(done(&bed.take_over(&id, 1).await));
    assert!(done(&bed.may_submit(&id, 2, Unknown).await));
    assert!(done(&bed.record(&id, 2, Unknown, NeedsReconciliation).await));
    assert_eq!(bed.status(&id).await, NeedsReconciliation);
}

#[tokio::test]
async fn a_renewed_owner_is_not_taken_over() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    bed.lapse(&id, "lease_until").await;
    let renew = RenewOperationRequest { owner_version: 1, lease: LeaseKind::Execution };
    assert!(done(&bed.grants.renew(id.clone(), renew.clone()).await.unwrap()));
    assert_eq!(bed.take_over(&id, 1).await, refused(OperationRefusal::LeaseLive));
    bed.lapse(&id, "lease_until").await;
    assert!(done(&bed.take_over(&id, 1).await));
    let found = bed.grants.renew(id, renew).await.unwrap();
    assert_eq!(found, refused(OperationRefusal::OtherOwner));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_ten_recoverers_one_takes_each_stalled_operation_over() {
    let bed = Arc::new(Bed::new().await);
    let mut ids = Vec::new();
    for _ in 0..30 {
        let id = bed.admitted().await;
        bed.lapse(&id, "lease_until").await;
        ids.push(id);
    }
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (bed, ids) = (bed.clone(), ids.clone());
            tokio::spawn(async move {
                let mut won = 0;
                for id in ids {
                    won += usize::from(done(&bed.take_over(&id, 1).await));
                }
                won
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += task.await.unwrap();
    }
    assert_eq!(won, ids.len());
    let versions = "SELECT count(*) FROM fencepost.operations WHERE owner_version = 2";
    assert_eq!(count(&bed.client, versions).await, 30);
}

#[tokio::test]
async fn an_operation_id_is_no_credential() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    let mut other = agent();
    other.id = "agent-8".into();
    assert!(bed.grants.operation(id.clone(), &other, "").await.unwrap().is_none());
    let mut elsewhere = agent();
    elsewhere.namespace = "https://other.example".into();
    assert!(bed.grants.operation(id.clone(), &elsewhere, "").await.unwrap().is_none());
    assert!(bed.grants.operation(id.clone(), &agent(), "t1").await.unwrap().is_none());
    assert!(bed.grants.operation(id, &agent(), "").await.unwrap().is_some());
}

#[tokio::test]
async fn an_outcome_must_be_one() {
    let bed = Bed::new().await;
    let id = bed.admitted().await;
    for (outcome, reference) in
        [(Open, None), (Succeeded, Some("x".repeat(256))), (Failed, Some("\0".into()))]
    {
        let ask = RecordRequest { owner_version: 1, expected_status: Open, outcome, reference };
        assert!(matches!(bed.grants.record(id.clone(), ask).await, Err(Refusal::Malformed(_))));
    }
}
