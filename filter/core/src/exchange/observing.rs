//! `mode: observe`: the request passes untouched and at once, and the same questions are put to the
//! store on the side, under keys of their own, so that turning to `enforce` starts clean.
//!
//! Nothing here holds, answers or changes the stream, whatever fails. What the store says is counted
//! as what would have been done. The end of the request is recorded as in earnest, but without the
//! answer's headers and body. The claim's reply and the upstream's answer come in either order.

use super::evidence::Ending;
use super::settling::{Duty, Response};
use super::store_reply::decode;
use super::*;
use crate::fingerprint::{FingerprintError, RequestParts};
use fencepost_protocol::claims::{ClaimReply, ReleaseCause};

#[derive(Debug)]
pub(super) struct Observing {
    asking: Asking,
    answer: Answer,
    since: u64,
}

/// How far the question to the store is.
#[derive(Debug)]
enum Asking {
    /// The body passes, and a copy of it is kept.
    Receiving { claimant: Claimant, body: Vec<u8> },
    /// The claim is on its way.
    Claiming { claim: Claim, due_at: u64 },
    /// This request is the first with its key.
    Held(Held),
}

/// How far the upstream's answer is.
#[derive(Debug)]
enum Answer {
    /// Nothing has come.
    None,
    /// It has begun.
    Begun { status: u16, headers: Vec<Pair> },
    /// It came to its end.
    Whole { status: u16, headers: Vec<Pair> },
    /// There is none of the upstream's own.
    Without(Ending),
}

impl Observing {
    pub(super) fn new(claimant: Claimant, now_ms: u64) -> Self {
        let asking = Asking::Receiving { claimant, body: Vec::new() };
        Self { asking, answer: Answer::None, since: now_ms }
    }

    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.asking, Asking::Receiving { .. })
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        matches!(self.asking, Asking::Claiming { due_at, .. } if due_at <= now_ms)
    }

    pub(super) fn kept_bytes(&self) -> usize {
        if let Asking::Receiving { body, .. } = &self.asking { body.len() } else { 0 }
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        if let Asking::Held(held) = &mut self.asking { Some(held) } else { None }
    }

    /// The claim, and until when its upstream may run.
    pub(super) fn held_to_renew(&mut self, max_run_ms: u64) -> Option<(&mut Held, u64)> {
        let run_until = self.since.saturating_add(max_run_ms);
        self.held_mut().map(|held| (held, run_until))
    }

    fn on_response_head(&mut self, head: ResponseHead, is_whole: bool) {
        let ResponseHead { status, headers, evidence, .. } = head;
        self.answer = match evidence.ending() {
            Ending::Answered if is_whole => Answer::Whole { status, headers },
            Ending::Answered => Answer::Begun { status, headers },
            ending @ (Ending::NotRun | Ending::Unknown(_)) => Answer::Without(ending),
        };
    }

    fn on_response_end(&mut self) {
        self.answer = match core::mem::replace(&mut self.answer, Answer::None) {
            Answer::Begun { status, headers } => Answer::Whole { status, headers },
            other => other,
        };
    }

    fn on_stream_gone(&mut self, evidence: &Evidence) {
        if matches!(self.answer, Answer::None | Answer::Begun { .. }) {
            self.answer = Answer::Without(evidence.ending_without_response());
        }
    }
}

impl Exchange {
    pub(super) fn observe(&mut self, input: Input, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let is_endless = matches!(&input, Input::ResponseHead(head) if self.is_oversized(head));
        let State::Observing(observing) = &mut self.state else { return };
        match input {
            Input::RequestBody { chunk, end } => self.on_observed_body(&chunk, end, world, effects),
            Input::RequestTrailers => self.on_observed_body(&[], true, world, effects),
            Input::RequestUnreadable => {
                effects.push(Effect::Result(Outcome::WouldRefuseUnreadable));
                self.state = State::Over;
            }
            Input::StoreReply { call: Call::Claim, reply } => self.on_observed_claim(&reply, world, effects),
            Input::StoreReply { .. } | Input::UpstreamReply(_) => {}
            Input::ResponseHead(head) => {
                let is_whole = head.end || is_endless;
                observing.on_response_head(head, is_whole);
            }
            Input::ResponseBody { end, .. } | Input::ResponseUnreadable { end } => {
                if end {
                    observing.on_response_end();
                }
            }
            Input::ResponseTrailers => observing.on_response_end(),
            Input::StreamGone(evidence) => {
                observing.on_stream_gone(&evidence);
                self.stream_live = false;
            }
            Input::Renewed(result) => self.on_renewed(result, world.now_ms),
            Input::RenewFailed => self.on_renew_failed(),
            Input::Tick { .. } => {
                if observing.is_due(world.now_ms) {
                    self.on_observed_claim(&CallReply::Broken, world, effects);
                }
            }
        }
        self.conclude_observed(world, effects);
    }

