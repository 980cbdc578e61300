//! Grants that are rows: written when they are issued, claimed by an update.

use crate::support::*;
use fencepost_protocol::grants::{GrantName, IssueRequest, RevokeRequest};
use fencepost_store::grant::details::NotCovered;
use fencepost_store::grant::duration::Span;
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

/// Moves a row's expiry back, as if so much time had passed since.
async fn expired_since(client: &tokio_postgres::Client, id: &str, seconds: i64) {
    let sql = format!(
        "UPDATE fencepost.issued_grants SET expires_at = clock_timestamp() - interval '1 second' * {seconds}
         WHERE grant_id = '{id}'"
    );
    client.batch_execute(&sql).await.unwrap();
}

const MARGIN: Span = Span::seconds(300);

#[tokio::test]
async fn an_archived_row_is_a_tombstone_that_is_never_admitted_or_issued_again() {
    let (url, grants) = bed().await;
    let client = connect(&url).await;
    let (used, unused, young) = (fresh_id(), fresh_id(), fresh_id());
    for id in [&used, &unused, &young] {
        assert_eq!(grants.issue(issue(id, 900), "i").await, Ok(Issued::Now));
    }
    let ask_used = ask(&used);
    let operation = ask_used.operation_id.clone();
    assert!(matches!(grants.admit(ask_used).await.unwrap(), Admitted::Now(_)));
    // Two seconds of leeway belong to the deadline.
    expired_since(&client, &used, 303).await;
    expired_since(&client, &unused, 303).await;
    expired_since(&client, &young, 301).await;
    assert_eq!(grants.store().archive(MARGIN, 1).await, Ok(1), "a batch has its limit");
    assert_eq!(grants.store().archive(MARGIN, 10).await, Ok(1));
    assert_eq!(grants.store().archive(MARGIN, 10).await, Ok(0), "not before deadline and margin");

    for id in [&used, &unused] {
        let row = client
            .query_one(
                "SELECT subject, tenant, bound, archived_at IS NOT NULL FROM fencepost.issued_grants
                 WHERE grant_id = $1",
                &[id],
            )
            .await
            .unwrap();
        let told: (String, String, String, bool) = (row.get(0), row.get(1), row.get(2), row.get(3));
        assert_eq!(told, (String::new(), String::new(), "{}".into(), true), "what it bound is forgotten");
        assert_eq!(grants.admit(ask(id)).await.unwrap(), Admitted::Refused(Because::NoRow));
        assert_eq!(grants.issue(issue(id, 900), "i").await, Ok(Issued::Taken), "its id is never free again");
    }
    assert!(grants.operation(operation, &agent(), "").await.unwrap().is_some());
    let archived = "SELECT sum(archived)::int8 * 10 + sum(used)::int8 FROM fencepost.grant_archivals";
    assert_eq!(count(&client, archived).await, 21, "both are in the audit, one of them as used");
    let erased = client.batch_execute("DELETE FROM fencepost.grant_archivals").await;
    assert!(erased.is_err(), "the audit only grows");
}

/// An admission that began before the deadline waits for the row while it is archived.
#[tokio::test]
async fn a_delayed_admission_finds_the_tombstone_and_admits_nothing() {
    let (url, grants) = bed().await;
    let (gate, eye) = (connect(&url).await, connect(&url).await);
    let id = fresh_id();
    assert_eq!(grants.issue(issue(&id, 900), "i").await, Ok(Issued::Now));
    gate.batch_execute(
        "BEGIN; UPDATE fencepost.issued_grants SET archived_at = clock_timestamp(), subject = '', bound = '{}'",
    )
    .await
    .unwrap();
    let (held, ask) = (grants.clone(), ask(&id));
    let operation = ask.operation_id.clone();
    let held = tokio::spawn(async move { held.admit(ask).await });
    let waiting = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
                   WHERE NOT l.granted AND a.datname = current_database() AND a.query LIKE '%grant_admit_row%'";
    until("the admission waits", async || count(&eye, waiting).await == 1).await;
    gate.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(held.await.unwrap(), Ok(Admitted::Refused(_))));
    assert!(grants.operation(operation, &agent(), "").await.unwrap().is_none());
}

/// In doubt the row stays: while an admission holds it, and while a transaction is open that began
/// before its deadline.
#[tokio::test]
async fn a_row_that_an_older_transaction_may_still_claim_is_not_archived() {
    let (url, grants) = bed().await;
    let (gate, eye) = (connect(&url).await, connect(&url).await);
    let id = fresh_id();
    assert_eq!(grants.issue(issue(&id, 900), "i").await, Ok(Issued::Now));
    gate.batch_execute("BEGIN; SELECT FROM fencepost.issued_grants FOR UPDATE").await.unwrap();
    assert_eq!(grants.store().archive(Span::default(), 10).await, Ok(0), "its deadline is ahead");
    gate.batch_execute("COMMIT").await.unwrap();
    gate.batch_execute("BEGIN; SELECT 1").await.unwrap();
    expired_since(&eye, &id, -1).await;
    let deadline = "SELECT count(*) FROM fencepost.issued_grants WHERE expires_at + interval '3 seconds' < clock_timestamp()";
    until("deadline and leeway pass", async || count(&eye, deadline).await == 1).await;
    assert_eq!(grants.store().archive(Span::default(), 10).await, Ok(0), "an older transaction is open");
    gate.batch_execute("COMMIT").await.unwrap();
    assert_eq!(grants.store().archive(Span::default(), 10).await, Ok(1));
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
