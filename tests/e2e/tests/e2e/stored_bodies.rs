//! What of an answer lies in the database.

use crate::detached::detached;
use crate::support::{configuration, pay};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Route, loopback};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::stack::{Builder, Stack, Store};
use fencepost_rig::upstream::{AnswerBody, Behaviour};
use serde_json::{Value, json};
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
