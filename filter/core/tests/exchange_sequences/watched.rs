//! An exchange, and the books that the promises are checked against.

use crate::moves::{ANSWERED, Move, STORE, STORED};
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::{Call, Claimant, Effect, Exchange, Input, World, limits};
use fencepost_filter_core::policy::{Execution, Mode, Policy};
use fencepost_protocol::claims::CompleteRequest;
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreId, StoreKey, frame, paths};
use std::rc::Rc;

const TOKEN: ClaimToken = ClaimToken::from_bytes([9; 16]);

/// Lease of the policies.
const CLAIM_TTL_MS: u64 = 30_000;

pub struct Watched {
    policy: Rc<Policy>,
    exchange: Exchange,
    /// Gets the same, less what the host says of an end that the exchange does not ask about.
    told_less: (Exchange, Option<StoreId>),
    now: u64,
    has_room: bool,
    pin: Option<StoreId>,
    stream_gone: bool,
    response_begun: bool,
    replies: usize,
    pub forwards: usize,
    claim_sent_at: Option<u64>,
    /// Observed, and the store granted it.
    claimed_beside: bool,
    /// The last duty.
    duty: String,
    pub duties: usize,
    /// The upstream answered, as far as this exchange was told after it had forwarded.
    answered: bool,
    /// An equal request may run, for this reason.
    freed: bool,
    /// It was told once what became of its duty.
    duty_replied: bool,
}

impl Watched {
    pub fn new(policy: Rc<Policy>) -> Self {
        let headers = [(":method", "POST"), (":path", "/pay")];
        let claimant = || Claimant {
            key: StoreKey::new("test", &[1; 16]).unwrap(),
            scope: ScopeDigest::from_bytes([2; 16]),
            token: TOKEN,
            headers: headers.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect(),
            forward: vec![],
            withhold: vec![],
        };
        Self {
            exchange: Exchange::new(Rc::clone(&policy), claimant(), 0),
            told_less: (Exchange::new(Rc::clone(&policy), claimant(), 0), Some(STORE)),
            policy,
            now: 0,
            has_room: true,
            pin: Some(STORE),
            stream_gone: false,
            response_begun: false,
            replies: 0,
            forwards: 0,
            claim_sent_at: None,
            claimed_beside: false,
            duty: String::new(),
            duties: 0,
            answered: false,
            freed: false,
            duty_replied: false,
        }
    }

    fn is_observed(&self) -> bool {
        self.policy.mode == Mode::Observe
    }

    pub fn make(&mut self, one: Move) {
        self.now += one.takes_ms();
        if one == Move::Full {
            self.has_room = !self.has_room;
        }
        let was_over = self.exchange.is_over();
        let was_forwarded = self.forwards > 0 || self.is_observed();
        let input = one.input(&self.duty);
        let less = match one {
            Move::Gone if !self.exchange.wants_evidence() => Input::StreamGone(Evidence::default()),
            _ => one.input(&self.duty),
        };
        let mut world =
            World { now_ms: self.now, pin: &mut self.pin, store_timeout_ms: 2_000, has_room: self.has_room };
        let effects = self.exchange.step(input, &mut world);
        world.pin = &mut self.told_less.1;
        let effects_of_less = self.told_less.0.step(less, &mut world);
        assert_eq!(effects, effects_of_less, "what the host says of the end was not asked for, and counts");
        let gone_before = self.stream_gone;
        self.stream_gone |= one == Move::Gone;
        self.response_begun |= one.begins_response();
        if was_forwarded {
            self.answered |= one.is_answer();
            self.freed |= one.frees();
        }
        let was_asked = self.claim_sent_at.is_some() && self.duties == 0;
        self.claimed_beside |= self.is_observed() && one.is_claimed() && was_asked;
        for effect in &effects {
            self.check(one, effect, gone_before);
        }
        if was_over {
            let calls =
                |effect: &Effect| matches!(effect, Effect::CallStore { .. } | Effect::CallUpstream(_));
            assert!(!effects.iter().any(calls), "calls after the end: {effects:?}");
        }
        if self.is_observed() {
            let held = self.exchange.holds_request() || self.exchange.holds_response();
            assert!(!held && !self.exchange.wants_response_body(), "an observed stream is held");
            let aside = |effect: &Effect| {
                use Effect::{CallStore, NotePayload, Result, Warn};
                matches!(effect, CallStore { .. } | NotePayload(_) | Result(_) | Warn(_))
            };
            assert!(effects.iter().all(aside), "an observed stream is touched: {effects:?}");
        }
        self.renew();
    }

