//! The shipped manifests in a real Envoy: all are valid, and those that need nothing else serve.

use crate::support::configuration;
use fencepost_rig::client::Call;
use fencepost_rig::envoy::filter_binary;
use fencepost_rig::scratch::Scratch;
use fencepost_rig::stack::{Builder, Stack};
use fencepost_rig::{token, tools};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

fn shipped() -> PathBuf {
    tools::repository().join("envoy")
}

/// Bootstraps: alone in their folder's first level, or in `ecds`.
fn bootstraps() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in [shipped(), shipped().join("ecds")] {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let yaml = entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        found
            .extend(yaml.filter(|path| std::fs::read_to_string(path).unwrap().contains("static_resources:")));
    }
    found.sort();
    found
}

/// The files that manifests name, made here.
struct Files(Scratch);

impl Files {
    fn new(store_token: &str) -> Self {
        let files = Self(Scratch::new("manifests").unwrap());
        let certified = rcgen::generate_simple_self_signed(["example".to_owned()]).unwrap();
        files.write("any.pem", &certified.cert.pem());
        files.write("any.key", &certified.signing_key.serialize_pem());
        files.write("jwks.json", &token::key_set().to_string());
        let secret = std::fs::read_to_string(shipped().join("fencepost-token.yaml")).unwrap();
        files.write("fencepost-token.yaml", &secret.replace("REPLACE-ME", store_token));
        let filter = std::fs::read_to_string(shipped().join("ecds/fencepost.yaml")).unwrap();
        files.write("fencepost.yaml", &files.fill(&filter));
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A manifest's text with files that exist.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("/etc/envoy/") {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap();
            let (name, after) = after.split_at(end);
            filled.push_str(before);
            filled.push_str(&match name {
                "fencepost_filter.wasm" => filter_binary().display().to_string(),
                _ if name.ends_with(".pem") => self.path("any.pem"),
                _ if name.ends_with(".key") => self.path("any.key"),
                _ => self.path(name),
            });
            rest = after;
        }
        filled + rest
    }

    fn read(&self, manifest: &Path) -> String {
        self.fill(&std::fs::read_to_string(manifest).unwrap())
    }
}

#[test]
fn envoy_accepts_every_shipped_bootstrap() {
    let files = Files::new("t");
    let all = bootstraps();
    assert!(all.len() >= 8, "{all:?}");
    for manifest in all {
        files.write("checked.yaml", &files.read(&manifest));
        let mut command = Command::new(tools::envoy().unwrap());
        command.args(["--mode", "validate", "--log-level", "warning", "-c"]).arg(files.path("checked.yaml"));
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {told}", manifest.display());
        assert!(!told.to_lowercase().contains("deprecated"), "{}: {told}", manifest.display());
    }
}

/// Puts a manifest in place of a bootstrap, with the addresses and ports of that.
fn put_in_place(bootstrap: &mut Value, mut manifest: Value) {
    let address = "/static_resources/listeners/0/address";
    *manifest.pointer_mut(address).unwrap() = bootstrap.pointer(address).unwrap().clone();
    manifest["static_resources"]["listeners"][0]["enable_reuse_port"] = json!(false);
    manifest["admin"] = bootstrap["admin"].clone();
    let made = bootstrap["static_resources"]["clusters"].as_array().unwrap().clone();
    for cluster in manifest["static_resources"]["clusters"].as_array_mut().unwrap() {
        let name = cluster["name"].as_str().unwrap().to_owned();
        let source = if name == "app" { "upstream" } else { &name };
        if let Some(made) = made.iter().find(|made| made["name"] == source) {
            cluster["type"] = json!("STATIC");
            cluster["load_assignment"] = made["load_assignment"].clone();
        }
    }
    *bootstrap = manifest;
}

fn stack_of(files: &Files, manifest: &str) -> Builder {
    let manifest: Value = serde_saphyr::from_str(&files.read(&shipped().join(manifest))).unwrap();
    Stack::builder(configuration(json!({})))
        .envoy(move |setup| setup.change(move |bootstrap| put_in_place(bootstrap, manifest.clone())))
}

fn pay(key: &str) -> Call {
    Call::post("/payments").user("alice").key(key).json(&json!({"amount": 1}))
}

/// A guarded request runs once, without a token not at all, and other paths are not guarded.
async fn assert_guards(stack: &Stack) {
    let first = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((first.status, first.is_replay()), (201, false), "{}", first.text());
    let retry = stack.send(&pay("k1")).await.unwrap();
    assert_eq!((retry.status, retry.is_replay(), retry.body), (201, true, first.body));
    assert_eq!(stack.upstream().executions(), 1);
    // A client's word on the guards that its request has passed would be another key.
    let deeper = stack.send(&pay("k1").header("x-fencepost-depth", "1")).await.unwrap();
    assert_eq!((deeper.status, deeper.is_replay()), (201, true));
    let stranger = Call::post("/payments").key("k2").json(&json!({}));
    assert_eq!(stack.send(&stranger).await.unwrap().status, 401);
    let unguarded = stack.send(&Call::post("/other").user("alice").json(&json!({}))).await.unwrap();
    assert_eq!((unguarded.status, stack.upstream().executions()), (201, 2));
}

#[tokio::test]
async fn the_edge_manifest_guards_a_request() {
    let files = Files::new("t");
    assert_guards(&stack_of(&files, "edge.yaml").start().await.unwrap()).await;
}

#[tokio::test]
async fn the_detached_manifest_guards_a_request() {
    let files = Files::new("t");
    let stack = stack_of(&files, "detached.yaml").start().await.unwrap();
    assert_guards(&stack).await;
    assert_eq!(stack.envoy.stat("http.loopback.downstream_rq_total").await.unwrap(), 1);
}

#[tokio::test]
async fn the_manifest_with_extension_discovery_guards_a_request() {
    let files = Files::new("t");
    assert_guards(&stack_of(&files, "ecds/bootstrap.yaml").start().await.unwrap()).await;
}

/// A token, and its SHA-256.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const TOKEN_SHA256: &str = "3eb1bd439947eb762998e566ccc2e099c791118b2f40579cc4f7da2b5061b7f9";

#[tokio::test]
async fn the_manifest_with_credentials_gives_the_service_its_token() {
    for (token, is_right) in [(TOKEN, true), ("another", false)] {
        let files = Files::new(token);
        let tokens = json!([{"token_sha256": TOKEN_SHA256, "roles": ["filter"], "key_prefixes": ["prod"]}]);
        files.write("tokens.json", &tokens.to_string());
        let stack = stack_of(&files, "store-credentials.yaml");
        let stack =
            stack.service_arguments(&["--token-file", &files.path("tokens.json")]).start().await.unwrap();
        if is_right {
            assert_guards(&stack).await;
        } else {
            let refused = stack.send(&pay("k1")).await.unwrap();
            assert_eq!((refused.status, refused.problem_code().as_str()), (503, "store_unavailable"));
            assert_eq!(stack.upstream().executions(), 0);
        }
    }
}
