//! One guarded request, from its first byte to its last duty: a pure state machine.
//!
//! [`Exchange::step`] takes one input and the time, and returns what is to be done, in order.
//! The adapter feeds it one input per host callback and carries the effects out. The exchange
//! does not belong to the stream: when the stream goes away it gets [`Input::StreamGone`] and
//! lives on until [`Exchange::is_over`], because what it owes the store (an answer, a release,
//! the news that an outcome is unknown) does not depend on the client.
//!
//! ```text
//! Receiving ──body end──▶ Claiming ◀──▶ Waiting
//!                            │ claimed
//!                            ▼
//!                         Running ──upstream's head──▶ Capturing ──end──▶ Settling ──▶ Over
//!                            └── not run, unknown, not stored, too large ────▲
//! ```
//!
//! Invariants, each held by one place here:
//! - nothing is forwarded without a `claimed` reply whose lease surely has not run out
//!   (`claiming.rs`);
//! - at most one local reply, and none after the response began (`Exchange::reply`);
//! - an upstream's answer reaches its end only after the store has it, or has failed to take it
//!   (`settling.rs`);
//! - every claim that may have been made ends in complete, release or unknown, or is left to its
//!   lease after [`limits::DUTY_MS_MAX`] of trying.

mod claiming;
pub mod detached;
mod effect;
pub mod evidence;
mod finishing;
mod granting;
mod input;
pub mod limits;
mod observing;
pub mod origin;
mod outcome;
pub mod payloads;
pub mod renewal;
mod reporting;
mod responding;
mod settling;
pub mod store_reply;

use crate::capture::EXPOSE_HEADERS;
use crate::grant::Presented;
use crate::policy::{Mode, Policy};
use crate::problem::{Problem, ProblemKind};
pub use effect::{Call, Cluster, Effect, LocalReply};
use evidence::Evidence;
use fencepost_protocol::claims::{RenewResult, Renewal, UnknownCause};
use fencepost_protocol::{
    ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest, StoreId, StoreKey, StoredAnswer,
};
pub use input::{HeldBody, Input, ResponseHead};
pub use outcome::Outcome;
use std::rc::Rc;
use store_reply::CallReply;

/// Header name and value, as bytes.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The refusal of a body that is over its policy's bound.
pub fn body_too_large(max_body: usize) -> Problem {
    let detail = format!("this route takes request bodies of at most {max_body} bytes");
    Problem::new(ProblemKind::BodyTooLarge, detail)
}

/// What a step may look at and change besides its own exchange.
pub struct World<'a> {
    /// Milliseconds on a clock that never goes back.
    pub now_ms: u64,
    /// The database that this VM has seen first.
    pub pin: &'a mut Option<StoreId>,
    /// `store.timeout` of the configuration.
    pub store_timeout_ms: u32,
    /// Whether this VM has room for the bodies of another detached exchange.
    pub has_room: bool,
}

/// What a guard knows of a request before its body is there.
#[derive(Debug)]
pub struct Claimant {
    /// Entry that the request claims.
    pub key: StoreKey,
    /// Digest of the caller's scope.
    pub scope: ScopeDigest,
    /// Chosen for this exchange; the same in a resend.
    pub token: ClaimToken,
    /// The request's headers, for the fingerprint.
    pub headers: Vec<Pair>,
    /// Headers that the upstream gets: depth and downstream keys.
    pub forward: Vec<(String, String)>,
    /// Client headers that it does not get.
    pub withhold: Vec<String>,
}

/// The identity of a claim: enough to make it, finish it and keep it alive.
#[derive(Debug, Clone)]
struct Claim {
    key: StoreKey,
    scope: ScopeDigest,
    token: ClaimToken,
    scheme: Scheme,
    fingerprint: Fingerprint,
}

/// A granted claim and the state of its lease.
#[derive(Debug)]
struct Held {
    claim: Claim,
    fence: Fence,
    /// When the lease was last known to begin anew.
    renewed_at: u64,
    /// A renewal is on its way.
    renewing: bool,
    /// The store says that this token holds the key no more.
    over: bool,
}

