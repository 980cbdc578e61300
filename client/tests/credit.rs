//! The example service against a real store service on a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "../examples/credit.rs"]
mod credit;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credit::{ApplyCredit, CreditHandler, CreditResult, FakeBilling, Mood};
use ed25519_dalek::{Signer as _, SigningKey};
use fencepost_client::in_transaction::{self, InTransaction, Intent, ProvenGrant};
use fencepost_client::{
    Caller, Client, ClientError, Details, GrantToken, OperationId, OperationRefusal, OperationStatus,
    RecordRequest, Recorded, Submission,
};
use fencepost_store::grant::issuers::Issuers;
use fencepost_store::grant::postgres::{Options as GrantOptions, PostgresGrants};
use fencepost_store::grant::service::Grants;
use fencepost_store::grant::store::GrantStore;
use fencepost_store::http::{Api, Server, ServerOptions, Tokens};
use fencepost_store::service::Service;
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::{Clock, Store};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ISSUER: &str = "https://approvals.example";
const BOUND: Duration = Duration::from_secs(5);

struct Bed {
    url: String,
    base: String,
    key: SigningKey,
}

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn operation() -> OperationId {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    OperationId::from_random(bytes)
}

fn agent() -> Caller {
    Caller { namespace: "https://login.example".into(), id: "agent-7".into() }
}

fn details() -> Details {
    [("account", "A-1187"), ("amount", "250.00"), ("currency", "USD")].into()
}

