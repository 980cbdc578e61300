//! The command as people run it.

use crate::envoy;
use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-store"));
    command.args(arguments).current_dir(envoy()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn exit_codes_say_clean_found_and_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, from: &str, to: &str| {
        let path = folder.path().join(name);
        let edge = std::fs::read_to_string(envoy().join("edge.yaml")).unwrap();
        std::fs::write(&path, edge.replace(from, to)).unwrap();
        path.display().to_string()
    };
    let broken = write("broken.yaml", "FAIL_RELOAD", "FAIL_OPEN");
    let odd = write("odd.yaml", "runtime.v8", "runtime.wamr");
    let garbage = write("garbage.yaml", "static_resources:", "static_resources: [");
    for (arguments, code) in [
        (vec!["check", "edge.yaml"], 0),
        (vec!["check", "edge.yaml", "detached.yaml", "--strict"], 0),
        (vec!["check", &broken], 1),
        (vec!["check", &odd], 0),
        (vec!["check", "--strict", &odd], 1),
        (vec!["check", "edge.yaml", &garbage], 2),
        (vec!["check", "nowhere.yaml"], 2),
        (vec!["check"], 2),
        (vec!["check", "edge.yaml", "--format", "xml"], 2),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(output.stderr.is_empty(), code != 2, "{arguments:?}");
    }
    let output = text(&run(&["check", &broken]).stdout);
    let mut lines = output.lines();
    let first = lines.next().unwrap();
    assert!(first.starts_with(&format!("{broken}:")), "{first}");
    assert!(
        first.contains(": error[failure_policy_open]: found \"FAIL_OPEN\"; expected FAIL_RELOAD"),
        "{first}"
    );
    assert_eq!(lines.next(), Some("files=1 filters=1 errors=1 warnings=0 notes=0"));
}

#[test]
fn a_dash_is_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-store"));
    command.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let broken = crate::shipped("edge.yaml").replace("FAIL_RELOAD", "FAIL_OPEN");
    child.stdin.take().unwrap().write_all(broken.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("-:") && stdout.contains("error[failure_policy_open]"), "{stdout}");
}

#[test]
fn json_has_the_findings_and_their_numbers() {
    let output = run(&["check", "edge.yaml", "ecds/bootstrap.yaml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(finding["file"], "ecds/bootstrap.yaml");
    assert_eq!((&finding["severity"], &finding["code"]), (&"note".into(), &"not_checked".into()));
    assert!(finding["line"].as_u64().unwrap() > 1);
    assert!(finding["found"].is_string() && finding["expected"].is_string());
    let summary = serde_json::json!({"files": 2, "filters": 2, "errors": 0, "warnings": 0, "notes": 1});
    assert_eq!(report["summary"], summary);
}

#[test]
fn the_schema_is_printed_as_it_is_shipped() {
    let output = run(&["schema"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout) == crate::shipped("fencepost.schema.json"));
}
