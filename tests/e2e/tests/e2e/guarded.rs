//! One guarded request: what a client sees, and how often the upstream ran.

use crate::support::{last_result, pay, stack, start, start_on_postgres};
use bytes::Bytes;
use fencepost_rig::client::Call;
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::{AnswerBody, Behaviour, Gate};
use serde_json::json;

async fn a_retry_gets_the_first_answer(stack: Stack) {
    stack
        .upstream()
        .script("/pay", Behaviour::default().header("x-kept", b"caf\xe9").header("set-cookie", "a=b"));
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.json()), (201, json!({"n": 1})));
    assert!(!first.is_replay());
    assert_eq!(first.header("set-cookie"), Some("a=b"));
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.json(), retry.is_replay()), (201, json!({"n": 1}), true));
    assert_eq!(retry.header("location"), Some("/pay/1"));
    assert_eq!(retry.header_lines("x-kept"), [b"caf\xe9"]);
    assert_eq!(retry.header_lines("content-type"), first.header_lines("content-type"));
    assert_eq!(retry.header_lines("content-length"), [b"7"]);
    assert_eq!(retry.header("set-cookie"), None);
    assert_eq!(retry.header_lines("date").len(), 1);
    assert_eq!(stack.upstream().executions(), 1);
    assert_eq!(last_result(&stack, 2).await, "replayed");
    assert_eq!(stack.envoy.stat("wasmcustom.fencepost.executed").await.unwrap(), 1);
    stack.stop().await.unwrap();
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_without_running_again_on_sqlite() {
    a_retry_gets_the_first_answer(start(json!({})).await).await;
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_without_running_again_on_postgres() {
    a_retry_gets_the_first_answer(start_on_postgres(json!({})).await).await;
}

#[tokio::test]
async fn the_upstream_sees_nothing_before_the_claim_and_gets_the_fence() {
    let stack = start(json!({})).await;
    let call = pay("k1").header("x-fencepost-fence", "1").header("x-fencepost-depth", "0");
    stack.send(&call).await.unwrap();
    let seen = stack.upstream().seen();
    let fence: i64 = seen[0].header("x-fencepost-fence").unwrap().parse().unwrap();
    assert!(fence > 1_600_000_000_000_000, "{fence}");
    assert_eq!(seen[0].header("x-fencepost-depth"), Some("1"));
    assert_eq!(seen[0].headers.get_all("x-fencepost-fence").iter().count(), 1);
    assert_eq!(seen[0].body, br#"{"amount":1}"#);
}

#[tokio::test]
async fn the_first_answer_reaches_the_client_only_after_it_is_stored() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    // The store can't answer while it is frozen, so neither can the client be.
    stack.service.freeze();
    gate.open();
    stack.upstream().wait_until("the answer is handed over", |seen| seen[0].answered).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(!client.is_finished());
    stack.service.thaw();
    assert_eq!(client.await.unwrap().unwrap().status, 201);
}

#[tokio::test]
async fn a_changed_payload_under_the_same_key_is_422_even_while_the_first_runs() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    let other = Call::post("/pay").user("alice").key("k1").json(&json!({"amount": 2}));
    let answer = stack.send(&other).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (422, "key_reused"));
    gate.open();
    client.await.unwrap().unwrap();
    let answer = stack.send(&other).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (422, "key_reused"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert!(!answer.text().contains("\"n\""));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn spelling_and_order_of_json_do_not_count_and_its_values_do() {
    let stack = start(json!({})).await;
    let call = |key: &str, body: &str| {
        Call::post("/pay")
            .user("alice")
            .key(key)
            .header("content-type", "application/json")
            .body(body.to_owned())
    };
    let first = stack.send(&call("k1", r#"{"a":1,"b":{"c":"x","d":[1,2]}}"#)).await.unwrap();
    assert_eq!(first.status, 201);
    let retry =
        stack.send(&call("k1", " {\"b\":\r\n{\"d\":[1, 2],\"c\":\"\\u0078\"},\"a\":1}\n")).await.unwrap();
    assert!(retry.is_replay());
    for other in [
        r#"{"a":1.0,"b":{"c":"x","d":[1,2]}}"#,
        r#"{"a":1,"b":{"c":"x","d":[2,1]}}"#,
        r#"{"a":1,"a":1,"b":{"c":"x","d":[1,2]}}"#,
    ] {
        assert_eq!(stack.send(&call("k1", other)).await.unwrap().status, 422, "{other}");
    }
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_loser_waits_for_the_answer_and_gets_409_where_the_policy_says_conflict() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let first = tokio::spawn({
        let call = call.clone();
        async move { call.send(proxy).await }
    });
    gate.wait_arrived(1).await.unwrap();
    let second = tokio::spawn(async move { call.send(proxy).await });
    let calls = "cluster.fencepost_store_waiting.upstream_rq_total";
    stack.envoy.wait_stat(calls, |n| n >= 2).await.unwrap();
    gate.open();
    assert!(!first.await.unwrap().unwrap().is_replay());
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.status, second.json(), second.is_replay()), (201, json!({"n": 1}), true));
    assert_eq!(stack.upstream().executions(), 1);

    let stack = start(json!({"concurrency": "conflict"})).await;
    let gate = Gate::new();
    stack.upstream().script("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let first = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    let second = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((second.status, second.problem_code().as_str()), (409, "in_progress"));
    assert!(second.header("retry-after").is_some());
    gate.open();
    assert_eq!(first.await.unwrap().unwrap().status, 201);
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn a_wait_that_is_over_ends_in_409() {
    let stack = start(json!({"wait": "300ms"})).await;
    let gate = Gate::new();
    stack.upstream().script("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let first = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    let second = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((second.status, second.problem_code().as_str()), (409, "in_progress"));
    gate.open();
    first.await.unwrap().unwrap();
}

#[tokio::test]
async fn keys_belong_to_their_caller_and_to_nobody_else() {
    let stack = start(json!({})).await;
    let as_user = |name: &str| Call::post("/pay").user(name).key("k1").json(&json!({"amount": 1}));
    let alice = stack.send(&as_user("alice")).await.unwrap();
    let bob = stack.send(&as_user("bob")).await.unwrap();
    assert_eq!((alice.json(), bob.json()), (json!({"n": 1}), json!({"n": 2})));
    assert!(!bob.is_replay());
    let nobody = Call::post("/pay").key("k1").json(&json!({"amount": 1}));
    let answer = stack.send(&nobody).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (403, "scope_missing"));
    assert_eq!(stack.upstream().executions(), 2);
}

#[tokio::test]
async fn keys_that_are_missing_malformed_repeated_or_too_long_are_400_and_run_nothing() {
    let stack = start(json!({})).await;
    let bare = || Call::post("/pay").user("alice").json(&json!({"amount": 1}));
    let long = "k".repeat(256);
    for (call, code) in [
        (bare(), "key_missing"),
        (bare().key(""), "key_malformed"),
        (bare().key("\"\""), "key_malformed"),
        (bare().key("a, b"), "key_malformed"),
        (bare().key("\"a"), "key_malformed"),
        (bare().key("k1").key("k1"), "key_malformed"),
        // One that an SDK adds beside the caller's own, in whichever order, by either protocol.
        (bare().key("k1").key("k2"), "key_malformed"),
        (bare().key("k2").header("IDEMPOTENCY-KEY", "k1"), "key_malformed"),
        (bare().key("k1").key("k2").http2(), "key_malformed"),
        (bare().key("k1, k2").http2(), "key_malformed"),
        (bare().key("\"   \""), "key_malformed"),
        (bare().key("").http2(), "key_malformed"),
        (bare().key("\"a\tb\""), "key_malformed"),
        (bare().key("\"a\tb\"").http2(), "key_malformed"),
        (bare().header("idempotency-key", b"f\xfcn"), "key_malformed"),
        (bare().header("idempotency-key", b"\"f\xfcn\"").http2(), "key_malformed"),
        (bare().header("idempotency-key", "\"f\u{fc}n\"".as_bytes()), "key_malformed"),
        (bare().key(&long), "key_too_long"),
    ] {
        let answer = stack.send(&call).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (400, code));
        assert!(!answer.text().contains("kkk"), "the key is not echoed");
    }
    assert_eq!(stack.upstream().executions(), 0);
    // The same value, once bare and once as a Structured Field string, is one key.
    stack.send(&bare().key("k1")).await.unwrap();
    assert!(stack.send(&bare().key("\"k1\"")).await.unwrap().is_replay());
    // Odd bytes in other headers harm nothing.
    assert_eq!(stack.send(&bare().key("k2").header("user-agent", b"bot/\xa1")).await.unwrap().status, 201);
}

#[tokio::test]
async fn safe_methods_and_unmarked_routes_pass_and_other_methods_are_refused() {
    let stack = start(json!({})).await;
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(stack.send(&Call::new(method, "/pay").key("k1")).await.unwrap().status, 201, "{method}");
    }
    let answer = stack.send(&Call::new("DELETE", "/pay").user("alice").key("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (400, "unguardable"));
    for _ in 0..2 {
        let answer = stack.send(&Call::post("/search").key("k1").json(&json!({"q": 1}))).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!(stack.upstream().executions_of("/search"), 2);
}

#[tokio::test]
async fn bodies_over_the_limit_are_413_with_and_without_a_stated_length() {
    let stack = start(json!({"fingerprint": {"max_body": "64KiB"}})).await;
    let call = |len: usize| Call::post("/pay").user("alice").key("k1").body(vec![b'a'; len]);
    assert_eq!(stack.send(&call(65_536)).await.unwrap().status, 201);
    let answer = stack.send(&call(65_537)).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (413, "body_too_large"));
    let pieces = vec![Bytes::from(vec![b'a'; 32_768]); 3];
    let answer = stack.send(&Call::post("/pay").user("alice").key("k2").chunks(pieces)).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (413, "body_too_large"));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn one_body_in_any_pieces_by_any_protocol_with_trailers_is_one_request() {
    let stack = start(json!({})).await;
    let text = format!("{{\"memo\":\"{}\"}}", "x".repeat(40_000));
    let call = || Call::post("/pay").user("alice").key("k1").header("content-type", "application/json");
    let pieces = |len: usize| text.as_bytes().chunks(len).map(Bytes::copy_from_slice).collect::<Vec<_>>();
    assert!(!stack.send(&call().body(text.clone())).await.unwrap().is_replay());
    for again in [
        call().body(text.clone()).http2(),
        call().chunks(pieces(8_192)),
        call().chunks(pieces(997)).http2(),
        call().chunks(pieces(8_192)).trailer("x-checksum", "1").http2(),
        call().chunks(pieces(40_100)).trailer("x-checksum", "1"),
    ] {
        assert!(stack.send(&again).await.unwrap().is_replay());
    }
    // Trailers on the first request as well.
    let other = Call::post("/pay").user("alice").key("k2").header("content-type", "application/json");
    let first = stack.send(&other.clone().chunks(pieces(8_192)).trailer("x-a", "1").http2()).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false));
    assert!(stack.send(&other.body(text.clone())).await.unwrap().is_replay());
    assert_eq!(stack.upstream().executions(), 2);
}

#[tokio::test]
async fn an_oversized_answer_reaches_its_client_whole_and_its_retries_as_410() {
    let stack = start(json!({"response": {"max_body": "64KiB"}})).await;
    for (key, behaviour) in [
        ("stated", Behaviour::default().body(AnswerBody::Size(300_000))),
        ("chunked", Behaviour::default().body(AnswerBody::Size(300_000)).chunked()),
        ("just-over", Behaviour::default().body(AnswerBody::Size(65_537)).chunked()),
    ] {
        stack.upstream().script_next("/pay", behaviour);
        let first = stack.send(&pay(key)).await.unwrap();
        assert_eq!(first.status, 201, "{key}");
        assert!(first.body.len() > 65_536, "{key}: {}", first.body.len());
        let retry = stack.send(&pay(key)).await.unwrap();
        assert_eq!((retry.status, retry.problem_code().as_str()), (410, "answer_oversized"), "{key}");
        assert_eq!(retry.header("x-idempotent-original-status"), Some("201"));
        assert!(retry.is_replay());
    }
    stack.upstream().script_next("/pay", Behaviour::default().body(AnswerBody::Size(65_536)).chunked());
    stack.send(&pay("exact")).await.unwrap();
    assert_eq!(stack.send(&pay("exact")).await.unwrap().body.len(), 65_536);
    assert_eq!(stack.upstream().executions(), 4);
}

#[tokio::test]
async fn an_endless_answer_streams_and_leaves_a_marker() {
    let stack = start(json!({})).await;
    stack.upstream().script_next(
        "/pay",
        Behaviour::status(200).header("content-type", "text/event-stream").body(AnswerBody::Endless),
    );
    let mut events = pay("k1").open(stack.proxy()).await.unwrap();
    assert_eq!(events.status(), 200);
    assert!(events.chunk().await.unwrap().is_some());
    drop(events);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.problem_code().as_str()), (410, "answer_oversized"));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn answers_of_every_shape_are_replayed_as_they_were() {
    let stack = start(json!({})).await;
    let behaviours = [
        ("empty", Behaviour::status(204).body(AnswerBody::Bytes(Bytes::new()))),
        (
            "empty-200",
            Behaviour::status(200).body(AnswerBody::Bytes(Bytes::new())).header("content-type", "text/x"),
        ),
        ("redirect", Behaviour::status(303).header("location", "/pay/7")),
        ("pieces", Behaviour::default().body(AnswerBody::OneBytePieces("piecemeal".into())).chunked()),
        ("trailers", Behaviour::default().body(AnswerBody::Size(5_000)).trailer("x-t", "1")),
        ("conflict", Behaviour::status(409)),
        ("error", Behaviour::status(500)),
        ("unavailable", Behaviour::status(503)),
        (
            "gzip",
            Behaviour::default()
                .header("content-encoding", "gzip")
                .body(AnswerBody::Bytes(Bytes::from_static(b"\x1f\x8b\0"))),
        ),
        (
            "repeated",
            Behaviour::default()
                .header("x-r", "1")
                .header("x-r", "2")
                .header("x-idempotent-replayed", "true"),
        ),
    ];
    for (n, (key, behaviour)) in behaviours.into_iter().enumerate() {
        stack.upstream().script_next("/pay", behaviour);
        let first = stack.send(&pay(key)).await.unwrap();
        assert_eq!(first.header("x-idempotent-replayed"), None, "{key}");
        let retry = stack.send(&pay(key)).await.unwrap();
        assert_eq!(retry.header_lines("x-idempotent-replayed"), [b"true"], "{key}");
        assert_eq!((retry.status, &retry.body), (first.status, &first.body), "{key}");
        for name in ["content-type", "content-encoding", "location", "x-r", "transfer-encoding"] {
            if name != "transfer-encoding" {
                assert_eq!(retry.header_lines(name), first.header_lines(name), "{key} {name}");
            } else {
                assert!(retry.header_lines(name).is_empty(), "{key}");
            }
        }
        assert_eq!(stack.upstream().executions(), n as u64 + 1, "{key}");
    }
}

