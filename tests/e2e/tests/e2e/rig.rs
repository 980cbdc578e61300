//! The rig itself: what the other tests rely on must hold.

use bytes::Bytes;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{Envoy, Route, Setup};
use fencepost_rig::raw::{RawConnection, RawUpstream, exchange};
use fencepost_rig::upstream::{AnswerBody, Behaviour, Ending, Gate, Upstream};
use serde_json::json;
use std::time::Duration;

async fn proxied() -> (Upstream, Envoy) {
    let upstream = Upstream::start().await.unwrap();
    let envoy = Envoy::start(&Setup::new(upstream.addr())).await.unwrap();
    (upstream, envoy)
}

#[tokio::test]
async fn envoy_without_the_filter_passes_requests_and_the_upstream_counts_them() {
    let (upstream, envoy) = proxied().await;
    let call = Call::post("/orders?a=b").user("alice").json(&json!({"amount": 1}));
    let first = call.send(envoy.proxy()).await.unwrap();
    assert_eq!((first.status, first.text().as_str()), (201, r#"{"n":1}"#));
    assert_eq!(first.header("location"), Some("/orders/1"));
    let second = call.clone().http2().send(envoy.proxy()).await.unwrap();
    assert_eq!(second.json(), json!({"n": 2}));
    assert_eq!((upstream.executions(), upstream.executions_of("/orders")), (2, 2));
    let seen = upstream.seen();
    assert_eq!((seen[0].method.as_str(), seen[0].query.as_deref()), ("POST", Some("a=b")));
    assert_eq!(seen[1].body, br#"{"amount":1}"#);
    assert!(seen.iter().all(|seen| seen.answered && !seen.cut), "{seen:?}");
    let log = envoy.wait_access_log(2).await.unwrap();
    assert_eq!((&log[0]["status"], &log[0]["details"]), (&json!(201), &json!("via_upstream")));
    assert_eq!(envoy.stat("http.ingress.downstream_rq_2xx").await.unwrap(), 2);
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_a_missing_one_passes_without_identity() {
    let (upstream, envoy) = proxied().await;
    let wrong = Call::post("/a").header("authorization", "Bearer a.b.c").send(envoy.proxy()).await.unwrap();
    assert_eq!(wrong.status, 401);
    assert_eq!(Call::post("/a").send(envoy.proxy()).await.unwrap().status, 201);
    assert_eq!(upstream.executions(), 1);
}

#[tokio::test]
async fn gates_hold_and_admit_in_order() {
    let (upstream, envoy) = proxied().await;
    let gate = Gate::new();
    upstream.script("/slow", Behaviour::gated(&gate));
    let proxy = envoy.proxy();
    let calls = (0..8).map(|_| tokio::spawn(async move { Call::post("/slow").send(proxy).await }));
    let calls = calls.collect::<Vec<_>>();
    gate.wait_arrived(8).await.unwrap();
    assert!(calls.iter().all(|call| !call.is_finished()));
    gate.admit(1);
    upstream.wait_until("one answer", |seen| seen.iter().any(|seen| seen.answered)).await.unwrap();
    assert_eq!(upstream.seen().iter().filter(|seen| seen.answered).count(), 1);
    gate.open();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status, 201);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_seen_as_a_cut() {
    let (upstream, envoy) = proxied().await;
    let gate = upstream.gate("never");
    let call = Call::post("/gone").header("x-test-gate", "never");
    let proxy = envoy.proxy();
    let client = tokio::spawn(async move { call.send(proxy).await });
    gate.wait_arrived(1).await.unwrap();
    client.abort();
    upstream.wait_until("a cut", |seen| seen.iter().any(|seen| seen.cut)).await.unwrap();
    assert_eq!(upstream.executions_of("/gone"), 1);
}

#[tokio::test]
async fn half_a_body_is_seen_but_not_executed() {
    let (upstream, envoy) = proxied().await;
    let mut raw = RawConnection::open(envoy.proxy()).await.unwrap();
    raw.send("POST /half HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nabc").await.unwrap();
    upstream.wait_until("three bytes", |seen| seen.iter().any(|seen| seen.body == b"abc")).await.unwrap();
    raw.reset().unwrap();
    upstream.wait_until("a cut", |seen| seen.iter().any(|seen| seen.cut)).await.unwrap();
    assert_eq!(upstream.executions(), 0);
}

#[tokio::test]
async fn every_ending_of_an_answer_can_be_scripted() {
    let (upstream, envoy) = proxied().await;
    let proxy = envoy.proxy();
    let ended = |ending: &str| Call::post("/end").header("x-test-ending", ending);
    assert_eq!(ended("close").send(proxy).await.unwrap().status, 503);
    assert!(ended("cut:3").send(proxy).await.is_err());
    assert!(ended("cut:3").header("x-test-chunked", "1").send(proxy).await.is_err());
    let hang = ended("hang").within(Duration::from_millis(300)).send(proxy).await;
    assert!(hang.is_err());
    assert_eq!(upstream.executions_of("/end"), 4);
    upstream.script_next("/end", Behaviour::status(418).ending(Ending::Whole));
    assert_eq!(Call::post("/end").send(proxy).await.unwrap().status, 418);
    upstream.close().await;
    let refused = Call::post("/end").send(proxy).await.unwrap();
    assert_eq!(refused.status, 503);
    upstream.open_again().await.unwrap();
    assert_eq!(Call::post("/end").send(proxy).await.unwrap().status, 201);
}

#[tokio::test]
async fn bodies_of_any_size_and_shape_arrive_whole() {
    let (upstream, envoy) = proxied().await;
    let big = Call::get("/big").header("x-test-body-size", "3000000").send(envoy.proxy()).await.unwrap();
    assert_eq!(big.body.len(), 3_000_000);
    let body = AnswerBody::OneBytePieces(Bytes::from_static(b"piecemeal"));
    upstream.script("/pieces", Behaviour::default().body(body).trailer("x-end", "yes"));
    let pieces = Call::post("/pieces").chunks(vec!["ab".into(), "cd".into()]).http2();
    assert_eq!(pieces.send(envoy.proxy()).await.unwrap().text(), "piecemeal");
    assert_eq!(upstream.seen_on("/pieces")[0].body, b"abcd");
    let mut events = Call::get("/sse").header("x-test-sse", "1").open(envoy.proxy()).await.unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    assert!(events.chunk().await.unwrap().unwrap().starts_with(b"data: 0"));
    drop(events);
    upstream
        .wait_until("a cut", |seen| seen.iter().any(|seen| seen.path == "/sse" && seen.cut))
        .await
        .unwrap();
}

#[tokio::test]
async fn trailers_pass_in_both_directions_over_http2() {
    let upstream = Upstream::start().await.unwrap();
    let mut setup = Setup::new(upstream.addr());
    setup.upstream_http2 = true;
    let envoy = Envoy::start(&setup).await.unwrap();
    let call =
        Call::post("/t").body("x").trailer("x-sum", "1").header("x-test-trailer", "x-end: yes").http2();
    let answer = call.send(envoy.proxy()).await.unwrap();
    assert_eq!(answer.trailers["x-end"], "yes");
    assert_eq!(upstream.seen()[0].trailers["x-sum"], "1");
    assert!(upstream.seen()[0].http2);
}

#[tokio::test]
async fn header_bytes_outside_utf8_survive() {
    let (_upstream, envoy) = proxied().await;
    let answer =
        Call::post("/b").header("x-test-header", b"x-odd: caf\xe9").send(envoy.proxy()).await.unwrap();
    assert_eq!(answer.header_lines("x-odd"), [b"caf\xe9".to_vec()]);
    let odd = b"HTTP/1.1 200 OK\r\nx-odd: \xff\r\ncontent-length: 2\r\n\r\nok";
    let raw = RawUpstream::start(odd).await.unwrap();
    let envoy = Envoy::start(&Setup::new(raw.addr())).await.unwrap();
    let bytes =
        exchange(envoy.proxy(), "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(bytes.windows(2).any(|pair| pair == b"ok"), "{}", String::from_utf8_lossy(&bytes));
}

#[tokio::test]
async fn routes_carry_retries_timeouts_and_direct_answers() {
    let upstream = Upstream::start().await.unwrap();
    let direct = json!({"status": 204});
    let setup = Setup::new(upstream.addr())
        .route(Route::to("/direct").extra("direct_response", direct))
        .route(Route::to("/short").timeout("0.2s"))
        .route(Route::to("/").retry_policy(json!({"retry_on": "5xx", "num_retries": 2})));
    let envoy = Envoy::start(&setup).await.unwrap();
    assert_eq!(Call::post("/direct").send(envoy.proxy()).await.unwrap().status, 204);
    let late = Call::post("/short").header("x-test-delay-ms", "2000").send(envoy.proxy()).await.unwrap();
    assert_eq!(late.status, 504);
    let failed = Call::post("/r").header("x-test-status", "500").send(envoy.proxy()).await.unwrap();
    assert_eq!((failed.status, upstream.executions_of("/r")), (500, 3));
}

#[tokio::test]
async fn a_broken_bootstrap_says_why_and_does_not_hang() {
    let upstream = Upstream::start().await.unwrap();
    let setup =
        Setup::new(upstream.addr()).change(|bootstrap| bootstrap["static_resources"]["nonsense"] = json!(1));
    let error = Envoy::start(&setup).await.err().unwrap();
    assert!(format!("{error:?}").contains("nonsense"), "{error:?}");
}
