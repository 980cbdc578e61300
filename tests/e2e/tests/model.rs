//! Spin's verdict on the model of the protocol (`model/claim.pml`): the protocol keeps its promises
//! in every order of events, and each part of it that is taken out is missed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use fencepost_rig::debian::SPIN;
use fencepost_rig::tools::repository;
use std::path::Path;
use std::process::Command;

/// More than a check needs by far; a model that outgrows it is to be made smaller.
const MEMORY_MB: u32 = 2_000;

/// What the first claim of a key never meets: a token that is dead, another owner.
const NEW_KEY: [&str; 2] = ["claim_reply[t] = 2", "dead[owner] = 1"];

/// What a check said.
struct Verdict {
    output: String,
    errors: u32,
    states: u64,
}

impl Verdict {
    /// No history breaks an assertion, and all were looked at.
    fn assert_holds(&self) {
        assert_eq!(self.errors, 0, "{}", self.output);
        assert!(
            self.states > 100_000,
            "only {} states: the model says nothing\n{}",
            self.states,
            self.output
        );
        assert!(!self.output.contains("max search depth too small"), "{}", self.output);
        assert!(!self.output.contains("reached -DMEMLIM"), "{}", self.output);
    }

    /// The statements that no history reaches; the ends of loops that go on for ever aside.
    fn unreached(&self) -> Vec<&str> {
        let lines = self.output.lines().filter(|line| line.trim_start().starts_with("claim.pml:"));
        let statements = lines.filter_map(|line| line.split('"').nth(1));
        statements.filter(|statement| *statement != "-end-").collect()
    }

    /// Some history breaks just this assertion.
    fn assert_finds(&self, assertion: &str) {
        assert_eq!(self.errors, 1, "nothing was found\n{}", self.output);
        let found = self.output.lines().find(|line| line.contains("assertion violated")).unwrap_or_default();
        assert!(found.contains(assertion), "found {found:?}, expected {assertion:?}\n{}", self.output);
    }
}

/// Looks at all histories of the model with these parts changed.
fn check(macros: &[&str]) -> Verdict {
    let spin = SPIN.find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(repository().join("model/claim.pml"), folder.path().join("claim.pml")).unwrap();
    let mut generate = Command::new(spin);
    // Without merging of statements, which would hide the ones that are never reached.
    generate.args(["-a", "-o3"]).args(macros.iter().map(|name| format!("-D{name}"))).arg("claim.pml");
    run(&mut generate, folder.path());
    let limit = format!("-DMEMLIM={MEMORY_MB}");
    run(Command::new("cc").args(["-w", "-O2", "-DSAFETY", &limit, "-o", "pan", "pan.c"]), folder.path());
    let output = run(Command::new(folder.path().join("pan")).arg("-m100000"), folder.path());
    let number = |before: &str, after: &str| {
        let line = output.lines().find(|line| line.contains(before) && line.contains(after)).unwrap();
        let (_, rest) = line.split_once(before).unwrap();
        rest.trim().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let errors = number("errors: ", "").try_into().unwrap();
    let states = number("", "states, stored");
    Verdict { output, errors, states }
}

fn run(command: &mut Command, folder: &Path) -> String {
    let output = command.current_dir(folder).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}; a C compiler is needed",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn model_under_hold_runs_a_request_once_and_leaves_no_claim_behind() {
    let verdict = check(&[]);
    verdict.assert_holds();
    // A new key has no dead token and no owner; under hold a request that ran is never given back, so
    // no answer meets a free row, and none is refused.
    let never = [&NEW_KEY[..], &["state = 2", "owner = t", "answer = t", "told = 1", "duty_reply[t] = 1"]];
    assert_eq!(verdict.unreached(), never.concat(), "{}", verdict.output);
}

#[test]
fn model_under_rerun_never_overlaps_runs_and_keeps_a_confirmed_answer() {
    let verdict = check(&["RERUN"]);
    verdict.assert_holds();
    // Nothing is unknown where lost requests run again, so no claim is told so.
    let never = [&NEW_KEY[..], &["claim_reply[t] = 2"]];
    assert_eq!(verdict.unreached(), never.concat(), "{}", verdict.output);
}

/// A holder that finishes late overwrites the answer of the one that took over.
#[test]
fn model_misses_the_token_when_writes_go_by_key_alone() {
    check(&["RERUN", "NO_TOKEN"]).assert_finds("(answer==confirmed)");
}

#[test]
fn model_misses_run_until_when_an_equal_request_takes_over_at_the_end_of_the_lease() {
    check(&["RERUN", "NO_RUN_UNTIL"]).assert_finds("!(running[other])");
}

#[test]
fn model_misses_the_tombstone_when_a_claim_arrives_after_its_release() {
    check(&["NO_TOMBSTONE"]).assert_finds("!(given_back[t])");
}

#[test]
fn model_misses_the_sweeper_when_nobody_asks_for_a_lost_claim_again() {
    check(&["NO_SWEEP"]).assert_finds("(state!=1)");
}