#[tokio::test]
async fn refusals_of_the_upstream_before_any_work_are_not_kept() {
    let stack = start(json!({})).await;
    for status in [401, 403, 425, 429] {
        let key = format!("k{status}");
        stack.upstream().script_next("/pay", Behaviour::status(status));
        assert_eq!(stack.send(&pay(&key)).await.unwrap().status, status);
        let retry = stack.send(&pay(&key)).await.unwrap();
        assert_eq!((retry.status, retry.is_replay()), (201, false), "{status}");
        assert!(stack.send(&pay(&key)).await.unwrap().is_replay());
    }
}

#[tokio::test]
async fn route_headers_are_not_doubled_in_a_replay() {
    use fencepost_rig::envoy::Route;
    let route = Route::guarded("/pay", "pay")
        .extra("response_headers_to_add", json!([{"header": {"key": "x-route", "value": "r"}}]));
    let stack = Stack::builder(crate::support::configuration(json!({}))).route(route).start().await.unwrap();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().header_lines("x-route"), [b"r"]);
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert!(retry.is_replay());
    assert_eq!(retry.header_lines("x-route"), [b"r"]);
    assert_eq!(retry.header_lines("content-type").len(), 1);
}

#[tokio::test]
async fn a_herd_of_128_runs_once_on_postgres() {
    let stack = stack(json!({})).store(fencepost_rig::stack::Store::Postgres).envoy(|setup| {
        let mut setup = setup;
        setup.concurrency = 2;
        setup
    });
    let stack = stack.start().await.unwrap();
    for round in 0..3 {
        let key = format!("herd-{round}");
        let proxy = stack.proxy();
        let calls = (0..128).map(|i| {
            let call = if i % 2 == 0 {
                pay(&key)
            } else {
                Call::post("/pay").user("alice").key(&key).json(&json!({"amount": 2}))
            };
            tokio::spawn(async move { call.send(proxy).await.unwrap().status })
        });
        let calls = calls.collect::<Vec<_>>();
        let (mut ran, mut mismatched) = (0, 0);
        for call in calls {
            match call.await.unwrap() {
                201 => ran += 1,
                422 => mismatched += 1,
                other => panic!("{other}"),
            }
        }
        assert_eq!((ran, mismatched), (64, 64));
        assert_eq!(stack.upstream().executions(), round + 1);
    }
}

