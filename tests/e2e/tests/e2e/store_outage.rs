//! The store is away, slow or wrong: nothing is forwarded without a confirmed claim, and an
//! answer is never withheld because it could not be stored.

use crate::support::{configuration, pay, stack, start};
use fencepost_rig::envoy::{Envoy, Route, Setup};
use fencepost_rig::raw::RawUpstream;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::stack::Store;
use fencepost_rig::upstream::{Behaviour, Gate, Upstream};
use serde_json::json;

#[tokio::test]
async fn without_the_service_guarded_requests_are_503_and_others_pass() {
    let stack = start(json!({})).await;
    stack.service.kill().await.unwrap();
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (503, "store_unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(stack.upstream().executions(), 0);
    let unmarked = fencepost_rig::client::Call::post("/search").json(&json!({}));
    assert_eq!(stack.send(&unmarked).await.unwrap().status, 201);
    stack.service.start_again().await.unwrap();
    let retry = retry_while_unavailable(&stack, "k1").await;
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(stack.upstream().executions_of("/pay"), 1);
}

async fn retry_while_unavailable(
    stack: &fencepost_rig::stack::Stack,
    key: &str,
) -> fencepost_rig::client::Answer {
    for _ in 0..100 {
        let answer = stack.send(&pay(key)).await.unwrap();
        if answer.status != 503 {
            return answer;
        }
    }
    panic!("the store stays unavailable");
}

#[tokio::test]
async fn a_slow_store_is_503_and_the_late_claim_is_given_back() {
    let stack = start(json!({})).await;
    stack.service.freeze();
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (503, "store_unavailable"));
    stack.service.thaw();
    let retry = retry_while_unavailable(&stack, "k1").await;
    assert_eq!((retry.status, retry.is_replay()), (201, false));
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn an_answer_reaches_its_client_although_storing_fails_and_is_stored_later() {
    let stack = start(json!({})).await;
    let gate = Gate::new();
    stack.upstream().script_next("/pay", Behaviour::gated(&gate));
    let (proxy, call) = (stack.proxy(), pay("k1"));
    let first = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    stack.service.kill().await.unwrap();
    gate.open();
    let first = first.await.unwrap().unwrap();
    assert_eq!((first.status, first.header("x-fencepost-result")), (201, Some("unstored")));
    stack.service.start_again().await.unwrap();
    stack.envoy.wait_stat("wasmcustom.fencepost.executed", |n| n == 1).await.unwrap();
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay()), (201, true));
    assert_eq!(retry.header("x-fencepost-result"), None);
    assert_eq!(stack.upstream().executions(), 1);
}

#[tokio::test]
async fn somebody_else_answering_in_the_stores_place_decides_nothing() {
    let upstream = Upstream::start().await.unwrap();
    for nonsense in [
        "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n<html>hi</html>",
        "HTTP/1.1 200 OK\r\nx-fencepost-protocol: 1\r\ncontent-length: 6\r\n\r\n\0\0\0\x7f{}",
        "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n",
    ] {
        let wrong = RawUpstream::start(nonsense).await.unwrap();
        let setup = Setup::new(upstream.addr()).guarded(configuration(json!({})), wrong.addr());
        // The impostor speaks HTTP/1.1 only.
        let setup = setup.route(Route::guarded("/pay", "pay")).change(|bootstrap| {
            for n in [1, 2] {
                let path = format!("/static_resources/clusters/{n}/typed_extension_protocol_options");
                let options = bootstrap.pointer_mut(&path).unwrap();
                options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["explicit_http_config"] =
                    json!({"http_protocol_options": {}});
            }
        });
        let envoy = Envoy::start(&setup).await.unwrap();
        let answer = pay("k1").send(envoy.proxy()).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (503, "store_unavailable"), "{nonsense}");
    }
    assert_eq!(upstream.executions(), 0);
}

