//! Policies as routes carry them: overrides, observing, unmarked routes, the filter's own words.

use crate::support::{configuration, last_result, pay, stack, start};
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Route, Setup, connection_manager};
use fencepost_rig::raw::RawConnection;
use fencepost_rig::stack::{Builder, Stack};
use fencepost_rig::upstream::{AnswerBody, Behaviour, Ending, Gate};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Puts metadata on the virtual host.
fn on_virtual_host(setup: Setup, metadata: Value) -> Setup {
    setup.change(move |bootstrap| {
        let host =
            connection_manager(bootstrap).unwrap().pointer_mut("/route_config/virtual_hosts/0").unwrap();
        host["metadata"] = json!({"filter_metadata": {"fencepost": metadata}});
    })
}

fn post(path: &str, key: &str) -> Call {
    Call::post(path).user("alice").key(key).json(&json!({"amount": 1}))
}

fn keyless(path: &str) -> Call {
    Call::post(path).user("alice").json(&json!({"amount": 1}))
}

fn verdict(answer: &Answer) -> (u16, String) {
    (answer.status, answer.problem_code())
}

async fn results(stack: &Stack, n: usize) -> Vec<String> {
    let log = stack.envoy.wait_access_log(n).await.unwrap();
    log.iter().map(|line| line["result"].as_str().unwrap_or("-").to_owned()).collect()
}

#[tokio::test]
async fn overrides_of_every_type_reach_the_filter_and_the_most_specific_wins() {
    let host =
        json!({"policy": "pay", "key": {"required": false, "max_length": 8}, "methods": ["POST", "DELETE"]});
    let stack = Stack::builder(configuration(json!({})))
        .route(Route::to("/strict").metadata("key", json!({"required": true})))
        .route(Route::to("/short").metadata("key", json!({"max_length": 4})))
        .route(
            Route::to("/status")
                .metadata("response", json!({"statuses": {"500": "release"}, "headers": {"deny": ["x-a"]}})),
        )
        .route(Route::to("/public").metadata("scope", json!([{"constant": {"value": "all"}}, "host"])))
        .route(Route::to("/anonymous").metadata("anonymous", true))
        .route(Route::to("/property").metadata("fingerprint", json!({"properties": ["amount"]})))
        .route(Route::to("/off").metadata("mode", "off"))
        .route(Route::to("/plain"))
        .envoy(|setup| on_virtual_host(setup, host))
        .start()
        .await
        .unwrap();
    assert_eq!(verdict(&stack.send(&keyless("/plain")).await.unwrap()), (201, String::new()));
    assert_eq!(verdict(&stack.send(&keyless("/strict")).await.unwrap()), (400, "key_missing".into()));
    assert_eq!(stack.send(&post("/plain", "12345678")).await.unwrap().status, 201);
    for (path, key) in [("/plain", "123456789"), ("/short", "12345")] {
        assert_eq!(
            verdict(&stack.send(&post(path, key)).await.unwrap()),
            (400, "key_too_long".into()),
            "{path}"
        );
    }
    let delete = Call::new("DELETE", "/plain").user("alice").key("d");
    stack.send(&delete).await.unwrap();
    assert!(stack.send(&delete).await.unwrap().is_replay(), "a list");
    stack.upstream().script_next("/status", Behaviour::status(500));
    assert_eq!(stack.send(&post("/status", "s")).await.unwrap().status, 500);
    stack.upstream().script_next("/status", Behaviour::default().header("x-a", "1").header("x-b", "1"));
    assert_eq!(stack.send(&post("/status", "s")).await.unwrap().status, 201, "a map in a map");
    let retry = stack.send(&post("/status", "s")).await.unwrap();
    assert_eq!((retry.is_replay(), retry.header("x-a"), retry.header("x-b")), (true, None, Some("1")));
    for path in ["/public", "/anonymous"] {
        let nobody = Call::post(path).key("p").json(&json!({"amount": 1}));
        assert_eq!(stack.send(&nobody).await.unwrap().status, 201, "{path}");
        assert!(stack.send(&post(path, "p")).await.unwrap().is_replay(), "{path}: everybody is one caller");
    }
    let volatile =
        |at: u32| Call::post("/property").user("alice").key("v").json(&json!({"amount": 1, "at": at}));
    stack.send(&volatile(1)).await.unwrap();
    assert!(stack.send(&volatile(2)).await.unwrap().is_replay());
    for _ in 0..2 {
        assert!(!stack.send(&post("/off", "o")).await.unwrap().is_replay());
    }
}