#[tokio::test]
async fn grpc_and_upgrades_are_refused_where_a_key_is_required() {
    let stack = start(json!({})).await;
    let grpc = Call::post("/pay").user("alice").key("k1").header("content-type", "application/grpc").http2();
    let answer = stack.send(&grpc).await.unwrap();
    assert_eq!(answer.status, 200, "Envoy turns a local reply into a gRPC status");
    assert!(answer.header("grpc-status").is_some_and(|status| status != "0"));
    let upgrade = Call::post("/pay")
        .user("alice")
        .key("k1")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    assert_ne!(stack.send(&upgrade).await.unwrap().status, 201);
    assert_eq!(stack.upstream().executions(), 0);
}

#[tokio::test]
async fn a_configuration_may_be_a_struct_in_the_bootstrap() {
    let stack = stack(json!({"response": {"statuses": {"418": "release"}}})).envoy(|setup| {
        setup.change(|bootstrap| {
            let filters = fencepost_rig::envoy::connection_manager(bootstrap).unwrap();
            let filters = filters["http_filters"].as_array_mut().unwrap();
            let ours = filters.iter_mut().find(|filter| filter["name"] == "envoy.filters.http.wasm").unwrap();
            let config = ours.pointer_mut("/typed_config/config/configuration").unwrap();
            let value: serde_json::Value = serde_json::from_str(config["value"].as_str().unwrap()).unwrap();
            *config = json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": value});
        })
    });
    let stack = stack.start().await.unwrap();
    stack.send(&pay("k1")).await.unwrap();
    assert!(stack.send(&pay("k1")).await.unwrap().is_replay());
}
