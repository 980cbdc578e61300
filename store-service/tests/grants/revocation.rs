//! Withdrawing a grant: contends with its use for one key or row, and needs proof of its issue.

use crate::support::*;
use fencepost_protocol::grants::{GrantName, GrantToken, IssueRequest, RevokeRequest};
use fencepost_store::grant::service::Refusal;
use fencepost_store::grant::store::{Admitted, Because, Issued, Revoked};
use serde_json::json;

fn by_token(token: &str) -> RevokeRequest {
    RevokeRequest { token: Some(GrantToken::new(token)), grant: None, reason: "withdrawn".into() }
}

fn by_name(id: &str) -> RevokeRequest {
    let grant = GrantName { issuer: ISSUER.into(), grant_id: id.into(), tenant: None };
    RevokeRequest { token: None, grant: Some(grant), reason: "withdrawn".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_revocation_and_an_admission_at_once_exactly_one_wins() {
    let (url, signer) = (database().await, Signer::new(1));
    let rest = json!({"revocations_per_minute": 10_000});
    let grants = grants_on(&url, &config(&signer, json!({}), rest)).await;
    let mut revoked = 0;
    for round in 0..200 {
        let token = signer.sign(&claims(&fresh_id(), 900));
        let ask = request(&token, fresh_operation());
        let (a, b) = (grants.clone(), grants.clone());
        let admit = tokio::spawn(async move { a.admit(ask).await.unwrap() });
        let ask = by_token(&token);
        let revoke = tokio::spawn(async move { b.revoke(ask, "r").await.unwrap() });
        match (admit.await.unwrap(), revoke.await.unwrap()) {
            (Admitted::Now(_), Revoked::Used) => {}
            (Admitted::Refused(Because::Revoked), Revoked::Now) => revoked += 1,
            other => panic!("round {round}: {other:?}"),
        }
    }
    println!("{revoked} of 200 rounds were won by the revocation");
    let client = connect(&url).await;
    let operations = count(&client, "SELECT count(*) FROM fencepost.operations").await;
    assert_eq!(operations, 200 - revoked);
    let audit = "SELECT count(*) FROM fencepost.grant_audit WHERE action = 'revoke' AND reason = 'withdrawn'";
    assert_eq!(count(&client, audit).await, 200);
    let nothing = "SELECT count(*) FROM fencepost.grant_audit WHERE outcome = 'nothing_changed'";
    assert_eq!(count(&client, nothing).await, 200 - revoked);
}

#[tokio::test]
async fn a_revocation_after_admission_changes_nothing_and_the_retry_gets_its_status() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let token = signer.sign(&claims(&fresh_id(), 900));
    let ask = request(&token, fresh_operation());
    assert!(matches!(grants.admit(ask.clone()).await.unwrap(), Admitted::Now(_)));
    assert_eq!(grants.revoke(by_token(&token), "r").await, Ok(Revoked::Used));
    assert!(matches!(grants.admit(ask).await.unwrap(), Admitted::Before(_)));
}

#[tokio::test]
async fn a_revoked_grant_is_never_admitted_again() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let token = signer.sign(&claims(&fresh_id(), 900));
    assert_eq!(grants.revoke(by_token(&token), "r").await, Ok(Revoked::Now));
    assert_eq!(grants.revoke(by_token(&token), "r").await, Ok(Revoked::Before));
    let found = grants.admit(request(&token, fresh_operation())).await.unwrap();
    assert_eq!(found, Admitted::Refused(Because::Revoked));
}

#[tokio::test]
async fn a_revocation_without_proof_of_issue_is_refused_and_blocks_nothing() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let id = fresh_id();
    assert_eq!(grants.revoke(by_name(&id), "r").await, Err(Refusal::NoProof));
    let forged = Signer::new(2).sign(&claims(&id, 900));
    assert!(matches!(grants.revoke(by_token(&forged), "r").await, Err(Refusal::NotValid(_))));
    let mut both = by_name(&id);
    both.token = Some(GrantToken::new(signer.sign(&claims(&id, 900))));
    assert!(matches!(grants.revoke(both, "r").await, Err(Refusal::Malformed(_))));
    let mut silent = by_token(&signer.sign(&claims(&id, 900)));
    silent.reason.clear();
    assert!(matches!(grants.revoke(silent, "r").await, Err(Refusal::Malformed(_))));
    let found = grants.admit(request(&signer.sign(&claims(&id, 900)), fresh_operation())).await.unwrap();
    assert!(matches!(found, Admitted::Now(_)));
}

/// An issuer that logs which ids it issued, and not until when.
#[tokio::test]
async fn without_a_trusted_expiry_a_revocation_is_kept_for_the_longest_life_of_a_grant() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let id = fresh_id();
    let issue = IssueRequest {
        grant: GrantName { issuer: ISSUER.into(), grant_id: id.clone(), tenant: None },
        subject: String::new(),
        tenant: None,
        details: [("", ""); 0].into(),
        expires_at: None,
    };
    assert_eq!(grants.issue(issue, "i").await, Ok(Issued::Now));
    assert_eq!(grants.revoke(by_name(&id), "r").await, Ok(Revoked::Now));
    let found = grants.admit(request(&signer.sign(&claims(&id, 900)), fresh_operation())).await.unwrap();
    assert_eq!(found, Admitted::Refused(Because::Revoked));
    let client = connect(&url).await;
    // One hour, one minute of skew, two seconds of leeway.
    let kept =
        "SELECT extract(epoch FROM retain_until - consumed_at)::int8 FROM fencepost.grant_consumptions";
    assert_eq!(count(&client, kept).await, 3_600 + 60 + 2);
    // With the token, its own expiry counts.
    let token = signer.sign(&claims(&fresh_id(), 900));
    assert_eq!(grants.revoke(by_token(&token), "r").await, Ok(Revoked::Now));
    let shorter = "SELECT count(*) FROM fencepost.grant_consumptions
                   WHERE retain_until - consumed_at BETWEEN interval '890 seconds' AND interval '903 seconds'";
    assert_eq!(count(&client, shorter).await, 1);
}

#[tokio::test]
async fn revocations_are_rate_limited_for_each_revoker() {
    let (url, signer) = (database().await, Signer::new(1));
    let rest = json!({"revocations_per_minute": 3});
    let grants = grants_on(&url, &config(&signer, json!({}), rest)).await;
    let token = signer.sign(&claims(&fresh_id(), 900));
    for _ in 0..3 {
        assert!(grants.revoke(by_token(&token), "a").await.is_ok());
    }
    assert_eq!(grants.revoke(by_token(&token), "a").await, Err(Refusal::TooOften));
    assert!(grants.revoke(by_token(&token), "b").await.is_ok());
}
