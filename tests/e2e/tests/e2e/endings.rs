//! The three endings, told by evidence: answered, certainly not run, unknown.

use crate::support::{pay, stack, start};
use fencepost_rig::upstream::{Behaviour, Ending, Gate};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_request_that_never_reached_the_upstream_can_run_again() {
    let stack = start(json!({})).await;
    stack.upstream().close().await;
    let refused = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(refused.status, 503);
    assert!(!refused.is_replay());
    stack.upstream().open_again().await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(stack.upstream().executions(), 1);
    assert_eq!(stack.envoy.stat("wasmcustom.fencepost.released_not_run").await.unwrap(), 1);
}

#[tokio::test]
async fn a_reset_after_the_request_was_sent_leaves_the_outcome_unknown() {
    let stack = start(json!({})).await;
    for (key, ending) in [("close", Ending::CloseBeforeHead), ("cut", Ending::Cut(3))] {
        stack.upstream().script_next("/pay", Behaviour::default().ending(ending));
        let first = pay(key).send(stack.proxy()).await;
        // Where the answer had begun, the proxy's own words go past the filter.
        let status = if key == "close" { 504 } else { 502 };
        assert_eq!(first.unwrap().status, status, "{key}");
        let retry = retry_until_settled(&stack, key).await;
        assert_eq!(retry, (409, "outcome_unknown".to_owned()), "{key}");
    }
    assert_eq!(stack.upstream().executions(), 2);
}

/// The news of a cut stream reaches the store after the client: asks until it has.
async fn retry_until_settled(stack: &fencepost_rig::stack::Stack, key: &str) -> (u16, String) {
    for _ in 0..50 {
        let retry = stack.send(&pay(key)).await.unwrap();
        let code = retry.problem_code();
        if code != "in_progress" {
            return (retry.status, code);
        }
    }
    panic!("{key} is in progress for ever");
}

#[tokio::test]
async fn a_timeout_of_the_proxy_is_not_stored_as_the_upstreams_answer() {
    let stack = start(json!({"max_run": "1s"})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.problem_code().as_str()), (504, "upstream_lost"));
    assert_eq!(first.header("content-type"), Some("application/problem+json"));
    assert_eq!(first.header_lines("content-length"), [first.body.len().to_string().as_bytes()]);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.problem_code().as_str()), (409, "outcome_unknown"));
    assert!(retry.header("retry-after").is_some());
    gate.open();
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_the_upstream_runs_leaves_the_outcome_unknown() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    stack.upstream().wait_until("a cut", |seen| seen[0].cut).await.unwrap();
    assert_eq!(retry_until_settled(&stack, "k1").await, (409, "outcome_unknown".to_owned()));
    gate.open();
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_its_claim_is_on_its_way_leaves_the_key_free() {
    let stack = start(json!({})).await;
    stack.service.freeze();
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    stack.envoy.wait_stat("cluster.fencepost_store_waiting.upstream_rq_total", |n| n >= 1).await.unwrap();
    client.abort();
    stack.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
    stack.service.thaw();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, false), "the claim that nobody uses was given back");
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn the_proxys_own_retries_do_not_run_a_guarded_request_again() {
    use fencepost_rig::envoy::Route;
    use fencepost_rig::stack::Stack;
    let retries = json!({"retry_on": "5xx,reset", "num_retries": 3});
    let route = Route::guarded("/pay", "pay").retry_policy(retries);
    let stack = Stack::builder(crate::support::configuration(json!({}))).route(route).start().await.unwrap();
    stack.upstream().script("/pay", Behaviour::status(500));
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 500);
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_denial_of_a_later_filter_gives_the_claim_back() {
    let deny = fencepost_rig::envoy::typed(
        "envoy.filters.http.rbac",
        "extensions.filters.http.rbac.v3.RBAC",
        json!({"rules": {"action": "DENY", "policies": {"blocked": {
            "permissions": [{"header": {"name": "x-blocked", "string_match": {"exact": "yes"}}}],
            "principals": [{"any": true}],
        }}}}),
    );
    let stack = stack(json!({})).envoy(|mut setup| {
        setup.after.push(deny);
        setup
    });
    let stack = stack.start().await.unwrap();
    assert_eq!(stack.send(&pay("k1").header("x-blocked", "yes")).await.unwrap().status, 403);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, false));
}

