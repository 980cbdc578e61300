//! What a request is told whose grant was not admitted by it: what became of its operation, or why
//! it was refused. Nothing here executes.

use super::claiming::stored_answer;
use super::limits::{RETRY_AFTER_CONFLICT_MS, RETRY_AFTER_OUTAGE_MS, RETRY_AFTER_UNKNOWN_MS};
use super::store_reply::StoreFailure;
use super::*;
use fencepost_protocol::grant_claims::{AnswerHead, GrantRefusal, Standing};
use fencepost_protocol::grants::{OperationId, OperationStatus};

/// What is told of an operation without a stored answer.
#[derive(serde::Serialize)]
struct Report<'a> {
    operation_id: &'a OperationId,
    status: OperationStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<&'a str>,
}

impl Exchange {
    /// The grant was admitted for this operation before; `operation` is none where the service spoke
    /// of another one.
    pub(super) fn on_before(
        &mut self,
        operation: Option<Standing>,
        answer: Option<AnswerHead>,
        payload: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let stored = answer.map(|head| stored_answer(head, payload));
        let (Some(operation), true) = (operation, !matches!(stored, Some(None))) else {
            return self.on_admission_unclear(StoreFailure::Nonsense, effects);
        };
        if !self.wants_answer() {
            return;
        }
        use OperationStatus::{Admitted, Failed, NeedsReconciliation, Succeeded, Unknown};
        match (operation.status, stored.flatten()) {
            (Succeeded | Failed, Some(answer)) => self.replay(answer, None, false, effects),
            (Succeeded, None) => self.report(&operation, 200, None, Outcome::GrantReported, effects),
            (Failed, None) => {
                let detail = "it was refused for good, or never sent; the grant stays spent";
                let problem = Problem::new(ProblemKind::OperationFailed, detail);
                self.refuse(problem, Outcome::GrantReported, effects);
            }
            (Admitted, _) => {
                self.report(&operation, 202, Some(RETRY_AFTER_CONFLICT_MS), Outcome::GrantPending, effects);
            }
            (Unknown | NeedsReconciliation, _) => {
                self.report(&operation, 202, Some(RETRY_AFTER_UNKNOWN_MS), Outcome::GrantPending, effects);
            }
        }
    }

    fn report(
        &mut self,
        operation: &Standing,
        status: u16,
        retry_after_ms: Option<u64>,
        outcome: Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let report = Report {
            operation_id: &operation.operation_id,
            status: operation.status,
            reference: operation.reference.as_deref(),
        };
        let mut headers: Vec<Pair> = vec![
            (b"content-type".to_vec(), b"application/json".to_vec()),
            (b"cache-control".to_vec(), b"no-store".to_vec()),
        ];
        if self.nested && status == 202 {
            headers.push(origin::not_to_be_kept());
        }
        if let Some(ms) = retry_after_ms {
            headers.push((b"retry-after".to_vec(), ms.div_ceil(1_000).to_string().into_bytes()));
        }
        let address = self.policy.grant.as_ref().and_then(|grant| grant.status_address.as_ref());
        if let Some((before, after)) = address {
            let location = format!("{before}{}{after}", operation.operation_id);
            headers.push((b"location".to_vec(), location.into_bytes()));
        }
        // Cannot fail: plain data.
        let body = Rc::new(serde_json::to_vec(&report).unwrap_or_default());
        let reply = LocalReply { status, headers, body, details: "fencepost_operation" };
        self.reply(OwnReply::Problem, reply, effects);
        effects.push(Effect::Result(outcome));
    }
}

/// The service's word on a grant that was issued before a backup was restored.
const HELD: &str = "held";

/// A refusal, with the service's word on it.
pub(super) fn refused(code: GrantRefusal, reason: Option<String>) -> Problem {
    let (kind, detail) = match code {
        GrantRefusal::NotAvailable | GrantRefusal::Other => {
            (ProblemKind::GrantNotAvailable, "it was used or withdrawn, or the operation is another one")
        }
        GrantRefusal::Expired => (ProblemKind::GrantExpired, "it is past its admission deadline"),
        GrantRefusal::NotValid => (ProblemKind::GrantNotValid, "it was not spent"),
        GrantRefusal::NotCovered => (ProblemKind::GrantNotCovered, "it was not spent"),
    };
    if reason.as_deref() == Some(HELD) {
        return Problem::new(kind, "it is held since a backup was restored, and was not spent (held)");
    }
    // The service's words are its own and short; anything else is left out.
    let word = reason.filter(|word| {
        (1..=64).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_ .-".contains(&b))
    });
    match word {
        Some(word) => Problem::new(kind, format!("{detail} ({word})")),
        None => Problem::new(kind, detail),
    }
}

pub(super) fn admission_unclear() -> Problem {
    let detail =
        "nothing was forwarded; send the same again, with the same operation id, to learn how it stands";
    Problem::new(ProblemKind::StoreUnavailable, detail).retry_after_ms(RETRY_AFTER_OUTAGE_MS)
}

pub(super) fn not_submitted() -> Problem {
    let detail =
        "the request was admitted and certainly not run; its grant stays spent, and a new one is needed";
    Problem::new(ProblemKind::GrantNotSubmitted, detail)
}

/// What a client is told whose request may have run: nothing that could be taken for a failure.
pub(super) fn outcome_lost() -> Problem {
    let detail = "the request may have been carried out; send it again with the same operation id to learn how it ended";
    Problem::new(ProblemKind::UpstreamLost, detail).retry_after_ms(RETRY_AFTER_UNKNOWN_MS)
}
