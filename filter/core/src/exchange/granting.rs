//! From a grant that was presented to the request that it was spent for.
//!
//! ```text
//! Asking ──admitted──▶ Submitting ──may submit──▶ Running ──▶ Settling ──▶ Over
//!    └── before, refused, unclear: answered, nothing runs
//!                          └── may not: the grant stays spent, the operation has failed
//! ```
//!
//! Invariants, with the races that they close:
//! - The upstream is called only by an exchange that was itself told `admitted` and then that it may
//!   submit, and only while the time since either was asked is inside what was granted. A reply that
//!   was lost is never asked for again: the next request of the operation is told its status.
//! - Every admission ends in a `finish`: with the outcome, with `unknown`, or with "not submitted",
//!   which only an exchange that has called nobody says.
//! - A client that leaves changes nothing: its grant is spent, so its request runs and its answer is
//!   kept for the retry.

use super::store_reply::{CallReply, StoreFailure, decode, decode_json};
use super::*;
use crate::grant::{Bound, Presented};
use crate::guard::FENCE_HEADER;
use fencepost_protocol::grant_claims::{GrantClaimReply, GrantClaimRequest, Standing, paths as grant_paths};
use fencepost_protocol::grants::{
    LeaseKind, MaySubmitReply, MaySubmitRequest, OperationId, OperationStatus, OwnedReply,
    RenewOperationRequest, paths,
};
use fencepost_protocol::{FRAME_MEDIA_TYPE, frame};

/// Media type of the calls on operations that have no payload.
const JSON: &str = "application/json";

/// What is sent once the service has agreed.
#[derive(Debug)]
pub(super) struct Submission {
    headers: Vec<Pair>,
    body: Vec<u8>,
    forward: Vec<(String, String)>,
    withhold: Vec<String>,
}

/// How far a presented grant is.
#[derive(Debug)]
pub(super) enum Granting {
    /// The service is asked to admit it.
    Asking { operation: OperationId, submission: Submission, sent_at: u64, due_at: u64 },
    /// It is spent, and the service is asked whether the request may be sent now.
    Submitting {
        owned: Owned,
        submission: Submission,
        sent_at: u64,
        due_at: u64,
        /// When what the admission granted ends.
        until: u64,
        resend_left: bool,
    },
    /// The request is upstream, on a call of ours.
    Running { owned: Owned, due_at: u64 },
}

/// An operation that this exchange owns.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) operation: OperationId,
    pub(super) owner_version: i32,
    lease_ms: u64,
    renew_at: u64,
    /// The service says that it is somebody else's, or ended.
    over: bool,
}

impl Owned {
    pub(super) fn path(&self, verb: &str) -> String {
        format!("{}/{}/{verb}", paths::OPERATIONS, self.operation)
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        !self.over && self.renew_at <= now_ms
    }

    /// Asks for a new lease. The next try comes in any case, whatever becomes of this one.
    pub(super) fn renew_if_due(&mut self, world: &World<'_>, effects: &mut Vec<Effect>) {
        if self.is_due(world.now_ms) {
            self.renew_at = world.now_ms.saturating_add(self.pause_ms());
            let request =
                RenewOperationRequest { owner_version: self.owner_version, lease: LeaseKind::Execution };
            effects.push(self.call(Call::RenewOperation, "renew", &request, world));
        }
    }

    fn pause_ms(&self) -> u64 {
        (self.lease_ms / limits::RENEWALS_PER_LEASE).max(limits::LEASE_MARGIN_MS)
    }

    fn call<T: serde::Serialize>(&self, call: Call, verb: &str, request: &T, world: &World<'_>) -> Effect {
        Effect::CallStore {
            call,
            cluster: Cluster::Decide,
            path: self.path(verb).into(),
            media: JSON,
            // Cannot fail: plain data.
            frame: Rc::new(serde_json::to_vec(request).unwrap_or_default()),
            timeout_ms: world.store_timeout_ms,
        }
    }
}

impl Granting {
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        match self {
            Self::Asking { due_at, .. } | Self::Submitting { due_at, .. } => *due_at <= now_ms,
            Self::Running { owned, due_at } => *due_at <= now_ms || owned.is_due(now_ms),
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        match self {
            Self::Asking { submission, .. } | Self::Submitting { submission, .. } => submission.body.len(),
            Self::Running { .. } => 0,
        }
    }
}