#[derive(Debug)]
enum State {
    /// Headers are held; the body is coming in.
    Receiving { asker: Asker, body: Vec<u8>, since: u64 },
    /// A claim call is on its way.
    Claiming {
        claim: Claim,
        forward: Forward,
        sent_at: u64,
        due_at: u64,
        resend_left: bool,
        wait_until: u64,
        waited: bool,
    },
    /// Another claim is live; ask again at `ask_at`.
    Waiting { claim: Claim, forward: Forward, ask_at: u64, wait_until: u64 },
    /// The request is upstream.
    Running { held: Held, forwarded_at: u64, told_unknown: bool },
    /// The request is upstream, on a call of ours.
    Detached { held: Held, forwarded_at: u64, due_at: u64 },
    /// The upstream's answer is coming in and is held.
    Capturing { held: Held, head: ResponseHead, ttl_ms: u64, body: Vec<u8> },
    /// The upstream's answer is too large to keep and passes; how it ends is yet to be seen.
    Passing { held: Held, status: u16, ttl_ms: u64 },
    /// A grant decides.
    Granting(granting::Granting),
    /// The store is to learn how it ended.
    Settling(settling::Settling),
    /// The request passes, and what would have become of it is found out.
    Observing(observing::Observing),
    /// Nothing is owed any more.
    Over,
}

/// By what a request is decided.
#[derive(Debug)]
enum Asker {
    Key(Claimant),
    Grant(Box<Presented>),
}

/// What the forwarded request will be.
#[derive(Debug, Default)]
struct Forward {
    set: Vec<(String, String)>,
    remove: Vec<String>,
    /// Headers and body, kept where the request is sent on a call of ours.
    detached: Option<(Vec<Pair>, Vec<u8>)>,
}

/// What this exchange itself has sent to the client.
#[derive(Debug)]
enum OwnReply {
    None,
    Problem,
    Replay {
        answer: StoredAnswer,
        left_ms: Option<u64>,
    },
    /// The upstream's answer to a detached call.
    Answer {
        status: u16,
        headers: Vec<Pair>,
        body: Rc<Vec<u8>>,
    },
}

/// One guarded request.
#[derive(Debug)]
pub struct Exchange {
    policy: Rc<Policy>,
    state: State,
    /// The stream is there and can be answered.
    stream_live: bool,
    own_reply: OwnReply,
    /// Another guard is in front of this one.
    nested: bool,
}

impl Exchange {
    /// Starts with a request whose headers passed the guard: they are held, unless the policy
    /// only observes.
    pub fn new(policy: Rc<Policy>, claimant: Claimant, now_ms: u64) -> Self {
        let nested = crate::guard::is_nested(&claimant.headers);
        let state = match policy.mode {
            Mode::Observe => State::Observing(observing::Observing::new(claimant, now_ms)),
            Mode::Enforce | Mode::Off => Self::receiving(Asker::Key(claimant), now_ms),
        };
        Self { policy, state, stream_live: true, own_reply: OwnReply::None, nested }
    }

    /// Starts with a request on a route that admits grants: its headers are held.
    pub fn with_grant(policy: Rc<Policy>, presented: Box<Presented>, now_ms: u64) -> Self {
        let nested = crate::guard::is_nested(&presented.headers);
        let state = Self::receiving(Asker::Grant(presented), now_ms);
        Self { policy, state, stream_live: true, own_reply: OwnReply::None, nested }
    }

    fn receiving(asker: Asker, since: u64) -> State {
        State::Receiving { asker, body: Vec::new(), since }
    }

    /// Whether the request's headers and body are held back: until they are forwarded, and for
    /// good where the request is sent on a call of ours.
    pub fn holds_request(&self) -> bool {
        match &self.state {
            State::Receiving { .. }
            | State::Claiming { .. }
            | State::Waiting { .. }
            | State::Granting(_)
            | State::Detached { .. } => true,
            State::Settling(settling) => settling.holds_request(),
            State::Running { .. }
            | State::Capturing { .. }
            | State::Passing { .. }
            | State::Observing(_)
            | State::Over => false,
        }
    }

    /// Whether the bytes of a request's body are wanted while it passes.
    pub fn observes_request(&self) -> bool {
        matches!(&self.state, State::Observing(observing) if observing.is_receiving())
    }

    /// Whether the response's headers, or its last piece, are held back.
    pub fn holds_response(&self) -> bool {
        match &self.state {
            State::Capturing { .. } => true,
            State::Settling(settling) => settling.holds_response(),
            _ => false,
        }
    }

    /// Whether the bytes of the response's body are wanted, or only its end.
    pub fn wants_response_body(&self) -> bool {
        matches!(self.state, State::Capturing { .. })
    }

