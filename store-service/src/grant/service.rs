//! Grants and operations as callers see them: every check that is not the store's, then the store.
//!
//! Nothing is cached but keys: a grant that was good a moment ago may be revoked now, so every
//! presentation goes to the store. Everything that does not say "admitted" is not an admission.

use super::details::{self, Covered, NotCovered};
use super::issuers::{BoundKind, Form, Issuer, Issuers};
use super::jws::Unacceptable;
use super::limiter::Limiter;
use super::store::{
    Admission, Admitted, Because, Bounded, GrantStore, Issue, Issued, IssuedRow, OperationRow, OwnerCall,
    OwnerOutcome, Revocation, Revoked, lease_of,
};
use super::token::{self, Bound, Grant, GrantKey, TokenRefusal, is_name};
use crate::entry::Micros;
use crate::store::{Clock, StoreError};
use fencepost_protocol::grants::{
    AdmitRequest, Caller, GrantName, GrantToken, IssueRequest, MaySubmitRequest, OperationId,
    OperationStatus, RecordRequest, RenewOperationRequest, RevokeRequest, TEXT_MAX, TakeOverRequest,
};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// What the cleanup of records of use does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanupState {
    /// The bound on admissions is being looked at.
    Checking,
    /// It holds; records are deleted when it is safe.
    On,
    /// It does not hold, or that is not known: records are kept. Why.
    Off(String),
}

