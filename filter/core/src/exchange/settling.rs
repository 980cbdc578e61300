//! What is owed to the store at the end, tried until it is done, whoever has left meanwhile.
//!
//! While the store has not confirmed, the end of the response is held, so a client that has its
//! answer can be sure that a retry finds it. A failed first try lets the client have its answer,
//! marked `unstored`; the duty goes on in the background, its claim renewed, until it is done or
//! [`limits::DUTY_MS_MAX`] have passed.

use super::granting::Owned;
use super::store_reply::{CallReply, StoreFailure, decode, decode_json};
use super::*;
use crate::capture::RESULT_HEADER;
use crate::error_template::ErrorTemplate;
use fencepost_protocol::claims::{
    CompleteReply, CompleteRequest, ReleaseCause, ReleaseReply, ReleaseRequest, UnknownReply, UnknownRequest,
};
use fencepost_protocol::grants::RecordReply;
use fencepost_protocol::{FRAME_MEDIA_TYPE, PROTOCOL_VERSION, answer, frame, paths};
use std::borrow::Cow;

/// One call that ends the exchange.
#[derive(Debug)]
pub(super) struct Duty {
    kind: Kind,
    path: Cow<'static, str>,
    frame: Rc<Vec<u8>>,
    /// What the client is told instead, if the store does not confirm at once.
    unconfirmed: Option<LocalReply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Complete(Outcome),
    /// A completion without an answer, of a request that was only observed.
    Observed,
    Release,
    Unknown,
    /// The outcome of an operation that a grant admitted; what it is counted as once it is recorded.
    Finish(Option<Outcome>),
}

/// How far the response is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Response {
    /// Whole, with its headers held: it can still be marked.
    HeldWhole,
    /// Its head has gone on; pieces pass, the last one will be held.
    Streaming,
    /// Its head has gone on; the last piece is held.
    HeldEnd,
    /// Made by the proxy, held from its head on, to be rewritten at its end.
    ProxyMade,
    /// The answer to a detached call, to be sent by local reply; the request is held till then.
    Answer(LocalReply),
    /// Sent, or not to be sent.
    Gone,
}

impl Response {
    pub(super) fn held() -> Self {
        Self::HeldWhole
    }

    /// A response that passes; `end` if its head is all there is, which is then held.
    pub(super) fn streaming(end: bool) -> Self {
        if end { Self::HeldWhole } else { Self::Streaming }
    }

    pub(super) fn proxy_made(end: bool) -> Self {
        if end { Self::HeldWhole } else { Self::ProxyMade }
    }
}

#[derive(Debug)]
pub(super) struct Settling {
    /// The claim to keep alive meanwhile; none where none was granted.
    held: Option<Held>,
    /// The operation to keep alive meanwhile.
    owned: Option<Owned>,
    duty: Duty,
    response: Response,
    began_at: u64,
    /// When to act next: while a call is on its way, when it is overdue.
    next_at: u64,
    in_flight: bool,
    tries: u32,
    done: bool,
}

impl Duty {
    pub(super) fn complete(
        held: &Held,
        status: u16,
        headers: &[Pair],
        body: &[u8],
        ttl_ms: u64,
        outcome: Outcome,
    ) -> Self {
        Self::completion(held, status, headers, body, ttl_ms, Kind::Complete(outcome))
    }

    /// Records that a request was answered, and nothing of its answer but the status.
    pub(super) fn observed(held: &Held, status: u16, ttl_ms: u64) -> Self {
        Self::completion(held, status, &[], &[], ttl_ms, Kind::Observed)
    }

    fn completion(held: &Held, status: u16, headers: &[Pair], body: &[u8], ttl_ms: u64, kind: Kind) -> Self {
        let claim = &held.claim;
        let block = answer::encode_headers(headers);
        let request = CompleteRequest {
            v: PROTOCOL_VERSION,
            key: claim.key.clone(),
            token: claim.token,
            fence: held.fence,
            scheme: claim.scheme.clone(),
            fingerprint: claim.fingerprint,
            scope: claim.scope,
            status,
            headers_len: u32::try_from(block.len()).unwrap_or(u32::MAX),
            body_len: u32::try_from(body.len()).unwrap_or(u32::MAX),
            ttl_ms,
        };
        match frame::encode(&request, &[&block, body]) {
            Ok(frame) => Self::new(kind, paths::COMPLETE, frame),
            // Cannot fail: bodies are bounded far below the frame's payload. If it did, the
            // answer would be lost, and that is what is recorded.
            Err(_) => Self::unknown(claim, UnknownCause::AnswerLost),
        }
    }

