//! The program with a key that is missing and with rows that were changed: callers are refused,
//! operators are told, and everything else goes on.

use crate::bed::{claim, complete, connect, database};
use crate::keys::{lines, write};
use crate::served::{claim_frame, complete_request};
use fencepost_protocol::{FRAME_MEDIA_TYPE, decode, encode, paths};
use fencepost_rig::client::Call;
use fencepost_rig::service::{Options, Service};
use fencepost_store::store::StoreKind;
use serde_json::{Value, json};
use std::path::Path;

const ANSWER: &[u8] = b"the answer";

async fn posted(service: &Service, path: &str, frame: Vec<u8>) -> (u16, Value, Vec<u8>) {
    let call = Call::post(path).header("content-type", FRAME_MEDIA_TYPE).body(frame);
    let answer = call.send(service.addr()).await.unwrap();
    if answer.header("content-type") == Some(FRAME_MEDIA_TYPE) {
        let (head, payload) = decode(&answer.body).unwrap();
        return (answer.status, head, payload.to_vec());
    }
    (answer.status, answer.json(), Vec::new())
}

async fn completed(service: &Service, number: u64) {
    let claim = claim(number, 1);
    let (status, head, _) = posted(service, paths::CLAIMS, claim_frame(&claim, 0)).await;
    assert_eq!((status, &head["outcome"]), (200, &json!("claimed")), "{head}");
    let done = complete(&claim, head["fence"].as_i64().unwrap(), ANSWER);
    let frame = encode(&complete_request(&done), &[&done.headers, &done.body]).unwrap();
    let (status, head, _) = posted(service, paths::COMPLETE, frame).await;
    assert_eq!((status, &head["outcome"]), (200, &json!("stored")), "{head}");
}

/// What a retry is told: the outcome or the problem's code; a replay has the answer.
async fn retried(service: &Service, number: u64) -> (u16, String) {
    let (status, head, payload) = posted(service, paths::CLAIMS, claim_frame(&claim(number, 2), 0)).await;
    let word = if status == 200 { &head["outcome"] } else { &head["code"] };
    assert_eq!(payload.ends_with(ANSWER), *word == "completed", "{head}");
    (status, word.as_str().unwrap().to_owned())
}

fn refused() -> (u16, String) {
    (503, "answer_sealed".into())
}

fn replayed() -> (u16, String) {
    (200, "completed".into())
}

/// Status of `/readyz`, and its warnings about answers.
async fn warned(service: &Service) -> (u16, String) {
    let ready = Call::get("/readyz").send(service.addr()).await.unwrap();
    let warnings = ready.json()["warnings"].as_array().unwrap().clone();
    let about = warnings.iter().filter_map(Value::as_str).filter(|warning| warning.contains("answers"));
    (ready.status, about.collect::<Vec<_>>().join("\n"))
}

async fn counted(service: &Service, cause: &str) -> u64 {
    let metrics = Call::get("/metrics").send(service.addr()).await.unwrap().text();
    let name = format!("fencepost_seal_failures_total{{cause=\"{cause}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// Changes rows behind the service's back, which is stopped.
async fn change(kind: StoreKind, url: &str, in_postgres: &str, in_sqlite: &str) {
    let changed = match kind {
        StoreKind::Postgres => connect(url).await.execute(in_postgres, &[]).await.unwrap(),
        StoreKind::Sqlite | StoreKind::Memory => {
            let file = rusqlite::Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap();
            file.execute(in_sqlite, []).unwrap() as u64
        }
    };
    assert_eq!(changed, 1, "one row is changed");
}

async fn serve(url: &str, keys: &Path, more: &[&str]) -> Service {
    let options = Options::on(url).arguments(&["--seal-keys", keys.to_str().unwrap()]).arguments(more);
    Service::start(options).await.unwrap()
}

/// Taken out, the key refuses its answers and no others; put back, it opens them.
pub async fn a_missing_key_is_told_to_operators_and_put_back_its_answers_are_replayed(kind: StoreKind) {
    let (url, folder) = store(kind).await;
    let keys = folder.path().join("keys");
    write(&keys, &lines(&[("k1", 1)]));
    let service = serve(&url, &keys, &["--seal-keys-incomplete"]).await;
    completed(&service, 1).await;
    assert_eq!((retried(&service, 1).await, warned(&service).await), (replayed(), (200, String::new())));
    service.stop().await.unwrap();
    write(&keys, &lines(&[("k2", 2)]));
    service.start_again().await.unwrap();
    let (status, before) = warned(&service).await;
    assert!(before.contains("sealed with k1, which --seal-keys has not got"), "{before}");
    assert!(status == 200 && !before.contains("since the start"), "{before}");
    completed(&service, 2).await;
    for _ in 0..2 {
        assert_eq!(retried(&service, 1).await, refused());
    }
    assert_eq!(retried(&service, 2).await, replayed());
    let (status, after) = warned(&service).await;
    assert!(after.contains("2 answers could not be sealed or opened") && after.contains("key k1"), "{after}");
    assert_eq!((status, counted(&service, "unknown_key").await), (200, 2), "the others are served");
    let log = service.log_tail();
    assert!(log.contains("an answer was refused") && log.contains("key k1"), "{log}");
    service.stop().await.unwrap();
    write(&keys, &lines(&[("k2", 2), ("k1", 1)]));
    service.start_again().await.unwrap();
    assert_eq!((retried(&service, 1).await, retried(&service, 2).await), (replayed(), replayed()));
    assert_eq!((warned(&service).await, counted(&service, "unknown_key").await), ((200, String::new()), 0));
}

/// A damaged body, and a damaged mark, which makes no open answer of a sealed one.
pub async fn a_damaged_answer_is_told_to_operators_and_the_others_are_replayed(kind: StoreKind) {
    let (url, folder) = store(kind).await;
    let keys = folder.path().join("keys");
    write(&keys, &lines(&[("k1", 1)]));
    let service = serve(&url, &keys, &[]).await;
    for number in 1..=4 {
        completed(&service, number).await;
    }
    service.stop().await.unwrap();
    for (number, in_postgres, in_sqlite) in [
        (1, "body = set_byte(body, 0, 255 - get_byte(body, 0))", "body = substr(body, 2)"),
        (2, "headers = set_byte(headers, 0, 0)", "headers = CAST(x'00' || substr(headers, 2) AS BLOB)"),
        (
            3,
            "headers = set_byte(set_byte(headers, 0, 0), 1, 0)",
            "headers = CAST(x'0000' || substr(headers, 3) AS BLOB)",
        ),
    ] {
        let name = claim(number, 1).key;
        let sql = |table: &str, change: &str| format!("UPDATE {table} SET {change} WHERE key = '{name}'");
        change(kind, &url, &sql("fencepost.entries", in_postgres), &sql("entries", in_sqlite)).await;
    }
    service.start_again().await.unwrap();
    for number in 1..=3 {
        assert_eq!(retried(&service, number).await, refused(), "{number}");
    }
    assert_eq!(retried(&service, 4).await, replayed());
    completed(&service, 5).await;
    let (status, said) = warned(&service).await;
    assert!(said.contains("3 answers could not") && said.contains("runbook"), "{said}");
    assert_eq!((status, counted(&service, "altered").await, counted(&service, "form").await), (200, 1, 2));
}

async fn store(kind: StoreKind) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = match kind {
        StoreKind::Postgres => database().await,
        StoreKind::Sqlite | StoreKind::Memory => {
            format!("sqlite:{}", folder.path().join("store.sqlite").display())
        }
    };
    (url, folder)
}
