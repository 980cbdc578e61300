//! What a store of grants decides, and what it says about it.
//!
//! Every decision is one atomic step of the store, by its own clock. What a refused caller is told
//! comes from a read after it, which reports and never decides.

use super::duration::Span;
use super::issuers::{Form, Issuers};
use super::token::GrantKey;
use crate::entry::Micros;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use async_trait::async_trait;
use fencepost_protocol::grants::{Details, LeaseKind, OperationId, OperationRefusal, OperationStatus};

/// Owner version that an admission writes.
pub const FIRST_OWNER: i32 = 1;

/// One admission: what is claimed, and the operation that it is for.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The grant.
    pub key: GrantKey,
    /// Where it lives.
    pub form: Form,
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
        }
    }
}

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

/// What a refused attempt is told, from the read after it. `late` comes from the attempt itself.
pub fn report(admission: &Admission, late: bool, report: KeyReport) -> Admitted {
    if late {
        // A grant past its deadline opens nothing, not even the status of its own operation.
        return Admitted::Refused(Because::Late);
    }
    match report.operation {
        Some(row) if report.used && row.is_of(admission) => Admitted::Before(Box::new(row)),
        _ if report.revoked => Admitted::Refused(Because::Revoked),
        _ if admission.form == Form::Row && !report.issued => Admitted::Refused(Because::NoRow),
        _ => Admitted::Refused(Because::Used),
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
        OwnerCall::Record { outcome, reference, .. }
            if row.status == *outcome && row.reference == *reference =>
        {
            Some(OwnerOutcome::Before)
        }
        OwnerCall::MaySubmit { expected } | OwnerCall::Record { expected, .. } if row.status != *expected => {
            refused(OperationRefusal::OtherStatus)
        }
        OwnerCall::MaySubmit { .. } | OwnerCall::Record { .. } if !stalled => {
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

/// A grant to be recorded as issued.
#[derive(Clone, Debug)]
pub struct Issue {
    /// Its name.
    pub key: GrantKey,
    /// A row that is the grant, or a proof that a token was issued.
    pub form: Form,
    /// The tenant that it is for, or empty.
    pub tenant: String,
    /// Who may use it.
    pub subject: String,
    /// What it binds, as JSON.
    pub bound: String,
    /// Its expiry.
    pub expires_at: Option<Micros>,
    /// Its leeway.
    pub leeway: Span,
    /// Longest lifetime.
    pub lifetime_max: Span,
    /// Who issues, for the audit.
    pub actor: String,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// Recorded now.
    Now,
    /// Recorded before, with the same contents.
    Before,
    /// The id is taken by another grant.
    Taken,
    /// The expiry is past, or further away than a grant may live, by the store's clock.
    BadExpiry,
}

/// An issued grant as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedRow {
    /// A row that is the grant, or a proof that a token was issued.
    pub form: Form,
    /// The tenant that it is for, or empty.
    pub tenant: String,
    /// Who may use it.
    pub subject: String,
    /// What it binds, as JSON.
    pub bound: String,
    /// Its expiry.
    pub expires_at: Option<Micros>,
    /// Its leeway.
    pub leeway: Span,
}

impl IssuedRow {
    /// The bound details.
    pub fn details(&self) -> Details {
        super::details::from_text(&self.bound)
    }
}

/// A withdrawal.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The grant.
    pub key: GrantKey,
    /// Where it lives.
    pub form: Form,
    /// Its trusted expiry, if there is one.
    pub expires_at: Option<Micros>,
    /// Its leeway.
    pub leeway: Span,
    /// How long the row is kept where there is no trusted expiry.
    pub retention: Span,
    /// Who revokes, for the audit.
    pub actor: String,
    /// Why, for the audit.
    pub reason: String,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// Now.
    Now,
    /// Before.
    Before,
    /// Nothing changed: the grant was used.
    Used,
    /// Nothing changed: there is no such row.
    NoRow,
}

/// May records of use be deleted?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounded {
    /// An admission on this store ends within the bound, and that was seen.
    Verified,
    /// It is not known to; why.
    No(String),
}

