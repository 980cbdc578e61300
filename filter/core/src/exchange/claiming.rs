//! From the end of the request's body to the moment it is forwarded, replayed or refused.
//!
//! Race closed here: a `claimed` reply may come late, when the proxy was paused or the network
//! was slow, and the lease may be somebody else's by now. It is acted on only while the time
//! since the call was sent, less the time that the service says it parked us, is inside the
//! lease; the service started the lease no earlier than that.

use super::payloads::Note;
use super::settling::{Duty, Response};
use super::store_reply::{CallReply, StoreFailure, decode};
use super::*;
use crate::capture;
use crate::digest::PartsDigest;
use crate::exchange::limits::{RETRY_AFTER_CONFLICT_MS, RETRY_AFTER_OUTAGE_MS, RETRY_AFTER_UNKNOWN_MS};
use crate::fingerprint::{FingerprintError, RequestParts};
use crate::policy::{Concurrency, Execution};
use fencepost_protocol::claims::{ClaimReply, ClaimRequest, PARK_MS_MAX, ReleaseCause};
use fencepost_protocol::grant_claims::AnswerHead;
use fencepost_protocol::{FRAME_MEDIA_TYPE, PROTOCOL_VERSION, frame, paths};

impl Exchange {
    pub(super) fn on_request_body(
        &mut self,
        chunk: &[u8],
        end: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let State::Receiving { body, .. } = &mut self.state else { return };
        let len = body.len().saturating_add(chunk.len());
        let needs_body = self.policy.fingerprint.needs_body() || self.policy.execution != Execution::Inline;
        if len > self.policy.max_body && needs_body {
            self.refuse(body_too_large(self.policy.max_body), Outcome::Refused, effects);
            return;
        }
        if needs_body && !world.has_room && !chunk.is_empty() {
            // Bodies that come in slowly must not fill the VM, whose end is every stream's.
            self.refuse(too_busy(), Outcome::Refused, effects);
            return;
        }
        if needs_body {
            body.extend_from_slice(chunk);
        }
        if !end {
            return;
        }
        let State::Receiving { asker, body, .. } = core::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        let claimant = match asker {
            Asker::Key(claimant) => claimant,
            Asker::Grant(presented) => return self.ask_for_admission(*presented, body, world, effects),
        };
        match RequestParts::new(&claimant.headers).fingerprint(&self.policy.fingerprint, &body) {
            Ok(fingerprint) => {
                if self.policy.execution != Execution::Inline && !world.has_room {
                    self.refuse(too_busy(), Outcome::Refused, effects);
                    return;
                }
                let claim = Claim::new(&claimant, self.policy.fingerprint.scheme().clone(), fingerprint);
                let detached = match self.policy.execution {
                    Execution::Inline => None,
                    Execution::Detached { .. } => Some((claimant.headers, body)),
                };
                let forward = Forward { set: claimant.forward, remove: claimant.withhold, detached };
                let wait_ms = match self.policy.concurrency {
                    Concurrency::Wait => u64::from(self.policy.wait_ms),
                    Concurrency::Conflict => 0,
                };
                let wait_until = world.now_ms.saturating_add(wait_ms);
                self.note_payload(&claim, effects);
                self.call_claim(claim, forward, true, wait_until, false, world, effects);
            }
            Err(FingerprintError::DuplicateMember) => {
                let detail = "a member name occurs twice in one object, which readers resolve differently";
                self.refuse(Problem::new(ProblemKind::BodyAmbiguous, detail), Outcome::Refused, effects);
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn call_claim(
        &mut self,
        claim: Claim,
        forward: Forward,
        resend_left: bool,
        wait_until: u64,
        waited: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let left = wait_until.saturating_sub(world.now_ms);
        let wait_ms = u32::try_from(left).unwrap_or(u32::MAX).min(PARK_MS_MAX);
        let (call, due_at) = self.claim_call(&claim, wait_ms, world);
        let Some(call) = call else {
            self.refuse(store_unavailable(), Outcome::StoreUnavailable, effects);
            return;
        };
        effects.push(call);
        self.state = State::Claiming {
            claim,
            forward,
            sent_at: world.now_ms,
            due_at,
            resend_left,
            wait_until,
            waited,
        };
    }

    /// The call for a claim, and when its reply is overdue.
    pub(super) fn claim_call(&self, claim: &Claim, wait_ms: u32, world: &World<'_>) -> (Option<Effect>, u64) {
        let request = ClaimRequest {
            v: PROTOCOL_VERSION,
            key: claim.key.clone(),
            token: claim.token,
            scheme: claim.scheme.clone(),
            fingerprint: claim.fingerprint,
            scope: claim.scope,
            claim_ttl_ms: self.policy.claim_ttl_ms,
            max_run_ms: self.policy.max_run_ms,
            on_lost: self.policy.on_lost,
            unknown_ttl_ms: self.policy.response.unknown_ttl_ms,
            wait_ms,
            knows_quota: true,
        };
        let timeout_ms = world.store_timeout_ms.saturating_add(wait_ms);
        let due_at = world.now_ms.saturating_add(u64::from(timeout_ms)).saturating_add(limits::CALL_GRACE_MS);
        // Cannot fail: a claim's head is far below the frame's bound.
        let call = frame::encode(&request, &[]).ok().map(|frame| Effect::CallStore {
            call: Call::Claim,
            cluster: if wait_ms == 0 { Cluster::Decide } else { Cluster::Claim },
            path: paths::CLAIMS.into(),
            media: FRAME_MEDIA_TYPE,
            frame: Rc::new(frame),
            timeout_ms,
        });
        (call, due_at)
    }

    /// Notes the payload, where the policy asks whether it comes under new keys.
    pub(super) fn note_payload(&self, claim: &Claim, effects: &mut Vec<Effect>) {
        let Some(window_ms) = self.policy.same_payload_window_ms else { return };
        let mut digest = PartsDigest::new("fencepost payload 1");
        digest
            .part(1, self.policy.namespace.as_bytes())
            .part(2, claim.scope.as_bytes())
            .part(3, claim.scheme.as_str().as_bytes())
            .part(4, claim.fingerprint.as_bytes());
        let payload = digest.finish_half();
        effects.push(Effect::NotePayload(Note { payload, key: claim.key.clone(), window_ms }));
    }

    pub(super) fn ask_again(&mut self, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        if let State::Waiting { claim, forward, wait_until, .. } =
            core::mem::replace(&mut self.state, State::Over)
        {
            self.call_claim(claim, forward, true, wait_until, true, world, effects);
        }
    }

    pub(super) fn on_claim_reply(
        &mut self,
        reply: &CallReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(self.state, State::Claiming { .. }) {
            return;
        }
        let State::Claiming { claim, forward, sent_at, resend_left, wait_until, waited, .. } =
            core::mem::replace(&mut self.state, State::Over)
        else {
            return;
        };
        let (outcome, payload) = match decode::<ClaimReply>(reply, world.pin) {
            Ok(decoded) => decoded,
            Err(failure) if failure.is_worth_a_resend() && resend_left && self.wants_answer() => {
                self.call_claim(claim, forward, false, wait_until, waited, world, effects);
                return;
            }
            Err(failure) => return self.on_claim_failed(claim, failure, world, effects),
        };
        match outcome {
            ClaimReply::Claimed { fence, parked_ms } => {
                let held = Held { claim, fence, renewed_at: sent_at, renewing: false, over: false };
                self.on_claimed(held, forward, sent_at.saturating_add(u64::from(parked_ms)), world, effects);
            }
            ClaimReply::Completed { status, headers_len, body_len, left_ms, .. } => {
                match stored_answer(AnswerHead { status, headers_len, body_len }, payload) {
                    Some(answer) => self.replay(answer, Some(left_ms), waited, effects),
                    None => self.on_claim_failed(claim, StoreFailure::Nonsense, world, effects),
                }
            }
            ClaimReply::InProgress { parked_ms, .. } => {
                self.on_in_progress(claim, forward, parked_ms, wait_until, world, effects);
            }
            ClaimReply::Mismatch => self.refuse_or_end(key_reused(), Outcome::Mismatch, effects),
            ClaimReply::Unknown { .. } => {
                self.refuse_or_end(outcome_unknown(), Outcome::ToldUnknown, effects);
            }
            ClaimReply::OtherScheme { .. } => self.refuse_or_end(other_scheme(), Outcome::Mismatch, effects),
            // Only a release of ours makes a token dead, and then nobody waits for the claim.
            ClaimReply::Dead => self.refuse_or_end(store_unavailable(), Outcome::StoreUnavailable, effects),
            ClaimReply::OverQuota { retry_after_ms } => {
                self.refuse_or_end(over_quota(retry_after_ms), Outcome::OverQuota, effects);
            }
        }
    }

    pub(super) fn wants_answer(&self) -> bool {
        self.stream_live && !self.has_replied()
    }

    pub(super) fn refuse_or_end(&mut self, problem: Problem, outcome: Outcome, effects: &mut Vec<Effect>) {
        if self.wants_answer() {
            self.refuse(problem, outcome, effects);
        }
    }

    fn on_claimed(
        &mut self,
        held: Held,
        forward: Forward,
        lease_from: u64,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if !self.wants_answer() {
            let duty = Duty::release(&held.claim, ReleaseCause::ClientGone);
            self.settle(held, duty, Response::Gone, world, effects);
            return;
        }
        let age = world.now_ms.saturating_sub(lease_from);
        if age.saturating_add(limits::LEASE_MARGIN_MS) >= u64::from(self.policy.claim_ttl_ms) {
            effects.push(Effect::Warn(format!(
                "claim of entry {} came {age} ms late: given back",
                held.claim.key
            )));
            self.reply_problem(&claim_too_late(), effects);
            effects.push(Effect::Result(Outcome::StoreUnavailable));
            let duty = Duty::release(&held.claim, ReleaseCause::TooLate);
            self.settle(held, duty, Response::Gone, world, effects);
            return;
        }
        let Forward { mut set, remove, detached } = forward;
        set.push(("x-fencepost-fence".into(), held.fence.get().to_string()));
        if let Some((headers, body)) = detached {
            self.call_upstream(held, headers, body, &set, &remove, world, effects);
            return;
        }
        set.push(("x-envoy-upstream-rq-timeout-ms".into(), self.policy.max_run_ms.to_string()));
        if self.policy.retries == crate::policy::Retries::Suppress {
            set.push(("x-envoy-max-retries".into(), "0".into()));
        }
        effects.push(Effect::ForwardRequest { remove, set });
        self.state = State::Running { held, forwarded_at: world.now_ms, told_unknown: false };
    }

    fn on_in_progress(
        &mut self,
        claim: Claim,
        forward: Forward,
        parked_ms: u32,
        wait_until: u64,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if !self.wants_answer() {
            return;
        }
        if wait_until <= world.now_ms {
            self.refuse(in_progress(), Outcome::Conflict, effects);
        } else if parked_ms >= limits::PARK_MS_WORTHWHILE {
            self.call_claim(claim, forward, true, wait_until, true, world, effects);
        } else {
            let ask_at = world.now_ms.saturating_add(limits::REASK_MS);
            self.state = State::Waiting { claim, forward, ask_at, wait_until };
        }
    }

    pub(super) fn replay(
        &mut self,
        answer: StoredAnswer,
        left_ms: Option<u64>,
        waited: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !self.wants_answer() {
            return;
        }
        let answer = capture::replayable(answer, &self.policy.response.markers);
        let reply = LocalReply {
            status: answer.status,
            headers: answer.headers.clone(),
            body: Rc::new(answer.body.clone()),
            details: "fencepost_replayed",
        };
        let own = OwnReply::Replay { answer, left_ms };
        self.reply(own, reply, effects);
        effects.push(Effect::Result(if waited { Outcome::Waited } else { Outcome::Replayed }));
    }

    /// Whether the claim was made is not known: nothing is forwarded, and the token is given
    /// back, even where that overtakes the claim.
    fn on_claim_failed(
        &mut self,
        claim: Claim,
        failure: StoreFailure,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Warn(format!("claim of entry {} failed: {}", claim.key, failure)));
        if self.wants_answer() {
            self.reply_problem(&store_unavailable(), effects);
            effects.push(Effect::Result(Outcome::StoreUnavailable));
        }
        let duty = Duty::release(&claim, ReleaseCause::CallFailed);
        self.settle_unclaimed(duty, world, effects);
    }
}

fn store_unavailable() -> Problem {
    let detail = "nothing was forwarded; try again with the same key";
    Problem::new(ProblemKind::StoreUnavailable, detail).retry_after_ms(RETRY_AFTER_OUTAGE_MS)
}

pub(super) fn too_busy() -> Problem {
    let detail = "too many bodies are held by this proxy; nothing was forwarded, try again with the same key";
    Problem::new(ProblemKind::TooBusy, detail).retry_after_ms(RETRY_AFTER_CONFLICT_MS)
}

fn over_quota(retry_after_ms: u64) -> Problem {
    let detail = "this caller has as many requests as it may have now; nothing was forwarded, try again with the same key";
    Problem::new(ProblemKind::QuotaExceeded, detail).retry_after_ms(retry_after_ms)
}

fn claim_too_late() -> Problem {
    let detail = "the claim came too late to be used, and nothing was forwarded; try again with the same key";
    Problem::new(ProblemKind::ClaimTooLate, detail).retry_after_ms(RETRY_AFTER_OUTAGE_MS)
}

fn in_progress() -> Problem {
    let detail = "try again with the same key to get its answer";
    Problem::new(ProblemKind::InProgress, detail).retry_after_ms(RETRY_AFTER_CONFLICT_MS)
}

fn outcome_unknown() -> Problem {
    let detail = "the request may have been carried out and its answer was lost; it is not run again";
    Problem::new(ProblemKind::OutcomeUnknown, detail).retry_after_ms(RETRY_AFTER_UNKNOWN_MS)
}

fn key_reused() -> Problem {
    Problem::new(ProblemKind::KeyReused, "use a new key for a new request")
}

fn other_scheme() -> Problem {
    let detail = "the route's comparison rules have changed since the key was first used";
    Problem::new(ProblemKind::OtherScheme, detail)
}

/// Reads a replay's payload; a payload that is shorter or longer than its head says is refused.
pub(super) fn stored_answer(head: AnswerHead, payload: &[u8]) -> Option<StoredAnswer> {
    if !(200..=599).contains(&head.status) {
        return None;
    }
    let answer = head.read(payload).ok()?;
    // What was stored by this filter has field names only; a pseudo header would break the reply.
    answer.headers.iter().all(|(name, _)| crate::capture::is_token(name)).then_some(answer)
}
