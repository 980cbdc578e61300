//! A grant's exchange under every sequence of inputs up to a length, and random ones beyond: the host
//! may call back in any order, and whatever it does these hold.
//!
//! - The admission is asked for at most once.
//! - The upstream is called at most once, and only after this exchange was told `admitted` and then
//!   that it may submit, each while the time since it was asked is inside what was granted.
//! - At most one local reply, and none once the stream is gone or its response has begun.
//! - Nothing is recorded before an admission; "not submitted" only where the upstream was not called,
//!   or certainly not reached; "succeeded" only where it answered.
//! - Every pause ends, and every admission ends in a finish.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use fencepost_filter_core::exchange::detached::UpstreamReply;
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{Call, Effect, Exchange, HeldBody, Input, ResponseHead, World, limits};
use fencepost_filter_core::facts::{Facts, Property};
use fencepost_filter_core::guard::{Verdict, judge};
use fencepost_filter_core::policy::{Config, RoutePolicies};
use fencepost_protocol::claims::Reply;
use fencepost_protocol::grant_claims::{FinishOutcome, FinishRequest, GrantClaimReply, GrantRefusal};
use fencepost_protocol::grants::{Details, Operation, OperationId, OperationStatus};
use fencepost_protocol::{ClaimToken, StoreId, frame};
use proptest::prelude::*;
use serde_json::json;

const STORE: StoreId = StoreId::from_bytes([7; 16]);
const OPERATION: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";
const LEASE_MS: u64 = 60_000;
const SUBMIT_LEFT_MS: u64 = 20_000;

/// One thing that the host may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    BodyEnd,
    Admitted,
    Before,
    Refused,
    ClaimBroken,
    MaySubmit,
    MayNotSubmit,
    MaySubmitBroken,
    RenewalRefused,
    FinishDone,
    FinishRefused,
    FinishBroken,
    UpstreamAnswered,
    UpstreamNotRun,
    UpstreamNotSent,
    UpstreamLost,
    ProxyAnswered,
    Gone,
    Later,
    MuchLater,
}

const MOVES: [Move; 20] = [
    Move::BodyEnd,
    Move::Admitted,
    Move::Before,
    Move::Refused,
    Move::ClaimBroken,
    Move::MaySubmit,
    Move::MayNotSubmit,
    Move::MaySubmitBroken,
    Move::RenewalRefused,
    Move::FinishDone,
    Move::FinishRefused,
    Move::FinishBroken,
    Move::UpstreamAnswered,
    Move::UpstreamNotRun,
    Move::UpstreamNotSent,
    Move::UpstreamLost,
    Move::ProxyAnswered,
    Move::Gone,
    Move::Later,
    Move::MuchLater,
];

/// The route is unmarked as far as these facts go: the caller is a trusted header.
struct Named;

impl Facts for Named {
    fn property(&self, path: &[&str]) -> Property {
        // The host's encoding of {"policy": "credit"}.
        let marks =
            [&1u32.to_le_bytes()[..], &6u32.to_le_bytes(), &6u32.to_le_bytes(), b"policy\0credit\0"].concat();
        if path.get(1) == Some(&"route_metadata") { Property::Bytes(marks) } else { Property::Absent }
    }

    fn header(&self, name: &str) -> Vec<Vec<u8>> {
        if name == "x-user" { vec![b"alice".to_vec()] } else { vec![] }
    }
}

fn config() -> Config {
    let config = json!({
        "store": {"decide_cluster": "d", "claim_cluster": "c", "timeout": "2s"}, "key_prefix": "test",
        "policies": {"credit": {
            "namespace": "credits", "scope": [{"header": {"name": "x-user", "trusted": true}}], "max_run": "5s",
            "execution": {"detached": {"cluster": "l", "loopback": true, "timeout": "9s"}},
            "grant": {"token": {"header": "x-grant"}, "operation_id": {"header": "x-operation-id"},
                "caller_namespace": "users", "details": {"who": {"scope": true}}},
        }},
    });
    Config::parse(config.to_string().as_bytes()).unwrap()
}

fn exchange(config: &Config) -> Exchange {
    let headers = [
        (":method", "POST"),
        (":path", "/credit"),
        ("x-user", "alice"),
        ("x-grant", "a.b.c"),
        ("x-operation-id", OPERATION),
    ];
    let headers: Vec<_> =
        headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
    let verdict = judge(config, &mut RoutePolicies::default(), &Named, &|| Some(headers.clone()));
    let Verdict::Guard(request) = verdict else { panic!("{verdict:?}") };
    request.into_exchange(ClaimToken::from_bytes([9; 16]), 0)
}

