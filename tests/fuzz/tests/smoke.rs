//! Every target on its corpus and on seeded mutations of it.
//!
//! `FENCEPOST_FUZZ_SEED` replays a run, `FENCEPOST_FUZZ_INPUTS` makes it longer (inputs for each
//! target). A failure prints both, and the input in hex and as a file to put into the corpus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use fencepost_fuzz::{ALL, Mutator, Target};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Inputs for each target in CI: seconds, and minutes for libFuzzer elsewhere.
const INPUTS: u64 = 3_000;

/// A socket for each input.
const INPUTS_OF_A_SERVER: u64 = 500;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn corpus(target: Target) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder("corpus").join(target.name))
        .unwrap_or_else(|error| panic!("no corpus of {}: {error}", target.name))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}: a number")))
}

fn smoke(name: &str, usual: u64) {
    let target = *ALL.iter().find(|target| target.name == name).unwrap();
    let corpus = corpus(target);
    assert!(corpus.len() >= 3, "{name}: a corpus of {} files", corpus.len());
    for (file, input) in &corpus {
        assert!(catch_unwind(|| (target.run)(input)).is_ok(), "{name}: corpus/{name}/{file}");
    }
    let seed = setting("FENCEPOST_FUZZ_SEED").unwrap_or_else(rand::random);
    let inputs = setting("FENCEPOST_FUZZ_INPUTS").unwrap_or(usual);
    println!("{name}: FENCEPOST_FUZZ_SEED={seed} FENCEPOST_FUZZ_INPUTS={inputs}");
    let mut mutator = Mutator::new(seed, corpus.into_iter().map(|(_, input)| input).collect());
    for number in 0..inputs {
        let input = mutator.next_input();
        if catch_unwind(|| (target.run)(&input)).is_err() {
            let found = std::env::temp_dir().join(format!("fencepost-{name}-{seed}-{number}"));
            std::fs::write(&found, &input).unwrap();
            panic!("{name}: input {number} of seed {seed}, kept as {}: {input:x?}", found.display());
        }
    }
}

#[test]
fn any_header_lines_are_one_key_or_none() {
    smoke("key", INPUTS);
}

#[test]
fn bodies_that_share_a_fingerprint_mean_the_same() {
    smoke("fingerprint", INPUTS);
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    smoke("frame", INPUTS);
}

#[test]
fn any_configuration_is_good_or_refused_and_the_same_as_a_struct() {
    smoke("policy", INPUTS);
}

#[test]
fn any_metadata_makes_a_policy_that_it_names_or_none() {
    smoke("route_metadata", INPUTS);
}

#[test]
fn no_token_but_the_signed_one_is_accepted() {
    smoke("token", INPUTS);
}

#[test]
fn no_bytes_open_as_an_answer_but_those_that_were_sealed_or_never_were() {
    smoke("seal", INPUTS);
}

#[test]
fn any_reply_of_the_store_decides_what_it_says_or_nothing() {
    smoke("store_reply", INPUTS);
}

#[test]
fn no_answer_of_a_provider_ends_what_it_does_not_name() {
    smoke("recovery_answer", INPUTS);
}

#[test]
fn amounts_are_equal_exactly_if_they_are_the_same_number() {
    smoke("details", INPUTS);
}

#[test]
fn no_report_proves_that_nothing_ran_but_one_that_says_so() {
    smoke("ending", INPUTS);
}

#[test]
fn any_upstreams_headers_are_kept_and_replayed_unbroken() {
    smoke("kept", INPUTS);
}

#[test]
fn any_text_of_an_operator_is_read_back_as_it_was_read() {
    smoke("words", INPUTS);
}

#[test]
fn any_request_is_answered_and_the_service_goes_on() {
    smoke("service_http", INPUTS_OF_A_SERVER);
}

/// libFuzzer's targets are these.
#[test]
fn every_target_has_its_file_for_libfuzzer() {
    for target in ALL {
        let file = folder("cargo-fuzz/fuzz_targets").join(format!("{}.rs", target.name));
        assert!(file.is_file(), "{}", file.display());
    }
}
