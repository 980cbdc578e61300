//! How long a record of use is kept, and what keeps a delayed admission from slipping in after it.
//!
//! A statement is held where it is dangerous: after the start that its deadline is compared with,
//! and before its claim looks at the unique key. A trigger of the test does that, and `pg_locks`
//! shows that the statement waits there.

use crate::support::*;
use fencepost_protocol::grants::{GrantName, GrantToken, IssueRequest, RevokeRequest};
use fencepost_store::grant::cleanup::run_once;
use fencepost_store::grant::postgres::{Options, PostgresGrants};
use fencepost_store::grant::service::{CleanupState, Grants, Refusal};
use fencepost_store::grant::store::{Admitted, Because, Bounded, Issued, Revoked};
use fencepost_store::store::postgres::{self, Postgres};
use fencepost_store::store::{Clock, Store, StoreError};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bound of 1.5 s, margin of 2 s, no leeway.
fn short(signer: &Signer) -> Value {
    let timings = json!({
        "admission_bound": "1500ms", "cleanup_margin": "2s", "clock_step_max": "0s", "store_call_timeout": "10s",
    });
    config(signer, json!({"leeway": "0s"}), json!({"timings": timings}))
}

/// An instance whose connections are not bounded by it, as behind a pooler.
async fn unbounded(url: &str, admission_url: Option<&str>, settings: &Value) -> Arc<Grants> {
    let issuers = issuers(settings);
    let options =
        postgres::Options { claim_connections: 1, finish_connections: 1, ..postgres::Options::default() };
    let store = Postgres::open(url, Clock::Real, true, options).await.unwrap();
    let options = Options {
        url: url.to_owned(),
        admission_url: admission_url.map(str::to_owned),
        unnamed_statements: true,
        connections: 2,
    };
    let grant_store = PostgresGrants::open(&options, store.store_id(), issuers.timings).unwrap();
    Grants::new(issuers, Arc::new(grant_store))
}

/// Where a statement is held.
#[derive(Clone, Copy, PartialEq)]
enum Hold {
    /// In its claim, before the unique key is looked at.
    BeforeTheKey,
    /// By a lock on the table of operations.
    Table,
}

impl Hold {
    async fn install(self, client: &tokio_postgres::Client) {
        if self == Self::BeforeTheKey {
            client
                .batch_execute(
                    "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
                         BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END $$;
                     CREATE TRIGGER hold BEFORE INSERT ON fencepost.grant_consumptions
                         FOR EACH ROW EXECUTE FUNCTION hold()",
                )
                .await
                .unwrap();
        }
    }

    /// From now until it is released. The first kind without an open transaction, which the cleanup
    /// would wait for.
    async fn take(self, client: &tokio_postgres::Client) {
        let lock = match self {
            Self::BeforeTheKey => "SELECT pg_advisory_lock(42)",
            Self::Table => "BEGIN; LOCK TABLE fencepost.operations IN SHARE ROW EXCLUSIVE MODE",
        };
        client.batch_execute(lock).await.unwrap();
    }

    async fn release(self, client: &tokio_postgres::Client) {
        let unlock = match self {
            Self::BeforeTheKey => "SELECT pg_advisory_unlock(42)",
            Self::Table => "ROLLBACK",
        };
        client.batch_execute(unlock).await.unwrap();
    }

    fn waiting(self) -> &'static str {
        match self {
            Self::BeforeTheKey => {
                "SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
                 WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"
            }
            Self::Table => {
                "SELECT count(*) FROM pg_locks AS l
                 WHERE l.locktype = 'relation' AND l.relation = 'fencepost.operations'::regclass AND NOT l.granted"
            }
        }
    }
}

async fn ms_until(client: &tokio_postgres::Client, at: i64) -> i64 {
    count(client, &format!("SELECT ({at}000 - extract(epoch FROM clock_timestamp()) * 1000)::int8")).await
}