    /// Whether [`Input::Tick`] would do something now; cheap, and true a little too often.
    pub fn is_due(&self, now_ms: u64) -> bool {
        match &self.state {
            State::Receiving { since, .. } => since.saturating_add(limits::WITHHELD_BODY_MS_MAX) <= now_ms,
            State::Claiming { due_at, .. } | State::Detached { due_at, .. } => *due_at <= now_ms,
            State::Waiting { ask_at, .. } => *ask_at <= now_ms,
            State::Running { forwarded_at, told_unknown, .. } => {
                !told_unknown && self.silent_until(*forwarded_at) <= now_ms
            }
            State::Granting(granting) => granting.is_due(now_ms),
            State::Settling(settling) => settling.is_due(now_ms),
            State::Observing(observing) => observing.is_due(now_ms),
            State::Capturing { .. } | State::Passing { .. } | State::Over => false,
        }
    }

    fn silent_until(&self, forwarded_at: u64) -> u64 {
        forwarded_at.saturating_add(u64::from(self.policy.max_run_ms)).saturating_add(limits::RUN_GRACE_MS)
    }

    /// Whether the end of the stream would be judged by what the host says of it: only while a request
    /// runs, or its answer is on its way. Asking the host costs several calls.
    pub fn wants_evidence(&self) -> bool {
        matches!(
            self.state,
            State::Running { .. } | State::Capturing { .. } | State::Passing { .. } | State::Observing(_)
        )
    }

    /// Whether this exchange answered by itself: the response on its way is not to be captured.
    pub fn has_replied(&self) -> bool {
        !matches!(self.own_reply, OwnReply::None)
    }

    /// Whether nothing is owed any more and the exchange can be dropped once its stream is gone.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether the stream is still there.
    pub fn is_stream_live(&self) -> bool {
        self.stream_live
    }

    /// Bytes of bodies that this exchange keeps in the VM.
    pub fn kept_bytes(&self) -> usize {
        let detached = |forward: &Forward| forward.detached.as_ref().map_or(0, |(_, body)| body.len());
        match &self.state {
            State::Receiving { body, .. } => body.len(),
            State::Claiming { forward, .. } | State::Waiting { forward, .. } => detached(forward),
            State::Capturing { body, .. } => body.len(),
            State::Granting(granting) => granting.kept_bytes(),
            State::Settling(settling) => settling.kept_bytes(),
            State::Observing(observing) => observing.kept_bytes(),
            State::Running { .. } | State::Detached { .. } | State::Passing { .. } | State::Over => 0,
        }
    }

    /// The body to put in place of our own reply's on its way out: the host may have rewritten it
    /// (Envoy's `local_reply_config`), and a replay is the first answer, with its length.
    pub fn own_reply_body(&self) -> Option<&[u8]> {
        match &self.own_reply {
            OwnReply::Replay { answer, .. } => Some(&answer.body),
            OwnReply::Answer { body, .. } => Some(body),
            OwnReply::None | OwnReply::Problem => None,
        }
    }

    /// The header map to put in place of our own reply's on its way out, where the host's copy
    /// would double stored headers or lose some.
    pub fn own_reply_headers(&self, present: &[Pair]) -> Option<Vec<Pair>> {
        let map = match &self.own_reply {
            OwnReply::Replay { answer, left_ms } => {
                Some(crate::capture::replay_headers(answer, &self.policy.response.markers, present, *left_ms))
            }
            OwnReply::Answer { status, headers, body } => {
                Some(detached::answer_headers(*status, headers, present, body.len()))
            }
            OwnReply::None | OwnReply::Problem => None,
        };
        match self.policy.exposed(map.as_deref().unwrap_or(present)) {
            Some(exposed) => {
                let mut map = map.unwrap_or_else(|| present.to_vec());
                map.retain(|(name, _)| !name.eq_ignore_ascii_case(EXPOSE_HEADERS.as_bytes()));
                map.push((EXPOSE_HEADERS.into(), exposed));
                Some(map)
            }
            None => map,
        }
    }

    /// The claim that has to be renewed now, if any; the caller sends it with others.
    pub fn take_due_renewal(&mut self, now_ms: u64) -> Option<Renewal> {
        let (max_run_ms, claim_ttl_ms) = (u64::from(self.policy.max_run_ms), self.policy.claim_ttl_ms);
        let (held, run_until) = match &mut self.state {
            State::Running { held, forwarded_at, told_unknown: false } => {
                (held, forwarded_at.saturating_add(max_run_ms))
            }
            State::Detached { held, forwarded_at, .. } => (held, forwarded_at.saturating_add(max_run_ms)),
            State::Capturing { held, .. } | State::Passing { held, .. } => (held, now_ms),
            State::Settling(settling) => (settling.held_to_renew()?, now_ms),
            State::Observing(observing) => observing.held_to_renew(max_run_ms)?,
            _ => return None,
        };
        let due = held.renewed_at.saturating_add(u64::from(claim_ttl_ms) / 3) <= now_ms;
        if held.over || held.renewing || !due {
            return None;
        }
        held.renewing = true;
        let run_ms = u32::try_from(run_until.saturating_sub(now_ms)).unwrap_or(u32::MAX);
        Some(Renewal { key: held.claim.key.clone(), token: held.claim.token, claim_ttl_ms, run_ms })
    }

