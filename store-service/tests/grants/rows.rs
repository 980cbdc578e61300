//! Grants that are rows: written when they are issued, claimed by an update.

use crate::support::*;
use fencepost_protocol::grants::{GrantName, IssueRequest, RevokeRequest};
use fencepost_store::grant::details::NotCovered;
use fencepost_store::grant::service::{Grants, Refusal};
use fencepost_store::grant::store::{Admitted, Because, Issued, Revoked};
use serde_json::{Value, json};
use std::sync::Arc;

fn row_config() -> Value {
    let row = json!({"form": "row", "keys": null, "algorithms": [], "audience": []});
    config(&Signer::new(1), row, json!({"revocations_per_minute": 10_000}))
}

fn name(id: &str) -> GrantName {
    GrantName { issuer: ISSUER.into(), grant_id: id.into(), tenant: None }
}

fn issue(id: &str, seconds: i64) -> IssueRequest {
    IssueRequest {
        grant: name(id),
        subject: AGENT.into(),
        tenant: None,
        details: details(),
        expires_at: Some(now() + seconds),
    }
}

fn ask(id: &str) -> fencepost_protocol::grants::AdmitRequest {
    let mut ask = request("", fresh_operation());
    ask.token = None;
    ask.grant = Some(name(id));
    ask
}

async fn bed() -> (String, Arc<Grants>) {
    let url = database().await;
    let grants = grants_on(&url, &row_config()).await;
    (url, grants)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_a_row_is_admitted_once_by_two_instances() {
    let (url, grants) = bed().await;
    let other = grants_on(&url, &row_config()).await;
    let id = fresh_id();
    assert_eq!(grants.issue(issue(&id, 900), "i").await, Ok(Issued::Now));
    let tasks: Vec<_> = (0..64)
        .map(|turn| {
            let (grants, id) = (if turn % 2 == 0 { grants.clone() } else { other.clone() }, id.clone());
            tokio::spawn(async move { grants.admit(ask(&id)).await.unwrap() })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        match task.await.unwrap() {
            Admitted::Now(_) => admitted += 1,
            other => assert_eq!(other, Admitted::Refused(Because::Used)),
        }
    }
    assert_eq!(admitted, 1);
}

#[tokio::test]
async fn what_the_row_says_binds_the_request() {
    let (_, grants) = bed().await;
    let id = fresh_id();
    let issued = issue(&id, 900);
    assert_eq!(grants.issue(issued.clone(), "i").await, Ok(Issued::Now));
    assert_eq!(grants.issue(issued.clone(), "i").await, Ok(Issued::Before));
    let mut other = issued.clone();
    other.subject = "agent-8".into();
    assert_eq!(grants.issue(other, "i").await, Ok(Issued::Taken));
    let mut bad = ask(&id);
    bad.details.0.insert("amount".into(), "2500".into());
    assert_eq!(grants.admit(bad).await, Err(Refusal::NotCovered(NotCovered::Details)));
    let mut bad = ask(&id);
    bad.caller.id = "agent-8".into();
    assert_eq!(grants.admit(bad).await, Err(Refusal::NotCovered(NotCovered::Caller)));
    let good = ask(&id);
    assert!(matches!(grants.admit(good.clone()).await.unwrap(), Admitted::Now(_)));
    assert!(matches!(grants.admit(good).await.unwrap(), Admitted::Before(_)));
}

#[tokio::test]
async fn an_expiry_that_cannot_be_is_refused_at_issue() {
    let (_, grants) = bed().await;
    for seconds in [-1, 3_700, i64::MAX / 1_000_000 - now()] {
        let found = grants.issue(issue(&fresh_id(), seconds), "i").await;
        assert_eq!(found, Ok(Issued::BadExpiry), "{seconds}");
    }
    let mut none = issue(&fresh_id(), 900);
    none.expires_at = None;
    assert!(matches!(grants.issue(none, "i").await, Err(Refusal::Malformed(_))));
    let mut less = issue(&fresh_id(), 900);
    less.details.0.remove("amount");
    assert_eq!(grants.issue(less, "i").await, Err(Refusal::NotCovered(NotCovered::Details)));
}

/// The rule for archives: a row that is gone admits nothing.
#[tokio::test]
async fn a_row_that_is_missing_or_archived_is_not_admitted() {
    let (url, grants) = bed().await;
    assert_eq!(grants.admit(ask(&fresh_id())).await.unwrap(), Admitted::Refused(Because::NoRow));
    let id = fresh_id();
    assert_eq!(grants.issue(issue(&id, 900), "i").await, Ok(Issued::Now));
    assert!(matches!(grants.admit(ask(&id)).await.unwrap(), Admitted::Now(_)));
    let client = connect(&url).await;
    client.batch_execute("DELETE FROM fencepost.issued_grants").await.unwrap();
    assert_eq!(grants.admit(ask(&id)).await.unwrap(), Admitted::Refused(Because::NoRow));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_revocation_and_an_admission_of_a_row_exactly_one_wins() {
    let (_, grants) = bed().await;
    for round in 0..50 {
        let id = fresh_id();
        assert_eq!(grants.issue(issue(&id, 900), "i").await, Ok(Issued::Now));
        let revoke = RevokeRequest { token: None, grant: Some(name(&id)), reason: "withdrawn".into() };
        let (a, b, admit) = (grants.clone(), grants.clone(), ask(&id));
        let admit = tokio::spawn(async move { a.admit(admit).await.unwrap() });
        let revoke = tokio::spawn(async move { b.revoke(revoke, "r").await.unwrap() });
        match (admit.await.unwrap(), revoke.await.unwrap()) {
            (Admitted::Now(_), Revoked::Used) | (Admitted::Refused(Because::Revoked), Revoked::Now) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    let revoke = RevokeRequest { token: None, grant: Some(name(&fresh_id())), reason: "withdrawn".into() };
    assert_eq!(grants.revoke(revoke, "r").await, Err(Refusal::NoProof));
}

#[tokio::test]
async fn the_deadline_of_a_row_is_its_expiry_plus_its_leeway() {
    let (_, grants) = bed().await;
    let id = fresh_id();
    let issued = issue(&id, 1);
    let deadline = issued.expires_at.unwrap() + 2;
    assert_eq!(grants.issue(issued, "i").await, Ok(Issued::Now));
    until("the deadline passes", async || now() > deadline).await;
    assert_eq!(grants.admit(ask(&id)).await.unwrap(), Admitted::Refused(Because::Late));
}
