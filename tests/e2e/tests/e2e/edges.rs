//! Edges of keys, bodies and the proxy, as people who do this job have met them.

use crate::support::{configuration, pay, stack, start};
use bytes::Bytes;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::Route;
use fencepost_rig::raw::RawConnection;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::{Stack, Store};
use fencepost_rig::token;
use fencepost_rig::upstream::{Behaviour, Gate};
use serde_json::json;

/// Alice's JSON under a key.
fn body(key: &str, text: &str) -> Call {
    Call::post("/pay").user("alice").key(key).header("content-type", "application/json").body(text.to_owned())
}

#[tokio::test]
async fn the_upstream_sees_nothing_before_the_claim_however_the_body_comes() {
    let stack = start(json!({})).await;
    for pieces in [1, 2, 50] {
        let text = "x".repeat(100);
        let key = format!("k{pieces}");
        let mut client = RawConnection::open(stack.proxy()).await.unwrap();
        let head = format!(
            "POST /pay HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {}\r\nidempotency-key: {key}\r\ncontent-length: 100\r\n\r\n",
            token::for_user("alice")
        );
        client.send(head).await.unwrap();
        stack.service.freeze();
        for piece in text.as_bytes().chunks(100 / pieces) {
            // A request after each piece, so that the proxy has seen it before the next.
            client.send(piece).await.unwrap();
            assert_eq!(stack.send(&Call::get("/other")).await.unwrap().status, 201);
            assert!(stack.upstream().seen_on("/pay").iter().all(|seen| seen.body_whole), "{pieces}");
        }
        stack.service.thaw();
        let answer = client.read_until(b"\r\n\r\n").await.unwrap();
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(["201", "503"].contains(&status.as_str()), "{status}");
    }
    assert!(stack.upstream().executions_of("/pay") <= 3);
}

#[tokio::test]
async fn a_body_over_the_proxys_own_buffer_is_413_and_harms_nothing() {
    let stack = stack(json!({})).envoy(|setup| {
        setup.change(|bootstrap| {
            let listener = bootstrap.pointer_mut("/static_resources/listeners/0").unwrap();
            listener["per_connection_buffer_limit_bytes"] = 32_768.into();
        })
    });
    let stack = stack.start().await.unwrap();
    let large = pay("k1").body(vec![b'x'; 200_000]);
    for _ in 0..3 {
        assert_eq!(stack.send(&large).await.unwrap().status, 413);
    }
    assert_eq!(stack.upstream().executions(), 0);
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201, "the key is free, the VM lives");
}

#[tokio::test]
async fn every_waiter_gets_the_answer_of_its_own_key() {
    let stack = start(json!({"wait": "30s"})).await;
    let keys: Vec<String> = (0..20).map(|n| format!("key-{n}")).collect();
    let gates: Vec<Gate> = keys.iter().map(|key| stack.upstream().gate(key)).collect();
    let call = |key: &str| pay(key).header("x-test-gate", key).header("x-test-body", key);
    let mut clients = Vec::new();
    for (key, gate) in keys.iter().zip(&gates) {
        for n in 0..10 {
            let (proxy, call, key) = (stack.proxy(), call(key), key.clone());
            clients.push(tokio::spawn(async move { (key, call.send(proxy).await.unwrap()) }));
            if n == 0 {
                gate.wait_arrived(1).await.unwrap();
            }
        }
    }
    // Neither in the order in which they came nor in its reverse.
    for n in 0..gates.len() {
        gates[n * 7 % gates.len()].open();
    }
    let mut replays = 0;
    for client in clients {
        let (key, answer) = client.await.unwrap();
        assert_eq!((answer.status, answer.text()), (201, key));
        replays += usize::from(answer.is_replay());
    }
    assert_eq!((replays, stack.upstream().executions()), (180, 20));
}

#[tokio::test]
async fn requests_of_every_size_are_answered_once() {
    let stack = start(json!({"fingerprint": {"max_body": "1MiB"}})).await;
    for len in [0, 1, 65_536, 900_000] {
        let calls = (0..40).map(|n| {
            let (proxy, call) = (stack.proxy(), pay(&format!("{len}-{n}")).body(vec![b'x'; len]));
            tokio::spawn(async move { call.send(proxy).await.unwrap().status })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), 201, "{len}");
        }
    }
    assert_eq!(stack.upstream().executions(), 160);
    assert!(stack.upstream().seen().iter().all(|seen| [0, 1, 65_536, 900_000].contains(&seen.body.len())));
}

