//! The exchange under every sequence of inputs up to a length, and random ones beyond: the host
//! may call back in any order, and whatever it does these hold.
//!
//! - At most one local reply, and none once the stream is gone or its response has begun.
//! - The request is forwarded at most once, only by a `claimed` reply, and only inside its lease.
//! - Every call to the store carries the exchange's own token.
//! - A stream that is only observed is never held, answered or changed.
//! - Every pause ends, and every claim that may have been made ends in a duty, as soon as the
//!   calls that are on their way have come back in whatever way, or are overdue.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use fencepost_filter_core::exchange::detached::UpstreamReply;
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{
    Call, Claimant, Effect, Exchange, HeldBody, Input, ResponseHead, World, limits,
};
use fencepost_filter_core::policy::{Config, Mode, Policy};
use fencepost_protocol::claims::*;
use fencepost_protocol::{ClaimToken, Fence, ScopeDigest, StoreId, StoreKey, frame, paths};
use proptest::prelude::*;
use std::rc::Rc;

const TOKEN: ClaimToken = ClaimToken::from_bytes([9; 16]);
const STORE: StoreId = StoreId::from_bytes([7; 16]);

/// One thing that the host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Body,
    BodyEnd,
    Claimed,
    Completed,
    InProgress,
    Mismatch,
    ClaimBroken,
    DutyDone,
    DutyRefused,
    DutyBroken,
    Answered,
    AnsweredWhole,
    ProxyNotRun,
    ProxyUnknown,
    ResponseBody,
    ResponseEnd,
    Gone,
    Later,
    MuchLater,
    UpstreamAnswered,
    UpstreamLost,
}

const MOVES: [Move; 21] = [
    Move::Body,
    Move::BodyEnd,
    Move::Claimed,
    Move::Completed,
    Move::InProgress,
    Move::Mismatch,
    Move::ClaimBroken,
    Move::DutyDone,
    Move::DutyRefused,
    Move::DutyBroken,
    Move::Answered,
    Move::AnsweredWhole,
    Move::ProxyNotRun,
    Move::ProxyUnknown,
    Move::ResponseBody,
    Move::ResponseEnd,
    Move::Gone,
    Move::Later,
    Move::MuchLater,
    Move::UpstreamAnswered,
    Move::UpstreamLost,
];

fn policy(execution: &str) -> Rc<Policy> {
    let text = format!(
        r#"{{"store":{{"decide_cluster":"d","claim_cluster":"c","timeout":"2s"}},"key_prefix":"test","policies":{{"pay":
           {{"namespace":"pay","scope":[{{"constant":{{"value":"x"}}}}],"max_run":"5s"{execution}}}}}}}"#
    );
    Rc::clone(Config::parse(text.as_bytes()).unwrap().policies.get("pay").unwrap())
}

fn answer<T: serde::Serialize>(reply: T) -> CallReply {
    let body = frame::encode(&Reply::new(STORE, reply), &[]).unwrap();
    CallReply::Answer { status: 200, from_service: true, store: None, body }
}

/// An exchange, and the books that the promises are checked against.
struct Watched {
    observed: bool,
    exchange: Exchange,
    now: u64,
    pin: Option<StoreId>,
    stream_gone: bool,
    response_begun: bool,
    replies: usize,
    forwards: usize,
    claim_sent_at: Option<u64>,
    duties: Vec<String>,
}

impl Watched {
    fn new(policy: Rc<Policy>) -> Self {
        let headers = [(":method", "POST"), (":path", "/pay")];
        let claimant = Claimant {
            key: StoreKey::new("test", &[1; 16]).unwrap(),
            scope: ScopeDigest::from_bytes([2; 16]),
            token: TOKEN,
            headers: headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
            forward: vec![],
            withhold: vec![],
        };
        Self {
            observed: policy.mode == Mode::Observe,
            exchange: Exchange::new(policy, claimant, 0),
            now: 0,
            pin: None,
            stream_gone: false,
            response_begun: false,
            replies: 0,
            forwards: 0,
            claim_sent_at: None,
            duties: vec![],
        }
    }

    fn input(&mut self, one: Move) -> Input {
        let evidence = |details: &str| Evidence {
            code_details: Some(details.into()),
            flags: Some(0),
            attempts: Some(1),
            bytes_sent: None,
        };
        let head = |status: u16, details: &str, end| {
            let headers = vec![(b":status".to_vec(), status.to_string().into_bytes())];
            Input::ResponseHead(ResponseHead { status, headers, evidence: evidence(details), end })
        };
        let claim = |reply: ClaimReply| Input::StoreReply { call: Call::Claim, reply: answer(reply) };
        let duty = |reply| Input::StoreReply { call: Call::Duty, reply };
        match one {
            Move::Body => Input::RequestBody { chunk: b"{".to_vec(), end: false },
            Move::BodyEnd => Input::RequestBody { chunk: b"}".to_vec(), end: true },
            Move::Claimed => claim(ClaimReply::Claimed { fence: Fence::new(5).unwrap(), parked_ms: 0 }),
            Move::Completed => claim(ClaimReply::Completed {
                status: 201,
                headers_len: 0,
                body_len: 0,
                age_ms: 0,
                left_ms: 1,
            }),
            Move::InProgress => claim(ClaimReply::InProgress { lease_left_ms: 9, parked_ms: 500 }),
            Move::Mismatch => claim(ClaimReply::Mismatch),
            Move::ClaimBroken => Input::StoreReply { call: Call::Claim, reply: CallReply::Broken },
            Move::DutyDone => duty(answer(CompleteReply::Stored)),
            Move::DutyRefused => duty(answer(CompleteReply::Refused { reason: Refusal::HeldByOther })),
            Move::DutyBroken => duty(CallReply::Broken),
            Move::Answered => head(201, "via_upstream", false),
            Move::AnsweredWhole => head(201, "via_upstream", true),
            Move::ProxyNotRun => head(503, "no_healthy_upstream", false),
            Move::ProxyUnknown => head(504, "upstream_response_timeout", false),
            Move::ResponseBody => Input::ResponseBody { chunk: b"x".to_vec(), end: false },
            Move::ResponseEnd => Input::ResponseBody { chunk: b"x".to_vec(), end: true },
            Move::Gone => Input::StreamGone(evidence("downstream_remote_disconnect")),
            Move::Later | Move::MuchLater => {
                self.now += if one == Move::Later { 400 } else { 40_000 };
                Input::Tick { body: HeldBody::Coming }
            }
            Move::UpstreamAnswered => {
                let headers = vec![(b"x-fencepost-ending".to_vec(), b"via_upstream|-|1|9".to_vec())];
                Input::UpstreamReply(UpstreamReply::Response { status: 201, headers, body: vec![] })
            }
            Move::UpstreamLost => Input::UpstreamReply(UpstreamReply::Lost),
        }
    }

