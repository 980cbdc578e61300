//! Nothing of a request, an answer or a credential is in anything that is written for operators.

use crate::support::*;
use crate::traces::{collector, spans, traced};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::typed;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::Store;
use fencepost_rig::upstream::{AnswerBody, Behaviour};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const KEY: &str = "planted-key-5d15";
const SUBJECT: &str = "planted-subject-7c1b";
const BODY: &str = "planted-body-9e07";
const ANSWER: &str = "planted-answer-2b44";
const ANSWER_HEADER: &str = "planted-header-f1aa";
const TOKEN: &str = "planted-token-c96f";

/// A cluster's own filter puts the service's token into each call, as `credential_injector` does.
fn with_token(cluster: &mut Value) {
    let mutation = typed(
        "envoy.filters.http.header_mutation",
        "extensions.filters.http.header_mutation.v3.HeaderMutation",
        json!({"mutations": {"request_mutations": [{"append": {
            "header": {"key": "authorization", "value": format!("Bearer {TOKEN}")},
        }}]}}),
    );
    let codec = typed(
        "envoy.filters.http.upstream_codec",
        "extensions.filters.http.upstream_codec.v3.UpstreamCodec",
        json!({}),
    );
    cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["http_filters"] =
        json!([mutation, codec]);
}

fn call(body: &str) -> Call {
    Call::post("/pay").user(SUBJECT).key(KEY).json(&json!({"text": body}))
}

#[tokio::test]
async fn no_key_token_identity_or_body_is_in_any_log_metric_trace_or_statistic() {
    let collector = collector().await;
    let addr = collector.addr();
    let files = Scratch::new("tokens").unwrap();
    let tokens = files.path().join("tokens.json");
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let file = json!([{"token_sha256": digest, "roles": ["filter", "operator"], "key_prefixes": ["test"]}]);
    std::fs::write(&tokens, file.to_string()).unwrap();
    let builder = stack(json!({"same_payload_window": "1m"}))
        .store(Store::Postgres)
        .service_arguments(&["--otlp-endpoint", &format!("http://{addr}/v1/traces")])
        .service_arguments(&["--token-file", tokens.to_str().unwrap()])
        // Whoever looks for a fault turns everything on.
        .service_variable("FENCEPOST_LOG", "debug,fencepost_store=trace,fencepost_trace=trace")
        .envoy(move |setup| {
            traced(setup, addr, true).change(|bootstrap: &mut Value| {
                let clusters = bootstrap["static_resources"]["clusters"].as_array_mut().unwrap();
                let stores = clusters.iter_mut().filter(|cluster| {
                    cluster["name"].as_str().is_some_and(|name| name.starts_with("fencepost_store"))
                });
                stores.for_each(with_token);
            })
        });
    let stack = builder.start().await.unwrap();
    let answer = Behaviour::status(201).header("x-answer", ANSWER_HEADER);
    stack.upstream().script("/pay", answer.body(AnswerBody::Bytes(ANSWER.into())));
    assert_eq!(stack.send(&call(BODY)).await.unwrap().text(), ANSWER);
    assert!(stack.send(&call(BODY)).await.unwrap().is_replay());
    let mut told = Vec::new();
    for (status, call) in [
        (422, call("another")),
        (400, call(BODY).header("idempotency-key", "a second line")),
        (400, Call::post("/pay").user(SUBJECT).key(&KEY.repeat(30)).body(BODY)),
    ] {
        let answer = stack.send(&call).await.unwrap();
        assert_eq!(answer.status, status);
        told.push((format!("the answer {status}"), answer.body.to_vec()));
    }
    let metrics = Call::get("/metrics").header("authorization", format!("Bearer {TOKEN}"));
    let metrics = metrics.send(stack.service.addr()).await.unwrap();
    assert_eq!(metrics.status, 200);
    stack.envoy.wait_access_log(5).await.unwrap();
    let reached = |seen: &[_]| spans(seen).iter().filter(|span| span.name == "/v1/claims").count() >= 3;
    let mut places = vec![
        ("the proxy's log".to_owned(), stack.envoy.log().into_bytes()),
        ("the access log".into(), json!(stack.envoy.access_log()).to_string().into_bytes()),
        (
            "the proxy's statistics".into(),
            stack.envoy.admin_call("GET", "/stats").await.unwrap().body.to_vec(),
        ),
        ("the metrics".into(), metrics.body.to_vec()),
    ];
    places.extend(told);
    let log = stack.service.log_path();
    stack.service.stop().await.unwrap();
    collector.wait_until("all spans", reached).await.unwrap();
    places.push(("the service's log".into(), std::fs::read(log).unwrap()));
    let traces = collector.seen().into_iter().filter(|seen| seen.path == "/v1/traces");
    // What Envoy says of its own requests is Envoy's: their paths, and no more.
    places.push(("the traces".into(), traces.flat_map(|seen| seen.body).collect()));
    for (place, bytes) in &places {
        assert!(!bytes.is_empty(), "{place} is empty: the test looks at nothing");
        for secret in [KEY, SUBJECT, BODY, ANSWER, ANSWER_HEADER, TOKEN] {
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            // Any alignment of it in base64 has one of these inside.
            let coded = (0..3).map(|skip| STANDARD.encode(&secret[skip..skip + 9]));
            // As Rust shows bytes.
            let shown = format!("{:?}", secret.as_bytes());
            let shown = shown.trim_matches(['[', ']']).to_owned();
            for form in coded.chain([secret.to_owned(), hex, shown]) {
                let found = bytes.windows(form.len()).position(|window| window == form.as_bytes());
                let around =
                    |at: usize| String::from_utf8_lossy(&bytes[at.saturating_sub(300)..at]).into_owned();
                assert!(found.is_none(), "{secret} as {form} is in {place} after {}", around(found.unwrap()));
            }
        }
    }
}
