//! What proves that a grant was issued, and whether it covers what is asked for.
//!
//! A proof is the signature of a token, or the row of a grant. Nothing here spends anything.

use super::{Grants, Refusal};
use crate::entry::Micros;
use crate::grant::details::{self, Covered, NotCovered};
use crate::grant::issuers::{BoundKind, Form, Issuer};
use crate::grant::requester::Requester;
use crate::grant::store::IssuedRow;
use crate::grant::token::{self, Bound, Grant, GrantKey, is_name};
use crate::store::{Clock, StoreError};
use fencepost_protocol::grants::{AdmitRequest, Caller, GrantName, GrantToken};

impl Grants {
    /// A grant whose issue is proven: by the signature of its token, or by its row.
    pub(super) async fn prove(
        &self,
        who: &Requester<'_>,
        token: Option<&GrantToken>,
        name: Option<&GrantName>,
    ) -> Result<(&Issuer, Grant), Refusal> {
        match (token, name) {
            (Some(token), None) => {
                let grant = token::verify(&self.issuers, token.expose(), Clock::Real.now()).await?;
                who.may_use(&grant.key.issuer)?;
                let issuer = self.issuers.get(&grant.key.issuer).ok_or(Refusal::NoIssuer)?;
                Ok((issuer, grant))
            }
            (None, Some(name)) => {
                let (issuer, key) = self.key(who, name)?;
                if issuer.form != Form::Row {
                    return Err(Refusal::NoIssuer);
                }
                let row = self.store.issued(key.clone()).await?;
                // A tombstone proves that the id was issued, and has nothing left to compare with.
                let row = row.filter(|row| !row.archived).ok_or(Refusal::NoProof)?;
                Ok((issuer, grant_of_row(issuer, key, &row)?))
            }
            _ => Err(Refusal::Malformed("expected exactly one of token and grant")),
        }
    }

    pub(super) fn key(&self, who: &Requester<'_>, name: &GrantName) -> Result<(&Issuer, GrantKey), Refusal> {
        who.may_use(&name.issuer)?;
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

    pub(super) fn cover(
        &self,
        issuer: &Issuer,
        grant: &Grant,
        request: &AdmitRequest,
    ) -> Result<Covered, Refusal> {
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
        // The row's own counts.
        issued_from: Micros(0),
        expires_at: row.expires_at.ok_or_else(broken)?,
        leeway: row.leeway,
    })
}