impl Bed {
    async fn new() -> Self {
        let url = fencepost_rig::postgres::Postgres::shared().await.create_database().await;
        let key = SigningKey::from_bytes(&[1; 32]);
        let x = URL_SAFE_NO_PAD.encode(key.verifying_key().as_bytes());
        let config = json!({"issuers": [{
            "issuer": ISSUER, "audience": ["billing"], "algorithms": ["EdDSA"],
            "keys": {"inline": {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x}]}},
            "leeway": "2s", "max_lifetime": "1h", "iat_skew": "60s",
            "caller_namespace": "https://login.example",
            "bound": {"account": "text", "amount": "decimal", "currency": "text"},
        }]});
        let issuers = Issuers::parse(&config.to_string(), Path::new(".")).unwrap();
        let store = Postgres::open(&url, Clock::Real, true, Options::default()).await.unwrap();
        let options =
            GrantOptions { url: url.clone(), admission_url: None, unnamed_statements: false, connections: 4 };
        let grant_store = PostgresGrants::open(&options, store.store_id(), issuers.timings).unwrap();
        grant_store.pin(&issuers).await.unwrap();
        let grants = Grants::new(issuers, Arc::new(grant_store));
        let api = Api::new(Service::new(Arc::new(store)), Tokens::open(), None).with_grants(Some(grants));
        let options = ServerOptions { drain_timeout: Duration::from_secs(1) };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), api, options).await.unwrap();
        let base = format!("http://{}", server.local_addr().unwrap());
        tokio::spawn(server.serve(std::future::pending()));
        Self { url, base, key }
    }

    fn client(&self) -> Client {
        Client::new(&self.base, None, Duration::from_secs(10)).unwrap()
    }

    fn handler(&self, billing: &FakeBilling) -> CreditHandler {
        CreditHandler { grants: self.client(), billing: billing.clone() }
    }

    fn grant(&self, id: &str) -> GrantToken {
        let claims = json!({
            "iss": ISSUER, "aud": "billing", "jti": id, "sub": "agent-7", "iat": now(), "exp": now() + 900,
            "account": "A-1187", "amount": "250.00", "currency": "USD",
        });
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA"}"#),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()).to_bytes());
        GrantToken::new(format!("{signed}.{signature}"))
    }

    fn command(&self, id: &str) -> ApplyCredit {
        ApplyCredit {
            grant: self.grant(id),
            operation_id: operation(),
            account: "A-1187".into(),
            amount: "250.00".into(),
            currency: "USD".into(),
        }
    }

    async fn database(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_approval_is_one_credit_on_any_instance_and_any_click() {
    let bed = Bed::new().await;
    let billing = FakeBilling::new(Mood::Kind);
    let (a, b) = (bed.handler(&billing), bed.handler(&billing));
    let command = bed.command("g1");
    let (x, y) = tokio::join!(a.apply(command.clone(), agent()), b.apply(command.clone(), agent()));
    let applied = CreditResult::Applied("cr_1".into());
    assert!([&x, &y].contains(&&applied), "{x:?} {y:?}");
    // The click that came again is told what became of it.
    assert_eq!(b.apply(command.clone(), agent()).await, applied);
    // The same approval for another operation.
    let other = ApplyCredit { operation_id: operation(), ..command.clone() };
    assert_eq!(b.apply(other, agent()).await, CreditResult::Rejected("grant_not_available".into()));
    // More than was approved.
    let more = ApplyCredit { amount: "2500.00".into(), ..bed.command("g2") };
    assert_eq!(a.apply(more, agent()).await, CreditResult::Rejected("grant_not_covered".into()));
    assert_eq!(billing.credits(), 1);
    let seen = bed.client().status(&command.operation_id, &agent(), None).await.unwrap().unwrap();
    assert_eq!((seen.status, seen.reference.as_deref()), (OperationStatus::Succeeded, Some("cr_1")));
    let stranger = Caller { id: "agent-8".into(), ..agent() };
    assert_eq!(bed.client().status(&command.operation_id, &stranger, None).await, Ok(None));
}

#[tokio::test]
async fn a_definite_refusal_of_the_provider_fails_the_operation_and_leaves_the_grant_spent() {
    let bed = Bed::new().await;
    let billing = FakeBilling::new(Mood::Refusing);
    let handler = bed.handler(&billing);
    let command = bed.command("g1");
    let refused = CreditResult::Rejected("account_closed".into());
    assert_eq!(handler.apply(command.clone(), agent()).await, refused);
    assert_eq!(handler.apply(command.clone(), agent()).await, refused);
    let again = ApplyCredit { operation_id: operation(), ..command };
    let spent = CreditResult::Rejected("grant_not_available".into());
    assert_eq!(handler.apply(again, agent()).await, spent);
    assert_eq!(billing.credits(), 0);
}

#[tokio::test]
async fn an_answer_of_the_provider_that_never_arrives_is_pending_and_never_sent_again() {
    let bed = Bed::new().await;
    let billing = FakeBilling::new(Mood::Silent);
    let handler = bed.handler(&billing);
    let command = bed.command("g1");
    assert_eq!(handler.apply(command.clone(), agent()).await, CreditResult::Pending);
    assert_eq!(handler.apply(command.clone(), agent()).await, CreditResult::Pending);
    assert_eq!(billing.credits(), 1);
    let seen = bed.client().status(&command.operation_id, &agent(), None).await.unwrap().unwrap();
    assert_eq!(seen.status, OperationStatus::Unknown);
}

#[tokio::test]
async fn without_a_confirmed_admission_the_provider_is_never_called() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let billing = FakeBilling::new(Mood::Kind);
    let bed = Bed::new().await;
    // Accepts and says nothing.
    let silent = Client::new(&base, None, Duration::from_millis(200)).unwrap();
    let handler = CreditHandler { grants: silent, billing: billing.clone() };
    assert_eq!(handler.apply(bed.command("g1"), agent()).await, CreditResult::RetryLater);
    drop(listener);
    assert_eq!(handler.apply(bed.command("g1"), agent()).await, CreditResult::RetryLater);
    assert_eq!(billing.credits(), 0);
}

