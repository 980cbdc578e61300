//! What the tests of guarded requests share: a policy, a stack, and the usual call.

use fencepost_rig::client::Call;
use fencepost_rig::envoy::Route;
use fencepost_rig::stack::{Builder, Stack, Store};
use serde_json::{Value, json};

/// A filter configuration with one policy `pay`, scoped by the JWT's subject; `overrides` replace
/// settings of the policy.
pub fn configuration(overrides: Value) -> Value {
    let mut policy = json!({
        "namespace": "payments",
        "scope": [{"jwt": {"payload": "jwt_payload", "claim": "sub"}}],
    });
    for (name, value) in overrides.as_object().unwrap() {
        policy[name] = value.clone();
    }
    json!({
        "store": {"decide_cluster": "fencepost_store", "claim_cluster": "fencepost_store_waiting", "timeout": "2s"},
        "key_prefix": "test",
        "policies": {"pay": policy},
    })
}

/// A stack in which `/pay` is guarded and everything else is not.
pub fn stack(overrides: Value) -> Builder {
    Stack::builder(configuration(overrides)).route(Route::guarded("/pay", "pay")).route(Route::to("/"))
}

/// A stack on SQLite, running.
pub async fn start(overrides: Value) -> Stack {
    stack(overrides).start().await.unwrap()
}

/// A stack on PostgreSQL, running.
pub async fn start_on_postgres(overrides: Value) -> Stack {
    stack(overrides).store(Store::Postgres).start().await.unwrap()
}

/// Alice pays one, under a key.
pub fn pay(key: &str) -> Call {
    Call::post("/pay").user("alice").key(key).json(&json!({"amount": 1}))
}

/// The filter's result in the last line of the access log, once it has `n` lines.
pub async fn last_result(stack: &Stack, n: usize) -> String {
    let log = stack.envoy.wait_access_log(n).await.unwrap();
    log[n - 1]["result"].as_str().unwrap_or("-").to_owned()
}
