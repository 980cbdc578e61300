//! The main scenarios.

use fencepost_second_host::proxy::{Answer, Proxy, Stand};
use serde_json::{Value, json};

fn configuration(overrides: Value) -> Value {
    let mut policy = json!({
        "namespace": "payments",
        "scope": [{"header": {"name": "x-user", "trusted": true}}],
        "concurrency": "conflict",
    });
    for (name, value) in overrides.as_object().unwrap() {
        policy[name] = value.clone();
    }
    json!({
        "store": {"decide_cluster": "store", "claim_cluster": "store_waiting"},
        "key_prefix": "test",
        "policies": {"pay": policy},
    })
}

fn start(overrides: Value) -> Proxy {
    Proxy::start(&configuration(overrides)).unwrap()
}

fn headers<'a>(user: &'a str, key: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "POST"),
        (":path", "/pay"),
        (":authority", "shop.example"),
        ("content-type", "application/json"),
        ("x-user", user),
        ("idempotency-key", key),
    ]
}

const BODY: &[u8] = br#"{"amount": 1}"#;

fn answered(stand: Stand) -> Answer {
    match stand {
        Stand::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn forwarded(stand: Stand) -> Vec<(Vec<u8>, Vec<u8>)> {
    match stand {
        Stand::Forwarded(headers) => headers,
        other => panic!("{other:?}"),
    }
}

/// A request that runs and is answered 201.
fn run(proxy: &mut Proxy, key: &str, body: &[u8]) -> Answer {
    let id = proxy.begin(&headers("alice", key), body).unwrap();
    forwarded(proxy.stand(id).unwrap());
    let answer = proxy.answer(id, 201, &[("content-type", "application/json"), ("x-odd", "1")], b"{\"n\":1}");
    let answer = answer.unwrap().expect("the answer goes on once it is stored");
    assert_eq!(proxy.result(id).unwrap(), "executed");
    proxy.end(id).unwrap();
    answer
}

/// A request that the filter answers.
fn refused(proxy: &mut Proxy, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let id = proxy.begin(headers, body).unwrap();
    let answer = answered(proxy.stand(id).unwrap());
    proxy.end(id).unwrap();
    answer
}

#[test]
fn a_request_runs_once_and_its_answer_is_replayed() {
    let mut proxy = start(json!({}));
    let first = run(&mut proxy, "k1", BODY);
    assert_eq!((first.status, first.header("x-idempotent-replayed")), (201, None));
    for body in [BODY, br#"{ "amount" : 1 }"#] {
        let replay = refused(&mut proxy, &headers("alice", "k1"), body);
        assert_eq!((replay.status, &replay.body), (201, &first.body));
        assert_eq!(replay.header("x-idempotent-replayed").as_deref(), Some("true"));
        assert_eq!(replay.header("x-odd").as_deref(), Some("1"));
    }
    assert!(proxy.log.lines().is_empty(), "{:?}", proxy.log.lines());
}

#[test]
fn a_forwarded_request_carries_its_fence_and_its_bounds() {
    let mut proxy = start(json!({"max_run": "10s"}));
    let mut with_fence = headers("alice", "k1");
    with_fence.push(("x-fencepost-fence", "1"));
    let id = proxy.begin(&with_fence, BODY).unwrap();
    let seen = forwarded(proxy.stand(id).unwrap());
    let all = |name: &str| -> Vec<String> {
        let named = seen.iter().filter(|(other, _)| other == name.as_bytes());
        named.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    };
    let fences = all("x-fencepost-fence");
    assert!(fences.len() == 1 && fences[0].len() > 10, "{fences:?}");
    assert_eq!(all("x-envoy-max-retries"), ["0"]);
    assert_eq!(all("x-envoy-upstream-rq-timeout-ms"), ["10000"]);
}

#[test]
fn a_used_key_with_another_payload_is_refused_and_another_callers_key_is_its_own() {
    let mut proxy = start(json!({}));
    run(&mut proxy, "k1", BODY);
    let other = refused(&mut proxy, &headers("alice", "k1"), br#"{"amount": 2}"#);
    assert_eq!((other.status, other.code().as_str()), (422, "key_reused"));
    let id = proxy.begin(&headers("bob", "k1"), BODY).unwrap();
    forwarded(proxy.stand(id).unwrap());
}

#[test]
fn requests_without_key_or_identity_never_reach_the_application() {
    let mut proxy = start(json!({}));
    let missing: Vec<_> =
        headers("alice", "k").into_iter().filter(|(name, _)| *name != "idempotency-key").collect();
    let refusal = refused(&mut proxy, &missing, BODY);
    assert_eq!((refusal.status, refusal.code().as_str()), (400, "key_missing"));
    let stranger: Vec<_> = headers("alice", "k").into_iter().filter(|(name, _)| *name != "x-user").collect();
    let refusal = refused(&mut proxy, &stranger, BODY);
    assert_eq!((refusal.status, refusal.code().as_str()), (403, "scope_missing"));
}

#[test]
fn a_second_request_with_the_key_does_not_run_beside_the_first() {
    let mut proxy = start(json!({}));
    let first = proxy.begin(&headers("alice", "k1"), BODY).unwrap();
    forwarded(proxy.stand(first).unwrap());
    let second = refused(&mut proxy, &headers("alice", "k1"), BODY);
    assert_eq!((second.status, second.code().as_str()), (409, "in_progress"));
}

#[test]
fn without_the_store_nothing_is_forwarded() {
    let mut proxy = start(json!({}));
    proxy.connected = false;
    let refusal = refused(&mut proxy, &headers("alice", "k1"), BODY);
    assert_eq!((refusal.status, refusal.code().as_str()), (503, "store_unavailable"));
    proxy.connected = true;
    proxy.tick().unwrap();
    run(&mut proxy, "k1", BODY);
}

#[test]
fn a_client_that_leaves_while_the_application_runs_leaves_an_unknown_outcome() {
    let mut proxy = start(json!({}));
    let first = proxy.begin(&headers("alice", "k1"), BODY).unwrap();
    forwarded(proxy.stand(first).unwrap());
    proxy.end(first).unwrap();
    let retry = refused(&mut proxy, &headers("alice", "k1"), BODY);
    assert_eq!((retry.status, retry.code().as_str()), (409, "outcome_unknown"));
}

#[test]
fn a_detached_request_survives_its_client() {
    let detached = json!({"detached": {"cluster": "loopback", "loopback": true, "timeout": "65s"}});
    for stays in [true, false] {
        let mut proxy = start(json!({"execution": detached}));
        let first = proxy.begin(&headers("alice", "k1"), BODY).unwrap();
        assert!(matches!(proxy.stand(first).unwrap(), Stand::Held));
        let call = proxy.take_detached().expect("a call to the application");
        assert_eq!((call.cluster.as_str(), call.body.as_slice()), ("loopback", BODY));
        if !stays {
            proxy.end(first).unwrap();
        }
        let report = ("x-fencepost-ending", "via_upstream|-|1|100");
        proxy.answer_detached(&call, &[(":status", "201"), report], b"done").unwrap();
        if stays {
            let answer = answered(proxy.stand(first).unwrap());
            assert_eq!((answer.status, answer.body.as_slice()), (201, b"done".as_slice()));
            assert_eq!(answer.header("x-fencepost-ending"), None);
            proxy.end(first).unwrap();
        }
        let replay = refused(&mut proxy, &headers("alice", "k1"), BODY);
        assert_eq!((replay.status, replay.body.as_slice()), (201, b"done".as_slice()));
        assert_eq!(replay.header("x-idempotent-replayed").as_deref(), Some("true"));
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_its_field() {
    let error = Proxy::start(&configuration(json!({"wait": 5}))).map(|_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("policies.pay.wait"), "{error:#}");
}
