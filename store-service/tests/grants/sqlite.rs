//! The same promises on the SQLite file, where the deadline is read inside the write lock.

use crate::support::*;
use fencepost_protocol::grants::{
    GrantName, GrantToken, IssueRequest, MaySubmitRequest, OperationStatus, RecordRequest, RevokeRequest,
    TakeOverRequest,
};
use fencepost_store::entry::Micros;
use fencepost_store::grant::cleanup::run_once;
use fencepost_store::grant::service::{CleanupState, Grants, Refusal};
use fencepost_store::grant::sqlite::SqliteGrants;
use fencepost_store::grant::sqlite::statements::ALL;
use fencepost_store::grant::store::{Admitted, Because, Issued, OwnerOutcome, Revoked};
use fencepost_store::store::Clock;
use fencepost_store::store::sqlite::{SCHEMA_VERSION, Sqlite, migrate_to};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

struct Bed {
    grants: Arc<Grants>,
    signer: Signer,
    hand: Arc<AtomicI64>,
    store: Sqlite,
    folder: tempfile::TempDir,
}

impl Bed {
    async fn new(issuer: Value) -> Self {
        Self::on(tempfile::tempdir().unwrap(), issuer).await
    }

    async fn on(folder: tempfile::TempDir, issuer: Value) -> Self {
        let signer = Signer::new(1);
        let (clock, hand) = Clock::set(Micros(now() * 1_000_000));
        let store = Sqlite::open(&folder.path().join("store.sqlite"), clock, true).await.unwrap();
        let issuers = issuers(&config(&signer, issuer, json!({"revocations_per_minute": 1_000})));
        let grant_store = Arc::new(SqliteGrants::new(store.beside(), issuers.timings));
        let grants = Grants::new(issuers, grant_store);
        grants.store().pin(grants.issuers()).await.unwrap();
        Self { grants, signer, hand, store, folder }
    }

    fn pass_seconds(&self, seconds: i64) {
        self.hand.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }

    fn token(&self, seconds: i64) -> String {
        self.signer.sign(&claims(&fresh_id(), seconds))
    }
}