/// Why a call was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not well formed: what would be right.
    Malformed(&'static str),
    /// The token is not acceptable.
    NotValid(Unacceptable),
    /// The request names more, or something else, than the grant.
    NotCovered(NotCovered),
    /// The issuer's keys can't be had now.
    NoKeys,
    /// No issuer of this name whose grants live where the request says.
    NoIssuer,
    /// Nothing proves that the grant was issued.
    NoProof,
    /// Too often.
    TooOften,
    /// The store did not decide.
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<NotCovered> for Refusal {
    fn from(reason: NotCovered) -> Self {
        Self::NotCovered(reason)
    }
}

impl From<TokenRefusal> for Refusal {
    fn from(refusal: TokenRefusal) -> Self {
        match refusal {
            TokenRefusal::Unacceptable(reason) => Self::NotValid(reason),
            TokenRefusal::NoKeys => Self::NoKeys,
        }
    }
}

/// The service's part for grants.
pub struct Grants {
    issuers: Issuers,
    store: Arc<dyn GrantStore>,
    revocations: Limiter,
    cleanup: RwLock<CleanupState>,
}

impl Grants {
    /// With these issuers on this store.
    pub fn new(issuers: Issuers, store: Arc<dyn GrantStore>) -> Arc<Self> {
        let revocations = Limiter::new(issuers.revocations_per_minute);
        Arc::new(Self { issuers, store, revocations, cleanup: RwLock::new(CleanupState::Checking) })
    }

    /// The store.
    pub fn store(&self) -> &dyn GrantStore {
        &*self.store
    }

    /// The issuers.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// What the cleanup does.
    pub fn cleanup(&self) -> CleanupState {
        self.cleanup.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what was found out about the bound.
    pub fn note_bound(&self, found: Result<Bounded, StoreError>) {
        let state = match found {
            Ok(Bounded::Verified) => CleanupState::On,
            Ok(Bounded::No(reason)) => CleanupState::Off(reason),
            Err(error) => CleanupState::Off(error.to_string()),
        };
        let mut cleanup = self.cleanup.write().unwrap_or_else(PoisonError::into_inner);
        if let CleanupState::Off(reason) = &state
            && *cleanup != state
        {
            tracing::warn!(%reason, "records of used grants are kept: they can't be deleted safely");
        }
        *cleanup = state;
    }

    /// Claims a grant's single use for an operation.
    pub async fn admit(&self, request: AdmitRequest) -> Result<Admitted, Refusal> {
        let proven = self.prove(request.token.as_ref(), request.grant.as_ref()).await;
        let (issuer, grant) = match proven {
            Ok(proven) => proven,
            Err(Refusal::NoProof) => return Ok(self.counted(Admitted::Refused(Because::NoRow))),
            Err(refusal) => return Err(refusal),
        };
        let covered = self.cover(issuer, &grant, &request)?;
        let timings = &self.issuers.timings;
        let admission = Admission {
            form: issuer.form,
            expires_at: grant.expires_at,
            leeway: grant.leeway,
            operation: request.operation_id,
            caller_namespace: request.caller.namespace,
            caller_id: request.caller.id,
            tenant: grant.tenant,
            details_digest: covered.digest,
            details: covered.text,
            lease: timings.execution_lease,
            submission: timings.submission_window,
            key: grant.key,
        };
        let log_id = details::log_id(&admission.key);
        let operation = admission.operation.clone();
        let admitted = self.store.admit(admission).await?;
        match &admitted {
            Admitted::Now(_) => tracing::info!(grant = log_id, %operation, "grant admitted"),
            Admitted::Before(_) => tracing::info!(grant = log_id, %operation, "grant admitted before"),
            Admitted::Refused(because) => {
                tracing::info!(grant = log_id, %operation, because = because.name(), "grant refused");
            }
        }
        Ok(self.counted(admitted))
    }

    fn counted(&self, admitted: Admitted) -> Admitted {
        let outcome = match &admitted {
            Admitted::Now(_) => "admitted",
            Admitted::Before(_) => "admitted_before",
            Admitted::Refused(because) => because.name(),
        };
        metrics::counter!("fencepost_grant_admissions_total", "outcome" => outcome).increment(1);
        admitted
    }

    /// A grant whose issue is proven: by the signature of its token, or by its row.
    async fn prove(
        &self,
        token: Option<&GrantToken>,
        name: Option<&GrantName>,
    ) -> Result<(&Issuer, Grant), Refusal> {
        match (token, name) {
            (Some(token), None) => {
                let grant = token::verify(&self.issuers, token.expose(), Clock::Real.now()).await?;
                let issuer = self.issuers.get(&grant.key.issuer).ok_or(Refusal::NoIssuer)?;
                Ok((issuer, grant))
            }
            (None, Some(name)) => {
                let (issuer, key) = self.key(name)?;
                if issuer.form != Form::Row {
                    return Err(Refusal::NoIssuer);
                }
                let row = self.store.issued(key.clone()).await?.ok_or(Refusal::NoProof)?;
                Ok((issuer, grant_of_row(issuer, key, &row)?))
            }
            _ => Err(Refusal::Malformed("expected exactly one of token and grant")),
        }
    }

    fn key(&self, name: &GrantName) -> Result<(&Issuer, GrantKey), Refusal> {
        let issuer = self.issuers.get(&name.issuer).ok_or(Refusal::NoIssuer)?;
        if !is_name(&name.grant_id) || !name.tenant.as_deref().is_none_or(is_name) {
            return Err(Refusal::Malformed("grant: expected an id and a tenant of 1 to 255 bytes"));
        }
        let key_tenant = match (issuer.key_by_tenant, &name.tenant) {
            (true, Some(tenant)) => tenant.clone(),
            (true, None) => {
                return Err(Refusal::Malformed("grant.tenant: missing; ids are unique in a tenant"));
            }
            (false, _) => String::new(),
        };
        let key = GrantKey { issuer: name.issuer.clone(), key_tenant, grant_id: name.grant_id.clone() };
        Ok((issuer, key))
    }

    fn cover(&self, issuer: &Issuer, grant: &Grant, request: &AdmitRequest) -> Result<Covered, Refusal> {
        let Caller { namespace, id } = &request.caller;
        if *namespace != issuer.caller_namespace || *id != grant.subject {
            return Err(NotCovered::Caller.into());
        }
        if request.tenant.as_deref().unwrap_or_default() != grant.tenant {
            return Err(NotCovered::Tenant.into());
        }
        let covered = details::cover(grant, &request.details)?;
        if let Some(key) = &issuer.operation_mac_key {
            let shown = request.operation_mac.as_deref();
            if !details::operation_mac_fits(key, &grant.key, &request.operation_id, shown) {
                return Err(NotCovered::OperationMac.into());
            }
        }
        Ok(covered)
    }

    /// May an operation's owner send now?
    pub async fn may_submit(
        &self,
        id: OperationId,
        request: MaySubmitRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::MaySubmit { expected: request.expected_status };
        self.own("may_submit", id, request.owner_version, call).await
    }

    /// How an operation went.
    pub async fn record(&self, id: OperationId, request: RecordRequest) -> Result<OwnerOutcome, Refusal> {
        if request.outcome == OperationStatus::Admitted {
            return Err(Refusal::Malformed(
                "outcome: expected succeeded, failed, unknown or needs_reconciliation",
            ));
        }
        let long = |text: &str| text.len() > TEXT_MAX || text.contains('\0');
        if request.reference.as_deref().is_some_and(long) {
            return Err(Refusal::Malformed("reference: expected at most 255 bytes"));
        }
        let call = OwnerCall::Record {
            expected: request.expected_status,
            outcome: request.outcome,
            reference: request.reference,
        };
        self.own("record", id, request.owner_version, call).await
    }

    /// A longer lease.
    pub async fn renew(
        &self,
        id: OperationId,
        request: RenewOperationRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::Renew { lease: lease_of(request.lease, &self.issuers.timings) };
        self.own("renew", id, request.owner_version, call).await
    }

    /// Ownership of a stalled operation.
    pub async fn take_over(
        &self,
        id: OperationId,
        request: TakeOverRequest,
    ) -> Result<OwnerOutcome, Refusal> {
        let call = OwnerCall::TakeOver { lease: self.issuers.timings.recovery_lease };
        self.own("take_over", id, request.owner_version, call).await
    }

    async fn own(
        &self,
        name: &'static str,
        id: OperationId,
        version: i32,
        call: OwnerCall,
    ) -> Result<OwnerOutcome, Refusal> {
        let outcome = self.store.own(id, version, call).await?;
        let applied = match &outcome {
            OwnerOutcome::Done(_) => "done",
            OwnerOutcome::Before => "before",
            OwnerOutcome::Refused(_) => "refused",
        };
        metrics::counter!("fencepost_operation_calls_total", "call" => name, "outcome" => applied)
            .increment(1);
        Ok(outcome)
    }

    /// An operation, for its own caller only. Works after the grant has expired.
    pub async fn operation(
        &self,
        id: OperationId,
        caller: &Caller,
        tenant: &str,
    ) -> Result<Option<OperationRow>, Refusal> {
        let row = self.store.operation(id).await?;
        Ok(row.filter(|row| {
            row.caller_namespace == caller.namespace && row.caller_id == caller.id && row.tenant == tenant
        }))
    }

    /// Records that a grant was issued.
    pub async fn issue(&self, request: IssueRequest, actor: &str) -> Result<Issued, Refusal> {
        let (issuer, key) = self.key(&request.grant)?;
        if !details::within_bounds(&request.details) {
            return Err(NotCovered::Size.into());
        }
        let tenant = request.tenant.or(request.grant.tenant).unwrap_or_default();
        let expires_at = request.expires_at.map(|at| Micros(at.saturating_mul(1_000_000)));
        if !request.subject.is_empty() && !is_name(&request.subject) {
            return Err(Refusal::Malformed("subject: expected 1 to 255 bytes"));
        }
        if issuer.form == Form::Row {
            if request.subject.is_empty() {
                return Err(Refusal::Malformed("subject: missing"));
            }
            if expires_at.is_none() {
                return Err(Refusal::Malformed("expires_at: missing"));
            }
            for (name, kind) in &issuer.bound {
                let value = request.details.0.get(name).and_then(|value| Bound::read(*kind, value));
                value.ok_or(NotCovered::Details)?;
            }
        }
        if issuer.key_by_tenant && tenant != key.key_tenant || !tenant.is_empty() && !is_name(&tenant) {
            return Err(NotCovered::Tenant.into());
        }
        let leeway = issuer.leeway(None).unwrap_or_default();
        let issue = Issue {
            key,
            form: issuer.form,
            tenant,
            subject: request.subject,
            bound: details::to_text(&request.details),
            expires_at,
            leeway,
            lifetime_max: issuer.max_lifetime,
            actor: actor.to_owned(),
        };
        Ok(self.store.issue(issue).await?)
    }

    /// Withdraws a grant: with its token, or with its row, as proof that it was issued.
    pub async fn revoke(&self, request: RevokeRequest, actor: &str) -> Result<Revoked, Refusal> {
        if !self.revocations.take(actor, Instant::now()) {
            metrics::counter!("fencepost_grant_revocations_total", "outcome" => "too_often").increment(1);
            return Err(Refusal::TooOften);
        }
        if request.reason.is_empty() || request.reason.len() > TEXT_MAX || request.reason.contains('\0') {
            return Err(Refusal::Malformed("reason: expected 1 to 255 bytes"));
        }
        let (key, issuer, expires_at, leeway) = match (&request.token, &request.grant) {
            (Some(_), None) => {
                let (issuer, grant) = self.prove(request.token.as_ref(), None).await?;
                (grant.key, issuer, Some(grant.expires_at), grant.leeway)
            }
            (None, Some(name)) => {
                let (issuer, key) = self.key(name)?;
                let row = self.store.issued(key.clone()).await?.ok_or(Refusal::NoProof)?;
                (key, issuer, row.expires_at, row.leeway)
            }
            _ => return Err(Refusal::Malformed("expected exactly one of token and grant")),
        };
        let log_id = details::log_id(&key);
        let revocation = Revocation {
            key,
            form: issuer.form,
            expires_at,
            leeway,
            retention: issuer.retention_without_expiry(),
            actor: actor.to_owned(),
            reason: request.reason,
        };
        let revoked = self.store.revoke(revocation).await?;
        let outcome = match revoked {
            Revoked::Now => "revoked",
            Revoked::Before => "before",
            Revoked::Used => "used",
            Revoked::NoRow => "no_row",
        };
        metrics::counter!("fencepost_grant_revocations_total", "outcome" => outcome).increment(1);
        tracing::info!(grant = log_id, actor, outcome, "revocation");
        Ok(revoked)
    }
}

/// What the row of an issued grant proves.
fn grant_of_row(issuer: &Issuer, key: GrantKey, row: &IssuedRow) -> Result<Grant, Refusal> {
    let broken = || Refusal::Store(StoreError::Broken("an issued grant's row can't be read".into()));
    let mut bound = std::collections::BTreeMap::new();
    for (name, value) in row.details().0 {
        let kind = issuer.bound.get(&name).copied().unwrap_or(BoundKind::Text);
        bound.insert(name, Bound::read(kind, &value).ok_or_else(broken)?);
    }
    Ok(Grant {
        key,
        subject: row.subject.clone(),
        tenant: row.tenant.clone(),
        bound,
        other: std::collections::BTreeMap::new(),
        expires_at: row.expires_at.ok_or_else(broken)?,
        leeway: row.leeway,
    })
}
