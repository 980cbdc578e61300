//! The calls over HTTP: roles, codes, and what a caller may learn.

use crate::support::*;
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::service::{Options, Service};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub struct Served {
    pub service: Service,
    pub signer: Signer,
    #[expect(dead_code)]
    folder: TempDir,
}

/// One service with these further arguments, and tokens `admit`, `issue`, `revoke`, `operator`, and
/// `bound`, an operator's for the keys of `test`.
pub async fn serve(store: &str, settings: Option<Value>, tokens: bool) -> Served {
    let signer = Signer::new(1);
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::on(store);
    let settings = settings.unwrap_or_else(|| config(&signer, json!({}), json!({})));
    let file = folder.path().join("issuers.json");
    std::fs::write(&file, settings.to_string()).unwrap();
    options = options.arguments(&["--issuers", file.to_str().unwrap()]);
    if tokens {
        let entries = ["admit", "issue", "revoke", "operator", "filter", "bound"].map(|token| {
            let sha = hex::encode(Sha256::digest(token.as_bytes()));
            let prefixes: &[&str] = if matches!(token, "filter" | "bound") { &["test"] } else { &[] };
            let role = if token == "bound" { "operator" } else { token };
            json!({"token_sha256": sha, "roles": [role], "key_prefixes": prefixes})
        });
        let file = folder.path().join("tokens.json");
        std::fs::write(&file, json!(entries).to_string()).unwrap();
        options = options.arguments(&["--token-file", file.to_str().unwrap()]);
    }
    Served { service: Service::start(options).await.unwrap(), signer, folder }
}

pub fn admit_call(token: &str, operation: &str) -> Call {
    Call::post("/v1/grants/admit").json(&json!({
        "token": token, "operation_id": operation, "caller": agent(), "details": details(),
    }))
}

pub fn status_call(operation: &str) -> Call {
    Call::get(&format!("/v1/operations/{operation}"))
        .header("x-fencepost-caller-namespace", NAMESPACE)
        .header("x-fencepost-caller", AGENT)
}

/// Status, code, and the reason where there is one.
pub fn told(answer: &Answer) -> (u16, String, String) {
    let json = answer.json();
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("code"), text("reason"))
}

fn is(status: u16, code: &str, reason: &str) -> (u16, String, String) {
    (status, code.into(), reason.into())
}

