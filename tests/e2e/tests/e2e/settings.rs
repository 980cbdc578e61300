//! Settings of one policy: how keys are written, what is kept of answers, keys for the upstream's
//! own providers, filters that must run first.

use crate::support::{configuration, pay, stack, start};
use fencepost_rig::client::Call;
use fencepost_rig::envoy::Route;
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::Behaviour;
use serde_json::json;
use std::time::{Duration, Instant};

fn bare() -> Call {
    Call::post("/pay").user("alice").json(&json!({"amount": 1}))
}

#[tokio::test]
async fn a_key_may_come_by_any_of_its_names_and_never_by_two() {
    let stack = start(json!({"key": {"header": "X-Request-Key", "aliases": ["Idempotency-Key"]}})).await;
    stack.send(&bare().header("x-request-key", "k1")).await.unwrap();
    for name in ["Idempotency-Key", "X-REQUEST-KEY"] {
        assert!(stack.send(&bare().header(name, "\"k1\"")).await.unwrap().is_replay(), "{name}");
    }
    let both = bare().header("x-request-key", "k1").key("k1");
    let answer = stack.send(&both).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (400, "key_malformed"));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn each_format_takes_its_own_spelling() {
    for (format, accepted, refused) in [
        ("lenient", &["k1", "\"k2\"", "\"k 3\";a=1"][..], &["k 1", "k1, k2", "k1;a", ""][..]),
        ("structured", &["\"k1\"", "\"k, 2\";x"], &["k1", "?1", ":aGk=:", "\"k"]),
        ("plain", &["k1", "\"k1\"", "a, b;c", "Bearer x=="], &["", "  "]),
    ] {
        let stack = start(json!({"key": {"format": format}})).await;
        for key in accepted {
            let first = stack.send(&bare().key(key)).await.unwrap();
            assert_eq!((first.status, first.is_replay()), (201, false), "{format} {key}");
            assert!(stack.send(&bare().key(key)).await.unwrap().is_replay(), "{format} {key}");
        }
        for key in refused {
            let answer = stack.send(&bare().key(key)).await.unwrap();
            assert_eq!(
                (answer.status, answer.problem_code().as_str()),
                (400, "key_malformed"),
                "{format} {key}"
            );
        }
        assert_eq!(stack.upstream().executions(), accepted.len() as u64, "{format}");
    }
}

#[tokio::test]
async fn headers_are_kept_by_the_policys_lists_and_the_hard_part_never() {
    for (rules, kept) in [
        (json!({"deny": ["x-b", "x-c-*"]}), &["x-a"][..]),
        (json!({"allow": ["X-A", "X-C-*", "set-cookie", "date"]}), &["x-a", "x-c-1"]),
        (json!({"allow": ["x-*"], "deny": ["x-a"]}), &["x-b", "x-c-1"]),
    ] {
        let stack = start(json!({"response": {"headers": rules.clone()}})).await;
        let answer = Behaviour::default().header("x-a", "1").header("x-b", "1").header("x-c-1", "1");
        stack.upstream().script("/pay", answer.header("set-cookie", "a=b").header("x-request-id", "1"));
        let first = stack.send(&pay("k1")).await.unwrap();
        let retry = stack.send(&pay("k1")).await.unwrap();
        assert!(retry.is_replay());
        for name in ["x-a", "x-b", "x-c-1"] {
            assert_eq!(first.header(name), Some("1"), "{name}: the first answer is whole");
            assert_eq!(retry.header(name).is_some(), kept.contains(&name), "{name} by {rules}");
        }
        assert_eq!((first.header("set-cookie"), retry.header("set-cookie")), (Some("a=b"), None));
        assert_eq!(retry.header_lines("date").len(), 1, "its own");
    }
}

#[tokio::test]
async fn statuses_are_kept_for_as_long_as_the_policy_says() {
    let statuses =
        json!({"4xx": {"ttl": "1s"}, "404": "store", "409": "release", "5xx": "release", "401": "store"});
    let stack = start(json!({"response": {"ttl": "1h", "statuses": statuses}})).await;
    for (status, kept) in
        [(200, true), (404, true), (401, true), (409, false), (500, false), (503, false), (403, false)]
    {
        let key = format!("k{status}");
        stack.upstream().script_next("/pay", Behaviour::status(status));
        assert_eq!(stack.send(&pay(&key)).await.unwrap().status, status);
        let retry = stack.send(&pay(&key)).await.unwrap();
        assert_eq!((retry.is_replay(), retry.status), (kept, if kept { status } else { 201 }), "{status}");
        if kept {
            let left: u64 = retry.header("x-idempotent-expires").unwrap().parse().unwrap();
            assert!((3_590..3_600).contains(&left), "{status}: {left}");
        }
    }
    // A lifetime of its own: a retry runs again when it is over.
    stack.upstream().script_next("/pay", Behaviour::status(422));
    stack.send(&pay("short")).await.unwrap();
    let began = Instant::now();
    let again = loop {
        let answer = stack.send(&pay("short")).await.unwrap();
        if !answer.is_replay() {
            break answer;
        }
        assert_eq!((answer.status, answer.header("x-idempotent-expires")), (422, Some("0")));
        assert!(began.elapsed() < Duration::from_secs(10));
    };
    assert_eq!(again.status, 201);
}

