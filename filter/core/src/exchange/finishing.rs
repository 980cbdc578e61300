//! How a request ended that a grant was spent for, and what is recorded of it.
//!
//! The outcome is the policy's word on the upstream's status; what no word covers is unknown, and
//! never failed. Outcome and answer are recorded together, before the client has the answer.

use super::detached::UpstreamReply;
use super::evidence::Ending;
use super::granting::Owned;
use super::origin::Word;
use super::settling::{Duty, Response};
use super::*;
use crate::capture::{self, RESULT_HEADER};
use crate::policy::{GrantPolicy, Keep, StatusName};
use fencepost_protocol::grant_claims::{AnswerHead, FinishOutcome, FinishRequest, paths};
use fencepost_protocol::grants::OperationStatus;
use fencepost_protocol::{PROTOCOL_VERSION, frame};

/// Reference of an operation whose request was certainly not sent.
const NOT_SUBMITTED: &str = "not_submitted";

/// Reference of an operation whose answer was not kept: too large, or by policy.
const NOT_KEPT: &str = "answer_not_kept";

impl GrantPolicy {
    /// What a status means: a status goes before its class.
    pub fn outcome(&self, status: u16) -> FinishOutcome {
        let lists = [(&self.succeeded, FinishOutcome::Succeeded), (&self.failed, FinishOutcome::Failed)];
        let named = |name: StatusName| {
            lists.iter().find(|(list, _)| list.contains(&name)).map(|(_, outcome)| *outcome)
        };
        let class = StatusName::Class(status / 100);
        named(StatusName::Status(status)).or_else(|| named(class)).unwrap_or(FinishOutcome::Unknown)
    }
}

impl Exchange {
    pub(super) fn on_granted_reply(
        &mut self,
        reply: UpstreamReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(owned) = self.take_running() else { return };
        let (status, headers, body) = match reply {
            UpstreamReply::NotSent => return self.settle_not_submitted(owned, world, effects),
            UpstreamReply::Lost => return self.settle_granted_unknown(owned, world, effects),
            UpstreamReply::Response { status, headers, body } => (status, headers, body),
        };
        match self.ending(&headers) {
            Ending::Answered => self.on_granted_answer(owned, status, &headers, body, world, effects),
            Ending::NotRun => self.settle_not_submitted(owned, world, effects),
            Ending::Unknown(_) => self.settle_granted_unknown(owned, world, effects),
        }
    }

    fn on_granted_answer(
        &mut self,
        owned: Owned,
        status: u16,
        headers: &[Pair],
        body: Vec<u8>,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let word = origin::word(headers);
        let by_status = self.policy.grant.as_ref().map(|grant| grant.outcome(status));
        let outcome = match word {
            Word::NotFinal => FinishOutcome::Unknown,
            Word::None | Word::Unreadable | Word::DoNotStore | Word::StoreFor { .. } => {
                by_status.unwrap_or(FinishOutcome::Unknown)
            }
        };
        let counted = match outcome {
            FinishOutcome::Succeeded => Some(Outcome::GrantSucceeded),
            FinishOutcome::Failed => Some(Outcome::GrantFailed),
            FinishOutcome::Unknown => None,
        };
        let response = &self.policy.response;
        let kept =
            response.keep == Keep::Answer && body.len() <= response.max_body && word != Word::DoNotStore;
        let answer = (counted.is_some() && kept).then(|| StoredAnswer {
            status,
            headers: capture::keep_headers(&response.headers, &response.markers, headers),
            body: body.clone(),
        });
        let reference = (counted.is_some() && !kept).then_some(NOT_KEPT);
        let duty = finish(&owned, outcome, reference, answer.as_ref(), counted);
        let mut reply = self.upstream_answer(status, headers, body);
        if counted.is_none() {
            effects.push(Effect::Result(Outcome::Unknown));
            reply.headers.push((RESULT_HEADER.into(), Outcome::Unknown.as_str().into()));
        }
        self.settle_owned(owned, duty, Response::Answer(reply), world, effects);
    }

    fn settle_granted_unknown(&mut self, owned: Owned, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        effects.push(Effect::Result(Outcome::Unknown));
        effects.push(Effect::Warn(format!("operation {}: its outcome is unknown", owned.operation)));
        let duty = finish(&owned, FinishOutcome::Unknown, None, None, None);
        let reply = self.problem(&reporting::outcome_lost());
        self.settle_owned(owned, duty, Response::Answer(reply), world, effects);
    }

    /// Records that nothing was sent: only for an exchange that has called nobody, or whose call has
    /// certainly not reached the upstream.
    pub(super) fn settle_not_submitted(
        &mut self,
        owned: Owned,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let counted = Some(Outcome::GrantNotSubmitted);
        let duty = finish(&owned, FinishOutcome::Failed, Some(NOT_SUBMITTED), None, counted);
        // Until that is recorded the operation is anybody's to recover, and may run after all.
        let duty = duty.or_else(self.problem(&reporting::admission_unclear()));
        let reply = self.problem(&reporting::not_submitted());
        self.settle_owned(owned, duty, Response::Answer(reply), world, effects);
    }
}

fn finish(
    owned: &Owned,
    outcome: FinishOutcome,
    reference: Option<&str>,
    answer: Option<&StoredAnswer>,
    counted: Option<Outcome>,
) -> Duty {
    let (head, block) = answer.map(AnswerHead::of).unzip();
    let request = FinishRequest {
        v: PROTOCOL_VERSION,
        owner_version: owned.owner_version,
        expected_status: OperationStatus::Admitted,
        outcome,
        reference: reference.map(str::to_owned),
        answer: head,
    };
    let block = block.unwrap_or_default();
    let body = answer.map_or(&[][..], |answer| &answer.body);
    // Cannot fail: bodies are bounded far below the frame's payload. An empty frame would be refused
    // by the service and the duty given up, which leaves the operation to its lease.
    let frame = frame::encode(&request, &[&block, body]).unwrap_or_default();
    Duty::finish(owned.path(paths::FINISH), frame, counted)
}
