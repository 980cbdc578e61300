//! From the first byte of a response to the duty that it leads to.

use super::evidence::Ending;
use super::origin::Word;
use super::settling::{Duty, Response};
use super::*;
use crate::capture::{self, StoreDecision};
use crate::policy::{Keep, Oversized};
use fencepost_protocol::claims::ReleaseCause;

impl Exchange {
    pub(super) fn on_response_head(
        &mut self,
        head: ResponseHead,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Running { held, .. } => {
                if let Some(value) = self.policy.exposed(&head.headers) {
                    effects.push(Effect::SetResponse { name: capture::EXPOSE_HEADERS, value });
                }
                self.on_outcome(held, head, world, effects);
            }
            // The proxy answered before anything was forwarded, such as a timeout or a limit of
            // its own: the request is over for the client.
            State::Receiving { .. } | State::Waiting { .. } => {
                self.own_reply = OwnReply::Problem;
                effects.push(Effect::Result(Outcome::Cancelled));
            }
            claiming @ State::Claiming { .. } => {
                self.own_reply = OwnReply::Problem;
                effects.push(Effect::Result(Outcome::Cancelled));
                self.state = claiming;
            }
            // The proxy answered the client while our own call runs: the call goes on.
            going_on @ (State::Detached { .. } | State::Granting(_)) => {
                self.own_reply = OwnReply::Problem;
                self.state = going_on;
            }
            // The same while its answer waits for the store: no second one may follow.
            State::Settling(settling) if settling.holds_request() => {
                self.own_reply = OwnReply::Problem;
                self.state = State::Settling(settling);
            }
            other @ (State::Capturing { .. }
            | State::Passing { .. }
            | State::Settling(_)
            | State::Observing(_)
            | State::Over) => {
                self.state = other;
            }
        }
    }

    fn on_outcome(
        &mut self,
        held: Held,
        head: ResponseHead,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        match head.evidence.ending() {
            Ending::Answered => self.on_answer(held, head, world, effects),
            Ending::NotRun => {
                effects.push(Effect::Result(Outcome::ReleasedNotRun));
                let duty = Duty::release(&held.claim, ReleaseCause::NotRun);
                self.settle(held, duty, Response::streaming(head.end), world, effects);
            }
            Ending::Unknown(cause) => {
                effects.push(Effect::Result(Outcome::Unknown));
                let duty = Duty::unknown(&held.claim, cause);
                let response = Response::proxy_made(head.end);
                self.settle(held, duty, response, world, effects);
            }
        }
    }

    fn on_answer(
        &mut self,
        held: Held,
        head: ResponseHead,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let remove = capture::strip_markers(&self.policy.response.markers, &head.headers);
        if !remove.is_empty() {
            effects.push(Effect::StripResponse { remove });
        }
        let ttl_ms = match self.keep(&held.claim, head.status, &head.headers, effects) {
            Ok(ttl_ms) => ttl_ms,
            Err(duty) => {
                self.settle(held, duty, Response::streaming(head.end), world, effects);
                return;
            }
        };
        if head.end {
            self.complete(held, &head, ttl_ms, &[], world, effects);
        } else if self.is_endless(&head) {
            // It has no end to wait for: its head is the answer.
            let duty = self.unkept_duty(&held, head.status, ttl_ms, effects);
            self.settle(held, duty, Response::streaming(false), world, effects);
        } else if self.policy.response.keep == Keep::Status || self.is_oversized(&head) {
            self.state = State::Passing { held, status: head.status, ttl_ms };
        } else {
            self.state = State::Capturing { held, head, ttl_ms, body: Vec::new() };
        }
    }

    /// Whether an upstream's answer is to be kept, and how long; else what is owed in its place.
    pub(super) fn keep(
        &self,
        claim: &Claim,
        status: u16,
        headers: &[Pair],
        effects: &mut Vec<Effect>,
    ) -> Result<u64, Duty> {
        let decision = capture::store_decision(&self.policy.response, status);
        let (outcome, duty) = match (origin::word(headers), decision) {
            (Word::DoNotStore, _) => {
                (Outcome::ReleasedByOrigin, Duty::release(claim, ReleaseCause::StatusNotStored))
            }
            (Word::NotFinal, _) => (Outcome::Unknown, Duty::unknown(claim, UnknownCause::NotFinal)),
            (_, StoreDecision::Unstorable) => {
                (Outcome::Unknown, Duty::unknown(claim, UnknownCause::AnswerLost))
            }
            (Word::StoreFor { ttl_ms }, _) => return Ok(ttl_ms),
            (Word::None | Word::Unreadable, StoreDecision::Store { ttl_ms }) => return Ok(ttl_ms),
            (Word::None | Word::Unreadable, StoreDecision::Release) => {
                (Outcome::ReleasedNotStored, Duty::release(claim, ReleaseCause::StatusNotStored))
            }
        };
        effects.push(Effect::Result(outcome));
        Err(duty)
    }

    /// Whether the head alone says that the answer can't be kept.
    pub(super) fn is_oversized(&self, head: &ResponseHead) -> bool {
        let max = self.policy.response.max_body as u64;
        let length = value_of(head, b"content-length").and_then(|text| text.trim().parse::<u64>().ok());
        self.is_endless(head) || length.is_some_and(|length| length > max)
    }

    fn is_endless(&self, head: &ResponseHead) -> bool {
        let media_type =
            value_of(head, b"content-type").unwrap_or_default().trim_start().to_ascii_lowercase();
        media_type.starts_with("text/event-stream")
    }

    pub(super) fn on_response_body(
        &mut self,
        chunk: &[u8],
        end: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        match &mut self.state {
            State::Capturing { body, .. } => {
                // A VM that is full keeps no more: what it can't keep, it can't replay.
                let len = body.len().saturating_add(chunk.len());
                let too_large = len > self.policy.response.max_body || !world.has_room;
                if !too_large {
                    body.extend_from_slice(chunk);
                    if !end {
                        return;
                    }
                }
                let State::Capturing { held, head, ttl_ms, body } =
                    core::mem::replace(&mut self.state, State::Over)
                else {
                    return;
                };
                if too_large {
                    self.state = State::Passing { held, status: head.status, ttl_ms };
                    if end {
                        self.on_response_body(&[], true, world, effects);
                    }
                } else {
                    self.complete(held, &head, ttl_ms, &body, world, effects);
                }
            }
            State::Passing { .. } if end => {
                if let State::Passing { held, status, ttl_ms } =
                    core::mem::replace(&mut self.state, State::Over)
                {
                    let duty = self.unkept_duty(&held, status, ttl_ms, effects);
                    self.settle(held, duty, Response::HeldEnd, world, effects);
                }
            }
            State::Settling(settling) if end => {
                if let Some(problem) = settling.on_response_end(self.policy.errors.as_deref(), self.nested) {
                    effects.push(problem);
                }
                self.end_if_settled();
            }
            _ => {}
        }
    }

    pub(super) fn on_response_unreadable(
        &mut self,
        end: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if let State::Capturing { .. } = self.state
            && let State::Capturing { held, .. } = core::mem::replace(&mut self.state, State::Over)
        {
            effects.push(Effect::Result(Outcome::Unknown));
            let duty = Duty::unknown(&held.claim, UnknownCause::AnswerLost);
            self.settle(held, duty, Response::streaming(end), world, effects);
        } else {
            self.on_response_body(&[], end, world, effects);
        }
    }

    fn complete(
        &mut self,
        held: Held,
        head: &ResponseHead,
        ttl_ms: u64,
        body: &[u8],
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let duty = self.complete_duty(&held, head.status, &head.headers, body, ttl_ms);
        self.settle(held, duty, Response::held(), world, effects);
    }

    pub(super) fn complete_duty(
        &self,
        held: &Held,
        status: u16,
        headers: &[Pair],
        body: &[u8],
        ttl_ms: u64,
    ) -> Duty {
        let response = &self.policy.response;
        if response.keep == Keep::Status {
            return self.marker_duty(held, status, ttl_ms, ProblemKind::NotKept, Outcome::Executed);
        }
        let headers = capture::keep_headers(&response.headers, &response.markers, headers);
        Duty::complete(held, status, &headers, body, ttl_ms, Outcome::Executed)
    }

    /// What is owed for an answer that passed by: the policy keeps none, or it was too large.
    pub(super) fn unkept_duty(
        &self,
        held: &Held,
        status: u16,
        ttl_ms: u64,
        effects: &mut Vec<Effect>,
    ) -> Duty {
        let (kind, outcome) = match (self.policy.response.keep, self.policy.response.oversized) {
            (Keep::Status, _) => (ProblemKind::NotKept, Outcome::Executed),
            (Keep::Answer, Oversized::Gone) => (ProblemKind::Oversized, Outcome::Oversized),
            (Keep::Answer, Oversized::Rerun) => {
                effects.push(Effect::Result(Outcome::ReleasedNotStored));
                return Duty::release(&held.claim, ReleaseCause::StatusNotStored);
            }
        };
        self.marker_duty(held, status, ttl_ms, kind, outcome)
    }

    fn marker_duty(
        &self,
        held: &Held,
        status: u16,
        ttl_ms: u64,
        kind: ProblemKind,
        outcome: Outcome,
    ) -> Duty {
        let (markers, template) = (&self.policy.response.markers, self.policy.errors.as_deref());
        let marker = capture::unkept_marker(kind, status, markers, template);
        Duty::complete(held, marker.status, &marker.headers, &marker.body, ttl_ms, outcome)
    }
}

fn value_of<'a>(head: &'a ResponseHead, name: &[u8]) -> Option<&'a str> {
    let found = head.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.and_then(|(_, value)| core::str::from_utf8(value).ok())
}