/// A store of grants.
#[async_trait]
pub trait GrantStore: Send + Sync + 'static {
    /// Pins what must not change while grants can be admitted; says what differs.
    async fn pin(&self, issuers: &Issuers) -> Result<(), PinError>;

    /// Claims a grant's single use and records its operation.
    async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError>;

    /// A call by an operation's owner.
    async fn own(&self, id: OperationId, version: i32, call: OwnerCall) -> Result<OwnerOutcome, StoreError>;

    /// An operation.
    async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError>;

    /// What was done about an operation, by recovery and by people, oldest first.
    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        let _ = id;
        Ok(Vec::new())
    }

    /// Records that a grant was issued.
    async fn issue(&self, issue: Issue) -> Result<Issued, StoreError>;

    /// The row of an issued grant.
    async fn issued(&self, key: GrantKey) -> Result<Option<IssuedRow>, StoreError>;

    /// Withdraws a grant.
    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError>;

    /// Sees whether admissions are bounded; may take as long as the bound.
    async fn check_bound(&self) -> Result<Bounded, StoreError>;

    /// Deletes one bounded batch of records of use whose grants can't be admitted any more.
    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError>;
}

/// Why a start with these issuers is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The store can't be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A value differs from the one that grants were issued under.
    #[error("{0}")]
    Changed(String),
}

/// The pinned values of one leeway version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which issuer.
    pub issuer: String,
    /// Which version; empty for grants that name none.
    pub version: String,
    /// Where its grants live.
    pub form: Form,
    /// Are ids unique in a tenant only?
    pub key_by_tenant: bool,
    /// The leeway.
    pub leeway_ms: i64,
    /// The longest lifetime.
    pub lifetime_ms_max: i64,
    /// The issue-time skew.
    pub iat_skew_ms: i64,
}

impl Pin {
    /// All that a file asks for.
    pub fn all(issuers: &Issuers) -> Vec<Self> {
        let of_issuer = |issuer: &super::issuers::Issuer| {
            let pin = |(version, leeway): (&str, Span)| Self {
                issuer: issuer.name.clone(),
                version: version.to_owned(),
                form: issuer.form,
                key_by_tenant: issuer.key_by_tenant,
                leeway_ms: leeway.as_i64(),
                lifetime_ms_max: issuer.max_lifetime.as_i64(),
                iat_skew_ms: issuer.iat_skew.as_i64(),
            };
            issuer.leeways().map(pin).collect::<Vec<_>>()
        };
        issuers.all().flat_map(of_issuer).collect()
    }

    /// Compares with what was pinned before.
    pub fn check(&self, pinned: &Self) -> Result<(), PinError> {
        let span = |ms: i64| Span::ms(u64::try_from(ms).unwrap_or(0)).to_string();
        let differences = [
            ("form", self.form.name().to_owned(), pinned.form.name().to_owned()),
            ("key_by_tenant", self.key_by_tenant.to_string(), pinned.key_by_tenant.to_string()),
            ("leeway", span(self.leeway_ms), span(pinned.leeway_ms)),
            ("max_lifetime", span(self.lifetime_ms_max), span(pinned.lifetime_ms_max)),
            ("iat_skew", span(self.iat_skew_ms), span(pinned.iat_skew_ms)),
        ];
        match differences.into_iter().find(|(_, found, kept)| found != kept) {
            None => Ok(()),
            Some((name, found, kept)) => Err(PinError::Changed(format!(
                "issuer {:?}, leeway version {:?}: found {name} = {found}, but grants may have been issued under \
                 {name} = {kept}; expected the old value, a new leeway version beside it, or, once every grant issued \
                 under it has aged out, the row in grant_policies deleted by hand",
                self.issuer, self.version
            ))),
        }
    }
}

/// Which lease a renewal asks for.
pub fn lease_of(kind: LeaseKind, timings: &super::timing::ExecutionTimings) -> Span {
    match kind {
        LeaseKind::Execution => timings.execution_lease,
        LeaseKind::Recovery => timings.recovery_lease,
    }
}