#[tokio::test]
async fn a_handler_that_lost_its_operation_sends_nothing_and_records_nothing() {
    let bed = Bed::new().await;
    let client = bed.client();
    let command = bed.command("g1");
    let request = fencepost_client::AdmitRequest {
        token: Some(command.grant),
        grant: None,
        operation_id: command.operation_id.clone(),
        operation_mac: None,
        caller: agent(),
        tenant: None,
        details: details(),
    };
    let owned = match client.admit(&request).await.unwrap() {
        fencepost_client::Admission::Admitted(owned) => owned,
        other => panic!("{other:?}"),
    };
    let id = &command.operation_id;
    assert!(matches!(client.may_submit(id, owned.owner_version).await, Ok(Submission::May(_))));
    assert!(client.renew(id, owned.owner_version).await.unwrap().is_ok());
    // Recovery has taken over.
    bed.database().await.batch_execute("UPDATE fencepost.operations SET owner_version = 2").await.unwrap();
    let lost = OperationRefusal::OtherOwner;
    assert_eq!(client.may_submit(id, owned.owner_version).await, Ok(Submission::MayNot(lost)));
    assert_eq!(client.renew(id, owned.owner_version).await, Ok(Err(lost)));
    let record = RecordRequest {
        owner_version: owned.owner_version,
        expected_status: OperationStatus::Admitted,
        outcome: OperationStatus::Unknown,
        reference: None,
    };
    assert_eq!(client.record(id, &record).await, Ok(Recorded::No(lost)));
    assert!(matches!(client.status(id, &agent(), None).await, Ok(Some(_))));
}

#[tokio::test]
async fn a_success_that_could_not_be_recorded_is_pending_and_settled_without_a_second_credit() {
    let bed = Bed::new().await;
    let database = bed.database().await;
    database
        .batch_execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
             CREATE TRIGGER fail BEFORE UPDATE ON fencepost.operations FOR EACH ROW EXECUTE FUNCTION fail()",
        )
        .await
        .unwrap();
    let billing = FakeBilling::new(Mood::Kind);
    let handler = bed.handler(&billing);
    let command = bed.command("g1");
    assert_eq!(handler.apply(command.clone(), agent()).await, CreditResult::Pending);
    assert_eq!(billing.credits(), 1);
    let (client, id) = (bed.client(), &command.operation_id);
    let seen = client.status(id, &agent(), None).await.unwrap().unwrap();
    assert_eq!((seen.status, seen.owner_version), (OperationStatus::Admitted, 1));
    database.batch_execute("DROP TRIGGER fail ON fencepost.operations").await.unwrap();
    // Recovery: not before the lease has ended; then it looks the credit up and records it.
    assert_eq!(client.take_over(id, 1).await, Ok(Err(OperationRefusal::LeaseLive)));
    database
        .batch_execute("UPDATE fencepost.operations SET lease_until = now() - interval '1 second'")
        .await
        .unwrap();
    let owned = client.take_over(id, 1).await.unwrap().unwrap();
    assert_eq!(owned.owner_version, 2);
    let record = RecordRequest {
        owner_version: owned.owner_version,
        expected_status: OperationStatus::Admitted,
        outcome: OperationStatus::Succeeded,
        reference: Some("cr_1".into()),
    };
    assert_eq!(client.record(id, &record).await, Ok(Recorded::Yes));
    assert_eq!(handler.apply(command.clone(), agent()).await, CreditResult::Applied("cr_1".into()));
    assert_eq!(billing.credits(), 1);
}

#[test]
fn an_address_that_cannot_be_one_is_refused() {
    for base in ["", "localhost:7070", "https://store.example", "/v1"] {
        let found = Client::new(base, None, BOUND);
        assert!(matches!(found, Err(ClientError::SetUp(_))), "{base}");
    }
    assert!(Client::new("http://127.0.0.1:7070/", Some("a\nb"), BOUND).is_err());
}

fn proven(id: &str, seconds: i64) -> ProvenGrant {
    let at = u64::try_from(now() + seconds).unwrap();
    ProvenGrant {
        issuer: ISSUER.into(),
        key_tenant: String::new(),
        grant_id: id.into(),
        issued_at: SystemTime::now(),
        expires_at: UNIX_EPOCH + Duration::from_secs(at),
        leeway_version: String::new(),
    }
}