/// An exchange, and the books that the promises are checked against.
struct Watched {
    exchange: Exchange,
    now: u64,
    pin: Option<StoreId>,
    stream_gone: bool,
    response_begun: bool,
    replies: usize,
    asked_at: Option<u64>,
    /// The admission was told in time, and counted from here.
    admitted: bool,
    may_submit_asked_at: Option<u64>,
    ran: bool,
    ended: Option<Move>,
    finishes: usize,
}

impl Watched {
    fn new(config: &Config) -> Self {
        Self {
            exchange: exchange(config),
            now: 0,
            pin: None,
            stream_gone: false,
            response_begun: false,
            replies: 0,
            asked_at: None,
            admitted: false,
            may_submit_asked_at: None,
            ran: false,
            ended: None,
            finishes: 0,
        }
    }

    fn input(&mut self, one: Move) -> Input {
        let claim = |reply: GrantClaimReply| {
            let body = frame::encode(&Reply::new(STORE, reply), &[]).unwrap();
            let reply = CallReply::Answer { status: 200, from_service: true, store: Some(STORE), body };
            Input::StoreReply { call: Call::Claim, reply }
        };
        let json = |call, status, body: serde_json::Value| {
            let body = body.to_string().into_bytes();
            let reply = CallReply::Answer { status, from_service: true, store: Some(STORE), body };
            Input::StoreReply { call, reply }
        };
        let broken = |call| Input::StoreReply { call, reply: CallReply::Broken };
        let upstream = |report: &[u8]| {
            let headers = vec![(b"x-fencepost-ending".to_vec(), report.to_vec())];
            Input::UpstreamReply(UpstreamReply::Response { status: 201, headers, body: vec![] })
        };
        match one {
            Move::BodyEnd => Input::RequestBody { chunk: b"{}".to_vec(), end: true },
            Move::Admitted => claim(GrantClaimReply::Admitted {
                owner_version: 1,
                lease_left_ms: LEASE_MS,
                submit_left_ms: SUBMIT_LEFT_MS,
            }),
            Move::Before => {
                let operation = Box::new(Operation {
                    operation_id: OperationId::parse(OPERATION).unwrap(),
                    status: OperationStatus::Admitted,
                    owner_version: 1,
                    lease_left_ms: 1,
                    submit_left_ms: 1,
                    reference: None,
                    details: Details::default(),
                });
                claim(GrantClaimReply::Before { operation, answer: None })
            }
            Move::Refused => claim(GrantClaimReply::Refused { code: GrantRefusal::Expired, reason: None }),
            Move::ClaimBroken => broken(Call::Claim),
            Move::MaySubmit => json(Call::MaySubmit, 200, json!({"left_ms": SUBMIT_LEFT_MS})),
            Move::MayNotSubmit => json(Call::MaySubmit, 409, json!({"code": "operation_not_applied"})),
            Move::MaySubmitBroken => broken(Call::MaySubmit),
            Move::RenewalRefused => json(Call::RenewOperation, 409, json!({})),
            Move::FinishDone => json(Call::Duty, 200, json!({"before": false})),
            Move::FinishRefused => json(Call::Duty, 409, json!({})),
            Move::FinishBroken => broken(Call::Duty),
            Move::UpstreamAnswered => upstream(b"via_upstream|-|1|9"),
            Move::UpstreamNotRun => upstream(b"no_healthy_upstream|UH|-|-"),
            Move::UpstreamNotSent => Input::UpstreamReply(UpstreamReply::NotSent),
            Move::UpstreamLost => Input::UpstreamReply(UpstreamReply::Lost),
            Move::ProxyAnswered => Input::ResponseHead(ResponseHead {
                status: 408,
                headers: vec![],
                evidence: Evidence::default(),
                end: true,
            }),
            Move::Gone => Input::StreamGone(Evidence::default()),
            Move::Later | Move::MuchLater => {
                self.now += if one == Move::Later { 400 } else { 19_700 };
                Input::Tick { body: HeldBody::Coming }
            }
        }
    }

    fn make(&mut self, one: Move) {
        let input = self.input(one);
        let mut world =
            World { now_ms: self.now, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: true };
        let effects = self.exchange.step(input, &mut world);
        let gone_before = self.stream_gone;
        self.stream_gone |= one == Move::Gone;
        self.response_begun |= one == Move::ProxyAnswered;
        for effect in &effects {
            self.check(one, effect, gone_before);
        }
        if matches!(
            one,
            Move::UpstreamAnswered | Move::UpstreamNotRun | Move::UpstreamNotSent | Move::UpstreamLost
        ) && self.ran
        {
            self.ended.get_or_insert(one);
        }
    }