    /// Takes one input and says what is to be done, in order.
    pub fn step(&mut self, input: Input, world: &mut World<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if matches!(self.state, State::Observing(_)) {
            self.observe(input, world, &mut effects);
            return effects;
        }
        match input {
            Input::RequestBody { chunk, end } => self.on_request_body(&chunk, end, world, &mut effects),
            Input::RequestTrailers => self.on_request_body(&[], true, world, &mut effects),
            Input::RequestUnreadable => self.on_request_unreadable(&mut effects),
            Input::StoreReply { call: Call::Claim, reply } => match self.state {
                State::Granting(_) => self.on_admission_reply(&reply, world, &mut effects),
                _ => self.on_claim_reply(&reply, world, &mut effects),
            },
            Input::StoreReply { call: Call::MaySubmit, reply } => {
                self.on_may_submit_reply(&reply, world, &mut effects)
            }
            Input::StoreReply { call: Call::RenewOperation, reply } => {
                self.on_renew_operation_reply(&reply, world)
            }
            Input::StoreReply { call: Call::Duty, reply } => self.on_duty_reply(&reply, world, &mut effects),
            // Sent so that retries are told early; what ends the exchange comes later anyway.
            Input::StoreReply { call: Call::EarlyUnknown, .. } => {}
            Input::ResponseHead(head) => self.on_response_head(head, world, &mut effects),
            Input::ResponseBody { chunk, end } => self.on_response_body(&chunk, end, world, &mut effects),
            Input::ResponseTrailers => self.on_response_body(&[], true, world, &mut effects),
            Input::ResponseUnreadable { end } => self.on_response_unreadable(end, world, &mut effects),
            Input::StreamGone(evidence) => self.on_stream_gone(&evidence, world, &mut effects),
            Input::UpstreamReply(reply) => self.on_upstream_reply(reply, world, &mut effects),
            Input::Renewed(result) => self.on_renewed(result, world.now_ms),
            Input::RenewFailed => self.on_renew_failed(),
            Input::Tick { body } => self.on_tick(body, world, &mut effects),
        }
        effects
    }

    fn on_stream_gone(&mut self, evidence: &Evidence, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        if !self.stream_live {
            return;
        }
        self.stream_live = false;
        match core::mem::replace(&mut self.state, State::Over) {
            State::Receiving { .. } | State::Waiting { .. } => {
                if !self.has_replied() {
                    effects.push(Effect::Result(Outcome::Cancelled));
                }
            }
            // The claim may be granted yet: its reply decides what is owed.
            claiming @ State::Claiming { .. } => {
                if !self.has_replied() {
                    effects.push(Effect::Result(Outcome::Cancelled));
                }
                self.state = claiming;
            }
            State::Running { held, .. } => {
                let cause = match evidence.ending_without_response() {
                    evidence::Ending::Unknown(cause) => cause,
                    evidence::Ending::Answered | evidence::Ending::NotRun => UnknownCause::Other,
                };
                self.settle_unknown(held, cause, world, effects);
            }
            // The call is ours, not the stream's: it goes on.
            detached @ State::Detached { .. } => self.state = detached,
            // The grant may be spent already: what it was spent for is done, and can be asked for.
            granting @ State::Granting(_) => self.state = granting,
            State::Capturing { held, .. } => {
                let cause = match evidence.ending_without_response() {
                    evidence::Ending::Unknown(cause) => cause,
                    evidence::Ending::Answered | evidence::Ending::NotRun => UnknownCause::Reset,
                };
                self.settle_unknown(held, cause, world, effects);
            }
            // The upstream has answered, and its client did not want all of it.
            State::Passing { held, status, ttl_ms } if evidence.is_client_gone() => {
                let duty = self.unkept_duty(&held, status, ttl_ms, effects);
                self.settle(held, duty, settling::Response::Gone, world, effects);
            }
            State::Passing { held, .. } => self.settle_unknown(held, UnknownCause::Reset, world, effects),
            State::Settling(mut settling) => {
                settling.on_stream_gone();
                self.state = State::Settling(settling);
                self.end_if_settled();
            }
            // Has a step of its own.
            observing @ State::Observing(_) => self.state = observing,
            State::Over => {}
        }
    }