fn is_now(admitted: &Admitted) -> bool {
    matches!(admitted, Admitted::Now(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_is_admitted_once_among_128_and_still_after_a_restart() {
    let bed = Bed::new(json!({})).await;
    let token = bed.token(900);
    let tasks: Vec<_> = (0..128)
        .map(|_| {
            let (grants, ask) = (bed.grants.clone(), request(&token, fresh_operation()));
            tokio::spawn(async move { grants.admit(ask).await.unwrap() })
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
    let Bed { folder, grants, store, .. } = bed;
    drop((grants, store));
    let bed = Bed::on(folder, json!({})).await;
    let found = bed.grants.admit(request(&token, fresh_operation())).await.unwrap();
    assert_eq!(found, Admitted::Refused(Because::Used));
}

#[tokio::test]
async fn retries_and_conflicts_are_answered_as_on_postgres() {
    let bed = Bed::new(json!({})).await;
    let ask = request(&bed.token(900), fresh_operation());
    assert!(is_now(&bed.grants.admit(ask.clone()).await.unwrap()));
    assert!(matches!(bed.grants.admit(ask.clone()).await.unwrap(), Admitted::Before(_)));
    let mut more = ask.clone();
    more.details.0.insert("memo".into(), "x".into());
    assert_eq!(bed.grants.admit(more).await.unwrap(), Admitted::Refused(Because::Used));
    let mut reused = request(&bed.token(900), ask.operation_id.clone());
    assert_eq!(bed.grants.admit(reused.clone()).await.unwrap(), Admitted::Refused(Because::Conflict));
    reused.operation_id = fresh_operation();
    assert!(is_now(&bed.grants.admit(reused).await.unwrap()));
}

#[tokio::test]
async fn the_deadline_is_expiry_plus_leeway_inside_the_write_lock() {
    let bed = Bed::new(json!({"leeway": "2s"})).await;
    let (first, second) = (bed.token(100), bed.token(100));
    let expires = {
        // Both were signed within this second or the one before.
        let text = second.split('.').nth(1).unwrap();
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, text).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()["exp"].as_i64().unwrap()
    };
    bed.hand.store((expires + 1) * 1_000_000, Ordering::SeqCst);
    let ask = request(&first, fresh_operation());
    assert!(is_now(&bed.grants.admit(ask.clone()).await.unwrap()));
    bed.hand.store((expires + 2) * 1_000_000, Ordering::SeqCst);
    let late = bed.grants.admit(request(&second, fresh_operation())).await.unwrap();
    assert_eq!(late, Admitted::Refused(Because::Late));
    assert_eq!(bed.grants.admit(ask.clone()).await.unwrap(), Admitted::Refused(Because::Late));
    assert!(bed.grants.operation(ask.operation_id, &agent(), "").await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_revocation_and_an_admission_at_once_exactly_one_wins() {
    let bed = Bed::new(json!({})).await;
    for round in 0..50 {
        let token = bed.token(900);
        let ask = request(&token, fresh_operation());
        let revoke = RevokeRequest { token: Some(GrantToken::new(token)), grant: None, reason: "r".into() };
        let (a, b) = (bed.grants.clone(), bed.grants.clone());
        let admit = tokio::spawn(async move { a.admit(ask).await.unwrap() });
        let revoke = tokio::spawn(async move { b.revoke(revoke, "r").await.unwrap() });
        match (admit.await.unwrap(), revoke.await.unwrap()) {
            (Admitted::Now(_), Revoked::Used) | (Admitted::Refused(Because::Revoked), Revoked::Now) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_grant_that_is_a_row_is_used_or_revoked_once() {
    let bed = Bed::new(json!({"form": "row", "keys": null, "algorithms": [], "audience": []})).await;
    let name = |id: &str| GrantName { issuer: ISSUER.into(), grant_id: id.into(), tenant: None };
    let issue = |id: &str| IssueRequest {
        grant: name(id),
        subject: AGENT.into(),
        tenant: None,
        details: details(),
        expires_at: Some(now() + 900),
    };
    let ask = |id: &str| {
        let mut ask = request("", fresh_operation());
        ask.token = None;
        ask.grant = Some(name(id));
        ask
    };
    let revoke = |id: &str| RevokeRequest { token: None, grant: Some(name(id)), reason: "r".into() };
    assert_eq!(bed.grants.admit(ask("missing")).await.unwrap(), Admitted::Refused(Because::NoRow));
    for id in ["a", "b"] {
        assert_eq!(bed.grants.issue(issue(id), "i").await, Ok(Issued::Now));
    }
    assert!(is_now(&bed.grants.admit(ask("a")).await.unwrap()));
    assert_eq!(bed.grants.admit(ask("a")).await.unwrap(), Admitted::Refused(Because::Used));
    assert_eq!(bed.grants.revoke(revoke("a"), "r").await, Ok(Revoked::Used));
    assert_eq!(bed.grants.revoke(revoke("b"), "r").await, Ok(Revoked::Now));
    assert_eq!(bed.grants.revoke(revoke("b"), "r").await, Ok(Revoked::Before));
    assert_eq!(bed.grants.admit(ask("b")).await.unwrap(), Admitted::Refused(Because::Revoked));
    assert_eq!(bed.grants.revoke(revoke("c"), "r").await, Err(Refusal::NoProof));
}

#[tokio::test]
async fn one_owner_at_a_time_moves_an_operation() {
    let bed = Bed::new(json!({})).await;
    let ask = request(&bed.token(900), fresh_operation());
    assert!(is_now(&bed.grants.admit(ask.clone()).await.unwrap()));
    let id = ask.operation_id;
    let may = async |owner_version| {
        let ask = MaySubmitRequest { owner_version, expected_status: OperationStatus::Admitted };
        matches!(bed.grants.may_submit(id.clone(), ask).await.unwrap(), OwnerOutcome::Done(_))
    };
    let take = async |owner_version| {
        let ask = TakeOverRequest { owner_version };
        matches!(bed.grants.take_over(id.clone(), ask).await.unwrap(), OwnerOutcome::Done(_))
    };
    let record = async |owner_version, outcome| {
        let expected_status = OperationStatus::Admitted;
        let ask = RecordRequest { owner_version, expected_status, outcome, reference: None };
        matches!(bed.grants.record(id.clone(), ask).await.unwrap(), OwnerOutcome::Done(_))
    };
    assert!(may(1).await && !take(1).await);
    bed.pass_seconds(61);
    assert!(!may(1).await && take(1).await && !take(1).await);
    assert!(may(2).await && !record(1, OperationStatus::Unknown).await);
    bed.pass_seconds(23 * 3_600);
    assert!(!may(2).await);
    assert!(record(2, OperationStatus::Succeeded).await && !record(2, OperationStatus::Failed).await);
}

#[tokio::test]
async fn records_stay_for_their_deadline_and_the_margin() {
    let bed = Bed::new(json!({})).await;
    assert!(is_now(&bed.grants.admit(request(&bed.token(900), fresh_operation())).await.unwrap()));
    run_once(&bed.grants).await;
    assert_eq!(bed.grants.cleanup(), CleanupState::On);
    bed.pass_seconds(902 + 298);
    assert_eq!(bed.grants.store().cleanup(10).await, Ok(0));
    bed.pass_seconds(5);
    assert_eq!(bed.grants.store().cleanup(10).await, Ok(1));
}

/// The log names the issuer's plain leeway at most; the token may name another version, live longer
/// than was noted, and be of a version that only another instance's file has.
#[tokio::test]
async fn a_grant_revoked_by_its_id_stays_revoked_to_the_longest_that_its_token_may_live() {
    let versions = json!({"leeway": "2s", "leeways": {"2": "20m"}});
    for revoking in [json!({"leeway": "2s"}), versions.clone()] {
        for noted in [900, 60] {
            let bed = Bed::new(versions.clone()).await;
            let revoker = Grants::new(
                issuers(&config(&bed.signer, revoking.clone(), json!({}))),
                Arc::new(SqliteGrants::new(bed.store.beside(), bed.grants.issuers().timings)),
            );
            let id = fresh_id();
            let mut own = claims(&id, 900);
            merge(&mut own, json!({"lwv": "2"}));
            let name = GrantName { issuer: ISSUER.into(), grant_id: id, tenant: None };
            let issue = IssueRequest {
                grant: name.clone(),
                subject: AGENT.into(),
                tenant: None,
                details: details(),
                expires_at: Some(now() + noted),
            };
            assert_eq!(bed.grants.issue(issue, "i").await, Ok(Issued::Now));
            let revoke = RevokeRequest { token: None, grant: Some(name), reason: "r".into() };
            assert_eq!(revoker.revoke(revoke, "r").await, Ok(Revoked::Now));
            // Past every deadline that the log could name, and inside the token's own.
            bed.pass_seconds(900 + 2 + 305);
            assert_eq!(bed.grants.store().cleanup(10).await, Ok(0), "noted {noted}, {revoking}");
            let ask = request(&bed.signer.sign(&own), fresh_operation());
            let found = bed.grants.admit(ask).await.unwrap();
            assert_eq!(found, Admitted::Refused(Because::Revoked), "noted {noted}, {revoking}");
            // 1 h of life, 60 s of skew, 20 min of leeway, 5 min of margin: not for ever.
            bed.pass_seconds(3_600 + 60 + 1_200 + 305 - 1_207);
            assert_eq!(bed.grants.store().cleanup(10).await, Ok(1));
        }
    }
}

#[tokio::test]
async fn an_archived_row_is_never_admitted_or_issued_again() {
    let bed = Bed::new(json!({"form": "row", "keys": null, "algorithms": [], "audience": []})).await;
    let issue = |id: &str, expires_at: i64| IssueRequest {
        grant: GrantName { issuer: ISSUER.into(), grant_id: id.into(), tenant: None },
        subject: AGENT.into(),
        tenant: None,
        details: details(),
        expires_at: Some(expires_at),
    };
    let ask = |id: &str| {
        let mut ask = request("", fresh_operation());
        ask.token = None;
        ask.grant = Some(GrantName { issuer: ISSUER.into(), grant_id: id.into(), tenant: None });
        ask
    };
    for id in ["used", "unused"] {
        assert_eq!(bed.grants.issue(issue(id, now() + 900), "i").await, Ok(Issued::Now));
    }
    assert!(is_now(&bed.grants.admit(ask("used")).await.unwrap()));
    bed.pass_seconds(902 + 298);
    let margin = fencepost_store::grant::duration::Span::seconds(300);
    assert_eq!(bed.grants.store().archive(margin, 10).await, Ok(0));
    bed.pass_seconds(5);
    assert_eq!(bed.grants.store().archive(margin, 10).await, Ok(2));
    assert_eq!(bed.grants.store().archive(margin, 10).await, Ok(0));
    // Even for a clock that went back behind the deadline.
    bed.pass_seconds(-1_100);
    for id in ["used", "unused"] {
        assert_eq!(bed.grants.admit(ask(id)).await.unwrap(), Admitted::Refused(Because::NoRow));
        assert_eq!(bed.grants.issue(issue(id, now() + 950), "i").await, Ok(Issued::Taken));
    }
}

#[tokio::test]
async fn what_grants_were_issued_under_is_pinned() {
    let bed = Bed::new(json!({})).await;
    let changed = issuers(&config(&bed.signer, json!({"leeway": "3s"}), json!({})));
    let message = bed.grants.store().pin(&changed).await.unwrap_err().to_string();
    assert!(message.contains("found leeway = 3s"), "{message}");
}

#[test]
fn every_statement_prepares_against_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.sqlite");
    migrate_to(&path, SCHEMA_VERSION).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (name, text) in ALL {
        assert!(text.starts_with(&format!("-- {name}")), "{name}: no head");
        connection.prepare(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/grant/sqlite/sql");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), ALL.len());
}
