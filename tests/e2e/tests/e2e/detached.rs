//! Detached execution: the client's stream and the upstream's request live apart.

use crate::support::{configuration, last_result, pay};
use bytes::Bytes;
use fencepost_rig::envoy::{Route, loopback};
use fencepost_rig::stack::{Builder, Stack};
use fencepost_rig::upstream::{AnswerBody, Behaviour, Ending, Gate};
use serde_json::{Value, json};

pub fn detached(mut overrides: Value) -> Value {
    if overrides.get("max_run").is_none() {
        overrides["max_run"] = json!("10s");
    }
    overrides["execution"] =
        json!({"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": "15s"}});
    configuration(overrides)
}

fn stack_with(overrides: Value, route: Route) -> Builder {
    Stack::builder(detached(overrides)).route(route).envoy(|setup| setup.change(loopback::add))
}

async fn start(overrides: Value) -> Stack {
    stack_with(overrides, Route::guarded("/pay", "pay")).start().await.unwrap()
}

#[tokio::test]
async fn a_detached_request_is_answered_and_replayed_like_any_other() {
    let stack = start(json!({})).await;
    stack
        .upstream()
        .script("/pay", Behaviour::default().header("x-odd", b"caf\xe9").header("set-cookie", "a=b"));
    let first = stack.send(&pay("k1").header("x-odd-request", b"\xe9")).await.unwrap();
    assert_eq!((first.status, first.json(), first.is_replay()), (201, json!({"n": 1}), false));
    assert_eq!(first.header_lines("x-odd"), [b"caf\xe9"]);
    assert_eq!(first.header("set-cookie"), Some("a=b"));
    assert_eq!(first.header("x-fencepost-ending"), None);
    assert_eq!(first.header_lines("content-length"), [b"7"]);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.json(), retry.is_replay()), (201, json!({"n": 1}), true));
    assert_eq!(retry.header_lines("content-type"), first.header_lines("content-type"));
    let seen = stack.upstream().seen();
    assert_eq!((seen.len(), seen[0].body.as_slice()), (1, br#"{"amount":1}"#.as_slice()));
    assert_eq!(seen[0].headers.get("x-odd-request").unwrap().as_bytes(), b"\xe9");
    assert!(seen[0].header("x-fencepost-fence").is_some());
    assert_eq!(seen[0].header("x-fencepost-max-run-ms"), None);
    assert_eq!(last_result(&stack, 2).await, "replayed");
}

#[tokio::test]
async fn a_client_that_hangs_up_while_the_upstream_runs_loses_nothing() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    stack.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
    gate.open();
    stack.envoy.wait_stat("wasmcustom.fencepost.executed", |n| n == 1).await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.json(), retry.is_replay()), (201, json!({"n": 1}), true));
    assert!(stack.upstream().seen().iter().all(|seen| !seen.cut));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_while_the_answer_is_stored_loses_nothing() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    stack.service.freeze();
    gate.open();
    stack.upstream().wait_until("an answer", |seen| seen[0].answered).await.unwrap();
    client.abort();
    stack.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
    stack.service.thaw();
    stack.envoy.wait_stat("wasmcustom.fencepost.executed", |n| n == 1).await.unwrap();
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_before_the_claim_answers_runs_nothing() {
    let stack = start(json!({})).await;
    stack.service.freeze();
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    stack.envoy.wait_stat("cluster.fencepost_store_waiting.upstream_rq_total", |n| n >= 1).await.unwrap();
    client.abort();
    stack.envoy.wait_stat("http.ingress.downstream_rq_active", |n| n == 0).await.unwrap();
    stack.service.thaw();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn what_the_route_does_to_a_request_is_done_through_the_loopback() {
    let route = Route::guarded("/pay", "pay")
        .action("prefix_rewrite", "/v2/pay")
        .retry_policy(json!({"retry_on": "5xx,reset", "num_retries": 3}))
        .extra("request_headers_to_add", json!([{"header": {"key": "x-added", "value": "1"}}]))
        .extra("request_headers_to_remove", json!(["x-secret"]))
        .extra("response_headers_to_add", json!([{"header": {"key": "x-route", "value": "r"}}]));
    let stack = stack_with(json!({}), route).start().await.unwrap();
    stack.upstream().script("/v2/pay", Behaviour::status(500));
    let call = pay("k1").header("x-secret", "s").header("x-forwarded-client-cert", "By=spiffe://a");
    let first = stack.send(&call).await.unwrap();
    assert_eq!((first.status, first.header_lines("x-route")), (500, vec![b"r".to_vec()]));
    let retry = stack.send(&call).await.unwrap();
    assert!(retry.is_replay());
    assert_eq!(retry.header_lines("x-route"), [b"r"]);
    let seen = stack.upstream().seen();
    assert_eq!(seen.len(), 1, "the route's retries are switched off in the loopback chain");
    assert_eq!(
        (seen[0].path.as_str(), seen[0].header("x-added"), seen[0].header("x-secret")),
        ("/v2/pay", Some("1"), None)
    );
}

#[tokio::test]
async fn the_three_endings_are_told_through_the_loopback() {
    let stack = start(json!({"max_run": "1s"})).await;
    // Not run: nobody listens.
    stack.upstream().close().await;
    assert_eq!(stack.send(&pay("refused")).await.unwrap().status, 503);
    stack.upstream().open_again().await.unwrap();
    let retry = stack.send(&pay("refused")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    // Unknown: reset, cut and timeout.
    for (key, ending) in [("close", Ending::CloseBeforeHead), ("cut", Ending::Cut(3)), ("hang", Ending::Hang)]
    {
        stack.upstream().script_next("/pay", Behaviour::default().ending(ending));
        let first = stack.send(&pay(key)).await.unwrap();
        assert_eq!((first.status, first.problem_code().as_str()), (504, "upstream_lost"), "{key}");
        let retry = stack.send(&pay(key)).await.unwrap();
        assert_eq!((retry.status, retry.problem_code().as_str()), (409, "outcome_unknown"), "{key}");
    }
    // Answered, whatever the status.
    stack.upstream().script_next("/pay", Behaviour::status(503));
    assert_eq!(stack.send(&pay("own-503")).await.unwrap().status, 503);
    assert!(stack.send(&pay("own-503")).await.unwrap().is_replay());
    assert_eq!(stack.upstream().executions(), 5);
}

#[tokio::test]
async fn a_path_without_a_route_in_the_loopback_is_certainly_not_run() {
    let stack = Stack::builder(detached(json!({}))).route(Route::guarded("/pay", "pay"));
    let stack = stack.envoy(|setup| {
        setup.change(loopback::add).change(|bootstrap| {
            let path = "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";
            bootstrap.pointer_mut(path).unwrap().as_array_mut().unwrap().remove(0);
        })
    });
    let stack = stack.start().await.unwrap();
    for _ in 0..2 {
        let answer = stack.send(&pay("k1")).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (404, false));
    }
    assert_eq!(stack.envoy.stat("wasmcustom.fencepost.released_not_run").await.unwrap(), 2);
}

#[tokio::test]
async fn without_the_report_an_answer_is_unknown_and_the_report_of_an_upstream_is_not_believed() {
    // The report is taken out of the chain: even a good answer proves nothing.
    let stack = Stack::builder(detached(json!({}))).route(Route::guarded("/pay", "pay")).envoy(|setup| {
        setup.change(loopback::add).change(|bootstrap| {
            let path = "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0";
            bootstrap.pointer_mut(path).unwrap().as_object_mut().unwrap().remove("response_headers_to_add");
        })
    });
    let stack = stack.start().await.unwrap();
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (504, "upstream_lost"));

    let stack = start(json!({"max_run": "1s"})).await;
    let lie = "no_healthy_upstream|UH|-|0";
    stack.upstream().script("/pay", Behaviour::default().header("x-fencepost-ending", lie));
    stack.send(&pay("k1")).await.unwrap();
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn bodies_up_to_the_limits_go_both_ways_and_larger_answers_leave_a_marker() {
    let stack =
        start(json!({"response": {"max_body": "256KiB"}, "fingerprint": {"max_body": "512KiB"}})).await;
    stack.upstream().script_next("/pay", Behaviour::default().body(AnswerBody::Size(262_144)));
    let call = |key: &str, len: usize| pay(key).body(vec![b'x'; len]);
    let first = stack.send(&call("k1", 524_288)).await.unwrap();
    assert_eq!((first.status, first.body.len()), (201, 262_144));
    let retry = stack.send(&call("k1", 524_288)).await.unwrap();
    assert_eq!((retry.is_replay(), &retry.body), (true, &first.body));
    assert_eq!(stack.upstream().seen()[0].body.len(), 524_288);
    assert_eq!(stack.send(&call("k2", 524_289)).await.unwrap().status, 413);
    stack.upstream().script_next("/pay", Behaviour::default().body(AnswerBody::Size(5_000_000)).chunked());
    assert_eq!(stack.send(&pay("k3")).await.unwrap().body.len(), 5_000_000);
    assert_eq!(stack.send(&pay("k3")).await.unwrap().status, 410);
    let pieces = vec![Bytes::from_static(b"{\"amount\""), Bytes::from_static(b":1}")];
    let trailers = pay("k4").chunks(pieces).trailer("x-t", "1").http2();
    assert_eq!(stack.send(&trailers).await.unwrap().status, 201);
    assert_eq!(stack.upstream().executions(), 3);
}

#[tokio::test]
async fn an_answer_beyond_the_hosts_bound_is_unknown_and_runs_once() {
    let stack = start(json!({})).await;
    stack
        .upstream()
        .script_next("/pay", Behaviour::default().body(AnswerBody::Size(34 * 1024 * 1024)).chunked());
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.problem_code().as_str()), (504, "upstream_lost"));
    assert_eq!(stack.send(&pay("k1")).await.unwrap().problem_code(), "outcome_unknown");
    assert_eq!(stack.send(&pay("k2")).await.unwrap().status, 201, "the VM lives");
    assert_eq!(stack.upstream().executions(), 2);
}