const RECORDS: &str = "SELECT count(*) FROM fencepost.grant_consumptions";
const OPERATIONS: &str = "SELECT count(*) FROM fencepost.operations";

/// Admits a grant, and starts a second admission just before the deadline that is held there.
async fn hold_a_second_admission(
    grants: &Arc<Grants>,
    signer: &Signer,
    clients: [&tokio_postgres::Client; 2],
    hold: Hold,
    archived: bool,
) -> (i64, String, tokio::task::JoinHandle<Result<Admitted, Refusal>>) {
    let [gate, eye] = clients;
    hold.install(eye).await;
    let expires = now() + 3;
    let mut own = claims(&fresh_id(), 0);
    merge(&mut own, json!({"iat": expires - 60, "exp": expires}));
    let token = signer.sign(&own);
    let first = grants.admit(request(&token, fresh_operation())).await.unwrap();
    assert!(matches!(first, Admitted::Now(_)), "{first:?}");
    if archived {
        eye.batch_execute("DELETE FROM fencepost.operations").await.unwrap();
    }
    hold.take(gate).await;
    until("it is just before the deadline", async || ms_until(eye, expires).await < 700).await;
    let (grants, ask) = (grants.clone(), request(&token, fresh_operation()));
    let held = tokio::spawn(async move { grants.admit(ask).await });
    until("the statement waits", async || count(eye, hold.waiting()).await == 1).await;
    assert!(ms_until(eye, expires).await > 0, "the statement did not start before the deadline");
    (expires, token, held)
}