    pub(super) fn release(claim: &Claim, cause: ReleaseCause) -> Self {
        let request = ReleaseRequest {
            v: PROTOCOL_VERSION,
            key: claim.key.clone(),
            token: claim.token,
            scheme: claim.scheme.clone(),
            fingerprint: claim.fingerprint,
            scope: claim.scope,
            cause,
        };
        Self::new(Kind::Release, paths::RELEASE, encode(&request))
    }

    pub(super) fn unknown(claim: &Claim, cause: UnknownCause) -> Self {
        let request =
            UnknownRequest { v: PROTOCOL_VERSION, key: claim.key.clone(), token: claim.token, cause };
        Self::new(Kind::Unknown, paths::UNKNOWN, encode(&request))
    }

    /// Records an operation's outcome.
    pub(super) fn finish(path: String, frame: Vec<u8>, counted: Option<Outcome>) -> Self {
        Self::new(Kind::Finish(counted), path, frame)
    }

    /// Has the client told something else for as long as the store has not confirmed: while it has
    /// not, somebody else may record another end.
    pub(super) fn or_else(self, unconfirmed: LocalReply) -> Self {
        Self { unconfirmed: Some(unconfirmed), ..self }
    }

    fn new(kind: Kind, path: impl Into<Cow<'static, str>>, frame: Vec<u8>) -> Self {
        Self { kind, path: path.into(), frame: Rc::new(frame), unconfirmed: None }
    }

    fn call(&self, call: Call, world: &World<'_>) -> Effect {
        Effect::CallStore {
            call,
            cluster: Cluster::Decide,
            path: self.path.clone(),
            media: FRAME_MEDIA_TYPE,
            frame: Rc::clone(&self.frame),
            timeout_ms: world.store_timeout_ms,
        }
    }
}

/// Cannot fail: heads without payload are far below the frame's bound. An empty frame would be
/// refused by the service and the duty given up.
fn encode<T: serde::Serialize>(request: &T) -> Vec<u8> {
    frame::encode(request, &[]).unwrap_or_default()
}

/// An early word that the outcome is unknown, while the answer may still come.
pub(super) fn early_unknown(claim: &Claim, cause: UnknownCause, world: &World<'_>) -> Effect {
    Duty::unknown(claim, cause).call(Call::EarlyUnknown, world)
}

impl Settling {
    pub(super) fn holds_response(&self) -> bool {
        match self.response {
            Response::HeldWhole | Response::HeldEnd | Response::ProxyMade => true,
            Response::Streaming | Response::Answer(_) | Response::Gone => false,
        }
    }

    pub(super) fn holds_request(&self) -> bool {
        matches!(self.response, Response::Answer(_))
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        self.held.as_mut()
    }

    pub(super) fn held_to_renew(&mut self) -> Option<&mut Held> {
        let completes = matches!(self.duty.kind, Kind::Complete(_) | Kind::Observed);
        if self.done || !completes { None } else { self.held.as_mut() }
    }

    pub(super) fn owned_mut(&mut self) -> Option<&mut Owned> {
        self.owned.as_mut()
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let renewal = self.owned.as_ref().is_some_and(|owned| owned.is_due(now_ms));
        !self.done && (renewal || self.next_at <= now_ms)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        let answer = if let Response::Answer(reply) = &self.response { reply.body.len() } else { 0 };
        self.duty.frame.len().saturating_add(answer)
    }

    pub(super) fn on_stream_gone(&mut self) {
        self.response = Response::Gone;
    }

    /// The response has come to its end. A proxy's own answer to an unknown outcome is put into
    /// words that can't be mistaken for a failure.
    pub(super) fn on_response_end(
        &mut self,
        template: Option<&ErrorTemplate>,
        nested: bool,
    ) -> Option<Effect> {
        match self.response {
            Response::Streaming => {
                self.response = if self.done { Response::Gone } else { Response::HeldEnd };
                None
            }
            Response::ProxyMade => {
                self.response = if self.done { Response::Gone } else { Response::HeldWhole };
                Some(rewrite(&upstream_lost(), template, nested))
            }
            Response::HeldWhole | Response::HeldEnd | Response::Answer(_) | Response::Gone => None,
        }
    }

