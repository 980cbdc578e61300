//! Operations: who owns them, what an owner may do, and why a call did not apply.
//!
//! The store applies a call in one conditional step, by status, owner version and its own clock; the
//! reason of a refusal is read from the row right after.

use super::admission::Admission;
use super::duration::Span;
use super::timing::ExecutionTimings;
use super::token::GrantKey;
use bytes::Bytes;
use core::fmt;
use fencepost_protocol::grants::{LeaseKind, OperationId, OperationRefusal, OperationStatus};

/// Owner version that an admission writes.
pub const FIRST_OWNER: i32 = 1;

/// Ownership of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Version of the owner.
    pub owner_version: i32,
    /// What is left of the lease, in milliseconds.
    pub lease_left_ms: u64,
    /// What is left of the time to send, in milliseconds.
    pub submit_left_ms: u64,
}

/// An operation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRow {
    /// Which.
    pub operation: OperationId,
    /// The grant that it was admitted by.
    pub key: GrantKey,
    /// Namespace of its caller's id.
    pub caller_namespace: String,
    /// Its caller.
    pub caller_id: String,
    /// Its tenant.
    pub tenant: String,
    /// Digest of its details.
    pub details_digest: [u8; 32],
    /// Its details as JSON.
    pub details: String,
    /// Where it stands.
    pub status: OperationStatus,
    /// Recorded with the outcome.
    pub reference: Option<String>,
    /// Version and what is left.
    pub owned: Owned,
}

impl OperationRow {
    /// Is it the operation that this admission asks for? Id, caller with namespace, tenant and
    /// details all have to be the same.
    pub fn is_of(&self, admission: &Admission) -> bool {
        self.operation == admission.operation
            && self.key == admission.key
            && self.caller_namespace == admission.caller_namespace
            && self.caller_id == admission.caller_id
            && self.tenant == admission.tenant
            && self.details_digest == admission.details_digest
    }
}

/// Words of a status in a column.
pub fn status_word(status: OperationStatus) -> &'static str {
    match status {
        OperationStatus::Admitted => "admitted",
        OperationStatus::Succeeded => "succeeded",
        OperationStatus::Failed => "failed",
        OperationStatus::Unknown => "unknown",
        OperationStatus::NeedsReconciliation => "needs_reconciliation",
    }
}

/// Reads it back.
pub fn read_status(word: &str) -> Option<OperationStatus> {
    match word {
        "admitted" => Some(OperationStatus::Admitted),
        "succeeded" => Some(OperationStatus::Succeeded),
        "failed" => Some(OperationStatus::Failed),
        "unknown" => Some(OperationStatus::Unknown),
        "needs_reconciliation" => Some(OperationStatus::NeedsReconciliation),
        _ => None,
    }
}

/// The answer of an operation's run, as it was stored with the outcome.
#[derive(Clone, PartialEq, Eq)]
pub struct OperationAnswer {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// The protocol's header block.
    pub headers: Bytes,
    /// Body.
    pub body: Bytes,
}

impl fmt::Debug for OperationAnswer {
    /// Sizes only: an answer may hold a card number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationAnswer({}, {} + {} bytes)", self.status, self.headers.len(), self.body.len())
    }
}

/// A call by an operation's owner.
#[derive(Clone, Debug)]
pub enum OwnerCall {
    /// May anything be sent now?
    MaySubmit {
        /// Expected status.
        expected: OperationStatus,
    },
    /// How it went.
    Record {
        /// Expected status.
        expected: OperationStatus,
        /// New status.
        outcome: OperationStatus,
        /// Recorded with it.
        reference: Option<String>,
    },
    /// How it went, with the answer of the run.
    Finish {
        /// Expected status.
        expected: OperationStatus,
        /// New status.
        outcome: OperationStatus,
        /// Recorded with it.
        reference: Option<String>,
        /// Only with a final outcome.
        answer: Option<OperationAnswer>,
    },
    /// A longer lease.
    Renew {
        /// Its length.
        lease: Span,
    },
    /// Ownership of a stalled operation.
    TakeOver {
        /// Length of the new lease.
        lease: Span,
    },
}

/// What became of a call by an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerOutcome {
    /// It applied; the ownership as it is now.
    Done(Owned),
    /// A recording that was made before, by the same owner.
    Before,
    /// It did not apply, and changed nothing.
    Refused(OperationRefusal),
}

/// Why a call did not apply, told from the row as it was right after. `None`: it would apply by now.
pub fn owner_refusal(call: &OwnerCall, version: i32, row: Option<&OperationRow>) -> Option<OwnerOutcome> {
    use OperationStatus as Status;
    let refused = |reason| Some(OwnerOutcome::Refused(reason));
    let Some(row) = row else { return refused(OperationRefusal::Absent) };
    let owned = &row.owned;
    let stalled = matches!(row.status, Status::Admitted | Status::Unknown);
    if owned.owner_version != version {
        return refused(OperationRefusal::OtherOwner);
    }
    match call {
        OwnerCall::Record { outcome, reference, .. } | OwnerCall::Finish { outcome, reference, .. }
            if row.status == *outcome && row.reference == *reference =>
        {
            Some(OwnerOutcome::Before)
        }
        OwnerCall::MaySubmit { expected }
        | OwnerCall::Record { expected, .. }
        | OwnerCall::Finish { expected, .. }
            if row.status != *expected =>
        {
            refused(OperationRefusal::OtherStatus)
        }
        OwnerCall::MaySubmit { .. } | OwnerCall::Record { .. } | OwnerCall::Finish { .. } if !stalled => {
            refused(OperationRefusal::OtherStatus)
        }
        OwnerCall::MaySubmit { .. } if owned.lease_left_ms == 0 => refused(OperationRefusal::LeaseOver),
        OwnerCall::MaySubmit { .. } if owned.submit_left_ms == 0 => refused(OperationRefusal::SubmitOver),
        OwnerCall::Renew { .. } | OwnerCall::TakeOver { .. } if !stalled => {
            refused(OperationRefusal::OtherStatus)
        }
        OwnerCall::TakeOver { .. } if owned.lease_left_ms > 0 => refused(OperationRefusal::LeaseLive),
        _ => None,
    }
}

/// Which lease a renewal asks for.
pub fn lease_of(kind: LeaseKind, timings: &ExecutionTimings) -> Span {
    match kind {
        LeaseKind::Execution => timings.execution_lease,
        LeaseKind::Recovery => timings.recovery_lease,
    }
}