#[tokio::test]
async fn a_direct_response_of_the_route_gives_the_claim_back() {
    use fencepost_rig::envoy::Route;
    use fencepost_rig::stack::Stack;
    let route = Route::guarded("/pay", "pay").extra("direct_response", json!({"status": 418}));
    let stack = Stack::builder(crate::support::configuration(json!({}))).route(route).start().await.unwrap();
    for _ in 0..2 {
        let answer = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (418, false));
    }
    let released = stack.envoy.stat("wasmcustom.fencepost.released_not_run").await.unwrap();
    assert_eq!(released, 2);
}

#[tokio::test]
async fn a_handler_that_outlives_its_lease_many_times_keeps_its_claim() {
    let stack = start(json!({"claim_ttl": "1s"})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let first = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    // Eight thirds of a lease: without renewal the second caller would find it expired.
    let renewals = "cluster.fencepost_store.upstream_rq_total";
    stack.envoy.wait_stat(renewals, |n| n >= 8).await.unwrap();
    let retry = stack.send(&pay("k1").within(Duration::from_secs(20))).await.unwrap();
    assert_eq!((retry.status, retry.problem_code().as_str()), (409, "in_progress"));
    gate.open();
    assert_eq!(first.await.unwrap().unwrap().status, 201);
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_connection_failure_after_a_retry_is_no_proof_that_nothing_ran() {
    use fencepost_rig::envoy::Route;
    use fencepost_rig::stack::Stack;
    let retries = json!({"retry_on": "connect-failure,reset", "num_retries": 1});
    let route = Route::guarded("/pay", "pay").retry_policy(retries);
    let configuration = crate::support::configuration(json!({"retries": "allow"}));
    let stack = Stack::builder(configuration).route(route).start().await.unwrap();
    stack.upstream().close().await;
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.problem_code().as_str()), (504, "upstream_lost"));
    stack.upstream().open_again().await.unwrap();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().problem_code(), "outcome_unknown");
    assert_eq!(stack.upstream().executions(), 0);
}

#[tokio::test]
async fn rerun_runs_an_equal_request_again_once_the_lost_one_has_certainly_stopped() {
    let stack = start(json!({"on_lost": "rerun", "claim_ttl": "1s", "max_run": "1s", "wait": "100ms"})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    stack.envoy.wait_stat("wasmcustom.fencepost.unknown", |n| n == 1).await.unwrap();
    // The upstream may still be at work: nothing runs beside it, and another payload never does.
    let early = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((early.status, early.problem_code().as_str()), (409, "in_progress"));
    let other = fencepost_rig::client::Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
    assert_eq!(stack.send(&other).await.unwrap().status, 422);
    let again = loop {
        let answer = stack.send(&pay("k1")).await.unwrap();
        if answer.problem_code() != "in_progress" {
            break answer;
        }
    };
    assert_eq!((again.status, again.is_replay()), (201, false));
    let fences: Vec<i64> = stack
        .upstream()
        .seen()
        .iter()
        .map(|seen| seen.header("x-fencepost-fence").unwrap().parse().unwrap())
        .collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
    gate.open();
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
}

#[tokio::test]
async fn an_unknown_outcome_ends_with_its_lifetime() {
    let stack = start(json!({"response": {"unknown_ttl": "1s"}})).await;
    stack.upstream().script_next("/pay", Behaviour::default().ending(Ending::CloseBeforeHead));
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 504);
    assert_eq!(stack.send(&pay("k1")).await.unwrap().problem_code(), "outcome_unknown");
    let again = loop {
        let answer = stack.send(&pay("k1")).await.unwrap();
        if answer.problem_code() != "outcome_unknown" {
            break answer;
        }
    };
    assert_eq!((again.status, again.is_replay()), (201, false));
}
