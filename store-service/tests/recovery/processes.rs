//! Recovery in service processes: it starts with `serve`, several at once share the work, and a
//! service that is asked to stop finishes what it has.

use crate::bed::settings;
use crate::provider::{KEY, Provider};
use crate::support::*;
use fencepost_protocol::grants::OperationId;
use fencepost_rig::client::Call;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::upstream::{AnswerBody, Behaviour, Seen, Upstream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::process::Command;

/// The files of a service.
pub struct Files {
    folder: tempfile::TempDir,
    signer: Signer,
}

impl Files {
    pub fn new(recovery: &Value) -> Self {
        let (folder, signer) = (tempfile::tempdir().unwrap(), Signer::new(1));
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("issuers.json", config(&signer, json!({}), json!({})).to_string());
        write("recovery.json", recovery.to_string());
        write("recovery.key", KEY.into());
        Self { folder, signer }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A service with recovery.
    pub async fn serve(&self, store: &str) -> Service {
        self.serve_with(store, &[]).await
    }

    async fn serve_with(&self, store: &str, more: &[&str]) -> Service {
        let (issuers, recovery) = (self.path("issuers.json"), self.path("recovery.json"));
        let arguments = [&["--issuers", &issuers, "--recovery", &recovery], more].concat();
        Service::start(Options::on(store).arguments(&arguments)).await.unwrap()
    }

    /// A service that admits only.
    pub async fn serve_without(&self, store: &str) -> Service {
        let arguments = ["--issuers", &self.path("issuers.json")];
        Service::start(Options::on(store).arguments(&arguments)).await.unwrap()
    }

    pub async fn admit(&self, to: SocketAddr) -> OperationId {
        let operation = fresh_operation();
        let call = Call::post("/v1/grants/admit").json(&json!({
            "token": self.signer.sign(&claims(&fresh_id(), 900)), "operation_id": operation,
            "caller": agent(), "details": details(),
        }));
        assert_eq!(call.send(to).await.unwrap().status, 200);
        operation
    }
}

pub async fn lapse(client: &tokio_postgres::Client) {
    let sql = "UPDATE fencepost.operations SET lease_until = clock_timestamp() - interval '1 second'
               WHERE status IN ('admitted', 'unknown')";
    client.batch_execute(sql).await.unwrap();
}

/// Status, owner's version and reference of an operation.
pub async fn record(client: &tokio_postgres::Client, id: &OperationId) -> (String, i32, Option<String>) {
    let sql = format!(
        "SELECT status, owner_version, reference FROM fencepost.operations WHERE operation_id = '{id}'"
    );
    let row = client.query_one(&sql, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_service_processes_recover_each_operation_once() {
    let (url, provider) = (database().await, Provider::start().await);
    let files = Files::new(&settings(provider.addr, true));
    let first = files.serve_without(&url).await;
    let mut ids = Vec::new();
    for _ in 0..30 {
        ids.push(files.admit(first.addr()).await);
    }
    // Half of them were carried out.
    for id in &ids[..15] {
        provider.create_now(id.as_str()).unwrap();
    }
    let client = connect(&url).await;
    lapse(&client).await;
    let (_a, _b) = tokio::join!(files.serve(&url), files.serve(&url));
    until("all have their end", async || {
        count(&client, "SELECT count(*) FROM fencepost.operations WHERE status = 'succeeded'").await == 30
    })
    .await;
    for id in &ids {
        assert_eq!(provider.effects(id), 1);
        let (_, version, reference) = record(&client, id).await;
        assert!(version == 2 && reference.is_some(), "{version} {reference:?}");
    }
    assert_eq!((provider.submits(), provider.forged()), (15, 0));
    let owners = "SELECT count(DISTINCT actor) FROM fencepost.operation_events GROUP BY operation_id";
    for row in client.query(owners, &[]).await.unwrap() {
        assert_eq!(row.get::<_, i64>(0), 1, "one owner from take-over to record");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_asked_to_stop_finishes_what_recovery_has() {
    let (url, provider) = (database().await, Provider::start().await);
    let files = Files::new(&settings(provider.addr, true));
    let service = files.serve(&url).await;
    let id = files.admit(service.addr()).await;
    provider.create_now(id.as_str()).unwrap();
    provider.looking.shut();
    let client = connect(&url).await;
    lapse(&client).await;
    provider.looking.wait_arrived(1).await.unwrap();
    let stopped = tokio::spawn(async move { service.stop().await.unwrap() });
    // It is told to stop while the look-up is on its way; then the answer comes.
    provider.looking.open();
    assert!(stopped.await.unwrap().success());
    assert_eq!(record(&client, &id).await.0, "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_on_a_sqlite_file_runs_beside_the_service() {
    let provider = Provider::start().await;
    let files = Files::new(&settings(provider.addr, true));
    let timings = json!({
        "effect_timeout": "1s", "execution_lease": "5s", "lease_margin": "500ms", "store_call_timeout": "1s",
    });
    let mut issuers = config(&files.signer, json!({}), json!({"timings": timings}));
    issuers["timings"]["recovery_step"] = json!("20s");
    std::fs::write(files.path("issuers.json"), issuers.to_string()).unwrap();
    let store = format!("sqlite:{}", files.path("store.sqlite"));
    let service = files.serve(&store).await;
    let id = files.admit(service.addr()).await;
    let status = async || {
        let call = Call::get(&format!("/v1/operations/{id}"))
            .header("x-fencepost-caller-namespace", NAMESPACE)
            .header("x-fencepost-caller", AGENT);
        call.send(service.addr()).await.unwrap().json()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status().await, "admitted");
    until("recovery made its effect", async || status().await == "succeeded").await;
    assert_eq!((provider.effects(&id), provider.forged()), (1, 0));
}

#[tokio::test]
async fn a_held_key_for_a_person_is_found_over_http_by_operators_only() {
    let (url, provider) = (database().await, Provider::start().await);
    let mut recovery = settings(provider.addr, true);
    recovery["give_up"] = json!({"attempts": 1});
    let files = Files::new(&recovery);
    let tokens = ["operator", "filter", "admit"].map(|role| (role, json!([])));
    let tokens: Vec<Value> = tokens
        .into_iter()
        .chain([("elsewhere", json!(["other"]))])
        .map(|(name, prefixes)| {
            let role = if name == "elsewhere" { "operator" } else { name };
            let digest = hex::encode(Sha256::digest(name));
            let prefixes = if role == "filter" { json!(["test"]) } else { prefixes };
            json!({"token_sha256": digest, "roles": [role], "key_prefixes": prefixes})
        })
        .collect();
    std::fs::write(files.path("tokens.json"), json!(tokens).to_string()).unwrap();
    let (recovery, issuers) = (files.path("recovery.json"), files.path("issuers.json"));
    let arguments =
        ["--issuers", &issuers, "--recovery", &recovery, "--token-file", &files.path("tokens.json")];
    let service = Service::start(Options::on(&url).arguments(&arguments)).await.unwrap();
    let ask = async |token: &str, query: &str| {
        let call = Call::get(&format!("/v1/recovery/keys{query}"));
        call.header("authorization", format!("Bearer {token}")).send(service.addr()).await.unwrap()
    };
    for (token, status) in [("filter", 403), ("admit", 403), ("nobody", 401)] {
        assert_eq!(ask(token, "").await.status, status, "{token}");
    }
    let keys = async |query: &str| ask("operator", query).await;
    assert_eq!(keys("").await.json(), json!({"keys": [], "next": null}));
    let key = format!("test:{}", "ab".repeat(16));
    let sql = format!(
        "INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until, cause,
             created_at, updated_at)
         VALUES ('{key}', 'unknown', decode(repeat('ab', 16), 'hex'), 7, '1-a', decode(repeat('ab', 32), 'hex'),
             decode(repeat('ab', 16), 'hex'), '{{}}', now() + interval '1 hour', 'timeout', now(), now())"
    );
    connect(&url).await.batch_execute(&sql).await.unwrap();
    until("it is marked", async || keys("").await.json()["keys"][0]["key"] == key.as_str()).await;
    let marked = keys("?limit=1").await.json();
    assert_eq!(
        (marked["keys"][0]["result"].as_str(), marked["next"].as_str()),
        (Some("not_found"), Some(&key[..]))
    );
    assert!(marked["keys"][0]["version"].as_str().unwrap().starts_with("7."));
    assert_eq!(keys(&format!("?after={key}")).await.json()["keys"], json!([]));
    assert_eq!(ask("elsewhere", "").await.json()["keys"], json!([]), "of other prefixes");
    for wrong in ["?limit=0", "?limit=1001", "?after=x", "?x=1"] {
        assert_eq!(keys(wrong).await.status, 400, "{wrong}");
    }
}

#[test]
fn a_start_whose_durations_do_not_fit_names_both() {
    let recovery = settings(([127, 0, 0, 1], 1).into(), true);
    for (change, says) in [
        (json!({"every": "2m"}), "every: found 2m, and timings.recovery_delay = 1m"),
        (json!({"give_up": {"age": "1m"}}), "give_up.age = 1m"),
        (json!({"unknown": 1}), "unknown field"),
        (json!({}), "which is not in --issuers"),
    ] {
        let mut wrong = recovery.clone();
        merge(&mut wrong, change);
        let files = Files::new(&wrong);
        let store = format!("sqlite:{}", files.path("store.sqlite"));
        let out = Command::new(env!("CARGO_BIN_EXE_fencepost-store"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &store])
            .args(["--recovery", &files.path("recovery.json")])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{told}");
        assert!(told.contains("--recovery") && told.contains(says), "{told}");
    }
    let files = Files::new(&recovery);
    let out = Command::new(env!("CARGO_BIN_EXE_fencepost-store"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"])
        .args(["--recovery", &files.path("recovery.json")])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&out.stderr).contains("expected PostgreSQL or SQLite"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_trace_of_a_recovery_has_its_request_and_its_statements() {
    let (url, provider) = (database().await, Provider::start().await);
    let collector = Upstream::start().await.unwrap();
    collector.script("/v1/traces", Behaviour::status(200).body(AnswerBody::Bytes(Vec::new().into())));
    let files = Files::new(&settings(provider.addr, true));
    let to = format!("http://{}/v1/traces", collector.addr());
    let service = files.serve_with(&url, &["--otlp-endpoint", &to]).await;
    let client = connect(&url).await;
    let id = files.admit(service.addr()).await;
    lapse(&client).await;
    until("the operation has its end", async || record(&client, &id).await.0 == "succeeded").await;
    // Stopping sends what is left.
    service.stop().await.unwrap();
    let mut missing = Vec::new();
    let names = [
        "recover_operation",
        "look_up",
        "submit",
        "recovery_step",
        "operation_may_submit",
        "recovery_record",
    ];
    for name in names {
        // A span's name is in the protobuf as it is: tag, length, text.
        let field = [&[0x2a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        let has = |seen: &Seen| seen.body.windows(field.len()).any(|window| window == field);
        missing.extend(collector.seen().iter().all(|seen| !has(seen)).then_some(name));
    }
    assert!(missing.is_empty(), "{missing:?}");
}
