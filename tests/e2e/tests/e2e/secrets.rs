//! Nothing of a request, an answer or a credential is in anything that is written for operators.

use crate::support::*;
use crate::traces::{collector, spans, traced};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::{loopback, typed};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::{Stack, Store};
use fencepost_rig::upstream::{AnswerBody, Behaviour, Ending, Upstream};
use fencepost_rig::{grants, token};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    assert_nowhere(&places, &[KEY, SUBJECT, BODY, ANSWER, ANSWER_HEADER, TOKEN]);
}

/// None of the secrets is in any of the places, in any form that programs write bytes in.
fn assert_nowhere(places: &[(String, Vec<u8>)], secrets: &[&str]) {
    for (place, bytes) in places {
        assert!(!bytes.is_empty(), "{place} is empty: the test looks at nothing");
        for secret in secrets {
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            // Any alignment of it in base64 has one of these inside.
            let coded = (0..3).map(|skip| STANDARD.encode(&secret[skip..skip + 9]));
            // As Rust shows bytes.
            let shown = format!("{:?}", secret.as_bytes());
            let shown = shown.trim_matches(['[', ']']).to_owned();
            for form in coded.chain([(*secret).to_owned(), hex, shown]) {
                let found = bytes.windows(form.len()).position(|window| window == form.as_bytes());
                let around =
                    |at: usize| String::from_utf8_lossy(&bytes[at.saturating_sub(300)..at]).into_owned();
                assert!(found.is_none(), "{secret} as {form} is in {place} after {}", around(found.unwrap()));
            }
        }
    }
}

const CURRENCY: &str = "planted-currency-77aa";
const PROVIDED: &str = "planted-provided-3c9d";
const SIGNING: &str = "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90";