#[tokio::test]
async fn two_services_on_different_databases_are_noticed() {
    let upstream = Upstream::start().await.unwrap();
    let files = fencepost_rig::scratch::Scratch::new("two-stores").unwrap();
    let url = |name: &str| format!("sqlite:{}", files.path().join(name).display());
    let one = Service::start(Options::on(&url("one.sqlite"))).await.unwrap();
    let two = Service::start(Options::on(&url("two.sqlite"))).await.unwrap();
    let mut setup = Setup::new(upstream.addr()).guarded(configuration(json!({})), one.addr());
    setup.stores.push(two.addr());
    let envoy = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    let (mut served, mut refused) = (0, 0);
    for n in 0..20 {
        let answer = pay(&format!("k{n}")).send(envoy.proxy()).await.unwrap();
        match answer.status {
            201 => served += 1,
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    assert_eq!(upstream.executions(), served);
    envoy.wait_log("another database answered").await.unwrap();
}

#[tokio::test]
async fn a_route_that_names_no_known_policy_is_500_before_the_upstream() {
    let stack = stack(json!({}));
    let stack = stack
        .store(Store::Sqlite)
        .envoy(|mut setup| {
            setup.routes.insert(0, Route::guarded("/typo", "pya"));
            setup.routes.insert(0, Route::guarded("/field", "pay").metadata("mode", "of"));
            setup.routes.insert(0, Route::to("/null").metadata("policy", serde_json::Value::Null));
            setup
        })
        .start()
        .await
        .unwrap();
    for path in ["/typo", "/field", "/null"] {
        let call = fencepost_rig::client::Call::post(path).user("alice").key("k1").json(&json!({}));
        let answer = stack.send(&call).await.unwrap();
        assert_eq!((answer.status, answer.problem_code().as_str()), (500, "policy_unreadable"), "{path}");
    }
    assert_eq!(stack.upstream().executions(), 0);
}

#[tokio::test]
async fn with_the_host_option_off_a_request_with_a_body_is_503_and_never_passes() {
    let stack = stack(json!({})).envoy(|mut setup| {
        setup.allow_on_headers_stop_iteration = false;
        setup
    });
    let stack = stack.start().await.unwrap();
    let answer = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((answer.status, answer.problem_code().as_str()), (503, "host_option"));
    stack.envoy.wait_log("allow_on_headers_stop_iteration").await.unwrap();
    assert_eq!(stack.upstream().executions(), 0);
}

#[tokio::test]
async fn an_outage_longer_than_the_lease_loses_no_claim_whose_proxy_lives() {
    for store in [Store::Sqlite, Store::Postgres] {
        let stack = stack(json!({"claim_ttl": "1s", "wait": "100ms"})).store(store).start().await.unwrap();
        let gate = Gate::new();
        stack.upstream().script_next("/pay", Behaviour::gated(&gate));
        let (proxy, call) = (stack.proxy(), pay("k1"));
        let first = tokio::spawn(async move { call.send(proxy).await });
        gate.wait_arrived(1).await.unwrap();
        stack.service.kill().await.unwrap();
        // Each tick's renewal fails: after more than a lease's worth of them, the service is back.
        let failed = "cluster.fencepost_store.upstream_cx_connect_fail";
        stack.envoy.wait_stat(failed, |n| n >= 15).await.unwrap();
        stack.service.start_again().await.unwrap();
        let retry = retry_while_unavailable(&stack, "k1").await;
        assert_eq!((retry.status, retry.problem_code().as_str()), (409, "in_progress"));
        gate.open();
        assert_eq!(first.await.unwrap().unwrap().status, 201);
        assert!(retry_while_unavailable(&stack, "k1").await.is_replay());
        assert_eq!(stack.upstream().executions(), 1);
    }
}

#[tokio::test]
async fn a_slow_client_is_no_false_alarm() {
    let stack = start(json!({})).await;
    let body = r#"{"amount":1}"#;
    let token = fencepost_rig::token::for_user("alice");
    let mut client = fencepost_rig::raw::RawConnection::open(stack.proxy()).await.unwrap();
    let head = format!(
        "POST /pay HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nidempotency-key: k1\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.send(head).await.unwrap();
    // Longer than any patience with a body that the host withholds; nothing else to wait for.
    tokio::time::sleep(std::time::Duration::from_secs(7)).await;
    client.send(body).await.unwrap();
    let answer = String::from_utf8_lossy(&client.read_to_end().await.unwrap()).into_owned();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(stack.upstream().executions(), 1);
}