    /// Lets a held response go; one that the proxy made and that has not ended yet goes on being
    /// held until it can be rewritten.
    fn let_go(&mut self, mark: Option<Outcome>, effects: &mut Vec<Effect>) -> Option<LocalReply> {
        match &self.response {
            Response::HeldWhole => {
                if let Some(outcome) = mark {
                    effects.push(Effect::MarkResponse { name: RESULT_HEADER, value: outcome.as_str() });
                }
                effects.push(Effect::ResumeResponse);
                self.response = Response::Gone;
            }
            Response::HeldEnd => {
                effects.push(Effect::ResumeResponse);
                self.response = Response::Gone;
            }
            Response::Answer(_) => {
                if let Response::Answer(mut reply) = core::mem::replace(&mut self.response, Response::Gone) {
                    if let Some(outcome) = mark {
                        reply.headers.push((RESULT_HEADER.into(), outcome.as_str().into()));
                    }
                    return Some(reply);
                }
            }
            Response::Streaming | Response::ProxyMade | Response::Gone => {}
        }
        None
    }
}

/// What a client is told whose request may have run: nothing that could be taken for a failure.
pub(super) fn upstream_lost() -> Problem {
    let detail = "the request may have been carried out; ask again with the same key to learn how it ended";
    Problem::new(ProblemKind::UpstreamLost, detail).retry_after_ms(limits::RETRY_AFTER_UNKNOWN_MS)
}

/// Puts a problem in place of a response whose headers and body are held.
fn rewrite(problem: &Problem, template: Option<&ErrorTemplate>, nested: bool) -> Effect {
    let body = problem.body(template);
    let mut set = vec![(":status".to_owned(), problem.status().to_string())];
    set.push(("content-length".to_owned(), body.len().to_string()));
    let own = nested.then(origin::not_to_be_kept);
    for (name, value) in problem.headers(template).into_iter().chain(own) {
        set.push((String::from_utf8_lossy(&name).into_owned(), String::from_utf8_lossy(&value).into_owned()));
    }
    Effect::RewriteResponse { set, body }
}

impl Exchange {
    /// Begins the duty that ends this exchange.
    pub(super) fn settle(
        &mut self,
        held: Held,
        duty: Duty,
        response: Response,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.begin(Some(held), None, duty, response, world, effects);
    }

    /// Begins the duty that ends an admission.
    pub(super) fn settle_owned(
        &mut self,
        owned: Owned,
        duty: Duty,
        response: Response,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.begin(None, Some(owned), duty, response, world, effects);
    }

    pub(super) fn settle_unclaimed(&mut self, duty: Duty, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        self.begin(None, None, duty, Response::Gone, world, effects);
    }

    pub(super) fn settle_unknown(
        &mut self,
        held: Held,
        cause: UnknownCause,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Result(Outcome::Unknown));
        let duty = Duty::unknown(&held.claim, cause);
        self.begin(Some(held), None, duty, Response::Gone, world, effects);
    }

    fn begin(
        &mut self,
        held: Option<Held>,
        owned: Option<Owned>,
        duty: Duty,
        response: Response,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let mut settling = Settling {
            held,
            owned,
            duty,
            response: if self.stream_live { response } else { Response::Gone },
            began_at: world.now_ms,
            next_at: 0,
            in_flight: false,
            tries: 0,
            done: false,
        };
        if settling.duty.kind == Kind::Unknown
            && let Some(held) = &settling.held
        {
            effects.push(Effect::Warn(format!(
                "entry {}: the outcome of its request is unknown",
                held.claim.key
            )));
        }
        settling.send(world, effects);
        self.state = State::Settling(settling);
    }

    pub(super) fn on_settling_tick(&mut self, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let State::Settling(settling) = &mut self.state else { return };
        if settling.done {
            return;
        }
        if let Some(owned) = &mut settling.owned {
            owned.renew_if_due(world, effects);
        }
        if settling.next_at > world.now_ms {
            return;
        }
        if settling.in_flight {
            self.on_duty_reply(&CallReply::Broken, world, effects);
        } else {
            settling.send(world, effects);
        }
    }

    pub(super) fn on_duty_reply(
        &mut self,
        reply: &CallReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let State::Settling(settling) = &mut self.state else { return };
        if settling.done {
            return;
        }
        settling.in_flight = false;
        let outcome = match settling.duty.kind {
            Kind::Complete(stored) => {
                decode::<CompleteReply>(reply, world.pin).map(|(reply, _)| match reply {
                    CompleteReply::Stored | CompleteReply::AlreadyStored => Some(stored),
                    CompleteReply::Refused { .. } => Some(Outcome::Lost),
                })
            }
            Kind::Observed => decode::<CompleteReply>(reply, world.pin).map(|(reply, _)| match reply {
                CompleteReply::Stored | CompleteReply::AlreadyStored | CompleteReply::Refused { .. } => None,
            }),
            Kind::Release => decode::<ReleaseReply>(reply, world.pin).map(|(reply, _)| match reply {
                // Refused, the token holds nothing either, and the store remembers it as dead.
                ReleaseReply::Released | ReleaseReply::AlreadyReleased | ReleaseReply::Refused { .. } => None,
            }),
            Kind::Unknown => decode::<UnknownReply>(reply, world.pin).map(|(reply, _)| match reply {
                UnknownReply::Marked | UnknownReply::AlreadyMarked | UnknownReply::Refused { .. } => None,
            }),
            Kind::Finish(counted) => match decode_json::<RecordReply>(reply, world.pin) {
                Ok(_) => Ok(counted),
                // Somebody else owns it, or has ended it: what they recorded stays.
                Err(StoreFailure::Refused(409)) => Ok(Some(Outcome::Lost)),
                Err(failure) => Err(failure),
            },
        };
        let answer = match outcome {
            Ok(outcome) => settling.on_done(outcome, effects),
            Err(failure) => settling.on_failed(failure, world, effects),
        };
        if let Some(reply) = answer {
            let own = OwnReply::Answer {
                status: reply.status,
                headers: reply.headers.clone(),
                body: Rc::clone(&reply.body),
            };
            self.reply(own, reply, effects);
        }
        self.end_if_settled();
    }

    pub(super) fn end_if_settled(&mut self) {
        if let State::Settling(settling) = &self.state
            && settling.done
            && !matches!(settling.response, Response::Streaming | Response::ProxyMade)
        {
            self.state = State::Over;
        }
    }
}

