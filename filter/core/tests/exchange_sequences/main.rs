//! The exchange under every sequence of inputs up to a length, and random ones beyond: the host
//! may call back in any order, and whatever it does these hold.
//!
//! - At most one local reply, and none once the stream is gone or its response has begun; a stored
//!   answer only where the store said it, the upstream's only where the upstream did.
//! - The request is forwarded at most once, only by a `claimed` reply of the store that was seen
//!   before, only inside its lease, and only while somebody wants the answer.
//! - Every call to the store carries the exchange's own token, and none is made after the end.
//! - A request that was forwarded is given back only where it certainly did not run or its answer
//!   says so, and an answer is stored only where there was one.
//! - What is held of a response goes on only after the store was told of it, or did not hear.
//! - A claim is renewed only while its request runs or its answer is being stored.
//! - A stream that is only observed is never held, answered or changed.
//! - Every pause ends, and every claim that may have been made ends in a duty, as soon as the
//!   calls that are on their way have come back in whatever way, or are overdue.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

mod moves;
mod watched;

use fencepost_filter_core::policy::{Config, Policy};
use moves::{MOVES, Move};
use proptest::prelude::*;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use watched::Watched;

/// Policies that take other ways.
const POLICIES: [&str; 9] = [
    "",
    DETACHED,
    OBSERVED,
    r#","execution":{"detached":{"cluster":"l","loopback":false,"timeout":"9s"}}"#,
    r#","concurrency":"conflict""#,
    r#","on_lost":"rerun""#,
    r#","response":{"keep":"status"}"#,
    r#","response":{"max_body":"1B"},"fingerprint":{"body":"none"}"#,
    r#","mode":"observe","same_payload_window":"1m","on_lost":"rerun""#,
];

const DETACHED: &str = r#","execution":{"detached":{"cluster":"l","loopback":true,"timeout":"9s"}}"#;

const OBSERVED: &str = r#","mode":"observe""#;

fn policy(settings: &str) -> Rc<Policy> {
    let text = format!(
        r#"{{"store":{{"decide_cluster":"d","claim_cluster":"c","timeout":"2s"}},"key_prefix":"test","policies":{{"pay":
           {{"namespace":"pay","scope":[{{"constant":{{"value":"x"}}}}],"max_run":"5s"{settings}}}}}}}"#
    );
    Rc::clone(Config::parse(text.as_bytes()).unwrap().policies.get("pay").unwrap())
}

fn run(policy: &Rc<Policy>, moves: &[Move]) {
    let mut watched = Watched::new(Rc::clone(policy));
    for one in moves {
        watched.make(*one);
    }
    watched.settle();
    // A request that was forwarded always leads to a duty.
    assert!(watched.forwards == 0 || watched.duties > 0, "forwarded and then forgotten");
}

/// Runs it; a failure tells which.
fn run_told(settings: &str, policy: &Rc<Policy>, moves: &[Move]) {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| run(policy, moves)));
    assert!(outcome.is_ok(), "after {moves:?} with {settings:?}");
}

/// Every sequence of so many of these inputs behind others.
fn every(settings: &str, before: &[Move], of: &[Move], len: usize) -> usize {
    let policy = policy(settings);
    let mut places = vec![0; len];
    let mut runs = 0;
    loop {
        let moves: Vec<Move> = before.iter().copied().chain(places.iter().map(|place| of[*place])).collect();
        run_told(settings, &policy, &moves);
        runs += 1;
        let Some(place) = places.iter().rposition(|place| *place + 1 < of.len()) else { return runs };
        places[place] += 1;
        places[place + 1..].fill(0);
    }
}

/// From each state that a request stays in.
#[test]
fn every_two_inputs_in_every_state_keep_the_promises() {
    use Move::*;
    let usual: [&[Move]; 4] = [&[], &[BodyEnd], &[BodyEnd, Claimed], &[BodyEnd, Claimed, Answered]];
    let late: [&[Move]; 5] = [
        &[BodyEnd, InProgress],
        &[BodyEnd, Claimed, AnsweredWhole],
        &[BodyEnd, Claimed, UpstreamAnswered],
        &[BodyEnd, Claimed, ProxyUnknown],
        &[BodyEnd, Claimed, Gone],
    ];
    let mut runs = 0;
    for (settings, state) in POLICIES.iter().flat_map(|settings| usual.map(|state| (settings, state))) {
        runs += every(settings, state, MOVES, 2);
    }
    for (settings, state) in
        ["", DETACHED, OBSERVED].iter().flat_map(|settings| late.map(|state| (settings, state)))
    {
        runs += every(settings, state, MOVES, 2);
    }
    assert_eq!(runs, MOVES.len().pow(2) * 51);
}

#[test]
fn every_three_inputs_after_a_request_keep_the_promises() {
    use Move::*;
    let of = [
        Claimed,
        Completed,
        InProgress,
        ClaimBroken,
        ClaimedElsewhere,
        DutyDone,
        DutyRefused,
        DutyBroken,
        Answered,
        AnsweredWhole,
        AnsweredKeepNot,
        ProxyNotRun,
        ProxyUnknown,
        ResponseBody,
        ResponseEnd,
        Gone,
        Later,
        MuchLater,
        Full,
        UpstreamAnswered,
        UpstreamNotSent,
        UpstreamLost,
        RenewalRefused,
    ];
    for settings in ["", DETACHED, OBSERVED] {
        every(settings, &[BodyEnd], &of, 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_keep_the_promises(
        picks in proptest::collection::vec(0..MOVES.len(), 0..40), kind in 0..POLICIES.len(), starts in 0..3usize,
    ) {
        let policy = policy(POLICIES[kind]);
        // Most random sequences alone would stay in their first state.
        let start = [&[][..], &[Move::BodyEnd], &[Move::BodyEnd, Move::Claimed]][starts];
        let moves: Vec<Move> = start.iter().copied().chain(picks.into_iter().map(|n| MOVES[n])).collect();
        run(&policy, &moves);
    }
}
