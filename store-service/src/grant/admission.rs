//! One admission: what it asks for, and what becomes of it.
//!
//! The decision is the store's. What a refused caller is told comes from a read after it, which
//! reports and never decides.

use super::duration::Span;
use super::issuers::Form;
use super::operation::{OperationRow, Owned};
use super::token::GrantKey;
use crate::entry::Micros;
use fencepost_protocol::grants::OperationId;

/// One admission: what is claimed, and the operation that it is for.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The grant.
    pub key: GrantKey,
    /// Where it lives.
    pub form: Form,
    /// Earliest time at which it can have been issued. In the row form the row's own counts.
    pub issued_from: Micros,
    /// Its expiry. In the row form the row's own counts.
    pub expires_at: Micros,
    /// Its leeway. In the row form the row's own counts.
    pub leeway: Span,
    /// The operation.
    pub operation: OperationId,
    /// Namespace of the caller's id.
    pub caller_namespace: String,
    /// The caller's id.
    pub caller_id: String,
    /// The caller's tenant, or empty.
    pub tenant: String,
    /// Digest of the details.
    pub details_digest: [u8; 32],
    /// The details as JSON.
    pub details: String,
    /// Length of the first lease.
    pub lease: Span,
    /// How long anything may be sent.
    pub submission: Span,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// The grant is spent by this very attempt.
    Now(Owned),
    /// It was spent for the same operation, of the same caller, with the same details.
    Before(Box<OperationRow>),
    /// Not by this attempt.
    Refused(Because),
}

/// Why an attempt admitted nothing, as far as the read after it can tell. For logs and metrics; a
/// caller is told less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// Past its admission deadline when the statement began.
    Late,
    /// Spent for another operation, or for this one by another caller or with other details.
    Used,
    /// Revoked.
    Revoked,
    /// The operation id, or an operation of this grant, exists.
    Conflict,
    /// No such row.
    NoRow,
    /// Issued before a backup was restored, and so perhaps used since: a hold stands over it.
    Held,
}

impl Because {
    /// Label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::Used => "used",
            Self::Revoked => "revoked",
            Self::Conflict => "conflict",
            Self::NoRow => "no_row",
            Self::Held => "held",
        }
    }
}

/// What is known about a grant's key after an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyReport {
    /// Is there a row that was issued?
    pub issued: bool,
    /// Was it revoked?
    pub revoked: bool,
    /// Is the key spent?
    pub used: bool,
    /// The operation that it was spent for.
    pub operation: Option<OperationRow>,
}

/// What a refused attempt is told, from the read after it. `late` and `held` come from the attempt
/// itself.
pub fn report(admission: &Admission, late: bool, held: bool, report: KeyReport) -> Admitted {
    if late {
        // A grant past its deadline opens nothing, not even the status of its own operation.
        return Admitted::Refused(Because::Late);
    }
    match report.operation {
        Some(row) if report.used && row.is_of(admission) => Admitted::Before(Box::new(row)),
        _ if report.revoked => Admitted::Refused(Because::Revoked),
        _ if admission.form == Form::Row && !report.issued => Admitted::Refused(Because::NoRow),
        _ if held && !report.used => Admitted::Refused(Because::Held),
        _ => Admitted::Refused(Because::Used),
    }
}