#[tokio::test]
async fn each_outcome_has_its_status_and_only_an_admission_is_200() {
    let served = serve(&database().await, None, false).await;
    let to = served.service.addr();
    let token = served.signer.sign(&claims(&fresh_id(), 900));
    let operation = fresh_operation();
    let admitted = admit_call(&token, operation.as_str()).send(to).await.unwrap();
    assert_eq!(admitted.status, 200);
    let json = admitted.json();
    assert_eq!(json["operation_id"], operation.as_str());
    assert_eq!(json["owner_version"], 1);
    assert!(json["lease_left_ms"].as_u64().unwrap() > 50_000);
    assert!(admitted.header("x-fencepost-store-id").is_some());

    // Upper case is the same operation.
    let again = admit_call(&token, &operation.as_str().to_uppercase()).send(to).await.unwrap();
    assert_eq!(told(&again), is(409, "already_admitted", ""));
    assert_eq!(again.json()["operation"]["status"], "admitted");
    assert_eq!(again.header("retry-after"), Some("2"));
    assert_eq!(again.header("content-type"), Some("application/problem+json"));

    let other = admit_call(&token, fresh_operation().as_str()).send(to).await.unwrap();
    assert_eq!(told(&other), is(403, "grant_not_available", ""));
    let reused = served.signer.sign(&claims(&fresh_id(), 900));
    let conflict = admit_call(&reused, operation.as_str()).send(to).await.unwrap();
    assert_eq!(conflict.body, other.body, "every refusal has the same words");

    let forged = admit_call(&Signer::new(2).sign(&claims(&fresh_id(), 900)), fresh_operation().as_str());
    assert_eq!(told(&forged.send(to).await.unwrap()), is(403, "grant_not_valid", "token_key"));
    let mut old = claims(&fresh_id(), 0);
    merge(&mut old, json!({"iat": now() - 900, "exp": now() - 600}));
    let expired = admit_call(&served.signer.sign(&old), fresh_operation().as_str()).send(to).await.unwrap();
    assert_eq!(told(&expired), is(403, "grant_expired", ""));

    for (method, path, body, status) in [
        ("POST", "may-submit", json!({"owner_version": 1}), 200),
        ("POST", "may-submit", json!({"owner_version": 2}), 409),
        ("POST", "renew", json!({"owner_version": 1}), 200),
        ("POST", "take-over", json!({"owner_version": 1}), 409),
        ("POST", "record", json!({"owner_version": 1, "outcome": "admitted"}), 400),
        ("POST", "record", json!({"owner_version": 1, "outcome": "succeeded", "reference": "cr_1"}), 200),
        ("POST", "record", json!({"owner_version": 1, "outcome": "succeeded", "reference": "cr_1"}), 200),
        ("POST", "record", json!({"owner_version": 1, "outcome": "failed"}), 409),
        ("POST", "may-submit", json!({"owner_version": 1}), 409),
        ("GET", "may-submit", json!({}), 405),
    ] {
        let call = Call::new(method, &format!("/v1/operations/{operation}/{path}")).json(&body);
        let answer = call.send(to).await.unwrap();
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.text());
    }
    let status = status_call(operation.as_str()).send(to).await.unwrap();
    assert_eq!(status.status, 200);
    assert_eq!(status.json()["status"], "succeeded");
    assert_eq!(status.json()["reference"], "cr_1");
    for stranger in [
        status_call(fresh_operation().as_str()),
        status_call(operation.as_str()).header("x-fencepost-tenant", "t1"),
        Call::get(&format!("/v1/operations/{operation}"))
            .header("x-fencepost-caller-namespace", NAMESPACE)
            .header("x-fencepost-caller", "agent-8"),
    ] {
        let answer = stranger.send(to).await.unwrap();
        assert_eq!(told(&answer), is(404, "operation_not_found", ""));
    }
}

#[tokio::test]
async fn malformed_requests_reach_no_store() {
    let url = database().await;
    let served = serve(&url, None, false).await;
    let to = served.service.addr();
    let token = served.signer.sign(&claims(&fresh_id(), 900));
    let good = json!({
        "token": token, "operation_id": fresh_operation(), "caller": agent(), "details": details(),
    });
    for (change, status) in [
        (json!({"operation_id": "00000000-0000-0000-0000-000000000000"}), 400),
        (json!({"operation_id": "op1"}), 400),
        (json!({"operation_id": null}), 400),
        (json!({"caller": null}), 400),
        (json!({"details": {"amount": 250}}), 400),
        (json!({"surprise": 1}), 400),
        (json!({"token": null}), 400),
        (json!({"grant": {"issuer": ISSUER, "grant_id": "x"}}), 400),
        (json!({"token": "x".repeat(20_000)}), 403),
        (json!({"token": "x".repeat(200_000)}), 413),
    ] {
        let mut bad = good.clone();
        merge(&mut bad, change.clone());
        let answer = Call::post("/v1/grants/admit").json(&bad).send(to).await.unwrap();
        assert_eq!(answer.status, status, "{change:.100}: {}", answer.text());
        assert!(!answer.text().contains(&token[..40]), "the token is echoed");
    }
    let form = Call::post("/v1/grants/admit").header("content-type", "text/plain").body(good.to_string());
    assert_eq!(form.send(to).await.unwrap().status, 415);
    let client = connect(&url).await;
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.grant_consumptions").await, 0);
    assert_eq!(Call::post("/v1/grants/admit").json(&good).send(to).await.unwrap().status, 200);
    let log = std::fs::read_to_string(served.service.log_path()).unwrap();
    for secret in [token.rsplit('.').next().unwrap(), &token[..40], "A-1187", AGENT] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
    assert!(log.contains("grant admitted"), "{log}");
}

