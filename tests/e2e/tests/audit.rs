//! Where dependencies come from and under which licences, by the rules of `deny.toml`.
//!
//! The light form of `make audit`, without cargo-deny, which takes long to build. It says nothing of
//! advisories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use fencepost_rig::tools::repository;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// What is delivered runs on these: the service, and the filter.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "wasm32-wasip1"];

fn packages(target: &str) -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--all-features"]);
    let output = command.args(["--filter-platform", target]).current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The list `allow` of `deny.toml`'s section on licences.
fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository().join("deny.toml")).unwrap();
    let list = text.split("[licenses]").nth(1).unwrap().split("allow = [").nth(1).unwrap();
    let list = list.split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    let allowed = allowed();
    assert!(allowed.contains("MIT") && !allowed.iter().any(|name| name.contains("GPL")));
    let mut seen = BTreeSet::new();
    for package in TARGETS.into_iter().flat_map(packages) {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
            .unwrap_or_else(|error| panic!("{name}: {licence}: {error}"));
        let is_allowed = expression.evaluate(|requirement| allowed.contains(&requirement.to_string()));
        assert!(is_allowed, "{name} is under {licence}, and deny.toml allows {allowed:?}");
        seen.insert(name.to_owned());
    }
    assert!(seen.len() > 100, "only {} packages were looked at", seen.len());
}

#[test]
fn every_dependency_comes_from_one_registry() {
    let packages = TARGETS.into_iter().flat_map(packages);
    let sources: BTreeSet<String> =
        packages.filter_map(|package| package["source"].as_str().map(str::to_owned)).collect();
    assert_eq!(sources.len(), 1, "{sources:?}");
    assert!(sources.iter().all(|source| source.starts_with("registry+")), "{sources:?}");
}

/// A comparison that stops at the first difference tells a guesser how far it is right.
#[test]
fn secrets_are_compared_in_constant_time() {
    let mut folders = vec![repository().join("store-service/src")];
    let mut comparisons = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            comparisons += code.matches(".ct_eq(").count() + code.matches(".verify_slice(").count();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let is_comparison = line.contains("==") || line.contains("!=");
                let names_secret = ["token_sha256", "mac_bytes", "signature ==", "secret ==", "finalize()"]
                    .iter()
                    .any(|name| line.contains(name));
                assert!(!(is_comparison && names_secret), "{}: {}", path.display(), line.trim());
            }
        }
    }
    assert!(comparisons >= 2, "only {comparisons} comparisons in constant time");
}