#[tokio::test]
async fn a_wrong_override_is_500_with_its_path_in_the_log_and_harms_no_other_route() {
    let wrong = [
        ("/unknown", "wiat", json!("5s"), "route.filter_metadata.fencepost.wiat: found an unknown field"),
        ("/number", "wait", json!(5), "route.filter_metadata.fencepost.wait: found 5"),
        ("/type", "anonymous", json!("true"), "route.filter_metadata.fencepost.anonymous: found \"true\""),
        ("/nested", "key", json!({"format": "strict"}), "route.filter_metadata.fencepost.key.format"),
        (
            "/together",
            "fingerprint",
            json!({"body": "none", "properties": ["a"]}),
            "fencepost.fingerprint.properties",
        ),
        ("/null", "wait", Value::Null, "route_metadata.filter_metadata.fencepost.wait: found null"),
    ];
    let mut builder = Stack::builder(configuration(json!({})));
    for (path, field, value, _) in wrong.clone() {
        builder = builder.route(Route::guarded(path, "pay").metadata(field, value));
    }
    builder =
        builder.route(Route::to("/nameless").metadata("wait", "1s")).route(Route::guarded("/pay", "pay"));
    let stack = builder.start().await.unwrap();
    for _ in 0..3 {
        for (path, ..) in &wrong {
            let answer = stack.send(&post(path, "k1")).await.unwrap();
            assert_eq!(verdict(&answer), (500, "policy_unreadable".into()), "{path}");
        }
        assert_eq!(
            verdict(&stack.send(&post("/nameless", "k1")).await.unwrap()),
            (500, "policy_unreadable".into())
        );
        assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    }
    assert_eq!(stack.upstream().executions(), 1);
    for (path, _, _, text) in &wrong {
        stack.envoy.wait_log(text).await.unwrap();
        assert_eq!(stack.envoy.log().matches(text).count(), 1, "{path}: once");
    }
    stack.envoy.wait_log("filter_metadata.fencepost.policy: found nothing").await.unwrap();
}

/// `/observed` is observed, `/pay` is guarded, both under one policy.
async fn observing() -> Stack {
    let builder = stack(json!({})).envoy(|mut setup| {
        setup.routes.insert(0, Route::guarded("/observed", "pay").metadata("mode", "observe"));
        setup
    });
    builder.start().await.unwrap()
}

#[tokio::test]
async fn observing_lets_everything_run_and_says_what_it_would_have_done() {
    let stack = observing().await;
    let gate = Gate::new();
    let send = async |call: Call, counter: &str, n: u64| {
        // The answer waits until the store has spoken, so that the access log has its word.
        stack.upstream().script_next("/observed", Behaviour::gated(&gate));
        let proxy = stack.proxy();
        let client = tokio::spawn(async move { call.send(proxy).await });
        stack.envoy.wait_stat(&format!("wasmcustom.fencepost.{counter}"), |count| count == n).await.unwrap();
        gate.admit(1);
        let answer = client.await.unwrap().unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, false), "{counter}");
    };
    send(post("/observed", "k1"), "would_execute", 1).await;
    stack.envoy.wait_stat("cluster.fencepost_store.upstream_rq_completed", |n| n >= 2).await.unwrap();
    send(post("/observed", "k1"), "would_replay", 1).await;
    let other = Call::post("/observed").user("alice").key("k1").json(&json!({"amount": 2}));
    send(other, "would_mismatch", 1).await;
    send(keyless("/observed"), "would_refuse_key_missing", 1).await;
    send(post("/observed", "\"k"), "would_refuse_key_malformed", 1).await;
    send(Call::post("/observed").key("k1").json(&json!({})), "would_refuse_scope", 1).await;
    send(post("/observed", "k1").body(vec![b'x'; 600_000]), "would_refuse_body_too_large", 1).await;
    send(post("/observed", "new"), "same_payload_new_key", 1).await;
    assert_eq!(stack.upstream().executions(), 8);
    let results = results(&stack, 8).await;
    assert_eq!(results[..3], ["would_execute", "would_replay", "would_mismatch"]);
    assert_eq!(
        results[3..6],
        ["would_refuse_key_missing", "would_refuse_key_malformed", "would_refuse_scope"]
    );
    let seen = stack.upstream().seen();
    assert!(seen.iter().all(
        |seen| seen.header("x-fencepost-fence").is_none() && seen.header("x-envoy-max-retries").is_none()
    ));
    // The same key in earnest: nothing that was observed stands in its way.
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
}

