//! What operators use: the program's `entries` and `key`, and `/v1/entries` behind it.

use crate::bed::*;
use crate::served::*;
use crate::starting::{field, program, serve};
use fencepost_store::entry::{Claim, Ruling, SettleReply};
use fencepost_store::http::Tokens;
use fencepost_store::store::{StateName, StoreKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::process::Output;

/// Runs the program to its end, with nobody at its standard input.
async fn run(arguments: &[&str]) -> Output {
    program(arguments)
        .env_remove("FENCEPOST_TOKEN")
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap()
}

fn said(output: &Output) -> (i32, String) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code().unwrap(), String::from_utf8(text.clone()).unwrap())
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A service whose tokens are `ann` (operator), `bob` (operator for the prefix `other`) and
/// `filter`, with one unknown entry of the key that a client sent as `k1`.
struct Console {
    served: Served,
    bed: Bed,
    key: String,
    claim: Claim,
    #[expect(dead_code)]
    folder: tempfile::TempDir,
    token: String,
}

const PARTS: [&str; 8] = [
    "--prefix",
    "test",
    "--namespace",
    "payments",
    "--scope",
    r#"{"jwt": {"iss": "https://issuer", "sub": "alice"}}"#,
    "--client-key",
    "k1",
];

impl Console {
    async fn start(kind: StoreKind) -> Self {
        let bed = Bed::real(kind).await;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let sha = |token: &str| hex::encode(Sha256::digest(token));
        let tokens = json!([
            {"token_sha256": sha("ann-secret"), "name": "ann", "roles": ["operator"]},
            {"token_sha256": sha("bob-secret"), "name": "bob", "roles": ["operator"], "key_prefixes": ["other"]},
            {"token_sha256": sha("filter-secret"), "roles": ["filter"], "key_prefixes": ["test"]},
        ]);
        std::fs::write(file("tokens"), tokens.to_string()).unwrap();
        std::fs::write(file("ann"), "ann-secret\n").unwrap();
        let served = Served::start(bed.store.clone(), Tokens::read(&file("tokens")).unwrap()).await;
        let (code, key) = said(&run(&[&["key"], &PARTS[..]].concat()).await);
        assert_eq!(code, 0, "{key}");
        let key = key.trim().to_owned();
        let claim = Claim { key: fencepost_protocol::StoreKey::parse(&key).unwrap(), ..claim(1, 1) };
        bed.granted(&claim).await;
        bed.store.unknown(unknown(&claim)).await.unwrap();
        let token = file("ann").display().to_string();
        Self { served, bed, key, claim, folder, token }
    }

    /// `entries` as ann.
    async fn ann(&self, arguments: &[&str]) -> Output {
        let url = format!("http://{}", self.served.addr);
        let settings = ["--url", &url, "--token-file", &self.token];
        run(&[&["entries"], arguments, &settings[..]].concat()).await
    }

    async fn call(&self, method: &str, path: &str, token: &str, body: &Value) -> Reply {
        let mut request = self.served.request(method, path, body.to_string());
        let token = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", token);
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        self.served.send(request).await
    }
}

