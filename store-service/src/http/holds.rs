//! `/v1/operator/holds` and `/v1/operator/grants/release`: what is decided about many at once.

pub use super::entries::reasoned;
use super::entries::{Answered, json, key, order, wrong};
use super::{Api, Problem};
use crate::desk::{FreeDone, FreeOrder as Free, HoldDone, HoldOrder as Hold, HoldSeen};
use crate::entry::Micros;
use crate::grant::token::GrantKey;
use crate::operator::desk_model::{
    FreeOrder, FreeReply, GrantReleaseOrder, HoldOrder, HoldView, HoldsReply, LiftOrder,
};
use axum::extract::{Path, Request, State as Shared};
use axum::http::StatusCode;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::TTL_MS_MAX;

/// Latest time that can be written, in microseconds since 1970: the end of the year 9999.
const SINCE_US_MAX: i64 = 253_402_300_799_999_999;

/// `GET /v1/operator/holds`
pub async fn list(Shared(api): Shared<Api>, request: Request) -> Answered {
    let desk = api.desk(&request)?.desk;
    json(&HoldsReply { holds: desk.holds().await?.into_iter().map(view).collect() })
}

/// `POST /v1/operator/holds`
pub async fn begin(Shared(api): Shared<Api>, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let at = api.desk(&parts)?;
    let order = checked(order(&parts.headers, body).await?, at.who)?;
    told(at.desk.begin_hold(order).await?).and_then(|view| json(&view))
}

/// `POST /v1/operator/holds/{id}/lift`
pub async fn lift(Shared(api): Shared<Api>, Path(id): Path<String>, request: Request) -> Answered {
    let id = id.parse().map_err(|_| wrong("id", "the number of a hold"))?;
    let (parts, body) = request.into_parts();
    let at = api.desk(&parts)?;
    let LiftOrder { reason } = order(&parts.headers, body).await?;
    let reason = reasoned(reason)?;
    told(at.desk.lift_hold(id, at.who, reason).await?).and_then(|view| json(&view))
}

/// `POST /v1/operator/holds/{id}/free`
pub async fn free(Shared(api): Shared<Api>, Path(id): Path<String>, request: Request) -> Answered {
    let hold = id.parse().map_err(|_| wrong("id", "the number of a hold"))?;
    let (parts, body) = request.into_parts();
    let at = api.desk(&parts)?;
    let order = free_checked(hold, order(&parts.headers, body).await?, at.who)?;
    freed(at.desk.free_held(order).await?).and_then(|reply| json(&reply))
}

/// `POST /v1/operator/grants/release`
pub async fn release_grant(Shared(api): Shared<Api>, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let at = api.desk(&parts)?;
    let GrantReleaseOrder { issuer, grant_id, key_tenant, reason } = order(&parts.headers, body).await?;
    let reason = reasoned(reason)?;
    if [&issuer, &grant_id, &key_tenant].iter().any(|text| text.contains('\0')) || grant_id.is_empty() {
        return Err(wrong("grant_id", "the name of a grant"));
    }
    let grants = api.grants.as_ref().ok_or_else(|| {
        let detail = "the service was started without --issuers";
        Problem::new(StatusCode::NOT_FOUND, "grants_not_configured", detail)
    })?;
    if grants.issuers().get(&issuer).is_none() {
        return Err(wrong("issuer", "one of those in --issuers"));
    }
    // A word for a hold that is not there would be taken for one that worked. One that begins in
    // between refuses the grant whatever was said before it.
    if !at.desk.holds().await?.iter().any(|hold| hold.grants && hold.lifted_at.is_none()) {
        let detail = "no hold over grants stands, so none is refused for one";
        return Err(Problem::new(StatusCode::CONFLICT, "nothing_held", detail));
    }
    let key = GrantKey { issuer, key_tenant, grant_id };
    at.desk.release_grant(key, at.who, reason).await?;
    json(&serde_json::json!({ "released": true }))
}

/// An order that makes sense.
pub fn checked(order: HoldOrder, who: String) -> Result<Hold, Problem> {
    let HoldOrder { reason, since_us, keys_for_ms, prefix, grants } = order;
    if let Some(prefix) = &prefix {
        StoreKey::check_prefix(prefix).map_err(|error| wrong("prefix", &error.to_string()))?;
    }
    if since_us.is_some_and(|us| !(0..=SINCE_US_MAX).contains(&us)) {
        return Err(wrong("since_us", "a time between 1970 and 9999"));
    }
    if keys_for_ms.is_some_and(|ms| !(1..=TTL_MS_MAX).contains(&ms)) {
        return Err(wrong("keys_for_ms", "1 ms to 400 days"));
    }
    let grants = grants.unwrap_or(prefix.is_none());
    if grants && prefix.is_some() {
        return Err(wrong("prefix", "none where grants are held: they have no key prefix"));
    }
    let reason = reasoned(reason)?;
    Ok(Hold { prefix, since: since_us.map(Micros), keys_for_ms, grants, who, reason })
}

/// An order to free that makes sense.
pub fn free_checked(hold: i64, order: FreeOrder, who: String) -> Result<Free, Problem> {
    let after = order.after.as_deref().map(key).transpose()?;
    Ok(Free { hold, after, who, reason: reasoned(order.reason)? })
}

/// What became of an order to free.
pub fn freed(done: FreeDone) -> Result<FreeReply, Problem> {
    match done {
        FreeDone::Done(done) => {
            let next = done.next.map(|key| key.to_string());
            Ok(FreeReply { freed: done.freed, kept: done.kept, next })
        }
        FreeDone::Standing => {
            Err(Problem::new(StatusCode::CONFLICT, "hold_stands", "the hold stands: lift it first"))
        }
        FreeDone::Absent => Err(Problem::new(StatusCode::NOT_FOUND, "no_hold", "there is no such hold")),
    }
}

/// What became of an order about a hold.
pub fn told(done: HoldDone) -> Result<HoldView, Problem> {
    match done {
        HoldDone::Begun(hold) | HoldDone::Lifted(hold) => Ok(view(hold)),
        HoldDone::Ahead => Err(wrong("since_us", "a time that is past, by the store's clock")),
        HoldDone::Absent => {
            let detail = "there is no such hold, or it was lifted before";
            Err(Problem::new(StatusCode::NOT_FOUND, "no_hold", detail))
        }
    }
}

/// A hold as JSON says it.
pub fn view(hold: HoldSeen) -> HoldView {
    HoldView {
        id: hold.id,
        prefix: hold.prefix,
        since_us: hold.since.0,
        keys_left_ms: hold.keys_until.map(|until| until.ms_after(hold.now)),
        grants: hold.grants,
        began_at_us: hold.began_at.0,
        began_by: hold.began_by,
        reason: hold.reason,
        lifted_at_us: hold.lifted_at.map(|at| at.0),
    }
}