#[tokio::test]
async fn an_observed_conflict_and_an_observed_unknown_outcome_are_told() {
    let stack = observing().await;
    let gate = Gate::new();
    stack.upstream().script_next("/observed", Behaviour::gated(&gate));
    let proxy = stack.proxy();
    let first = tokio::spawn(async move { post("/observed", "k1").send(proxy).await });
    stack.envoy.wait_stat("wasmcustom.fencepost.would_execute", |n| n == 1).await.unwrap();
    assert_eq!(stack.send(&post("/observed", "k1")).await.unwrap().status, 201);
    stack.envoy.wait_stat("wasmcustom.fencepost.would_conflict", |n| n == 1).await.unwrap();
    gate.open();
    assert_eq!(first.await.unwrap().unwrap().status, 201);
    stack.upstream().script_next("/observed", Behaviour::default().ending(Ending::CloseBeforeHead));
    assert_eq!(stack.send(&post("/observed", "k2")).await.unwrap().status, 503, "the proxy's own words stay");
    let count = || stack.envoy.stat("wasmcustom.fencepost.would_unknown");
    // What was lost is written down behind its client's back, so it is asked for again until it is there.
    let until = Instant::now() + Duration::from_secs(20);
    while count().await.unwrap() == 0 {
        assert!(Instant::now() < until, "nobody was told of the unknown outcome");
        stack.send(&post("/observed", "k2")).await.unwrap();
    }
}

#[tokio::test]
async fn observing_holds_nothing_back_even_while_the_store_is_down() {
    let stack = observing().await;
    stack.service.freeze();
    let began = Instant::now();
    let mut client = RawConnection::open(stack.proxy()).await.unwrap();
    let token = fencepost_rig::token::for_user("alice");
    let head = format!(
        "POST /observed HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nidempotency-key: k1\r\ncontent-length: 4\r\n\r\nab"
    );
    client.send(head).await.unwrap();
    stack
        .upstream()
        .wait_until("half of the body", |seen| seen.first().is_some_and(|seen| seen.body == b"ab"))
        .await
        .unwrap();
    client.send("cd").await.unwrap();
    assert!(client.read_until(b"\r\n\r\n").await.unwrap().starts_with(b"HTTP/1.1 201"));
    assert_eq!(stack.send(&post("/observed", "k2")).await.unwrap().status, 201);
    assert!(began.elapsed() < Duration::from_millis(1_900), "no request waited for the store's timeout");
    stack.envoy.wait_stat("wasmcustom.fencepost.would_store_unavailable", |n| n == 2).await.unwrap();
    stack.service.thaw();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
}

#[tokio::test]
async fn unmarked_routes_are_ignored_guarded_with_a_key_or_need_one() {
    for (rule, with_key, without) in
        [("ignore", "runs", 201), ("guard_when_key_present", "replays", 201), ("require_key", "replays", 400)]
    {
        let mut configuration = configuration(json!({}));
        configuration["unmarked_routes"] = rule.into();
        if rule != "ignore" {
            configuration["unmarked_policy"] = "pay".into();
        }
        let stack = Stack::builder(configuration).route(Route::to("/")).start().await.unwrap();
        stack.send(&post("/any", "k1")).await.unwrap();
        let retry = stack.send(&post("/any", "k1")).await.unwrap();
        assert_eq!(retry.is_replay(), with_key == "replays", "{rule}");
        assert_eq!(stack.send(&keyless("/any")).await.unwrap().status, without, "{rule}");
        assert_eq!(stack.send(&Call::get("/any")).await.unwrap().status, 201, "{rule}");
    }
}

