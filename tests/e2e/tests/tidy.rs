//! What a reviewer would otherwise repeat: rules about the tree itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// All files with one of these endings, outside of build and tool folders.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !(name.starts_with('.') && name != ".ci") {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

/// Names in backquotes that could be tests.
fn quoted_names(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        name.contains('_') && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    })
}

#[test]
fn every_promise_names_tests_that_exist() {
    let text = read(&root().join("GUARANTEES.md"));
    let promises = text.split("\n## Promises").nth(1).unwrap().split("\n## ").next().unwrap();
    let sources: Vec<String> = files(&[".rs"]).iter().map(|path| read(path)).collect();
    let stamps = ["__memory", "__sqlite", "__postgres"];
    let exists = |name: &str| {
        let bare = stamps.iter().find_map(|stamp| name.strip_suffix(stamp)).unwrap_or(name);
        sources.iter().any(|source| {
            [name, bare].iter().any(|name| {
                source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<"))
            })
        })
    };
    let mut number = 0;
    for promise in promises.split("\n**G").skip(1) {
        number += 1;
        assert!(promise.starts_with(&format!("{number}.")), "promises are numbered in order: G{number}");
        let body = promise.split_once("\n").map_or("", |(_, rest)| rest);
        let names: Vec<_> = quoted_names(body).collect();
        assert!(!names.is_empty(), "G{number} names no test");
        for name in names {
            assert!(exists(name), "G{number} names `{name}`, and there is no such test");
        }
    }
    assert!(number >= 30, "only {number} promises were found");
}

#[test]
fn paths_that_documents_link_to_exist() {
    for document in files(&[".md"]) {
        let text = read(&document);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let path = document.parent().unwrap().join(target);
            assert!(path.exists(), "{} links to {target}", relative(&document));
        }
    }
}

#[test]
fn the_host_is_known_to_the_adapter_only() {
    for path in files(&[".rs", "Cargo.toml"]) {
        let name = relative(&path);
        let allowed = name.starts_with("filter/wasm/") || name.starts_with("tests/");
        let names_it = read(&path).lines().any(|line| {
            let code = line.split("//").next().unwrap_or_default();
            code.contains("proxy_wasm::") || code.trim_start().starts_with("proxy-wasm =")
        });
        assert!(allowed || !names_it, "{name} knows proxy-wasm");
    }
}

#[test]
fn statements_for_postgresql_live_in_sql_files() {
    let words = ["INSERT INTO ", "UPDATE fencepost", "DELETE FROM ", "ON CONFLICT"];
    for path in files(&[".rs"]) {
        let name = relative(&path);
        if name.starts_with("store-service/src/store/postgres") {
            let code = read(&path);
            let code = code.split("#[cfg(test)]").next().unwrap_or_default();
            let found = words.iter().find(|word| {
                code.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(**word))
            });
            assert!(found.is_none(), "{name} has SQL of its own: {found:?}");
        }
    }
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let mut found = BTreeSet::new();
    for path in files(&[".rs", ".md", ".sql", ".toml", ".yaml", ".yml", ".json", "Makefile", "run"]) {
        let name = relative(&path);
        if name.ends_with("tests/tidy.rs") || name == "Cargo.lock" {
            continue;
        }
        // Split so that this file does not name them either.
        for word in [
            ["/wo", "rk/"],
            ["/ro", "ot/"],
            ["crates", ".io"],
            ["pypi", ".org"],
            ["CASES", ".md"],
            ["DESIGN", ".md"],
        ] {
            if read(&path).contains(&word.concat()) {
                found.insert(format!("{name}: {}", word.concat()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Words in quotes that stand where an error of the service gets its code.
fn codes_of(source: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for call in ["Problem::new(", "Problem::bad_request(", "Refused::new(", "Self::new(", "conflict("] {
        for (at, _) in source.match_indices(call) {
            let arguments = source[at + call.len()..].trim_start();
            let arguments = match arguments.strip_prefix("StatusCode::") {
                Some(rest) => rest.split_once(',').map_or("", |(_, rest)| rest.trim_start()),
                None => arguments,
            };
            let code = arguments.strip_prefix('"').and_then(|rest| rest.split('"').next());
            codes.extend(
                code.filter(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
                    .map(str::to_owned),
            );
        }
    }
    codes
}

#[test]
fn every_problem_of_the_service_is_explained_where_its_type_leads() {
    let mut codes = BTreeSet::new();
    let http = root().join("store-service/src/http");
    for path in files(&[".rs"]).iter().filter(|path| path.starts_with(&http)) {
        codes.extend(codes_of(&read(path)));
    }
    let grants = read(&root().join("protocol/src/grants.rs"));
    let (_, named) = grants.split_once("pub mod codes {").unwrap();
    let named = named.split("\n}").next().unwrap();
    codes.extend(named.split('"').skip(1).step_by(2).map(str::to_owned));
    assert!(codes.len() > 35, "{codes:?}");
    let document = read(&root().join("docs/problems.md"));
    let missing: Vec<_> =
        codes.iter().filter(|code| !document.contains(&format!("<a id=\"{code}\"></a>`{code}` |"))).collect();
    assert!(missing.is_empty(), "without a row in docs/problems.md: {missing:?}");
}

#[test]
fn the_licence_is_there_and_every_crate_names_it() {
    assert!(read(&root().join("LICENSE")).contains("Apache License"));
    for path in files(&["Cargo.toml"]) {
        let text = read(&path);
        assert!(!text.contains("[package]") || text.contains("license"), "{}", relative(&path));
    }
}