/// Alice's grant for an amount of a planted currency, as it is presented.
fn granted(operation: &str) -> (String, Call) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let token = token::with_claims(&json!({
        "iss": grants::ISSUER, "aud": "billing", "jti": operation, "sub": SUBJECT, "iat": now, "exp": now + 600,
        "account": "A-1187", "amount": "250.00", "currency": CURRENCY,
    }));
    let call = Call::post(grants::CREDITS)
        .user(SUBJECT)
        .header("x-grant", &token)
        .header("x-operation-id", operation)
        .header("content-type", "application/json")
        .body(format!(r#"{{"amount":250.00,"currency":"{CURRENCY}","memo":"{BODY}"}}"#));
    (token, call)
}

#[tokio::test]
async fn no_grant_signature_provided_answer_or_session_is_in_any_log_metric_trace_or_statistic() {
    let (collector, provider) = (collector().await, Upstream::start().await.unwrap());
    let (addr, files) = (collector.addr(), Scratch::new("secrets").unwrap());
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, text: String| std::fs::write(path(name), text).unwrap();
    let digest: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let roles = ["filter", "admit", "operator"];
    write(
        "tokens.json",
        json!([{"token_sha256": digest, "roles": roles, "key_prefixes": ["test"]}]).to_string(),
    );
    write("recovery.key", SIGNING.into());
    write(
        "recovery.json",
        json!({"every": "100ms", "providers": {"billing": {
            "sign": {"key_id": "k1", "key_file": "recovery.key"},
            "operations": {
                "issuers": [grants::ISSUER],
                "lookup": {"url": format!("http://{}/credits/{{operation_id}}", provider.addr()), "timeout": "400ms"},
                "contract": {
                    "lookup": true, "atomic_concurrent_keys": false, "same_parameters": true, "key_retention": "24h",
                },
            },
        }}})
        .to_string(),
    );
    let short = json!({
        "effect_timeout": "200ms", "recovery_step": "1s", "store_call_timeout": "300ms", "lease_margin": "100ms",
        "execution_lease": "1500ms", "recovery_lease": "1500ms", "recovery_delay": "500ms",
    });
    let (_issuers, issuers) = grants::issuers(&short).unwrap();
    let stack = Stack::builder(grants::configuration(&grants::policy()))
        .route(grants::route())
        .store(Store::Postgres)
        .service_arguments(&["--otlp-endpoint", &format!("http://{addr}/v1/traces")])
        .service_arguments(&["--token-file", &path("tokens.json"), "--issuers", &issuers])
        .service_arguments(&["--recovery", &path("recovery.json")])
        .service_variable("FENCEPOST_LOG", "debug,fencepost_store=trace,fencepost_trace=trace")
        .envoy(move |setup| {
            traced(setup, addr, true).change(loopback::add).change(|bootstrap: &mut Value| {
                let clusters = bootstrap["static_resources"]["clusters"].as_array_mut().unwrap();
                let stores = clusters.iter_mut().filter(|cluster| {
                    cluster["name"].as_str().is_some_and(|name| name.starts_with("fencepost_store"))
                });
                stores.for_each(with_token);
            })
        })
        .start()
        .await
        .unwrap();
    let (done, lost) = ("018f2b1c-7e52-7cc3-98c4-dc0c0c073001", "018f2b1c-7e52-7cc3-98c4-dc0c0c073002");

    // Admitted, answered, and told again.
    let answer = Behaviour::status(201).header("x-answer", ANSWER_HEADER);
    stack.upstream().script_next(grants::CREDITS, answer.body(AnswerBody::Bytes(ANSWER.into())));
    let (first, call) = granted(done);
    assert_eq!(stack.send(&call).await.unwrap().text(), ANSWER);
    assert!(stack.send(&call).await.unwrap().is_replay());
    // Refused in several ways.
    let mut told = Vec::new();
    let forged = format!("{}x", &first[..first.len() - 1]);
    let spent = granted(done).1.header("idempotency-key", KEY);
    let other = Call::post(grants::CREDITS).user(SUBJECT).header("x-grant", forged);
    let other = other
        .header("x-operation-id", lost)
        .json(&json!({"amount": 250, "currency": CURRENCY, "memo": BODY}));
    for call in [spent, other, Call::post(grants::CREDITS).user(SUBJECT).body(BODY)] {
        let answer = stack.send(&call).await.unwrap();
        assert!((400..500).contains(&answer.status), "{}", answer.text());
        told.push((format!("the answer {}", answer.status), answer.body.to_vec()));
    }
    // Lost by the proxy, and found by recovery at the provider.
    let found = json!({
        "operation_id": lost, "outcome": "succeeded",
        "answer": {"status": 200, "headers": [["x-answer", ANSWER_HEADER]], "body": PROVIDED},
    });
    let found = AnswerBody::Bytes(found.to_string().into());
    provider.script(&format!("/credits/{lost}"), Behaviour::status(200).body(found));
    stack.upstream().script_next(grants::CREDITS, Behaviour::default().ending(Ending::CloseBeforeHead));
    let (second, call) = granted(lost);
    stack.send(&call).await.unwrap();
    provider.wait_until("a look-up", |seen| !seen.is_empty()).await.unwrap();
    while stack.send(&call).await.unwrap().text() != PROVIDED {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let signature = provider.seen()[0].header("x-fencepost-signature").unwrap().to_owned();
    // A person looks, erases and holds.
    let service = stack.service.addr();
    let login = Call::post("/console/login")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", format!("http://{service}"))
        .body(format!("token={TOKEN}"));
    let begun = login.send(service).await.unwrap();
    let cookie = begun.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = Call::get("/console").header("cookie", &cookie).send(service).await.unwrap();
    assert_eq!(page.status, 200);
    told.push(("the first page".into(), page.body.to_vec()));
    let scope = json!({"jwt": {"iss": token::ISSUER, "sub": SUBJECT}}).to_string();
    let address = format!("http://{service}");
    for arguments in [
        &["erase", "--scope", &scope, "--reason", "asked for", "--yes"][..],
        &["hold", "begin", "--reason", "restored", "--yes"][..],
        &["hold", "list"][..],
    ] {
        let output = std::process::Command::new(fencepost_rig::service::binary().unwrap())
            .args(arguments)
            .args(["--url", &address])
            .env("FENCEPOST_TOKEN", TOKEN)
            .output()
            .unwrap();
        told.push((arguments[0].to_owned(), [output.stdout, output.stderr].concat()));
    }
    let metrics = Call::get("/metrics").header("authorization", format!("Bearer {TOKEN}"));
    let metrics = metrics.send(service).await.unwrap();
    stack.envoy.wait_access_log(7).await.unwrap();
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
    let reached = |seen: &[_]| spans(seen).iter().any(|span| span.name == "recover_operation");
    collector.wait_until("the spans of recovery", reached).await.unwrap();
    places.push(("the service's log".into(), std::fs::read(log).unwrap()));
    let traces = collector.seen().into_iter().filter(|seen| seen.path == "/v1/traces");
    places.push(("the traces".into(), traces.flat_map(|seen| seen.body).collect()));
    let signed = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let cookie = cookie.split_once('=').unwrap().1.to_owned();
    let (first, second) = (signed(&first), signed(&second));
    let secrets = [
        KEY,
        SUBJECT,
        BODY,
        ANSWER,
        ANSWER_HEADER,
        TOKEN,
        CURRENCY,
        PROVIDED,
        SIGNING,
        &signature,
        &cookie,
        &first,
        &second,
    ];
    assert_nowhere(&places, &secrets);
}