/// When a call that is sent now is overdue.
fn overdue_at(world: &World<'_>) -> u64 {
    world.now_ms.saturating_add(u64::from(world.store_timeout_ms)).saturating_add(limits::CALL_GRACE_MS)
}

/// Whether what was granted for `ms` to a call sent at `from` is surely still ours.
fn is_ours(from: u64, ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(from).saturating_add(limits::LEASE_MARGIN_MS) < ms
}

impl Exchange {
    /// The request is whole: asks for its admission.
    pub(super) fn ask_for_admission(
        &mut self,
        presented: Presented,
        body: Vec<u8>,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(grant) = &self.policy.grant else { return };
        let Bound { request, headers, forward, withhold } = match presented.bind(&self.policy, grant, &body) {
            Ok(bound) => bound,
            Err(problem) => return self.refuse(problem, Outcome::Refused, effects),
        };
        if !world.has_room {
            return self.refuse(claiming::too_busy(), Outcome::Refused, effects);
        }
        let Ok(frame) = frame::encode::<GrantClaimRequest>(&request, &[]) else {
            // Details of usual size are far below the frame's bound.
            let problem = Problem::new(ProblemKind::GrantDetailMissing, "the details are too long");
            return self.refuse(problem, Outcome::Refused, effects);
        };
        effects.push(Effect::CallStore {
            call: Call::Claim,
            cluster: Cluster::Decide,
            path: grant_paths::CLAIM.into(),
            media: FRAME_MEDIA_TYPE,
            frame: Rc::new(frame),
            timeout_ms: world.store_timeout_ms,
        });
        self.state = State::Granting(Granting::Asking {
            operation: request.operation_id,
            submission: Submission { headers, body, forward, withhold },
            sent_at: world.now_ms,
            due_at: overdue_at(world),
        });
    }

    pub(super) fn on_admission_reply(
        &mut self,
        reply: &CallReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let (operation, submission, sent_at) = match core::mem::replace(&mut self.state, State::Over) {
            State::Granting(Granting::Asking { operation, submission, sent_at, .. }) => {
                (operation, submission, sent_at)
            }
            other => {
                self.state = other;
                return;
            }
        };
        match decode::<GrantClaimReply<Standing>>(reply, world.pin) {
            Ok((GrantClaimReply::Admitted { owner_version, lease_left_ms, submit_left_ms }, _)) => {
                let mut owned =
                    Owned { operation, owner_version, lease_ms: lease_left_ms, renew_at: 0, over: false };
                owned.renew_at = sent_at.saturating_add(owned.pause_ms());
                let until = sent_at.saturating_add(lease_left_ms.min(submit_left_ms));
                self.ask_to_submit(owned, submission, until, true, world, effects);
            }
            Ok((GrantClaimReply::Before { operation: found, answer }, payload)) => {
                let is_asked = found.operation_id == operation;
                self.on_before(is_asked.then_some(*found), answer, payload, effects);
            }
            Ok((GrantClaimReply::Refused { code, reason }, _)) => {
                self.refuse_or_end(reporting::refused(code, reason), Outcome::GrantRefused, effects);
            }
            Err(failure) => self.on_admission_unclear(failure, effects),
        }
    }

    /// Whether the grant was admitted is not known, so nothing runs. Asking again would not make it
    /// ours either.
    pub(super) fn on_admission_unclear(&mut self, failure: StoreFailure, effects: &mut Vec<Effect>) {
        effects.push(Effect::Warn(format!("admission of a grant failed: {failure}")));
        self.refuse_or_end(reporting::admission_unclear(), Outcome::StoreUnavailable, effects);
    }

