//! `/v1/operator/grants`: what operators see of grants. They are revoked by `/v1/grants/revoke`,
//! whose role is its own.

use super::Api;
use super::entries::{Answered, flag, json, query, wrong};
use super::operations::limit;
use crate::desk::{GrantFilter, GrantSeen, GrantState};
use crate::grant::details;
use crate::grant::token::GrantKey;
use crate::operator::desk_model::{GrantView, GrantsReply};
use axum::extract::{Request, State as Shared};

/// How many without a wish.
const LIST_USUAL: u32 = 100;

/// `GET /v1/operator/grants`
pub async fn list(Shared(api): Shared<Api>, request: Request) -> Answered {
    let desk = api.desk(&request)?.desk;
    let mut filter = GrantFilter { limit: LIST_USUAL, ..GrantFilter::default() };
    let mut key_tenant = String::new();
    let mut grant_id = None;
    for (name, value) in query(&request)? {
        match &name[..] {
            "state" => {
                let state = GrantState::ALL.into_iter().find(|state| state.word() == value);
                filter.state = Some(state.ok_or_else(|| wrong("state", "open, used, revoked or expired"))?);
            }
            "issuer" => filter.issuer = Some(value),
            "tenant" => filter.tenant = Some(value),
            "subject" => filter.subject = Some(value),
            "held" => filter.held = Some(flag("held", &value)?),
            "grant_id" => grant_id = Some(value),
            "key_tenant" => key_tenant = value,
            "after" => filter.after = Some(name_of(&value).ok_or_else(|| wrong("after", "what next said"))?),
            "limit" => filter.limit = limit(&value)?,
            _ => {
                let known = "state, issuer, tenant, subject, held, grant_id, key_tenant, after or limit";
                return Err(wrong(&name, known));
            }
        }
    }
    if let Some(grant_id) = grant_id {
        let issuer = filter.issuer.clone().ok_or_else(|| wrong("grant_id", "issuer beside it"))?;
        filter.only = Some(GrantKey { issuer, key_tenant, grant_id });
    }
    let limit = filter.limit as usize;
    let found = desk.grants(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|seen| cursor(&seen.key));
    json(&GrantsReply { grants: found.into_iter().map(view).collect(), next })
}

/// A name as one text: JSON, so that no separator can be part of it.
fn cursor(key: &GrantKey) -> String {
    serde_json::json!([key.issuer, key.key_tenant, key.grant_id]).to_string()
}

fn name_of(text: &str) -> Option<GrantKey> {
    let (issuer, key_tenant, grant_id) = serde_json::from_str(text).ok()?;
    let key = GrantKey { issuer, key_tenant, grant_id };
    let whole = [&key.issuer, &key.key_tenant, &key.grant_id].iter().all(|text| !text.contains('\0'));
    whole.then_some(key)
}

/// A grant as JSON says it.
pub fn view(seen: GrantSeen) -> GrantView {
    GrantView {
        state: seen.state().word().to_owned(),
        issuer: seen.key.issuer,
        grant_id: seen.key.grant_id,
        key_tenant: seen.key.key_tenant,
        form: seen.form,
        tenant: seen.tenant.filter(|tenant| !tenant.is_empty()),
        subject: seen.subject.filter(|subject| !subject.is_empty()),
        details: seen.bound.map(|text| details::from_text(&text).0),
        issued_at_us: seen.issued_at.map(|at| at.0),
        expires_at_us: seen.expires_at.map(|at| at.0),
        used_at_us: seen.used_at.map(|at| at.0),
        revoked_at_us: seen.revoked_at.map(|at| at.0),
        operation_id: seen.operation,
        held: seen.held,
    }
}