#[tokio::test]
async fn a_call_needs_its_role() {
    let served = serve(&database().await, None, true).await;
    let to = served.service.addr();
    let id = fresh_id();
    let token = served.signer.sign(&claims(&id, 900));
    let operation = fresh_operation();
    let body_of = |path: &str| match path {
        "/v1/grants/admit" => json!({
            "token": token, "operation_id": operation, "caller": agent(), "details": details(),
        }),
        "/v1/grants/issue" => json!({"grant": {"issuer": ISSUER, "grant_id": "logged"}}),
        "/v1/grants/revoke" => json!({"token": token, "reason": "withdrawn"}),
        _ => json!({"owner_version": 1}),
    };
    let owner_path = format!("/v1/operations/{operation}/may-submit");
    for (path, role, then) in [
        ("/v1/grants/admit", "admit", 200),
        (owner_path.as_str(), "admit", 200),
        ("/v1/grants/issue", "issue", 200),
        ("/v1/grants/revoke", "revoke", 409),
    ] {
        let call = || Call::post(path).json(&body_of(path));
        assert_eq!(call().send(to).await.unwrap().status, 401, "{path}");
        for other in ["admit", "issue", "revoke", "operator"] {
            if other != role {
                let answer =
                    call().header("authorization", format!("Bearer {other}")).send(to).await.unwrap();
                assert_eq!(told(&answer), is(403, "role", ""), "{path} as {other}");
            }
        }
        let answer = call().header("authorization", format!("Bearer {role}")).send(to).await.unwrap();
        assert_eq!(answer.status, then, "{path}: {}", answer.text());
    }
    let status = status_call(operation.as_str());
    assert_eq!(status.send(to).await.unwrap().status, 401);
    let status = status_call(operation.as_str()).header("authorization", "Bearer admit");
    assert_eq!(status.send(to).await.unwrap().status, 200);
}

/// Two issuers with one key, and a token that is bound to the second.
async fn serve_two_issuers() -> (Served, String) {
    let signer = Signer::new(1);
    let mut settings = config(&signer, json!({}), json!({}));
    let mut other = settings["issuers"][0].clone();
    other["issuer"] = json!("https://other.example");
    settings["issuers"].as_array_mut().unwrap().push(other);
    let folder = tempfile::tempdir().unwrap();
    let (issuers, tokens) = (folder.path().join("issuers.json"), folder.path().join("tokens.json"));
    std::fs::write(&issuers, settings.to_string()).unwrap();
    let sha = |token: &str| hex::encode(Sha256::digest(token.as_bytes()));
    let roles = ["admit", "issue", "revoke"];
    let entries = json!([
        {"token_sha256": sha("free"), "roles": roles},
        {"token_sha256": sha("bound"), "roles": roles, "issuers": ["https://other.example"]},
    ]);
    std::fs::write(&tokens, entries.to_string()).unwrap();
    let url = database().await;
    let options = Options::on(&url).arguments(&[
        "--issuers",
        issuers.to_str().unwrap(),
        "--token-file",
        tokens.to_str().unwrap(),
    ]);
    let service = Service::start(options).await.unwrap();
    (Served { service, signer, folder }, "https://other.example".into())
}