impl Settling {
    fn send(&mut self, world: &World<'_>, effects: &mut Vec<Effect>) {
        effects.push(self.duty.call(Call::Duty, world));
        self.in_flight = true;
        self.tries = self.tries.saturating_add(1);
        self.next_at = world
            .now_ms
            .saturating_add(u64::from(world.store_timeout_ms))
            .saturating_add(limits::CALL_GRACE_MS);
    }

    /// Puts what is true without a confirmation in place of an answer that needs one.
    fn take_back(&mut self) -> bool {
        let Some(unconfirmed) = self.duty.unconfirmed.take() else { return false };
        if let Response::Answer(reply) = &mut self.response {
            *reply = unconfirmed;
        }
        true
    }

    fn on_done(&mut self, outcome: Option<Outcome>, effects: &mut Vec<Effect>) -> Option<LocalReply> {
        self.done = true;
        if let Some(outcome) = outcome {
            effects.push(Effect::Result(outcome));
        }
        let lost = outcome.filter(|outcome| *outcome == Outcome::Lost);
        let mark = if lost.is_some() && self.take_back() { None } else { lost };
        self.let_go(mark, effects)
    }

    fn on_failed(
        &mut self,
        failure: StoreFailure,
        world: &World<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<LocalReply> {
        let mut answer = None;
        let age = world.now_ms.saturating_sub(self.began_at);
        let gives_up = failure.is_final() || age >= limits::DUTY_MS_MAX;
        if self.tries == 1 {
            let taken_back = self.take_back();
            let mark = match self.duty.kind {
                Kind::Finish(_) if taken_back => None,
                Kind::Complete(_) | Kind::Finish(Some(_)) => Some(Outcome::Unstored),
                Kind::Observed | Kind::Release | Kind::Unknown | Kind::Finish(None) => None,
            };
            effects.extend(mark.map(Effect::Result));
            if taken_back {
                effects.push(Effect::Result(Outcome::StoreUnavailable));
            }
            let next = if gives_up { "" } else { "; trying on" };
            effects.push(Effect::Warn(format!("{} failed: {failure}{next}", self.duty.path)));
            answer = self.let_go(mark, effects);
        }
        if gives_up {
            effects.push(Effect::Warn(format!("{} given up after {} tries", self.duty.path, self.tries)));
            self.done = true;
            return answer;
        }
        let factor = 1u64 << self.tries.saturating_sub(1).min(16);
        let pause = limits::DUTY_RETRY_MS.start().saturating_mul(factor).min(*limits::DUTY_RETRY_MS.end());
        self.next_at = world.now_ms.saturating_add(pause);
        answer
    }
}
