//! The program itself: what it refuses to start with, and a renewal that is killed.

use crate::bed::database;
use crate::keys::{lines, write};
use crate::support::connect;
use fencepost_rig::service::{Options, Service};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-store"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Starts a service that must not start; why it did not.
fn refused(store: &str, keys: Option<&Path>) -> String {
    let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--store", store];
    if let Some(keys) = keys {
        arguments.extend(["--seal-keys", keys.to_str().unwrap()]);
    }
    let mut child = program(&arguments).spawn().unwrap();
    let mut ready = String::new();
    // Its end, or the line that says that it serves.
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    child.kill().unwrap();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!((ready.as_str(), status.code()), ("", Some(2)), "{said}");
    said
}

#[test]
fn a_key_file_that_others_can_read_or_that_is_no_list_of_keys_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let store = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let good = lines(&[("k1", 1)]);
    let text = good.trim_end().strip_prefix("k1 ").unwrap();
    for (contents, expected) in [
        (String::new(), "found no key"),
        ("k1".into(), "line 1: expected an id and the base64"),
        (format!("# a comment\n\nk1 {text} x"), "line 3: expected an id"),
        (format!("K1 {text}"), "line 1: its id"),
        (format!("an-id-that-is-too-long {text}"), "line 1: its id"),
        ("k1 AAAA".into(), "found a key of 3 bytes"),
        (format!("k1 AA{text}"), "expected the base64 of exactly 32 bytes"),
        (format!("k1 !{}", &text[1..]), "expected the base64 of exactly 32 bytes"),
        (
            format!("{good}k1 {}", lines(&[("x", 2)]).trim_end().strip_prefix("x ").unwrap()),
            "the id k1 again",
        ),
        (format!("{good}k2 {text}"), "a key again under another id"),
    ] {
        write(&path, &contents);
        let said = refused(&store, Some(&path));
        assert!(said.contains("--seal-keys") && said.contains(expected), "{contents}: {said}");
        assert!(!said.contains(text), "a key is in {said}");
    }
    write(&path, &good);
    for mode in [0o640, 0o604, 0o620, 0o666] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let said = refused(&store, Some(&path));
        assert!(said.contains(&format!("found mode {mode:03o}")), "{said}");
    }
    assert!(refused(&store, Some(&folder.path().join("none"))).contains("--seal-keys"));
}

async fn serve(url: &str, keys: Option<&Path>, more: &[&str]) -> Service {
    let mut options = Options::on(url).arguments(more);
    if let Some(keys) = keys {
        options = options.arguments(&["--seal-keys", keys.to_str().unwrap()]);
    }
    Service::start(options).await.unwrap()
}

fn status(url: &str) -> Value {
    let (code, out, said) = ended(&["seal", "status", "--store", url, "--output", "json"]);
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str(&out).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_key_that_is_in_use_is_refused_until_a_renewal_or_by_flag__postgres() {
    let (url, folder) = (database().await, tempfile::tempdir().unwrap());
    let file = |name: &str, keys: &[(&str, u8)]| {
        let path = folder.path().join(name);
        write(&path, &lines(keys));
        path
    };
    let (old, both, new) =
        (file("old", &[("k1", 1)]), file("both", &[("k2", 2), ("k1", 1)]), file("new", &[("k2", 2)]));
    serve(&url, Some(&old), &[]).await.stop().await.unwrap();
    for keys in [None, Some(&*new)] {
        let said = refused(&url, keys);
        assert!(said.contains("k1") && said.contains("fencepost-store reseal"), "{said}");
    }
    serve(&url, Some(&new), &["--seal-keys-incomplete"]).await.stop().await.unwrap();
    serve(&url, Some(&both), &[]).await.stop().await.unwrap();
    assert_eq!(status(&url)["listed"], serde_json::json!(["k1", "k2"]));
    let (code, out, said) = ended(&["reseal", "--store", &url, "--seal-keys", both.to_str().unwrap()]);
    assert_eq!((code, out.contains("0 answers sealed, 0 left")), (Some(0), true), "{out}{said}");
    assert_eq!(status(&url)["listed"], serde_json::json!(["k2"]));
    serve(&url, Some(&new), &[]).await.stop().await.unwrap();
}

const ROWS: i64 = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_is_killed_is_resumed_by_the_next__postgres() {
    let (url, folder) = (database().await, tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys");
    write(&keys, &lines(&[("k1", 1)]));
    serve(&url, Some(&keys), &[]).await.stop().await.unwrap();
    let client = connect(&url).await;
    client
        .batch_execute(&format!(
            "INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, until,
                                            status, headers, body, completed_at, created_at, updated_at)
             SELECT 'test:' || md5(n::text), 'completed', decode(repeat('01', 16), 'hex'), 1, '1-test',
                    decode(repeat('02', 32), 'hex'), decode(repeat('03', 16), 'hex'), '{{}}', now() + interval '1 day',
                    201, '\\x00000000', convert_to('planted-' || n, 'UTF8'), now(), now(), now()
             FROM generate_series(1, {ROWS}) AS n"
        ))
        .await
        .unwrap();
    let arguments = ["reseal", "--store", &url, "--seal-keys", keys.to_str().unwrap(), "--output", "json"];
    let mut child = program(&arguments).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("entries: 500 rows looked at, 500 answers sealed"), "{line}");
    let now = status(&url);
    let done = now["keys"]["k1"]["entries"].as_i64().unwrap();
    assert!((500..ROWS).contains(&done), "killed in the middle: {now}");
    assert_eq!(now["open"]["entries"], ROWS - done, "an answer is open or sealed, never lost");
    let (code, out, said) = ended(&arguments);
    assert_eq!(code, Some(0), "{said}");
    let view: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((view["looked"].as_i64(), view["sealed"].as_i64()), (Some(ROWS), Some(ROWS - done)), "{view}");
    assert_eq!((&view["failed"], &view["status"]["open"]["entries"]), (&0.into(), &0.into()));
    let sql = "SELECT count(*) FROM fencepost.entries WHERE position('\\x706c616e746564'::bytea IN body) > 0";
    let open: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(open, 0, "planted in the clear");
}