    fn check(&mut self, one: Move, effect: &Effect, gone_before: bool) {
        match effect {
            Effect::LocalReply(_) => {
                self.replies += 1;
                assert_eq!(self.replies, 1, "two local replies");
                assert!(!gone_before && !self.response_begun, "a reply to nobody");
            }
            Effect::ForwardRequest { .. } => panic!("a grant's request goes on inline"),
            Effect::CallUpstream(_) => {
                assert!(!self.ran, "run twice");
                assert!(self.admitted, "run without an admission");
                assert_eq!(one, Move::MaySubmit, "run without a may-submit");
                let (asked, word) = (self.asked_at.unwrap(), self.may_submit_asked_at.unwrap());
                for from in [asked.max(word), word] {
                    let age = self.now - from;
                    assert!(age + limits::LEASE_MARGIN_MS < SUBMIT_LEFT_MS, "run {age} ms late");
                }
                self.ran = true;
            }
            Effect::CallStore { path, frame, .. } => match path.rsplit('/').next().unwrap() {
                "claim" => {
                    assert_eq!(self.asked_at, None, "asked for admission twice");
                    self.asked_at = Some(self.now);
                }
                "may-submit" => {
                    self.admitted |= one == Move::Admitted;
                    assert!(self.admitted && !self.ran);
                    let age = self.now - self.asked_at.unwrap();
                    assert!(age + limits::LEASE_MARGIN_MS < SUBMIT_LEFT_MS, "asked {age} ms late");
                    self.may_submit_asked_at = Some(self.now);
                }
                "renew" => assert!(self.admitted),
                "finish" => {
                    self.admitted |= one == Move::Admitted;
                    self.finishes += 1;
                    assert!(self.admitted, "finished what was not admitted");
                    let (request, _) = frame::decode::<FinishRequest>(frame).unwrap();
                    let ended = self.ended.or(self.ran.then_some(one));
                    match (request.outcome, request.reference.as_deref()) {
                        (FinishOutcome::Succeeded, None) => assert_eq!(ended, Some(Move::UpstreamAnswered)),
                        (FinishOutcome::Failed, Some("not_submitted")) => assert!(
                            matches!(ended, None | Some(Move::UpstreamNotRun | Move::UpstreamNotSent)),
                            "{ended:?}"
                        ),
                        (FinishOutcome::Unknown, None) => assert!(self.ran),
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other}"),
            },
            _ => {}
        }
    }

    /// Lets all calls come back, broken or not, until nothing is owed.
    fn settle(&mut self) {
        for round in 0..100 {
            if self.exchange.is_over() {
                break;
            }
            if round == 5 {
                self.make(Move::Gone);
            }
            self.make(Move::ClaimBroken);
            self.make(Move::MaySubmitBroken);
            self.make(Move::UpstreamLost);
            self.make(if round < 3 { Move::FinishBroken } else { Move::FinishDone });
            self.make(Move::MuchLater);
        }
        assert!(self.exchange.is_over(), "owed for ever: {:?}", self.exchange);
        assert!(!self.exchange.holds_request() && !self.exchange.holds_response(), "paused for ever");
        assert!(!self.admitted || self.finishes > 0, "admitted and then forgotten");
        assert!(self.finishes > 0 || !self.ran, "run and then forgotten");
    }
}

fn run(config: &Config, moves: &[Move]) {
    let mut watched = Watched::new(config);
    for one in moves {
        watched.make(*one);
    }
    watched.settle();
}

#[test]
fn every_sequence_of_inputs_after_an_admission_was_asked_for_keeps_the_promises() {
    let config = config();
    // Each beginning is a stage of the way; then every three inputs.
    let beginnings: [&[Move]; 4] = [
        &[Move::BodyEnd],
        &[Move::BodyEnd, Move::Admitted],
        &[Move::BodyEnd, Move::Admitted, Move::MaySubmit],
        &[Move::BodyEnd, Move::Admitted, Move::MaySubmit, Move::UpstreamAnswered],
    ];
    for beginning in beginnings {
        for first in MOVES {
            for second in MOVES {
                for third in MOVES {
                    run(&config, &[beginning, &[first, second, third]].concat());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn random_sequences_of_a_grants_inputs_keep_the_promises(
        picks in proptest::collection::vec(0..MOVES.len(), 0..40),
    ) {
        let moves: Vec<Move> = picks.into_iter().map(|n| MOVES[n]).collect();
        run(&config(), &moves);
    }
}
