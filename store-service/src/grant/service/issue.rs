//! Issue and withdrawal of grants.

use super::{Grants, Refusal};
use crate::entry::Micros;
use crate::grant::details::{self, NotCovered};
use crate::grant::issuers::Form;
use crate::grant::requester::Requester;
use crate::grant::store::{Issue, Issued, Revocation, Revoked};
use crate::grant::token::{Bound, is_name};
use fencepost_protocol::grants::{IssueRequest, RevokeRequest, TEXT_MAX};
use std::time::Instant;

impl Grants {
    /// Records that a grant was issued.
    pub async fn issue(
        &self,
        request: IssueRequest,
        who: impl Into<Requester<'_>>,
    ) -> Result<Issued, Refusal> {
        let who = who.into();
        let (issuer, key) = self.key(&who, &request.grant)?;
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
            actor: who.name().to_owned(),
        };
        Ok(self.store.issue(issue).await?)
    }

    /// Withdraws a grant: with its token, or with its row, as proof that it was issued.
    pub async fn revoke(
        &self,
        request: RevokeRequest,
        who: impl Into<Requester<'_>>,
    ) -> Result<Revoked, Refusal> {
        let who = who.into();
        let actor = who.name();
        if !self.revocations.take(actor, Instant::now()) {
            metrics::counter!("fencepost_grant_revocations_total", "outcome" => "too_often").increment(1);
            return Err(Refusal::TooOften);
        }
        if request.reason.is_empty()
            || request.reason.chars().count() > TEXT_MAX
            || request.reason.contains('\0')
        {
            return Err(Refusal::Malformed("reason: expected 1 to 255 characters"));
        }
        let (key, issuer, expires_at, leeway, retention) = match (&request.token, &request.grant) {
            (Some(_), None) => {
                let (issuer, grant) = self.prove(&who, request.token.as_ref(), None).await?;
                (grant.key, issuer, Some(grant.expires_at), grant.leeway, None)
            }
            (None, Some(name)) => {
                let (issuer, key) = self.key(&who, name)?;
                let row = self.store.issued(key.clone()).await?.ok_or(Refusal::NoProof)?;
                // What the log says of a token is not the token: it may live longer, and name
                // another version of the leeway.
                let (leeway, kept) = (issuer.longest_leeway(), issuer.retention_without_expiry());
                (key, issuer, row.expires_at, leeway, Some(kept))
            }
            _ => return Err(Refusal::Malformed("expected exactly one of token and grant")),
        };
        let log_id = details::log_id(&key);
        let revocation = Revocation {
            key,
            form: issuer.form,
            expires_at,
            leeway,
            retention,
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