#[tokio::test]
async fn the_upstream_itself_may_say_how_its_answer_is_kept() {
    for build in [detached, configuration] {
        let stack = Stack::builder(build(json!({}))).route(Route::guarded("/pay", "pay"));
        let stack = stack.envoy(|setup| setup.change(loopback::add)).start().await.unwrap();
        for (key, word) in [("no", "no"), ("final", "not-final"), ("short", "1"), ("odd", "sometimes")] {
            stack.upstream().script_next("/pay", Behaviour::default().header("x-fencepost-store", word));
            let first = stack.send(&pay(key)).await.unwrap();
            assert_eq!((first.status, first.header("x-fencepost-store")), (201, None), "{word}");
        }
        assert!(!stack.send(&pay("no")).await.unwrap().is_replay());
        assert_eq!(stack.send(&pay("final")).await.unwrap().problem_code(), "outcome_unknown");
        assert!(stack.send(&pay("odd")).await.unwrap().is_replay());
        let mut again = stack.send(&pay("short")).await.unwrap();
        while again.is_replay() {
            assert!(again.header("x-idempotent-expires").is_some());
            again = stack.send(&pay("short")).await.unwrap();
        }
        assert_eq!(again.status, 201, "its second is over");
        assert_eq!(stack.upstream().executions(), 6);
    }
}