/// From the list over the entry to the order, by what a support case has: the client's key.
pub async fn operator_settles_an_unknown_outcome_by_the_clients_key(kind: StoreKind) {
    let console = Console::start(kind).await;
    let (code, list) = said(&console.ann(&["list"]).await);
    assert!(
        code == 0 && list.contains(&console.key) && list.contains("unknown") && list.contains("timeout"),
        "{list}"
    );
    let of = async |cause| json_of(&console.ann(&["list", "--cause", cause, "--output", "json"]).await);
    assert_eq!(of("timeout").await["entries"][0]["key"], json!(console.key));
    assert_eq!(of("held").await, json!({"entries": [], "next": null}));
    // Of one caller, named as a person knows it or as an entry shows it; older than so much.
    let found = async |more: &[&str]| {
        let listed = console.ann(&[&["list", "--output", "json"], more].concat()).await;
        json_of(&listed)["entries"].as_array().unwrap().len()
    };
    let scope = hex::encode([7; 16]);
    assert_eq!(found(&["--scope", &scope]).await, 1);
    assert_eq!(found(&["--scope", PARTS[5]]).await, 0, "the entry of the test has a scope of its own");
    assert_eq!(found(&["--older-than", "1h"]).await, 0);
    assert_eq!(found(&["--older-than", "1ms"]).await, 1);
    let (code, text) = said(&console.ann(&["list", "--scope", "alice"]).await);
    assert!(code == 2 && text.contains("--scope") && text.contains("32 lowercase hex digits"), "{text}");
    let (code, shown) = said(&console.ann(&[&["show"], &PARTS[..]].concat()).await);
    assert!(code == 0 && shown.contains("timeout") && shown.contains(&console.key), "{shown}");
    let by_key = json_of(&console.ann(&["show", &console.key, "--output", "json"]).await);
    let version = by_key["version"].as_str().unwrap();
    let answer =
        ["--status", "201", "--header", "Content-Type: text/plain", "--body", "paid by hand", "--ttl", "2h"];
    let order =
        [&["settle", &console.key, "--reason", "bank says yes", "--yes", "--version", version][..], &answer];
    let settled = json_of(&console.ann(&[&order.concat()[..], &["--output", "json"]].concat()).await);
    assert_eq!((settled["state"].as_str(), settled["status"].as_u64()), (Some("completed"), Some(201)));
    assert_eq!(settled["body"], Value::Null, "answers are shown only where they are asked for");
    let audit = &settled["audit"][0];
    assert_eq!(audit["who"], "ann");
    assert_eq!((&audit["action"], &audit["reason"]), (&json!("settle_answer"), &json!("bank says yes")));
    assert_eq!((&audit["state_before"], &audit["version"]), (&json!("unknown"), &json!(version)));
    let shown = json_of(&console.ann(&["show", &console.key, "--answer", "--output", "json"]).await);
    assert_eq!(shown["body"], "paid by hand");
    assert_eq!(shown["headers"], json!([["content-type", "text/plain"]]));
    assert!((7_100_000..=7_200_000).contains(&shown["left_ms"].as_u64().unwrap()));
    // A store that is lost with the process writes down no looks.
    if kind != StoreKind::Memory {
        assert_eq!(shown["audit"][1]["action"], "look_at_answer", "{shown}");
    }
    // The version is used up.
    let (code, text) = said(&console.ann(&order.concat()).await);
    assert!(code == 1 && text.contains("version_changed"), "{text}");
    let (code, list) = said(&console.ann(&["list"]).await);
    assert_eq!((code, list.trim()), (0, "no entries"));
    // A retry gets the answer.
    let told = console.bed.claim(&Claim { token: token(2), ..console.claim.clone() }).await;
    assert!(format!("{told:?}").contains("paid by hand"), "{told:?}");
    // Released, it runs again.
    let version = shown["version"].as_str().unwrap();
    let release = ["release", &console.key, "--reason", "wrong case", "--yes", "--version", version];
    let (code, text) = said(&console.ann(&release).await);
    assert!(code == 0 && text.contains("released") && text.contains("wrong case"), "{text}");
    console.bed.granted(&Claim { token: token(3), ..console.claim.clone() }).await;
}

