//! What of an answer lies in the database.

use crate::detached::detached;
use crate::support::{configuration, pay};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Route, loopback};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::{Builder, Stack, Store};
use fencepost_rig::upstream::{AnswerBody, Behaviour};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const ANSWER: &str = "planted-answer-77d0";
const HEADER: &str = "planted-header-51c2";

fn scripted() -> Behaviour {
    Behaviour::status(201).header("x-answer", HEADER).body(AnswerBody::Bytes(ANSWER.into()))
}

/// Everything that is in a database, as text.
pub async fn dump(database: &str) -> String {
    let program = Postgres::shared().await.bin().join("pg_dump");
    let done = Command::new(program).arg(database).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Whether a text is in a dump, as it is or as `pg_dump` writes bytes.
pub fn holds(dump: &str, text: &str) -> bool {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    dump.contains(text) || dump.contains(&hex)
}

async fn start(builder: Builder) -> (Stack, String) {
    let database = Postgres::shared().await.create_database().await;
    let stack = builder.store(Store::Url(database.clone())).start().await.unwrap();
    (stack, database)
}

fn builders(response: &Value) -> [Builder; 2] {
    [configuration(json!({})), detached(json!({}))].map(|configuration| {
        let kept = Route::guarded("/kept", "pay");
        let pay = Route::guarded("/pay", "pay").metadata("response", response.clone());
        Stack::builder(configuration).route(kept).route(pay).envoy(|setup| setup.change(loopback::add))
    })
}

#[tokio::test]
async fn a_route_that_keeps_no_answers_stores_that_it_ran_and_nothing_of_what_it_said() {
    for builder in builders(&json!({"keep": "status", "oversized": "rerun", "max_body": "4B"})) {
        let (stack, database) = start(builder).await;
        stack.upstream().script("/pay", scripted());
        let first = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((first.status, first.text().as_str(), first.is_replay()), (201, ANSWER, false));
        assert_eq!(first.header("x-answer"), Some(HEADER));
        let retry = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((retry.status, retry.problem_code().as_str()), (410, "answer_not_kept"));
        assert_eq!(retry.header("x-idempotent-original-status"), Some("201"));
        assert!(retry.is_replay() && retry.header("x-answer").is_none());
        let other = Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
        assert_eq!(stack.send(&other).await.unwrap().status, 422, "the key is used");
        assert_eq!(stack.upstream().executions(), 1);
        let found = dump(&database).await;
        assert!(!holds(&found, ANSWER) && !holds(&found, HEADER));
        // Where answers are kept they are found so.
        stack.upstream().script("/kept", scripted());
        let kept = Call::post("/kept").user("alice").key("k2").json(&json!({"amount": 1}));
        assert_eq!(stack.send(&kept).await.unwrap().status, 201);
        let found = dump(&database).await;
        assert!(holds(&found, ANSWER) && holds(&found, HEADER));
    }
}

fn write_keys(path: &std::path::Path, number: u8) {
    std::fs::write(path, format!("k1 {}\n", STANDARD.encode([number; 32]))).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[tokio::test]
async fn sealed_answers_are_in_no_dump_and_no_log_and_a_wrong_key_runs_nothing() {
    let (database, files) = (Postgres::shared().await.create_database().await, Scratch::new("keys").unwrap());
    let keys = files.path().join("keys");
    write_keys(&keys, 1);
    let builder = crate::support::stack(json!({})).store(Store::Url(database.clone()));
    let builder = builder
        .service_arguments(&["--seal-keys", keys.to_str().unwrap()])
        .service_variable("FENCEPOST_LOG", "debug,fencepost_store=trace");
    let stack = builder.start().await.unwrap();
    stack.upstream().script("/pay", scripted());
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.text().as_str()), (201, ANSWER));
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(
        (retry.text().as_str(), retry.header("x-answer"), retry.is_replay()),
        (ANSWER, Some(HEADER), true)
    );
    let found = dump(&database).await;
    let log = std::fs::read_to_string(stack.service.log_path()).unwrap();
    assert!(found.contains("test:") && !log.is_empty(), "the test looks at nothing");
    for text in [ANSWER, HEADER] {
        assert!(!holds(&found, text) && !holds(&log, text), "{text}");
    }
    // Another key under the same id.
    stack.service.stop().await.unwrap();
    write_keys(&keys, 2);
    stack.service.start_again().await.unwrap();
    let refused = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((refused.status, refused.problem_code().as_str()), (503, "store_unavailable"));
    assert!(!holds(&refused.text(), ANSWER));
    assert_eq!(stack.upstream().executions(), 1, "nothing runs");
    let metrics = Call::get("/metrics").send(stack.service.addr()).await.unwrap().text();
    assert!(!metrics.contains("fencepost_seal_failures_total{cause=\"altered\"} 0"), "{metrics}");
    stack.service.stop().await.unwrap();
    write_keys(&keys, 1);
    stack.service.start_again().await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.text().as_str(), retry.is_replay()), (ANSWER, true));
    assert_eq!(stack.upstream().executions(), 1);
}