    /// As the host's timer does after everything else.
    fn renew(&mut self) {
        let renewal = self.exchange.take_due_renewal(self.now);
        assert_eq!(renewal, self.told_less.0.take_due_renewal(self.now));
        let Some(renewal) = renewal else { return };
        assert_eq!(renewal.token, TOKEN, "a renewal without the token");
        assert!(self.forwards > 0 || self.is_observed(), "renewed before it was forwarded");
        let given_back = matches!(&self.duty[..], paths::RELEASE | paths::UNKNOWN);
        assert!(!given_back && !self.exchange.is_over(), "renewed after {}", self.duty);
        assert!(u64::from(renewal.claim_ttl_ms) == CLAIM_TTL_MS && renewal.run_ms <= self.policy.max_run_ms);
    }

    fn check(&mut self, one: Move, effect: &Effect, gone_before: bool) {
        match effect {
            Effect::LocalReply(reply) => {
                self.replies += 1;
                assert_eq!(self.replies, 1, "two local replies");
                assert!(!gone_before && !self.stream_gone, "a reply to a stream that is gone");
                assert!(!self.response_begun, "a reply after the response has begun");
                assert!(reply.status != STORED || one == Move::Completed, "replayed, and nothing was stored");
                assert!(reply.status != ANSWERED || self.answered, "answered, and the upstream did not");
                let is_inline = self.policy.execution == Execution::Inline;
                assert!(self.forwards == 0 || !is_inline, "answered in place of a request that runs");
            }
            Effect::ForwardRequest { .. } | Effect::CallUpstream(_) => {
                self.forwards += 1;
                assert_eq!(self.forwards, 1, "forwarded twice");
                assert!(one.is_claimed(), "forwarded without a claim");
                assert!(!self.stream_gone && self.replies == 0, "forwarded for nobody");
                let age = self.now - self.claim_sent_at.unwrap();
                assert!(
                    age + limits::LEASE_MARGIN_MS < CLAIM_TTL_MS,
                    "forwarded {age} ms after its claim was sent"
                );
            }
            Effect::ResumeResponse => {
                assert!(self.duty_replied || self.duty_reply(one), "let go before the store has it");
            }
            Effect::CallStore { call, path, frame, .. } => {
                let (head, _) = frame::decode::<serde_json::Value>(frame).unwrap();
                assert_eq!(head["token"], TOKEN.to_hex(), "a call without the token");
                match call {
                    Call::Claim => self.claim_sent_at = Some(self.now),
                    Call::Duty => self.on_duty(path, frame),
                    // An early word, and the claim is kept: its answer may come.
                    Call::EarlyUnknown => assert_eq!(&**path, paths::UNKNOWN),
                    Call::MaySubmit | Call::RenewOperation => panic!("a call about a grant"),
                }
            }
            _ => {}
        }
        self.duty_replied |= self.duty_reply(one);
    }

    /// Whether this may tell what became of the duty: its reply, or that it is overdue.
    fn duty_reply(&self, one: Move) -> bool {
        use Move::*;
        matches!(one, DutyDone | DutyRefused | DutyBroken | DutyUnavailable | DutyFinal | DutyElsewhere)
            || one.takes_ms() > 0
    }

    fn on_duty(&mut self, path: &str, frame: &[u8]) {
        // One that is only observed runs in any case; whose claim failed gives back what it may hold.
        let ran = self.forwards > 0 || (self.claimed_beside && self.response_begun);
        match path {
            paths::RELEASE => assert!(!ran || self.freed, "given back, though it may have run"),
            paths::COMPLETE => {
                assert!(self.answered, "stored, and there was no answer");
                let (request, _) = frame::decode::<CompleteRequest>(frame).unwrap();
                let marker = request.status == 410;
                assert!(marker || request.status == ANSWERED, "{}", request.status);
            }
            _ => assert_eq!(path, paths::UNKNOWN),
        }
        self.duty = path.to_owned();
        self.duties += 1;
    }

    /// Lets all calls come back, broken or not, until nothing is owed.
    pub fn settle(&mut self) {
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
        assert_eq!(self.exchange.kept_bytes(), 0, "bodies are kept for nothing");
    }
}