#[tokio::test]
async fn a_token_that_is_bound_to_issuers_acts_on_their_grants_and_operations_only() {
    let (served, other) = serve_two_issuers().await;
    let to = served.service.addr();
    let by = |call: Call, token: &str| call.header("authorization", format!("Bearer {token}"));
    let grant = |issuer: &str| {
        let mut own = claims(&fresh_id(), 900);
        merge(&mut own, json!({"iss": issuer}));
        served.signer.sign(&own)
    };
    let (mine, theirs) = (fresh_operation(), fresh_operation());
    let token = grant(ISSUER);
    let refused = by(admit_call(&token, theirs.as_str()), "bound").send(to).await.unwrap();
    assert_eq!(told(&refused), is(403, "issuer", ""));
    let revoke = json!({"token": token, "reason": "r"});
    let revoke = by(Call::post("/v1/grants/revoke").json(&revoke), "bound").send(to).await.unwrap();
    assert_eq!(told(&revoke), is(403, "issuer", ""));
    let issue = json!({"grant": {"issuer": ISSUER, "grant_id": "g"}, "subject": AGENT});
    let issue = by(Call::post("/v1/grants/issue").json(&issue), "bound").send(to).await.unwrap();
    assert_eq!(told(&issue), is(403, "issuer", ""));
    // Nothing was spent or revoked by it.
    let admitted = by(admit_call(&token, theirs.as_str()), "free").send(to).await.unwrap();
    assert_eq!(admitted.status, 200, "{}", admitted.text());
    let own = by(admit_call(&grant(&other), mine.as_str()), "bound").send(to).await.unwrap();
    assert_eq!(own.status, 200, "{}", own.text());

    // Calls on the other issuer's operation: as if there were none.
    let absent = fresh_operation();
    for (path, body) in [
        ("may-submit", json!({"owner_version": 1})),
        ("renew", json!({"owner_version": 1})),
        ("take-over", json!({"owner_version": 1})),
        ("record", json!({"owner_version": 1, "outcome": "failed"})),
    ] {
        let call = |id: &str| by(Call::post(&format!("/v1/operations/{id}/{path}")).json(&body), "bound");
        let found = call(theirs.as_str()).send(to).await.unwrap();
        let none = call(absent.as_str()).send(to).await.unwrap();
        assert_eq!((found.status, &found.body), (404, &none.body), "{path}: {}", found.text());
    }
    let finish = fencepost_protocol::encode(&json!({"owner_version": 1, "outcome": "failed"}), &[]).unwrap();
    let finish = Call::post(&format!("/v1/operations/{theirs}/finish"))
        .header("content-type", fencepost_protocol::FRAME_MEDIA_TYPE)
        .body(finish);
    assert_eq!(by(finish, "bound").send(to).await.unwrap().status, 404);
    assert_eq!(by(status_call(theirs.as_str()), "bound").send(to).await.unwrap().status, 404);
    let status = by(status_call(theirs.as_str()), "free").send(to).await.unwrap();
    assert_eq!(status.json()["status"], "admitted");
    let record = json!({"owner_version": 1, "outcome": "succeeded"});
    let record = Call::post(&format!("/v1/operations/{mine}/record")).json(&record);
    assert_eq!(by(record, "bound").send(to).await.unwrap().status, 200);
}

#[tokio::test]
async fn admissions_are_limited_for_each_token_and_issuer_and_a_limit_admits_and_spends_nothing() {
    for (issuer, rest) in
        [(json!({"admissions_per_minute": 2}), json!({})), (json!({}), json!({"admissions_per_minute": 2}))]
    {
        let settings = config(&Signer::new(1), issuer, rest);
        let served = serve(&database().await, Some(settings), false).await;
        let to = served.service.addr();
        let tokens: Vec<_> = (0..3).map(|_| served.signer.sign(&claims(&fresh_id(), 900))).collect();
        for token in &tokens[..2] {
            let admitted = admit_call(token, fresh_operation().as_str()).send(to).await.unwrap();
            assert_eq!(admitted.status, 200);
        }
        let third = fresh_operation();
        let refused = admit_call(&tokens[2], third.as_str()).send(to).await.unwrap();
        assert_eq!(told(&refused), is(429, "too_often", ""));
        let refused: Value = refused.json();
        assert!(refused["detail"].as_str().unwrap().contains("nothing was done"));
        // A start forgets the count; the grant was not spent.
        served.service.stop().await.unwrap();
        served.service.start_again().await.unwrap();
        let admitted = admit_call(&tokens[2], third.as_str()).send(to).await.unwrap();
        assert_eq!(admitted.status, 200, "{}", admitted.text());
    }
}