    fn make(&mut self, one: Move) {
        let input = self.input(one);
        let mut world =
            World { now_ms: self.now, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: true };
        let effects = self.exchange.step(input, &mut world);
        let gone_before = self.stream_gone;
        match one {
            Move::Gone => self.stream_gone = true,
            Move::Answered | Move::AnsweredWhole | Move::ProxyNotRun | Move::ProxyUnknown => {
                self.response_begun = true
            }
            _ => {}
        }
        for effect in &effects {
            self.check(one, effect, gone_before);
        }
        if self.observed {
            let held = self.exchange.holds_request() || self.exchange.holds_response();
            assert!(!held && !self.exchange.wants_response_body(), "an observed stream is held");
            let aside = |effect: &Effect| {
                use Effect::{CallStore, NotePayload, Result, Warn};
                matches!(effect, CallStore { .. } | NotePayload(_) | Result(_) | Warn(_))
            };
            assert!(effects.iter().all(aside), "an observed stream is touched: {effects:?}");
        }
    }

    fn check(&mut self, one: Move, effect: &Effect, gone_before: bool) {
        match effect {
            Effect::LocalReply(_) => {
                self.replies += 1;
                assert_eq!(self.replies, 1, "two local replies");
                assert!(!gone_before && !self.stream_gone, "a reply to a stream that is gone");
                assert!(!self.response_begun, "a reply after the response has begun");
            }
            Effect::ForwardRequest { .. } | Effect::CallUpstream(_) => {
                self.forwards += 1;
                assert_eq!(self.forwards, 1, "forwarded twice");
                assert_eq!(one, Move::Claimed, "forwarded without a claim");
                let age = self.now - self.claim_sent_at.unwrap();
                assert!(
                    age + limits::LEASE_MARGIN_MS < 30_000,
                    "forwarded {age} ms after its claim was sent"
                );
            }
            Effect::CallStore { path, frame, .. } => {
                let (head, _) = frame::decode::<serde_json::Value>(frame).unwrap();
                assert_eq!(head["token"], TOKEN.to_hex(), "a call without the token");
                if *path == paths::CLAIMS {
                    self.claim_sent_at = Some(self.now);
                } else {
                    self.duties.push(path.to_string());
                }
            }
            _ => {}
        }
    }

    /// Lets all calls come back, broken or not, until nothing is owed.
    fn settle(&mut self) {
        for round in 0..400 {
            if self.exchange.is_over() {
                break;
            }
            self.make(Move::ClaimBroken);
            self.make(Move::UpstreamLost);
            self.make(if round < 3 { Move::DutyBroken } else { Move::DutyDone });
            if !self.stream_gone && !self.exchange.holds_request() {
                self.make(Move::ResponseEnd);
            }
            if round == 5 {
                self.make(Move::Gone);
            }
            self.now += 20_000;
            self.make(Move::Later);
        }
        assert!(self.exchange.is_over(), "owed for ever: {:?}", self.exchange);
        assert!(!self.exchange.holds_request() && !self.exchange.holds_response(), "paused for ever");
    }
}

fn run(policy: &Rc<Policy>, moves: &[Move]) {
    let mut watched = Watched::new(Rc::clone(policy));
    for one in moves {
        watched.make(*one);
    }
    watched.settle();
    // A request that was forwarded always leads to a duty.
    assert!(watched.forwards == 0 || !watched.duties.is_empty(), "forwarded and then forgotten");
}

const DETACHED: &str = r#","execution":{"detached":{"cluster":"l","loopback":true,"timeout":"9s"}}"#;

const OBSERVED: &str = r#","mode":"observe""#;

#[test]
fn every_sequence_of_three_inputs_keeps_the_promises() {
    for execution in ["", DETACHED, OBSERVED] {
        let policy = policy(execution);
        let mut moves = [0; 3];
        loop {
            let sequence: Vec<Move> = moves.iter().map(|n| MOVES[*n]).collect();
            // A request's end first: sequences without one stay in their first state.
            let sequence = [&[Move::BodyEnd], sequence.as_slice()].concat();
            run(&policy, &sequence);
            let Some(place) = moves.iter().rposition(|n| *n + 1 < MOVES.len()) else { break };
            moves[place] += 1;
            moves[place + 1..].fill(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_keep_the_promises(picks in proptest::collection::vec(0..MOVES.len(), 0..40), kind in 0..3usize) {
        let policy = policy(["", DETACHED, OBSERVED][kind]);
        let moves: Vec<Move> = picks.into_iter().map(|n| MOVES[n]).collect();
        run(&policy, &moves);
    }
}
