//! Public test vectors, where somebody has them: `FENCEPOST_VECTORS` names a folder with
//! `structured-fields` (httpwg/structured-field-tests), `json-parsing` and `json-transform`
//! (nst/JSONTestSuite) and `jcs` (cyberphone/json-canonicalization). Without it these tests pass
//! and say so; the tables beside the code stand on their own.
#![allow(clippy::unwrap_used, clippy::panic)]

use fencepost_filter_core::fingerprint::{FingerprintOptions, FingerprintPolicy, RequestParts};
use fencepost_filter_core::key::{KeyError, KeyFormat, parse_key};
use serde_json::Value;
use std::path::PathBuf;

fn folder(name: &str) -> Option<PathBuf> {
    let Some(root) = std::env::var_os("FENCEPOST_VECTORS") else {
        eprintln!("FENCEPOST_VECTORS is not set: nothing checked");
        return None;
    };
    Some(PathBuf::from(root).join(name))
}

/// Name and bytes of each JSON file in a folder.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let Some(folder) = folder(name) else { return Vec::new() };
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no vectors", folder.display());
    files
}

fn fingerprint(body: &[u8]) -> String {
    let policy = FingerprintPolicy::compile(FingerprintOptions::default()).unwrap();
    let headers = [(b"content-type".to_vec(), b"application/json".to_vec())];
    RequestParts::new(&headers).fingerprint(&policy, body).unwrap().to_hex()
}

/// Whether a body is compared by meaning: then space before it counts for nothing.
fn is_canonicalised(body: &[u8]) -> bool {
    fingerprint(&[b" ".as_slice(), body].concat()) == fingerprint(body)
}

#[test]
fn structured_keys_are_the_strings_of_the_standard() {
    for (file, text) in files("structured-fields") {
        for case in serde_json::from_slice::<Vec<Value>>(&text).unwrap() {
            if case["header_type"] != "item" {
                continue;
            }
            let raw: Vec<&[u8]> = case["raw"]
                .as_array()
                .unwrap()
                .iter()
                .map(|line| line.as_str().unwrap().as_bytes())
                .collect();
            let parsed = parse_key(&raw, KeyFormat::Structured, usize::MAX);
            let name = format!("{file}: {}", case["name"]);
            match case["expected"][0].as_str() {
                Some(text) if text.trim().is_empty() => assert_eq!(parsed, Err(KeyError::Empty), "{name}"),
                Some(text) if case["can_fail"] == true && parsed.is_err() => {
                    assert!(!text.is_empty(), "{name}")
                }
                Some(text) => assert_eq!(parsed.unwrap().as_bytes(), text.as_bytes(), "{name}"),
                None => assert!(parsed.is_err(), "{name}"),
            }
        }
    }
}

#[test]
fn json_is_what_the_parsing_suite_says() {
    for (file, body) in files("json-parsing") {
        assert_eq!(fingerprint(&body), fingerprint(&body), "{file}");
        match file.get(..2) {
            // A proxy does not know which of two members counts: by bytes, though it is JSON.
            Some("y_") => assert_eq!(is_canonicalised(&body), !file.contains("duplicated_key"), "{file}"),
            Some("n_") => assert!(!is_canonicalised(&body), "{file}"),
            _ => {}
        }
    }
}

#[test]
fn no_two_vectors_of_different_meaning_share_a_fingerprint() {
    let all: Vec<_> = [files("json-parsing"), files("json-transform")].concat();
    for (i, (one_name, one)) in all.iter().enumerate() {
        let print = fingerprint(one);
        for (other_name, other) in all.iter().skip(i + 1).filter(|(_, other)| fingerprint(other) == print) {
            if one == other {
                continue;
            }
            assert!(is_canonicalised(one) && is_canonicalised(other), "{one_name} and {other_name}");
            let value = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
            assert_eq!(value(one), value(other), "{one_name} and {other_name}");
        }
    }
}

#[test]
fn canonical_vectors_equal_their_inputs() {
    let all = files("jcs");
    for (file, input) in &all {
        let Some(name) = file.strip_suffix(".input.json") else { continue };
        let output = all.iter().find(|(other, _)| *other == format!("{name}.output.json"));
        let Some((_, output)) = output else { panic!("{name} has no output") };
        // Those with numbers in another spelling are two requests here: the text of a number counts.
        let same = !["structures", "values"].contains(&name);
        assert_eq!(fingerprint(input) == fingerprint(output), same, "{name}");
    }
}