/// Scripts say what they saw; without a person to ask, nothing is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_without_a_person_names_the_version() {
    let console = Console::start(StoreKind::Memory).await;
    let release = ["release", &console.key[..], "--reason", "r"];
    let (code, text) = said(&console.ann(&release).await);
    assert!(code == 2 && text.contains("--yes") && text.contains("--version"), "{text}");
    let (code, text) = said(&console.ann(&[&release[..], &["--yes"]].concat()).await);
    assert!(code == 2 && text.contains("--version"), "{text}");
    let (code, text) = said(&console.ann(&[&release[..], &["--version", "1.1"]].concat()).await);
    assert!(code == 1 && text.contains("not any more what was seen"), "{text}");
    let blank = ["release", &console.key, "--reason", " ", "--yes", "--version", "1.1"];
    let (code, text) = said(&console.ann(&blank).await);
    assert!(code == 2 && text.contains("--reason") && text.contains("1 to 1000 characters"), "{text}");
    let (code, text) = said(&console.ann(&["settle", &console.key, "--reason", "r"]).await);
    assert!(code == 2 && text.contains("--not-run") && text.contains("--status"), "{text}");
    let (code, text) = said(&console.ann(&["show", "test:00000000000000000000000000000000"]).await);
    assert!(code == 1 && text.contains("no_entry"), "{text}");
    assert_eq!(console.bed.store.audit(&console.claim.key).await.unwrap(), []);
    let (code, text) = said(&run(&["entries", "list", "--url", "ftp://x"]).await);
    assert!(code == 2 && text.contains("http://HOST:PORT"), "{text}");
    let (code, text) = said(&run(&["entries", "list", "--url", "http://127.0.0.1:1"]).await);
    assert!(code == 2 && text.contains("--url"), "{text}");
    let (code, text) = said(&run(&["entries", "list", "--token-env", "NOT_SET_ANYWHERE"]).await);
    assert!(code == 2 && text.contains("NOT_SET_ANYWHERE"), "{text}");
    let url = format!("http://{}", console.served.addr);
    let listed = program(&["entries", "list", "--url", &url, "--token-env", "ANNS"])
        .env("ANNS", "ann-secret")
        .output()
        .await
        .unwrap();
    assert_eq!(said(&listed).0, 0);
}

/// Entries are for operators, within the prefixes that their token has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_for_operators_within_their_prefixes() {
    let console = Console::start(StoreKind::Memory).await;
    let (entry, none) = (format!("/v1/entries/{}", console.key), json!(null));
    let calls = [
        ("GET", "/v1/entries".to_owned()),
        ("GET", entry.clone()),
        ("POST", format!("{entry}/release")),
        ("POST", format!("{entry}/settle")),
    ];
    for (method, path) in &calls {
        for (token, status, code) in [("nobody", 401, "unauthorized"), ("filter-secret", 403, "role")] {
            let reply = console.call(method, path, token, &none).await;
            assert_eq!(reply.code(), (status, code.to_owned()), "{method} {path}");
        }
    }
    for (method, path) in &calls[1..] {
        let reply = console.call(method, path, "bob-secret", &none).await;
        assert_eq!(reply.code(), (403, "key_prefix".to_owned()), "{method} {path}");
    }
    // A list shows an operator its own prefixes only, whatever it asks for.
    for query in ["", "?prefix=test", "?prefix=other"] {
        let reply = console.call("GET", &format!("/v1/entries{query}"), "bob-secret", &none).await;
        assert_eq!((reply.status, &reply.json()["entries"]), (200, &json!([])), "{query}");
    }
    let reply = console.call("GET", "/v1/entries", "ann-secret", &none).await;
    assert_eq!(reply.json()["entries"][0]["key"], console.key);
    assert_eq!(reply.header("x-fencepost-protocol"), "1");
}