    fn on_observed_body(
        &mut self,
        chunk: &[u8],
        end: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let State::Observing(Observing { asking, .. }) = &mut self.state else { return };
        let Asking::Receiving { claimant, body } = asking else { return };
        if self.policy.fingerprint.needs_body() {
            if body.len().saturating_add(chunk.len()) > self.policy.max_body {
                effects.push(Effect::Result(Outcome::WouldRefuseBodyTooLarge));
                self.state = State::Over;
                return;
            }
            if !world.has_room && !chunk.is_empty() {
                // A full VM would have refused it; copying on would end every stream of this worker.
                effects.push(Effect::Result(Outcome::would_refuse(ProblemKind::TooBusy)));
                self.state = State::Over;
                return;
            }
            body.extend_from_slice(chunk);
        }
        if !end {
            return;
        }
        let fingerprint =
            match RequestParts::new(&claimant.headers).fingerprint(&self.policy.fingerprint, body) {
                Ok(fingerprint) => fingerprint,
                Err(FingerprintError::DuplicateMember) => {
                    effects.push(Effect::Result(Outcome::WouldRefuseBodyAmbiguous));
                    self.state = State::Over;
                    return;
                }
            };
        let claim = Claim::new(claimant, self.policy.fingerprint.scheme().clone(), fingerprint);
        let (call, due_at) = self.claim_call(&claim, 0, world);
        self.note_payload(&claim, effects);
        effects.extend(call);
        if let State::Observing(observing) = &mut self.state {
            observing.asking = Asking::Claiming { claim, due_at };
        }
    }

    fn on_observed_claim(&mut self, reply: &CallReply, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let State::Observing(observing) = &mut self.state else { return };
        let Asking::Claiming { claim, .. } = &observing.asking else { return };
        let outcome = match decode::<ClaimReply>(reply, world.pin) {
            Ok((ClaimReply::Claimed { fence, .. }, _)) => {
                let claim = claim.clone();
                let held = Held { claim, fence, renewed_at: world.now_ms, renewing: false, over: false };
                observing.asking = Asking::Held(held);
                effects.push(Effect::Result(Outcome::WouldExecute));
                return;
            }
            Ok((ClaimReply::Completed { .. }, _)) => Outcome::WouldReplay,
            Ok((ClaimReply::InProgress { .. }, _)) => Outcome::WouldConflict,
            Ok((ClaimReply::Mismatch | ClaimReply::OtherScheme { .. }, _)) => Outcome::WouldMismatch,
            Ok((ClaimReply::Unknown { .. }, _)) => Outcome::WouldUnknown,
            Ok((ClaimReply::Dead, _)) => Outcome::WouldStoreUnavailable,
            Ok((ClaimReply::OverQuota { .. }, _)) => Outcome::WouldOverQuota,
            Err(failure) => {
                effects.push(Effect::Warn(format!("claim of entry {} failed: {}", claim.key, failure)));
                effects.push(Effect::Result(Outcome::WouldStoreUnavailable));
                // It may have been made, and would stand in the way of the next one.
                let duty = Duty::release(claim, ReleaseCause::CallFailed);
                self.settle_unclaimed(duty, world, effects);
                return;
            }
        };
        effects.push(Effect::Result(outcome));
        self.state = State::Over;
    }

    /// Records the end once both are known: that this request holds the key, and how it ended.
    fn conclude_observed(&mut self, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let State::Observing(observing) = &self.state else { return };
        let ended = matches!(observing.answer, Answer::Whole { .. } | Answer::Without(_));
        let gone_early = observing.is_receiving() && !self.stream_live;
        if gone_early {
            self.state = State::Over;
        }
        if !ended || !matches!(self.state, State::Observing(Observing { asking: Asking::Held(_), .. })) {
            return;
        }
        let State::Observing(Observing { asking: Asking::Held(held), answer, .. }) =
            core::mem::replace(&mut self.state, State::Over)
        else {
            return;
        };
        let duty = match answer {
            Answer::Whole { status, headers } => {
                // What is not kept is no result here: the request was told apart before.
                match self.keep(&held.claim, status, &headers, &mut Vec::new()) {
                    Ok(ttl_ms) => Duty::observed(&held, status, ttl_ms),
                    Err(duty) => duty,
                }
            }
            Answer::Without(Ending::NotRun) => Duty::release(&held.claim, ReleaseCause::NotRun),
            Answer::Without(Ending::Unknown(cause)) => Duty::unknown(&held.claim, cause),
            Answer::Without(Ending::Answered) | Answer::Begun { .. } | Answer::None => {
                Duty::unknown(&held.claim, UnknownCause::Other)
            }
        };
        self.settle(held, duty, Response::Gone, world, effects);
    }
}
