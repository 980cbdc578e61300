//! The commands of `fencepost-rig`, as `make demo` and `make up` run them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use fencepost_rig::client::Call;
use fencepost_rig::scratch::Scratch;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};

fn rig(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-rig"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A running `up` and the addresses of its ready line.
struct Up {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    addresses: BTreeMap<String, SocketAddr>,
}

impl Up {
    fn start(arguments: &[&str]) -> Self {
        let mut child = rig(&[&["up", "--port", "0"], arguments].concat()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if !line.starts_with("ready ") {
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("not ready: {line}{errors}");
        }
        let fields = line.split_whitespace().filter_map(|word| word.split_once("=http://"));
        let addresses = fields.map(|(name, addr)| (name.to_owned(), addr.parse().unwrap())).collect();
        Self { child, stdout, addresses }
    }

    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[tokio::test]
async fn up_guards_by_the_given_policies_says_one_line_and_stops_cleanly() {
    let files = Scratch::new("rig-test").unwrap();
    let policy = files.path().join("policy.yaml");
    std::fs::write(
        &policy,
        "store: {decide_cluster: one, claim_cluster: two}\nkey_prefix: t\n\
         defaults: {scope: [{jwt: {payload: jwt_payload, claim: sub}}]}\n\
         policies: {a: {namespace: a}, b: {namespace: b}}\n",
    )
    .unwrap();
    for signal in ["TERM", "INT"] {
        let up = Up::start(&["--policy", policy.to_str().unwrap()]);
        assert_eq!(up.addresses.keys().collect::<Vec<_>>(), ["admin", "proxy", "store", "upstream"]);
        let proxy = up.addresses["proxy"];
        for path in ["/a/x", "/b/x"] {
            let call = Call::post(path).user("alice").json(&json!({"amount": 1}));
            assert_eq!(call.send(proxy).await.unwrap().problem_code(), "key_missing", "{path}");
            let keyed = call.key("k");
            assert_eq!(keyed.send(proxy).await.unwrap().status, 201, "{path}");
            assert!(keyed.send(proxy).await.unwrap().is_replay(), "{path}");
        }
        assert_eq!(Call::post("/c").send(proxy).await.unwrap().status, 201);
        let counted = Call::get("/_rig/executions").send(up.addresses["upstream"]).await.unwrap();
        assert_eq!(counted.json(), json!({"total": 3, "paths": {"/a/x": 1, "/b/x": 1, "/c": 1}}));
        assert_eq!(up.stop(signal), (Some(0), String::new()));
    }
}

#[tokio::test]
async fn up_serves_own_routes_an_own_upstream_and_its_own_postgresql() {
    let upstream = fencepost_rig::upstream::Upstream::start().await.unwrap();
    let addr = upstream.addr().to_string();
    let up = Up::start(&["--upstream", &addr, "--store", "postgres", "--route", "/pay=demo"]);
    let proxy = up.addresses["proxy"];
    let call = Call::post("/pay/1").user("alice").key("k").json(&json!({"amount": 1}));
    assert_eq!(call.send(proxy).await.unwrap().status, 201);
    assert!(call.send(proxy).await.unwrap().is_replay());
    assert_eq!(Call::post("/other").send(proxy).await.unwrap().status, 201);
    assert_eq!((upstream.executions_of("/pay/1"), upstream.executions_of("/other")), (1, 1));
    assert_eq!(up.stop("TERM").0, Some(0));
}

fn refused(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = rig(&[&["up"], arguments].concat()).output().unwrap();
    assert!(!status.success(), "{arguments:?}");
    assert_eq!(text(&stdout), "", "{arguments:?}");
    text(&stderr)
}

#[test]
fn up_refuses_what_can_not_work_and_says_what() {
    let files = Scratch::new("rig-test").unwrap();
    let policy = files.path().join("policy.yaml");
    std::fs::write(
        &policy,
        "store: {decide_cluster: a, claim_cluster: b}\nkey_prefix: t\npolicies: {p: {wat: 1}}\n",
    )
    .unwrap();
    let policy = policy.to_str().unwrap();
    let message = refused(&["--policy", policy]);
    assert!(message.contains("policies.p.wat") && message.contains(policy), "{message}");
    assert!(refused(&["--policy", "/nowhere.yaml"]).contains("/nowhere.yaml"));
    assert!(refused(&["--route", "/x=nobody"]).contains("nobody"));
    assert!(refused(&["--upstream", "nonsense"]).contains("HOST:PORT"));
    assert!(refused(&["--port", "0", "--store", "nonsense:"]).contains("store"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(refused(&["--port", &port]).contains("Address already in use"));
}

#[test]
fn the_demo_shows_everything_as_promised() {
    let Output { status, stdout, stderr } = rig(&["demo"]).output().unwrap();
    assert!(status.success(), "{}{}", text(&stdout), text(&stderr));
    for promised in ["201 replayed", "422 key_reused", "409 in_progress", "400 key_missing", "410 replayed"] {
        assert!(text(&stdout).contains(promised), "{promised}");
    }
}