#[tokio::test]
async fn problems_are_written_in_the_policys_own_words() {
    let stack = stack(json!({
        "max_run": "1s",
        "response": {"max_body": "16B"},
        "errors": {"content_type": "application/vnd.acme+json", "body": "{\"error\": {\"code\": \"{code}\", \"text\": \"{title}: {detail}\"}, \"status\": {status}}"},
    }));
    let stack = stack.start().await.unwrap();
    let check = |answer: &Answer, status: u16, code: &str| {
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (status, Some(code)),
            "{}",
            answer.text()
        );
        assert_eq!(answer.json()["status"], status);
        assert_eq!(answer.header("content-type"), Some("application/vnd.acme+json"));
        assert_eq!(answer.header_lines("content-length"), [answer.body.len().to_string().as_bytes()]);
    };
    check(&stack.send(&keyless("/pay")).await.unwrap(), 400, "key_missing");
    stack.send(&pay("k1")).await.unwrap();
    let other = Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
    check(&stack.send(&other).await.unwrap(), 422, "key_reused");
    stack.upstream().script_next("/pay", Behaviour::default().ending(Ending::Hang));
    check(&stack.send(&pay("k2")).await.unwrap(), 504, "upstream_lost");
    stack.upstream().script_next("/pay", Behaviour::default().body(AnswerBody::Size(17)));
    stack.send(&pay("k3")).await.unwrap();
    let gone = stack.send(&pay("k3")).await.unwrap();
    check(&gone, 410, "answer_oversized");
    assert!(gone.is_replay());
}

fn cors(overrides: Value) -> Builder {
    let route = Route::guarded("/pay", "pay").extra("response_headers_to_add", json!([
        {"header": {"key": "access-control-allow-origin", "value": "https://shop.example"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"},
    ]));
    Stack::builder(configuration(overrides)).route(route)
}

#[tokio::test]
async fn scripts_of_other_origins_may_read_the_markers_where_the_policy_says_so() {
    let stack = cors(json!({"response": {"cors_expose": true, "markers": {"replayed": "X-Acme-Replayed"}}}));
    let stack = stack.start().await.unwrap();
    let names = "x-acme-replayed, x-idempotent-original-status, x-idempotent-expires, x-fencepost-result";
    let allowed = ("access-control-allow-origin", "https://shop.example");
    stack.upstream().script(
        "/pay",
        Behaviour::default().header(allowed.0, allowed.1).header("access-control-expose-headers", "ETag"),
    );
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(first.header_lines("access-control-expose-headers"), [format!("ETag, {names}").as_bytes()]);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!(retry.header("x-acme-replayed"), Some("true"));
    assert_eq!(retry.header("x-idempotent-replayed"), None);
    assert_eq!(retry.header_lines("access-control-expose-headers"), [names.as_bytes()]);
    let other = Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
    for (call, status) in [(other, 422), (keyless("/pay"), 400)] {
        let answer = stack.send(&call).await.unwrap();
        assert_eq!(answer.status, status);
        assert_eq!(answer.header_lines("access-control-expose-headers"), [names.as_bytes()], "{status}");
    }
    let preflight = Call::new("OPTIONS", "/pay").header("access-control-request-headers", "idempotency-key");
    assert_eq!(stack.send(&preflight).await.unwrap().status, 201, "a preflight is never guarded");
    let stack = cors(json!({})).start().await.unwrap();
    stack.send(&pay("k1")).await.unwrap();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().header("access-control-expose-headers"), None);
}

#[tokio::test]
async fn optional_keys_guard_only_who_sends_one() {
    let stack = start(json!({"key": {"required": false}})).await;
    for _ in 0..2 {
        let answer = stack.send(&keyless("/pay")).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    stack.send(&pay("k1")).await.unwrap();
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
    assert_eq!(verdict(&stack.send(&pay("")).await.unwrap()), (400, "key_malformed".into()));
    assert_eq!(stack.send(&Call::new("DELETE", "/pay").key("k1")).await.unwrap().status, 201);
    assert_eq!(last_result(&stack, 1).await, "-");
}