fn intent() -> Intent {
    Intent { operation_id: operation(), caller: agent(), tenant: String::new(), details: details() }
}

#[tokio::test]
async fn use_and_effect_in_one_transaction_commit_or_roll_back_together() {
    let bed = Bed::new().await;
    let mut database = bed.database().await;
    database.batch_execute("CREATE TABLE credits (account text, amount numeric)").await.unwrap();
    let (grant, intent) = (proven("g1", 900), intent());
    for (commit, expected) in
        [(false, InTransaction::Admitted), (true, InTransaction::Admitted), (false, InTransaction::Before)]
    {
        let mut transaction = database.transaction().await.unwrap();
        let found = in_transaction::admit(&mut transaction, &grant, &intent, BOUND).await.unwrap();
        assert_eq!(found, expected);
        if found == InTransaction::Admitted {
            transaction.batch_execute("INSERT INTO credits VALUES ('A-1187', 250.00)").await.unwrap();
        }
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    let count = database.query_one("SELECT count(*) FROM credits", &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 1);
    // The service sees the same record of use, and the status of the operation.
    let command = ApplyCredit { grant: bed.grant("g1"), ..bed.command("g1") };
    let handler = bed.handler(&FakeBilling::new(Mood::Kind));
    let spent = CreditResult::Rejected("grant_not_available".into());
    assert_eq!(handler.apply(command, agent()).await, spent);
    let seen = bed.client().status(&intent.operation_id, &agent(), None).await.unwrap().unwrap();
    assert_eq!(seen.status, OperationStatus::Succeeded);
}

#[tokio::test]
async fn a_grant_that_is_used_late_or_in_conflict_is_refused_inside_a_transaction_that_goes_on() {
    let bed = Bed::new().await;
    let mut database = bed.database().await;
    let first = intent();
    let mut transaction = database.transaction().await.unwrap();
    let found = in_transaction::admit(&mut transaction, &proven("g1", 900), &first, BOUND).await.unwrap();
    assert_eq!(found, InTransaction::Admitted);
    for (grant, intent, expected) in [
        (proven("g1", 900), intent(), InTransaction::Refused),
        (proven("g2", 900), first.clone(), InTransaction::Refused),
        (proven("g3", -60), intent(), InTransaction::Late),
    ] {
        let found = in_transaction::admit(&mut transaction, &grant, &intent, BOUND).await.unwrap();
        assert_eq!(found, expected, "{}", grant.grant_id);
    }
    let unknown = ProvenGrant { issuer: "https://other.example".into(), ..proven("g4", 900) };
    let error = in_transaction::admit(&mut transaction, &unknown, &intent(), BOUND).await.unwrap_err();
    assert!(error.to_string().contains("no policy"), "{error}");
    // The conflicts did not end the transaction; its life is bounded from the first admission on.
    let bound = transaction.query_one("SELECT current_setting('transaction_timeout')", &[]).await.unwrap();
    assert_eq!(bound.get::<_, &str>(0), "5s");
    transaction.commit().await.unwrap();
    let serializable =
        database.build_transaction().isolation_level(tokio_postgres::IsolationLevel::Serializable).start();
    let mut serializable = serializable.await.unwrap();
    let error = in_transaction::admit(&mut serializable, &proven("g5", 900), &intent(), BOUND).await;
    assert!(error.unwrap_err().to_string().contains("serializable"));
}

#[tokio::test]
async fn a_grant_from_before_a_restored_backup_is_held_until_a_person_releases_it() {
    let bed = Bed::new().await;
    let mut database = bed.database().await;
    let ago = |seconds| SystemTime::now() - Duration::from_secs(seconds);
    let aged = |id: &str, seconds| ProvenGrant { issued_at: ago(seconds), ..proven(id, 900) };
    let used = intent();
    let mut transaction = database.transaction().await.unwrap();
    let found = in_transaction::admit(&mut transaction, &aged("used", 500), &used, BOUND).await.unwrap();
    assert_eq!(found, InTransaction::Admitted);
    transaction.commit().await.unwrap();
    let hold = "INSERT INTO fencepost.holds (since, grants, began_at, began_by, reason)
                VALUES (clock_timestamp() - make_interval(secs => $1), true, clock_timestamp(), 'p', 'restored')";
    database.execute(hold, &[&200.0_f64]).await.unwrap();
    let mut transaction = database.transaction().await.unwrap();
    // The issuer's clock may be 60 s ahead: 170 s ago by it is perhaps 230 s ago, before the hold's 200 s.
    for (grant, intent, expected) in [
        (aged("old", 300), intent(), InTransaction::Held),
        (aged("within the skew", 170), intent(), InTransaction::Held),
        (aged("young", 100), intent(), InTransaction::Admitted),
        (aged("used", 500), used, InTransaction::Before),
        (aged("used", 500), intent(), InTransaction::Refused),
    ] {
        let found = in_transaction::admit(&mut transaction, &grant, &intent, BOUND).await.unwrap();
        assert_eq!(found, expected, "{}", grant.grant_id);
    }
    let key = fencepost_store::grant::token::GrantKey {
        issuer: ISSUER.into(),
        key_tenant: String::new(),
        grant_id: "old".into(),
    };
    let release = "INSERT INTO fencepost.desk_audit
                       (at, who, action, subject, version_before, state_before, state_after, reason)
                   VALUES (clock_timestamp(), 'p', 'release_grant', $1, '', 'held', 'released', 'looked')";
    transaction.execute(release, &[&fencepost_store::desk::grant_subject(&key)]).await.unwrap();
    for (id, expected) in [("old", InTransaction::Admitted), ("other", InTransaction::Held)] {
        let found = in_transaction::admit(&mut transaction, &aged(id, 300), &intent(), BOUND).await.unwrap();
        assert_eq!(found, expected, "{id}");
    }
}

#[tokio::test]
async fn a_held_approval_is_told_as_held_and_executes_nothing() {
    let bed = Bed::new().await;
    let database = bed.database().await;
    database
        .batch_execute(
            "INSERT INTO fencepost.holds (since, grants, began_at, began_by, reason)
             VALUES (clock_timestamp(), true, clock_timestamp(), 'p', 'restored')",
        )
        .await
        .unwrap();
    let billing = FakeBilling::new(Mood::Kind);
    let handler = bed.handler(&billing);
    let command = bed.command("g1");
    assert_eq!(handler.apply(command.clone(), agent()).await, CreditResult::Held);
    assert_eq!(billing.credits(), 0);
    database.batch_execute("UPDATE fencepost.holds SET lifted_at = clock_timestamp()").await.unwrap();
    assert_eq!(handler.apply(command, agent()).await, CreditResult::Applied("cr_1".into()));
}

#[tokio::test]
async fn a_transaction_that_stays_open_past_the_bound_is_ended_and_spends_nothing() {
    let bed = Bed::new().await;
    let mut database = bed.database().await;
    let grant = proven("g1", 900);
    let mut transaction = database.transaction().await.unwrap();
    let bound = Duration::from_millis(300);
    let found = in_transaction::admit(&mut transaction, &grant, &intent(), bound).await.unwrap();
    assert_eq!(found, InTransaction::Admitted);
    let held = transaction.query_one("SELECT pg_sleep(5)", &[]).await.unwrap_err();
    assert!(held.is_closed() || held.code().is_some_and(|code| code.code() == "25P04"), "{held}");
    drop(transaction);
    let mut database = bed.database().await;
    let mut transaction = database.transaction().await.unwrap();
    let found = in_transaction::admit(&mut transaction, &grant, &intent(), BOUND).await.unwrap();
    assert_eq!(found, InTransaction::Admitted);
}