    fn ask_to_submit(
        &mut self,
        owned: Owned,
        submission: Submission,
        until: u64,
        resend_left: bool,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        if !is_ours(world.now_ms, until.saturating_sub(world.now_ms), world.now_ms) {
            return self.not_submitted(owned, "the admission came too late", world, effects);
        }
        let request = MaySubmitRequest {
            owner_version: owned.owner_version,
            expected_status: OperationStatus::Admitted,
        };
        effects.push(owned.call(Call::MaySubmit, "may-submit", &request, world));
        let (sent_at, due_at) = (world.now_ms, overdue_at(world));
        self.state =
            State::Granting(Granting::Submitting { owned, submission, sent_at, due_at, until, resend_left });
    }

    pub(super) fn on_may_submit_reply(
        &mut self,
        reply: &CallReply,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let (owned, submission, sent_at, until, resend_left) =
            match core::mem::replace(&mut self.state, State::Over) {
                State::Granting(Granting::Submitting {
                    owned,
                    submission,
                    sent_at,
                    until,
                    resend_left,
                    ..
                }) => (owned, submission, sent_at, until, resend_left),
                other => {
                    self.state = other;
                    return;
                }
            };
        match decode_json::<MaySubmitReply>(reply, world.pin) {
            Ok(MaySubmitReply { left_ms }) if is_ours(sent_at, left_ms, world.now_ms) => {
                self.submit(owned, submission, world, effects);
            }
            Ok(_) => self.not_submitted(owned, "the answer to may-submit came too late", world, effects),
            // It is a question: asked twice, it means the same.
            Err(failure) if failure.is_worth_a_resend() && resend_left => {
                self.ask_to_submit(owned, submission, until, false, world, effects);
            }
            Err(failure) => self.not_submitted(owned, &failure.to_string(), world, effects),
        }
    }

    fn submit(
        &mut self,
        owned: Owned,
        submission: Submission,
        world: &mut World<'_>,
        effects: &mut Vec<Effect>,
    ) {
        let Submission { headers, body, mut forward, withhold } = submission;
        forward.push((FENCE_HEADER.to_owned(), owned.owner_version.to_string()));
        match self.send_upstream(headers, body, &forward, &withhold, world, effects) {
            Some(due_at) => self.state = State::Granting(Granting::Running { owned, due_at }),
            // Cannot happen: a policy with a grant is detached.
            None => self.not_submitted(owned, "no way to the upstream", world, effects),
        }
    }

    pub(super) fn on_granting_tick(&mut self, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        let State::Granting(granting) = &mut self.state else { return };
        let overdue = match granting {
            Granting::Asking { due_at, .. } | Granting::Submitting { due_at, .. } => *due_at <= world.now_ms,
            Granting::Running { owned, due_at } => {
                owned.renew_if_due(world, effects);
                *due_at <= world.now_ms
            }
        };
        if !overdue {
            return;
        }
        match granting {
            Granting::Asking { .. } => self.on_admission_reply(&CallReply::Broken, world, effects),
            Granting::Submitting { .. } => self.on_may_submit_reply(&CallReply::Broken, world, effects),
            Granting::Running { .. } => self.on_granted_reply(detached::UpstreamReply::Lost, world, effects),
        }
    }

    pub(super) fn on_renew_operation_reply(&mut self, reply: &CallReply, world: &mut World<'_>) {
        let owned = match &mut self.state {
            State::Granting(Granting::Running { owned, .. }) => Some(owned),
            State::Settling(settling) => settling.owned_mut(),
            _ => None,
        };
        let Some(owned) = owned else { return };
        match decode_json::<OwnedReply>(reply, world.pin) {
            Ok(OwnedReply { lease_left_ms, .. }) => owned.lease_ms = lease_left_ms,
            // Whether the outcome can still be recorded is the service's to say, when there is one.
            Err(StoreFailure::Refused(404 | 409)) => owned.over = true,
            Err(_) => {}
        }
    }

    /// The operation of a call that has come back, if there is one.
    pub(super) fn take_running(&mut self) -> Option<Owned> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Granting(Granting::Running { owned, .. }) => Some(owned),
            other => {
                self.state = other;
                None
            }
        }
    }

    fn not_submitted(&mut self, owned: Owned, why: &str, world: &mut World<'_>, effects: &mut Vec<Effect>) {
        effects.push(Effect::Warn(format!("operation {}: its request was not sent: {why}", owned.operation)));
        self.settle_not_submitted(owned, world, effects);
    }
}
