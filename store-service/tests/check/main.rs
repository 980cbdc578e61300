//! `fencepost-store check`: broken files, each with exactly its findings, on the right lines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod broken;
mod command;
mod files;
mod limits;
mod schema;

use fencepost_store::check::{Code, Report, Severity, check};
use std::path::PathBuf;

/// The folder of the shipped manifests.
fn envoy() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../envoy")
}

fn shipped(name: &str) -> String {
    std::fs::read_to_string(envoy().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn check_one(text: &str) -> Report {
    check(&[("file.yaml".to_owned(), text.as_bytes().to_vec())]).unwrap()
}

/// What a row of a table promises: severity, code, and a text that stands on the finding's line.
type Promise = (Severity, Code, &'static str);

fn assert_findings(name: &str, text: &str, report: &Report, promised: &[Promise]) {
    if let Some(difference) = difference(text, report, promised) {
        panic!("{name}: {difference}");
    }
}

fn difference(text: &str, report: &Report, promised: &[Promise]) -> Option<String> {
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    let codes: Vec<_> = promised.iter().map(|(severity, code, _)| (*severity, *code)).collect();
    if found != codes {
        return Some(format!("{found:?} instead of {codes:?}\n{report}"));
    }
    let lines: Vec<&str> = text.lines().collect();
    report.findings.iter().zip(promised).find_map(|(finding, (_, _, marker))| {
        let line = lines.get(finding.line - 1).copied().unwrap_or_default();
        let wrong = !line.contains(marker);
        wrong.then(|| format!("line {} is {line:?}, without {marker:?}\n{report}", finding.line))
    })
}