#[tokio::test]
async fn the_clients_key_is_in_no_log_metric_or_file() {
    let files = Scratch::new("sqlite").unwrap();
    let database = files.path().join("fencepost.sqlite");
    let stack = stack(json!({"same_payload_window": "1m"}))
        .store(Store::Url(format!("sqlite:{}", database.display())));
    let stack = stack.start().await.unwrap();
    let key = "alice@example.org-42";
    stack.send(&body(key, r#"{"amount":1}"#)).await.unwrap();
    assert_eq!(stack.send(&body(key, r#"{"amount":2}"#)).await.unwrap().status, 422);
    stack.service.freeze();
    assert_eq!(stack.send(&body(key, r#"{"amount":1}"#)).await.unwrap().status, 503);
    stack.service.thaw();
    assert_eq!(stack.send(&body(&key.repeat(20), "{}")).await.unwrap().status, 400);
    stack.envoy.wait_access_log(4).await.unwrap();
    let mut places = vec![
        ("the proxy's log", stack.envoy.log().into_bytes()),
        ("the access log", json!(stack.envoy.access_log()).to_string().into_bytes()),
        ("statistics", stack.envoy.admin_call("GET", "/stats").await.unwrap().body.to_vec()),
        ("the service's log", std::fs::read(stack.service.log_path()).unwrap()),
    ];
    for file in std::fs::read_dir(files.path()).unwrap() {
        places.push(("the database", std::fs::read(file.unwrap().path()).unwrap()));
    }
    assert!(places.iter().any(|(place, bytes)| *place == "the database" && !bytes.is_empty()));
    for (place, bytes) in places {
        let found = bytes.windows(13).any(|window| window == b"alice@example");
        assert!(!found, "the key is in {place}");
    }
}

#[tokio::test]
async fn a_key_is_bound_to_endpoint_method_and_query() {
    let builder = stack(json!({})).envoy(|mut setup| {
        setup.routes.insert(0, Route::guarded("/refund", "pay"));
        setup
    });
    let stack = builder.start().await.unwrap();
    stack.send(&pay("k1")).await.unwrap();
    let same = |method: &str, target: &str| {
        Call::new(method, target).user("alice").key("k1").json(&json!({"amount": 1}))
    };
    for other in
        [same("POST", "/refund"), same("PATCH", "/pay"), same("POST", "/pay?dry=1"), same("POST", "/pay/2")]
    {
        let answer = stack.send(&other).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (422, "key_reused"));
    }
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn odd_json_is_compared_exactly_or_by_its_bytes_and_never_ends_the_vm() {
    let stack = start(json!({})).await;
    let nested = |depth: usize, middle: &str| format!("{}{middle}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize, end: &str| format!("{}{end}{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let pairs = [
        (r#"{"account":9007199254740993}"#.to_owned(), r#"{"account":9007199254740992}"#.to_owned()),
        (r#"{"rate":1.000000000000000005}"#.into(), r#"{"rate":1.0}"#.into()),
        (r#"{"x":1e-999}"#.into(), r#"{"x":0}"#.into()),
        (r#"{"x":1E400}"#.into(), r#"{"x":2E400}"#.into()),
        (r#"{"m":"\uD800"}"#.into(), r#"{"m":"\uD801"}"#.into()),
        (r#"{"amount":1,"amount":1000}"#.into(), r#"{"amount":1000}"#.into()),
        (r#"{"amount":1000}"#.into(), r#"{"amount":1000,"amount":1}"#.into()),
        (r#"{"memo":"a\u0000b"}"#.into(), r#"{"memo":"ab"}"#.into()),
        (r#"{"to":["x","y"]}"#.into(), r#"{"to":["y","x"]}"#.into()),
        ("[".repeat(100_000), "[".repeat(99_999)),
        (nested(500, "1"), nested(500, "2")),
        (objects(127, "1"), objects(127, "2")),
        (objects(128, "1"), objects(128, "2")),
        (objects(129, "1"), objects(129, "2")),
        (r#"{"a":1"#.into(), r#"{"a":1}"#.into()),
        ("\u{feff}{}".into(), "{}".into()),
    ];
    for (n, (one, other)) in pairs.iter().enumerate() {
        let key = format!("k{n}");
        assert_eq!(stack.send(&body(&key, one)).await.unwrap().status, 201, "{n}");
        assert!(stack.send(&body(&key, one)).await.unwrap().is_replay(), "{n}: itself");
        assert_eq!(stack.send(&body(&key, other)).await.unwrap().status, 422, "{n}");
    }
    let pretty = "{\r\n  \"a\" : \"x y\",\r\n  \"b\" : [ 1 , 2 ]\r\n}\r\n";
    stack.send(&body("pretty", pretty)).await.unwrap();
    for same in [r#"{"b":[1,2],"a":"x y"}"#, "{\n\t\"a\": \"x y\",\n\t\"b\": [1, 2]\n}"] {
        assert!(stack.send(&body("pretty", same)).await.unwrap().is_replay(), "{same}");
    }
    assert_eq!(stack.send(&body("pretty", r#"{"b":[1,2],"a":"x  y"}"#)).await.unwrap().status, 422);
    assert_eq!(stack.upstream().executions(), pairs.len() as u64 + 1);
}

#[tokio::test]
async fn forms_are_compared_by_their_bytes_and_prefixes_are_not_enough() {
    let stack = start(json!({})).await;
    let form = |boundary: &str, text: &str| {
        let media = format!("multipart/form-data; boundary={boundary}");
        let body = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{text}\r\n--{boundary}--\r\n"
        );
        Call::post("/pay").user("alice").key("form").header("content-type", media).body(body)
    };
    stack.send(&form("b1", "x")).await.unwrap();
    assert!(stack.send(&form("b1", "x")).await.unwrap().is_replay());
    for other in [form("b2", "x"), form("b1", "y")] {
        assert_eq!(stack.send(&other).await.unwrap().status, 422);
    }
    for len in [29_000, 31_000, 65_536, 500_000] {
        let of = |last: u8| {
            let mut bytes = vec![b'x'; len];
            bytes.push(last);
            Call::post("/pay").user("alice").key(&format!("{len}")).body(Bytes::from(bytes))
        };
        stack.send(&of(b'1')).await.unwrap();
        assert!(stack.send(&of(b'1')).await.unwrap().is_replay(), "{len}");
        assert_eq!(stack.send(&of(b'2')).await.unwrap().status, 422, "{len}");
    }
}

#[tokio::test]
async fn long_keys_are_taken_up_to_the_limit_whatever_is_in_them() {
    let stack = start(json!({})).await;
    // Digits of a generator, so that they don't compress.
    let random = |len: usize| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let digits = std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + u8::try_from(state >> 58).unwrap() % 60)
        });
        digits.map(|c| if "\",;\\".contains(c) { 'x' } else { c }).take(len).collect::<String>()
    };
    for key in [random(255), "a".repeat(255)] {
        stack.send(&pay(&key)).await.unwrap();
        assert!(stack.send(&pay(&key)).await.unwrap().is_replay());
    }
    for key in [random(256), random(1_024), random(9_000), "a".repeat(9_000)] {
        let answer = stack.send(&pay(&key)).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (400, "key_too_long"), "{}", key.len());
        assert!(answer.text().contains("more than 255"), "it names the limit");
    }
    for key in ["Abc", "abc", "ABC"] {
        assert!(!stack.send(&pay(key)).await.unwrap().is_replay(), "{key}: bytes are compared");
    }
    assert_eq!(stack.upstream().executions(), 5);
}

#[tokio::test]
async fn a_key_that_somebody_else_took_first_is_nobodys_business() {
    let stack = start(json!({})).await;
    let of = |user: &str, x: u32| Call::post("/pay").user(user).key("release-1.2.3").json(&json!({"x": x}));
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, bobs) = (stack.proxy(), of("bob", 1));
    let bob = tokio::spawn(async move { bobs.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    assert_eq!(stack.send(&of("alice", 2)).await.unwrap().status, 201, "no 409");
    gate.open();
    bob.await.unwrap().unwrap();
    assert!(stack.send(&of("alice", 2)).await.unwrap().is_replay(), "no 422");
}

#[tokio::test]
async fn the_404_of_an_unknown_route_is_not_kept() {
    let mut configuration = configuration(json!({}));
    configuration["unmarked_routes"] = "guard_when_key_present".into();
    configuration["unmarked_policy"] = "pay".into();
    let stack = Stack::builder(configuration).route(Route::to("/pay")).start().await.unwrap();
    let unknown = Call::post("/nowhere").user("alice").key("k1").json(&json!({}));
    for _ in 0..2 {
        let answer = stack.send(&unknown).await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (404, false));
    }
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201, "the key is free");
}