    fn on_renewed(&mut self, result: RenewResult, now_ms: u64) {
        if let Some(held) = self.held_mut() {
            held.renewing = false;
            match result {
                RenewResult::Renewed => held.renewed_at = now_ms,
                // Whatever the reason, renewing again won't help. Whether the answer can still
                // be stored is the store's to say, when there is one.
                RenewResult::Refused { .. } => held.over = true,
            }
        }
    }

    fn on_renew_failed(&mut self) {
        if let Some(held) = self.held_mut() {
            held.renewing = false;
        }
    }

    fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.state {
            State::Running { held, .. }
            | State::Detached { held, .. }
            | State::Capturing { held, .. }
            | State::Passing { held, .. } => Some(held),
            State::Settling(settling) => settling.held_mut(),
            State::Observing(observing) => observing.held_mut(),
            State::Receiving { .. }
            | State::Claiming { .. }
            | State::Waiting { .. }
            | State::Granting(_)
            | State::Over => None,
        }
    }

    fn on_tick(&mut self, body: HeldBody, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let now = world.now_ms;
        match &mut self.state {
            State::Receiving { since, .. } => {
                let patience_ms = match body {
                    HeldBody::Coming => return,
                    HeldBody::Withheld => limits::WITHHELD_BODY_MS_MAX,
                    HeldBody::Unsaid => limits::UNSEEN_BODY_MS_MAX,
                };
                if since.saturating_add(patience_ms) <= now {
                    effects.push(Effect::Warn(
                        "no request body came while its headers were held: set \
                         allow_on_headers_stop_iteration: true in the filter's PluginConfig"
                            .into(),
                    ));
                    let problem = Problem::new(ProblemKind::HostOption, "the request's body never came");
                    self.refuse(problem, Outcome::Refused, effects);
                }
            }
            State::Claiming { due_at, .. } => {
                if *due_at <= now {
                    self.on_claim_reply(&CallReply::Broken, world, effects);
                }
            }
            State::Waiting { ask_at, .. } => {
                if *ask_at <= now {
                    self.ask_again(world, effects);
                }
            }
            State::Running { forwarded_at, told_unknown, held } => {
                let max_run_ms = u64::from(self.policy.max_run_ms);
                let silent_until =
                    forwarded_at.saturating_add(max_run_ms).saturating_add(limits::RUN_GRACE_MS);
                if !*told_unknown && silent_until <= now {
                    *told_unknown = true;
                    effects.push(settling::early_unknown(&held.claim, UnknownCause::Timeout, world));
                    effects.push(Effect::Warn(format!(
                        "entry {} ran past max_run without an answer",
                        held.claim.key
                    )));
                }
            }
            State::Detached { due_at, .. } => {
                if *due_at <= now {
                    self.on_upstream_reply(detached::UpstreamReply::Lost, world, effects);
                }
            }
            State::Granting(_) => self.on_granting_tick(world, effects),
            State::Settling(_) => self.on_settling_tick(world, effects),
            State::Capturing { .. } | State::Passing { .. } | State::Observing(_) | State::Over => {}
        }
    }

    /// Ends the exchange before anything was claimed or forwarded.
    fn refuse(&mut self, problem: Problem, outcome: Outcome, effects: &mut Vec<Effect>) {
        self.state = State::Over;
        self.reply_problem(&problem, effects);
        effects.push(Effect::Result(outcome));
    }

    fn reply_problem(&mut self, problem: &Problem, effects: &mut Vec<Effect>) {
        let reply = self.problem(problem);
        self.reply(OwnReply::Problem, reply, effects);
    }

    fn problem(&self, problem: &Problem) -> LocalReply {
        let mut reply = LocalReply::problem(problem, self.policy.errors.as_deref());
        if self.nested {
            reply.headers.push(origin::not_to_be_kept());
        }
        reply
    }

    fn on_request_unreadable(&mut self, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Receiving { .. }) {
            let problem =
                Problem::new(ProblemKind::Stalled, "the proxy could not hand over the request's body");
            self.refuse(problem, Outcome::Refused, effects);
        }
    }

    /// The one place that answers the client: at most once, and only while it is there.
    fn reply(&mut self, own: OwnReply, reply: LocalReply, effects: &mut Vec<Effect>) {
        if self.stream_live && !self.has_replied() {
            self.own_reply = own;
            effects.push(Effect::LocalReply(reply));
        }
    }
}

impl Claim {
    fn new(claimant: &Claimant, scheme: Scheme, fingerprint: Fingerprint) -> Self {
        Self { key: claimant.key.clone(), scope: claimant.scope, token: claimant.token, scheme, fingerprint }
    }
}

#[cfg(test)]
mod granting_tests;
#[cfg(test)]
mod tests;