#[tokio::test]
async fn the_upstream_gets_keys_for_its_providers_that_never_change() {
    let keys = json!([
        {"provider": "stripe", "operation": "charge", "header": "X-Stripe-Key"},
        {"provider": "square", "operation": "charge", "header": "x-square-key"},
        {"provider": "adyen", "operation": "capture", "header": "idempotency-key"},
        {"provider": "paypal", "operation": "order", "header": "PayPal-Request-Id"},
        {"provider": "acme", "operation": "o", "header": "x-acme-key", "length": 32},
    ]);
    let overrides = json!({"downstream_keys": keys, "max_run": "10s",
        "response": {"statuses": {"5xx": "release"}}});
    let stack = start(overrides.clone()).await;
    stack.upstream().script_next("/pay", Behaviour::status(500));
    let call =
        pay("k1").header("x-stripe-key", "mine").header("x-acme-key", "mine").header("x-acme-key", "two");
    assert_eq!(stack.send(&call).await.unwrap().status, 500);
    assert_eq!(stack.send(&call).await.unwrap().status, 201);
    let golden = [
        ("x-stripe-key", "57bad3bf51855b146ad14f23cfe27f4c404590088c5ddc677ce31ee289192a57"),
        ("x-square-key", "721c1f71-6a68-e3c1-4565-e86890c4c854"),
        ("idempotency-key", "e9a82472d98dc1a14528ae1ad1045f7e0e8bed4fb0191ee574a06d255dd65268"),
        ("paypal-request-id", "51bcd760691df0c15a85e769f620e62f94964e3bbb01b59712bc69061913c484"),
        ("x-acme-key", "7e558b2a4edcab5c1e4481457afc14ef"),
    ];
    for seen in stack.upstream().seen() {
        for (name, value) in golden {
            assert_eq!(seen.headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
        }
    }
    // Another proxy on another store makes the same keys, and another caller has others.
    let elsewhere = start(overrides).await;
    elsewhere.send(&call).await.unwrap();
    assert_eq!(elsewhere.upstream().seen()[0].header("x-stripe-key"), Some(golden[0].1));
    let bob = Call::post("/pay").user("bob").key("k1").json(&json!({"amount": 1}));
    elsewhere.send(&bob).await.unwrap();
    assert_ne!(elsewhere.upstream().seen()[1].header("x-stripe-key"), Some(golden[0].1));
}

#[tokio::test]
async fn a_filter_that_must_run_first_and_did_not_stops_the_request() {
    let jwt = "envoy.filters.http.jwt_authn";
    let guarded = |required: &str| start(json!({"require_metadata": [required]}));
    let stack = guarded(jwt).await;
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    let stack = guarded("envoy.filters.http.ext_authz").await;
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (500, "metadata_missing"));
    // Placed before authentication, the filter knows nobody and refuses, whatever is sent.
    let stack = stack_before_authentication().await;
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (500, "metadata_missing"));
    assert_eq!(stack.upstream().executions(), 0);
}

async fn stack_before_authentication() -> Stack {
    let overrides = json!({"require_metadata": ["envoy.filters.http.jwt_authn"]});
    let builder = Stack::builder(configuration(overrides)).route(Route::guarded("/pay", "pay"));
    let builder = builder.envoy(|setup| {
        setup.change(|bootstrap| {
            let manager = fencepost_rig::envoy::connection_manager(bootstrap).unwrap();
            manager["http_filters"].as_array_mut().unwrap().swap(0, 1);
        })
    });
    builder.start().await.unwrap()
}

#[tokio::test]
async fn payloads_under_new_keys_are_counted_where_the_policy_asks_and_run_all_the_same() {
    let stack = stack(json!({"same_payload_window": "1m"})).start().await.unwrap();
    for key in ["k1", "k1", "k2", "k2", "k3"] {
        assert_eq!(stack.send(&pay(key)).await.unwrap().status, 201);
    }
    let bob = Call::post("/pay").user("bob").key("k4").json(&json!({"amount": 1}));
    stack.send(&bob).await.unwrap();
    assert_eq!(stack.upstream().executions(), 4, "only the client knows whether it meant one or two");
    assert_eq!(stack.envoy.stat("wasmcustom.fencepost.same_payload_new_key").await.unwrap(), 2);
}