/// What can't be an order is refused, and says what is wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_say_too_little_or_too_much_are_refused() {
    let console = Console::start(StoreKind::Memory).await;
    let entry = format!("/v1/entries/{}", console.key);
    let usual = json!({"version": "1.1", "reason": "r"});
    let with = |name: &str, value: Value| {
        let mut order = usual.clone();
        order[name] = value;
        order
    };
    let answer = |value: Value| with("with", json!({"answer": value}));
    for (path, order) in [
        ("release", json!({})),
        ("release", json!({"version": "1.1"})),
        ("release", with("forced", json!(true))),
        ("release", with("reason", json!("x".repeat(1_001)))),
        ("release", with("version", json!("seven"))),
        ("settle", usual.clone()),
        ("settle", with("with", json!("ran"))),
        ("settle", answer(json!({"status": 199}))),
        ("settle", answer(json!({"status": 201, "headers": [["a b", "c"]]}))),
        ("settle", answer(json!({"status": 201, "headers": [["a", "c\r\nd: e"]]}))),
        ("settle", answer(json!({"status": 201, "body": {"base64": "?"}}))),
        ("settle", answer(json!({"status": 201, "ttl_ms": 0}))),
        ("settle", answer(json!({"status": 201, "text": "x"}))),
        ("settle", answer(json!({"status": 201, "headers": [["Content-Length", "14"]]}))),
        ("settle", answer(json!({"status": 201, "headers": [["set-cookie", "a=b"]]}))),
        ("settle", answer(json!({"status": 201, "headers": [["x-idempotent-replayed", "false"]]}))),
        ("settle", answer(json!({"status": 204, "body": "HTTP/1.1 200 OK"}))),
        ("release", with("reason", json!("a\u{0}b"))),
    ] {
        let reply = console.call("POST", &format!("{entry}/{path}"), "ann-secret", &order).await;
        assert_eq!(reply.status, 400, "{path} {order}: {}", reply.json());
    }
    for path in [
        "/v1/entries?state=lost",
        "/v1/entries?limit=0",
        "/v1/entries?limit=1001",
        "/v1/entries?x=1",
        "/v1/entries?scope=1",
        "/v1/entries?scope=%7B%7D",
        "/v1/entries?older_than_ms=1h",
        "/v1/entries?older_than_ms=99999999999999",
        "/v1/entries/nokey",
        "/v1/entries?after=%zz",
    ] {
        let reply = console.call("GET", path, "ann-secret", &json!(null)).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.json());
    }
    let reply = console.call("POST", &format!("{entry}/release"), "ann-secret", &usual).await;
    assert_eq!(reply.code(), (409, "version_changed".to_owned()));
    // What a web page may send to another origin unasked is no order.
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let mut request = console.served.request("POST", &format!("{entry}/release"), usual.to_string());
        request.headers_mut().insert("authorization", "Bearer ann-secret".parse().unwrap());
        request.headers_mut().insert("content-type", media_type.parse().unwrap());
        assert_eq!(console.served.send(request).await.code(), (415, "media_type".to_owned()), "{media_type}");
    }
}

/// Who has a claim's token can finish the claim: nobody is shown it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_claims_are_shown_to_nobody() {
    let console = Console::start(StoreKind::Sqlite).await;
    let answer = Ruling::Answer {
        status: 201,
        headers: vec![0; 4].into(),
        body: vec![0xff, 0].into(),
        ttl_ms: 60_000,
    };
    assert_eq!(console.bed.settle(order(&console.claim, answer)).await, SettleReply::Settled);
    let path = format!("/v1/entries/{}?answer=true", console.key);
    let reply = console.call("GET", &path, "ann-secret", &json!(null)).await;
    let text = reply.json().to_string();
    assert!(!text.contains(&console.claim.token.to_hex()), "{text}");
    // Bytes that are no text travel whole.
    assert_eq!(reply.json()["body"], json!({"base64": "/wA="}));
    assert_eq!(reply.json()["state"], StateName::Completed.word());
}

/// The program as it is started, with its own listener and a file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_service_on_loopback_need_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let (_child, line) =
        serve(&format!("sqlite:{}", folder.path().join("s.sqlite").display())).await.unwrap();
    let url = format!("http://{}", field(&line, "listen="));
    let listed = run(&["entries", "list", "--url", &url, "--all", "--output", "json"]).await;
    assert_eq!(json_of(&listed), json!({"entries": [], "next": null}));
}

/// HTTP/2 has no `Host`: the name is in `:authority`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_works_over_http2() {
    let bed = Bed::real(StoreKind::Sqlite).await;
    let served = Served::start(bed.store.clone(), Tokens::open()).await;
    let asked = |host: Option<&str>, body: &str| {
        let mut request = served.request("POST", "/console/login", body.to_owned());
        request.headers_mut().remove("host");
        let form = "application/x-www-form-urlencoded".parse().unwrap();
        request.headers_mut().insert("content-type", form);
        let origin = format!("http://{}", served.addr);
        request.headers_mut().insert("origin", origin.parse().unwrap());
        if let Some(host) = host {
            *request.uri_mut() = format!("http://{host}/console/login").parse().unwrap();
        }
        request
    };
    let begun = served.send_h2(asked(None, "")).await;
    assert_eq!((begun.status, begun.header("location")), (303, "/console"));
    assert_eq!(served.send_h2(asked(Some("evil.example:7070"), "")).await.status, 403);
}
