//! One use of a grant, whoever presents it, and what the others are told.

use crate::support::*;
use fencepost_protocol::grants::{Caller, OperationId, OperationStatus};
use fencepost_store::grant::details::NotCovered;
use fencepost_store::grant::issuers::Issuers;
use fencepost_store::grant::service::{Grants, Refusal};
use fencepost_store::grant::store::{Admitted, Because, PinError};
use fencepost_store::store::StoreError;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Barrier;

fn is_now(admitted: &Admitted) -> bool {
    matches!(admitted, Admitted::Now(_))
}

async fn bed() -> (String, Signer, Arc<Grants>) {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    (url, signer, grants)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separate_store_instances_cannot_both_admit_the_same_grant() {
    let (url, signer) = (database().await, Signer::new(1));
    let config = config(&signer, json!({}), json!({}));
    let instances = [grants_on(&url, &config).await, grants_on(&url, &config).await];
    let token = Arc::new(signer.sign(&claims(&fresh_id(), 900)));
    let barrier = Arc::new(Barrier::new(128));
    let tasks: Vec<_> = (0..128)
        .map(|turn: usize| {
            let (instance, token, barrier) = (instances[turn % 2].clone(), token.clone(), barrier.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                instance.admit(request(&token, fresh_operation())).await.unwrap()
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        match task.await.unwrap() {
            Admitted::Now(owned) => {
                admitted += 1;
                assert_eq!(owned.owner_version, 1);
                assert!((50_000..=60_000).contains(&owned.lease_left_ms), "{owned:?}");
            }
            other => assert_eq!(other, Admitted::Refused(Because::Used)),
        }
    }
    assert_eq!(admitted, 1);
    let client = connect(&url).await;
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.operations").await, 1);
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 1);
}

#[tokio::test]
async fn a_recreated_store_client_still_refuses_an_admitted_grant() {
    let (url, signer) = (database().await, Signer::new(1));
    let config = config(&signer, json!({}), json!({}));
    let token = signer.sign(&claims(&fresh_id(), 900));
    let before = grants_on(&url, &config).await;
    assert!(is_now(&before.admit(request(&token, fresh_operation())).await.unwrap()));
    drop(before);
    let after = grants_on(&url, &config).await;
    let found = after.admit(request(&token, fresh_operation())).await.unwrap();
    assert_eq!(found, Admitted::Refused(Because::Used));
}

#[tokio::test]
async fn a_retry_of_the_same_operation_gets_its_status_and_executes_nothing() {
    let (_, signer, grants) = bed().await;
    let token = signer.sign(&claims(&fresh_id(), 900));
    let ask = request(&token, fresh_operation());
    assert!(is_now(&grants.admit(ask.clone()).await.unwrap()));
    for amount in ["250.00", "250", "2.5e2"] {
        let mut again = ask.clone();
        again.details.0.insert("amount".into(), amount.into());
        match grants.admit(again).await.unwrap() {
            Admitted::Before(row) => assert_eq!(row.status, OperationStatus::Admitted),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn two_tabs_with_one_operation_at_once_are_one_admission_and_one_status() {
    let (_, signer, grants) = bed().await;
    for _ in 0..20 {
        let ask = request(&signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
        let (a, b) = tokio::join!(grants.admit(ask.clone()), grants.admit(ask));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!([&a, &b].into_iter().filter(|found| is_now(found)).count(), 1, "{a:?} {b:?}");
        let other = if is_now(&a) { b } else { a };
        assert!(matches!(other, Admitted::Before(_)), "{other:?}");
    }
}

#[tokio::test]
async fn an_operation_id_reused_by_another_caller_or_with_other_details_is_refused_and_reveals_nothing() {
    let (url, signer, grants) = bed().await;
    let taken = request(&signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    assert!(is_now(&grants.admit(taken.clone()).await.unwrap()));

    // Another caller, with a good grant of its own, and the same operation id.
    let mut theirs = claims(&fresh_id(), 900);
    merge(&mut theirs, json!({"sub": "agent-8"}));
    let mut stolen = request(&signer.sign(&theirs), taken.operation_id.clone());
    stolen.caller.id = "agent-8".into();
    assert_eq!(grants.admit(stolen.clone()).await.unwrap(), Admitted::Refused(Because::Conflict));
    // Their grant is unspent: the whole statement was undone.
    stolen.operation_id = fresh_operation();
    assert!(is_now(&grants.admit(stolen).await.unwrap()));

    // The same caller with another grant.
    let id = fresh_id();
    let mut other_grant = request(&signer.sign(&claims(&id, 900)), taken.operation_id.clone());
    assert_eq!(grants.admit(other_grant.clone()).await.unwrap(), Admitted::Refused(Because::Conflict));
    other_grant.operation_id = fresh_operation();
    assert!(is_now(&grants.admit(other_grant).await.unwrap()));

    // The same grant and operation with one detail more.
    let mut more = taken.clone();
    more.details.0.insert("memo".into(), "x".into());
    assert_eq!(grants.admit(more).await.unwrap(), Admitted::Refused(Because::Used));
    let client = connect(&url).await;
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.operations").await, 3);
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 3);
}

#[tokio::test]
async fn a_request_that_names_more_than_its_grant_is_refused_and_spends_nothing() {
    let (url, signer, grants) = bed().await;
    let token = signer.sign(&claims(&fresh_id(), 900));
    let good = request(&token, fresh_operation());
    let with = |name: &str, value: Option<&str>| {
        let mut bad = good.clone();
        match value {
            Some(value) => bad.details.0.insert(name.into(), value.into()),
            None => bad.details.0.remove(name),
        };
        bad
    };
    for bad in [
        with("amount", Some("2500")),
        with("amount", Some("250.001")),
        with("amount", None),
        with("account", Some("a-1187")),
        with("account", None),
        with("currency", Some("EUR")),
    ] {
        let found = grants.admit(bad).await;
        assert_eq!(found, Err(Refusal::NotCovered(NotCovered::Details)));
    }
    for caller in [
        Caller { id: "agent-8".into(), ..agent() },
        Caller { namespace: "https://other.example".into(), ..agent() },
        Caller { id: AGENT.to_uppercase(), ..agent() },
    ] {
        let mut bad = good.clone();
        bad.caller = caller;
        assert_eq!(grants.admit(bad).await, Err(Refusal::NotCovered(NotCovered::Caller)));
    }
    let mut bad = good.clone();
    bad.tenant = Some("t".into());
    assert_eq!(grants.admit(bad).await, Err(Refusal::NotCovered(NotCovered::Tenant)));
    let client = connect(&url).await;
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 0);
    assert!(is_now(&grants.admit(good).await.unwrap()));
}

#[tokio::test]
async fn identities_of_grants_are_exact() {
    let (url, signer) = (database().await, Signer::new(1));
    let mut settings = config(&signer, json!({}), json!({}));
    let names = ["a", "ab", "https://approvals.example", "https://approvals.example/"];
    let entry = settings["issuers"][0].clone();
    let entries = names.map(|name| {
        let mut entry = entry.clone();
        merge(&mut entry, json!({"issuer": name}));
        entry
    });
    settings["issuers"] = json!(entries);
    let grants = grants_on(&url, &settings).await;
    let id = fresh_id();
    for (issuer, id) in [
        (names[0], "bc".to_owned()),
        (names[1], "c".to_owned()),
        (names[2], id.clone()),
        (names[3], id.clone()),
        (names[2], id.to_uppercase()),
        (names[2], format!("{id} ")),
        (names[2], "1".to_owned()),
        (names[2], "01".to_owned()),
    ] {
        let mut own = claims(&id, 900);
        merge(&mut own, json!({"iss": issuer}));
        let token = signer.sign(&own);
        assert!(is_now(&grants.admit(request(&token, fresh_operation())).await.unwrap()), "{issuer} {id}");
        let again = grants.admit(request(&token, fresh_operation())).await.unwrap();
        assert_eq!(again, Admitted::Refused(Because::Used), "{issuer} {id}");
    }
}

#[tokio::test]
async fn a_tenant_widens_a_grant_only_where_ids_are_unique_in_a_tenant() {
    for (key_by_tenant, second_is_another) in [(false, false), (true, true)] {
        let (url, signer) = (database().await, Signer::new(1));
        let entry = json!({"claims": {"tenant": "org"}, "key_by_tenant": key_by_tenant});
        let grants = grants_on(&url, &config(&signer, entry, json!({}))).await;
        let id = fresh_id();
        let ask = |tenant: &str| {
            let mut own = claims(&id, 900);
            merge(&mut own, json!({"org": tenant}));
            let mut ask = request(&signer.sign(&own), fresh_operation());
            ask.tenant = Some(tenant.into());
            ask
        };
        assert!(is_now(&grants.admit(ask("t1")).await.unwrap()));
        assert_eq!(is_now(&grants.admit(ask("t2")).await.unwrap()), second_is_another);
        let mut foreign = ask("t3");
        foreign.tenant = Some("t4".into());
        assert_eq!(grants.admit(foreign).await, Err(Refusal::NotCovered(NotCovered::Tenant)));
        let mut none = ask("t3");
        none.tenant = None;
        assert_eq!(grants.admit(none).await, Err(Refusal::NotCovered(NotCovered::Tenant)));
    }
}

#[tokio::test]
async fn an_operation_id_without_the_right_mac_is_refused_where_one_is_needed() {
    use fencepost_store::grant::details::operation_mac;
    use fencepost_store::grant::token::GrantKey;
    use hmac::Mac as _;
    let (url, signer) = (database().await, Signer::new(1));
    let folder = tempfile::tempdir().unwrap();
    let key = [3; 32];
    std::fs::write(folder.path().join("mac.key"), hex::encode(key)).unwrap();
    let settings = config(&signer, json!({"operation_mac_key_file": "mac.key"}), json!({}));
    let issuers = Issuers::parse(&settings.to_string(), folder.path()).unwrap();
    let store = grant_store(&url, None, &issuers).await;
    let grants = Grants::new(issuers, store);
    let id = fresh_id();
    let mut ask = request(&signer.sign(&claims(&id, 900)), fresh_operation());
    let name = |id: &str| GrantKey { issuer: ISSUER.into(), key_tenant: String::new(), grant_id: id.into() };
    let mac = |key: &[u8], grant: &str, operation: &OperationId| {
        hex::encode(operation_mac(key, &name(grant), operation).unwrap().finalize().into_bytes())
    };
    for bad in [
        None,
        Some(String::new()),
        Some("00".repeat(32)),
        Some(mac(&[4; 32], &id, &ask.operation_id)),
        Some(mac(&key, "other", &ask.operation_id)),
        Some(mac(&key, &id, &fresh_operation())),
    ] {
        ask.operation_mac = bad;
        let found = grants.admit(ask.clone()).await;
        assert_eq!(found, Err(Refusal::NotCovered(NotCovered::OperationMac)));
    }
    ask.operation_mac = Some(mac(&key, &id, &ask.operation_id));
    assert!(is_now(&grants.admit(ask).await.unwrap()));
}

/// By the real clock of the database: good up to expiry plus leeway, and not a moment longer.
#[tokio::test]
async fn the_deadline_is_expiry_plus_leeway_on_the_database_clock() {
    let (url, signer) = (database().await, Signer::new(1));
    let settings = config(&signer, json!({"leeway": "2s", "leeways": {"none": "0s"}}), json!({}));
    let grants = grants_on(&url, &settings).await;
    let client = connect(&url).await;
    let ahead = async |deadline: i64| {
        let sql = format!("SELECT ({deadline}000 - extract(epoch FROM clock_timestamp()) * 1000)::int8");
        count(&client, &sql).await
    };
    let expires = now() + 1;
    let token = |version: Option<&str>| {
        let mut own = claims(&fresh_id(), 0);
        merge(&mut own, json!({"iat": expires - 60, "exp": expires}));
        if let Some(version) = version {
            own["lwv"] = json!(version);
        }
        signer.sign(&own)
    };
    // Past the expiry, within the leeway: still good with it, and not without.
    until("the expiry passes", async || ahead(expires).await <= 0).await;
    let strict = grants.admit(request(&token(Some("none")), fresh_operation())).await.unwrap();
    assert_eq!(strict, Admitted::Refused(Because::Late));
    let ask = request(&token(None), fresh_operation());
    let found = grants.admit(ask.clone()).await.unwrap();
    assert!(ahead(expires + 2).await > 0, "the machine was too slow for this test");
    assert!(is_now(&found), "{found:?}");
    until("the deadline passes", async || ahead(expires + 2).await <= 0).await;
    let late = grants.admit(request(&token(None), fresh_operation())).await.unwrap();
    assert_eq!(late, Admitted::Refused(Because::Late));
    // A retry of what was admitted in time is refused as well; the status is elsewhere, and there.
    assert_eq!(grants.admit(ask.clone()).await.unwrap(), Admitted::Refused(Because::Late));
    let row = grants.operation(ask.operation_id, &agent(), "").await.unwrap().unwrap();
    assert_eq!(row.status, OperationStatus::Admitted);
}

#[tokio::test]
async fn any_other_broken_constraint_is_a_defect_and_not_a_refusal() {
    let (url, signer, grants) = bed().await;
    let client = connect(&url).await;
    client.batch_execute("CREATE UNIQUE INDEX surprise ON fencepost.operations (caller_id)").await.unwrap();
    let ask = |id: &str| request(&signer.sign(&claims(id, 900)), fresh_operation());
    assert!(is_now(&grants.admit(ask(&fresh_id())).await.unwrap()));
    match grants.admit(ask(&fresh_id())).await {
        Err(Refusal::Store(StoreError::Broken(reason))) => assert!(reason.contains("surprise"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 1);
}

#[tokio::test]
async fn what_grants_were_issued_under_cannot_be_changed_by_a_restart() {
    let (url, signer) = (database().await, Signer::new(1));
    let base = config(&signer, json!({}), json!({}));
    grants_on(&url, &base).await;
    grants_on(&url, &base).await;
    for (change, says) in [
        (json!({"leeway": "3s"}), "leeway = 3s, but grants may have been issued under leeway = 2s"),
        (json!({"max_lifetime": "30m"}), "max_lifetime = 30m"),
        (json!({"iat_skew": "0s"}), "iat_skew = 0ms"),
        (json!({"key_by_tenant": true, "claims": {"tenant": "org"}}), "key_by_tenant = true"),
    ] {
        let issuers = issuers(&config(&signer, change, json!({})));
        let store = grant_store(&url, None, &issuers).await;
        match store.pin(&issuers).await {
            Err(PinError::Changed(message)) => assert!(message.contains(says), "{message}"),
            other => panic!("{other:?}"),
        }
    }
    // A new version beside the old one is no change.
    grants_on(&url, &config(&signer, json!({"leeways": {"2": "9s"}}), json!({}))).await;
}