#[tokio::test]
async fn without_issuers_there_are_no_grants_and_the_rest_works() {
    let service = Service::start(Options::on("memory:")).await.unwrap();
    let answer = admit_call("a.b.c", fresh_operation().as_str()).send(service.addr()).await.unwrap();
    assert_eq!(told(&answer), is(404, "grants_not_configured", ""));
    assert_eq!(Call::get("/readyz").send(service.addr()).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_start_that_cannot_hold_its_guarantees_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("issuers.json");
    let start = async |settings: Value, store: &str, more: &[&str]| {
        std::fs::write(&file, settings.to_string()).unwrap();
        let options = Options::on(store).arguments(&["--issuers", file.to_str().unwrap()]).arguments(more);
        match Service::start(options).await {
            Ok(_) => panic!("started: {settings}"),
            Err(error) => format!("{error:?}"),
        }
    };
    let signer = Signer::new(1);
    let good = config(&signer, json!({}), json!({}));
    let timings = json!({"timings": {"cleanup_margin": "5s"}});
    let message = start(config(&signer, json!({}), timings), "memory:", &[]).await;
    assert!(message.contains("cleanup_margin = 5s") && message.contains("clock_step_max = 15s"), "{message}");
    let message = start(good.clone(), "memory:", &[]).await;
    assert!(message.contains("keeps no grants"), "{message}");
    let url = database().await;
    let message = start(good.clone(), &url, &["--admission-store", "sqlite:x"]).await;
    assert!(message.contains("--admission-store"), "{message}");
    grants_on(&url, &good).await;
    let message = start(config(&signer, json!({"leeway": "3s"}), json!({})), &url, &[]).await;
    assert!(message.contains("found leeway = 3s"), "{message}");
}

#[tokio::test]
async fn readiness_says_what_the_cleanup_does() {
    let timings = json!({"timings": {"admission_bound": "1s"}});
    let signer = Signer::new(1);
    let served = serve(&database().await, Some(config(&signer, json!({}), timings)), false).await;
    until("the bound is verified", async || {
        let answer = Call::get("/readyz").send(served.service.addr()).await.unwrap();
        answer.status == 200 && answer.json()["grants"]["cleanup"] == "on"
    })
    .await;
}

#[tokio::test]
async fn the_description_names_every_call() {
    let service = Service::start(Options::on("memory:")).await.unwrap();
    let answer = Call::get("/openapi.json").send(service.addr()).await.unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let document = answer.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut named: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    named.sort_unstable();
    for path in [
        "/healthz",
        "/metrics",
        "/readyz",
        "/v1/claims",
        "/v1/complete",
        "/v1/entries",
        "/v1/entries/{key}",
        "/v1/entries/{key}/release",
        "/v1/entries/{key}/settle",
        "/v1/grants/admit",
        "/v1/grants/claim",
        "/v1/grants/issue",
        "/v1/grants/revoke",
        "/v1/operations/{id}",
        "/v1/operations/{id}/finish",
        "/v1/operations/{id}/may-submit",
        "/v1/operations/{id}/record",
        "/v1/operations/{id}/renew",
        "/v1/operations/{id}/take-over",
        "/v1/operator/erase",
        "/v1/operator/grants",
        "/v1/operator/grants/release",
        "/v1/operator/holds",
        "/v1/operator/holds/{id}/free",
        "/v1/operator/holds/{id}/lift",
        "/v1/operator/operations",
        "/v1/operator/operations/{id}",
        "/v1/operator/operations/{id}/settle",
        "/v1/recovery/keys",
        "/v1/release",
        "/v1/renew",
        "/v1/unknown",
    ] {
        assert!(named.contains(&path), "{path} is not described");
        let real = path.replace("{id}", fresh_operation().as_str()).replace("{key}", "p:00");
        let method = if document["paths"][path]["get"].is_object() { "GET" } else { "POST" };
        let answer = Call::new(method, &real).send(service.addr()).await.unwrap();
        assert_ne!(answer.problem_code(), "not_found", "{path} is described and not there");
    }
    // Every reference leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}