async fn the_bound_ends_a_delayed_admission(hold: Hold, archived: bool) {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &short(&signer)).await;
    let (gate, eye) = (connect(&url).await, connect(&url).await);
    let (expires, token, held) =
        hold_a_second_admission(&grants, &signer, [&gate, &eye], hold, archived).await;
    // The cleanup runs past the deadline all the while.
    let cleaner = grants.clone();
    let cleaning = tokio::spawn(async move {
        let give_up = Instant::now() + Duration::from_secs(20);
        while cleaner.store().cleanup(1_000).await.unwrap() == 0 {
            assert!(Instant::now() < give_up, "the record does not go");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let result = held.await.unwrap();
    match &result {
        Err(Refusal::Store(StoreError::Unavailable(reason))) => {
            assert!(reason.contains("transaction_timeout"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(ms_until(&eye, expires).await < 0, "it was ended before the deadline, which shows nothing");
    assert_eq!(
        count(&eye, RECORDS).await,
        1,
        "the record of use outlives every admission that it must refuse"
    );
    hold.release(&gate).await;
    cleaning.await.unwrap();
    assert!(ms_until(&eye, expires + 2).await <= 0, "the record went before its margin had passed");
    assert_eq!(count(&eye, RECORDS).await, 0);
    assert_eq!(count(&eye, OPERATIONS).await, i64::from(!archived));
    let again = grants.admit(request(&token, fresh_operation())).await.unwrap();
    assert_eq!(again, Admitted::Refused(Because::Late));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_admission_is_ended_before_the_record_goes() {
    the_bound_ends_a_delayed_admission(Hold::BeforeTheKey, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_admission_is_ended_before_the_record_goes_with_the_operation_archived() {
    the_bound_ends_a_delayed_admission(Hold::BeforeTheKey, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_held_by_a_table_lock_is_ended_as_well() {
    the_bound_ends_a_delayed_admission(Hold::Table, true).await;
}

/// Shows that the tests above hold the statement where it matters: without the bound and with a
/// cleanup without margin, the grant is admitted a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_bound_and_margin_a_delayed_admission_would_win() {
    for (archived, wins) in [(true, true), (false, false)] {
        let (url, signer) = (database().await, Signer::new(1));
        let grants = unbounded(&url, None, &short(&signer)).await;
        let (gate, eye) = (connect(&url).await, connect(&url).await);
        let (expires, _, held) =
            hold_a_second_admission(&grants, &signer, [&gate, &eye], Hold::BeforeTheKey, archived).await;
        until("the deadline passes", async || ms_until(&eye, expires).await < -50).await;
        eye.batch_execute("DELETE FROM fencepost.grant_consumptions WHERE retain_until < clock_timestamp()")
            .await
            .unwrap();
        Hold::BeforeTheKey.release(&gate).await;
        let result = held.await.unwrap().unwrap();
        if wins {
            assert!(matches!(result, Admitted::Now(_)), "{result:?}");
        } else {
            // The operation that is still there is the second barrier, and only incidental.
            assert_eq!(result, Admitted::Refused(Because::Conflict));
        }
    }
}

/// One instance is bounded and cleans up; another one is not, and has a delayed admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cleanup_keeps_what_an_older_transaction_of_another_instance_must_still_find() {
    let (url, signer) = (database().await, Signer::new(1));
    let bounded = grants_on(&url, &short(&signer)).await;
    let delayed = unbounded(&url, None, &short(&signer)).await;
    let (gate, eye) = (connect(&url).await, connect(&url).await);
    let (expires, _, held) =
        hold_a_second_admission(&delayed, &signer, [&gate, &eye], Hold::BeforeTheKey, true).await;
    until("deadline and margin pass", async || ms_until(&eye, expires + 2).await < -100).await;
    assert_eq!(
        bounded.store().cleanup(1_000).await,
        Ok(0),
        "the waiting admission still has to find the record"
    );
    Hold::BeforeTheKey.release(&gate).await;
    assert_eq!(held.await.unwrap().unwrap(), Admitted::Refused(Because::Used));
    assert_eq!(bounded.store().cleanup(1_000).await, Ok(1));
}

#[tokio::test]
async fn a_bound_that_was_seen_to_hold_turns_the_cleanup_on() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &short(&signer)).await;
    assert_eq!(grants.cleanup(), CleanupState::Checking);
    run_once(&grants).await;
    assert_eq!(grants.cleanup(), CleanupState::On);
}

#[tokio::test]
async fn without_the_bound_records_are_kept_and_the_reason_is_told() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = unbounded(&url, None, &short(&signer)).await;
    let ask = request(&signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    assert!(matches!(grants.admit(ask).await.unwrap(), Admitted::Now(_)));
    let client = connect(&url).await;
    client
        .batch_execute("UPDATE fencepost.grant_consumptions SET retain_until = now() - interval '1 year'")
        .await
        .unwrap();
    run_once(&grants).await;
    match grants.cleanup() {
        CleanupState::Off(reason) => {
            assert!(reason.contains("found transaction_timeout = 0ms"), "{reason}");
            assert!(reason.contains("1500ms"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(count(&client, RECORDS).await, 1);
    assert!(grants.store().cleanup(10).await.is_err());
}

#[tokio::test]
async fn a_role_of_its_own_may_bring_the_bound() {
    let (url, signer) = (database().await, Signer::new(1));
    let client = connect(&url).await;
    for (role, timeout, holds) in [("admitter_short", "1s", true), ("admitter_long", "30s", false)] {
        client
            .batch_execute(&format!(
                "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET transaction_timeout = '{timeout}'"
            ))
            .await
            .unwrap();
        let admission_url = url.replace("postgres://postgres@", &format!("postgres://{role}@"));
        let grants = unbounded(&url, Some(&admission_url), &short(&signer)).await;
        let found = grants.store().check_bound().await.unwrap();
        match (holds, found) {
            (true, Bounded::Verified) => {}
            (false, Bounded::No(reason)) => assert!(reason.contains("30000ms"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn records_stay_for_their_deadline_and_the_margin() {
    let (url, signer) = (database().await, Signer::new(1));
    let grants = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let used = signer.sign(&claims(&fresh_id(), 900));
    let revoked = signer.sign(&claims(&fresh_id(), 900));
    let ask = request(&used, fresh_operation());
    assert!(matches!(grants.admit(ask.clone()).await.unwrap(), Admitted::Now(_)));
    let revoke = RevokeRequest { token: Some(GrantToken::new(revoked)), grant: None, reason: "r".into() };
    assert_eq!(grants.revoke(revoke, "r").await, Ok(Revoked::Now));
    let client = connect(&url).await;
    // Expiry and leeway are in the record; the margin is 300 s.
    let exact = "SELECT count(*) FROM fencepost.grant_consumptions
                 WHERE retain_until BETWEEN now() + interval '895 seconds' AND now() + interval '902 seconds'";
    assert_eq!(count(&client, exact).await, 2);
    for (age, gone) in [("0 seconds", 0), ("290 seconds", 0), ("301 seconds", 2)] {
        client
            .batch_execute(&format!(
                "UPDATE fencepost.grant_consumptions SET retain_until = clock_timestamp() - interval '{age}'"
            ))
            .await
            .unwrap();
        assert_eq!(grants.store().cleanup(1_000).await, Ok(gone), "{age}");
    }
    // The operation is another matter: it stays, and is still found.
    assert!(grants.operation(ask.operation_id, &agent(), "").await.unwrap().is_some());
}

/// As on the file: the token may name any pinned version, and live longer than the log says.
#[tokio::test]
async fn a_grant_revoked_by_its_id_stays_revoked_to_the_longest_that_its_token_may_live() {
    let (url, signer) = (database().await, Signer::new(1));
    let versions = json!({"leeway": "2s", "leeways": {"2": "20m"}});
    let all = grants_on(&url, &config(&signer, versions, json!({}))).await;
    let one = grants_on(&url, &config(&signer, json!({}), json!({}))).await;
    let client = connect(&url).await;
    // 1 h of life, 60 s of skew, 20 min of leeway.
    for (grants, noted, kept) in [(&all, Some(900), 4_860), (&one, Some(60), 4_860), (&one, None, 4_860)] {
        let name = GrantName { issuer: ISSUER.into(), grant_id: fresh_id(), tenant: None };
        let issue = IssueRequest {
            grant: name.clone(),
            subject: AGENT.into(),
            tenant: None,
            details: details(),
            expires_at: noted.map(|seconds| now() + seconds),
        };
        assert_eq!(grants.issue(issue, "i").await, Ok(Issued::Now));
        let revoke = RevokeRequest { token: None, grant: Some(name), reason: "r".into() };
        assert_eq!(grants.revoke(revoke, "r").await, Ok(Revoked::Now));
        let exact = format!(
            "SELECT count(*) FROM fencepost.grant_consumptions
             WHERE retain_until - consumed_at BETWEEN interval '{kept} seconds' AND interval '{} seconds'",
            kept + 30
        );
        assert_eq!(count(&client, &exact).await, 1, "{noted:?}");
        client.batch_execute("DELETE FROM fencepost.grant_consumptions").await.unwrap();
    }
}

#[tokio::test]
async fn the_cleanup_works_in_bounded_batches_beside_others() {
    let (url, signer) = (database().await, Signer::new(1));
    let settings = config(&signer, json!({}), json!({}));
    let instances = [grants_on(&url, &settings).await, grants_on(&url, &settings).await];
    let client = connect(&url).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.grant_consumptions
             SELECT 'i', '', 'g' || n, NULL, now(), now() - interval '1 hour' FROM generate_series(1, 500) AS n",
        )
        .await
        .unwrap();
    assert_eq!(instances[0].store().cleanup(100).await, Ok(100));
    let mut gone = 100;
    while count(&client, RECORDS).await > 0 {
        let (a, b) = tokio::join!(instances[0].store().cleanup(50), instances[1].store().cleanup(50));
        gone += a.unwrap() + b.unwrap();
    }
    assert_eq!(gone, 500);
}
