//! `/v1/entries/{key}/look-again`: recovery takes up a held key that it has given to a person.

use super::entries::{Answered, absent, json, key, order, reasoned, seen, version, with_looks};
use super::{Api, Problem, Role};
use crate::desk::{Again, AgainOrder};
use crate::operator::model::LookAgainOrder;
use axum::extract::{Path, Request, State as Shared};
use axum::http::StatusCode;

/// `POST /v1/entries/{key}/look-again`
pub async fn look_again(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let key = key(&text)?;
    let (parts, body) = request.into_parts();
    let caller = api.tokens.caller(&parts, Role::Operator)?;
    caller.may_operate(&key)?;
    let LookAgainOrder { version: seen_version, reason } = order(&parts.headers, body).await?;
    let version = version(&seen_version)?;
    ask_again(&api, AgainOrder { key: key.clone(), version, who: caller.name(), reason }).await?;
    json(&with_looks(&api, &key, seen(&api, &key, false).await?).await?)
}

/// Has recovery look again, or says why not.
pub async fn ask_again(api: &Api, order: AgainOrder) -> Result<(), Problem> {
    let order = AgainOrder { reason: reasoned(order.reason)?, ..order };
    let (key, version) = (order.key.clone(), order.version);
    tracing::info!(%key, action = "look_again", who = %order.who, "order of an operator");
    match api.any_desk()?.look_again(order).await? {
        Again::Told => {
            metrics::counter!("fencepost_orders_total", "action" => "look_again").increment(1);
            return Ok(());
        }
        Again::NotGivenUp => {}
    }
    let conflict = |code, detail: &str| Err(Problem::new(StatusCode::CONFLICT, code, detail));
    let entry = api.service.store().entry(&key, false).await?.ok_or_else(absent)?;
    if entry.row.version() != version {
        return conflict("version_changed", "the entry is not any more what was shown: look at it again");
    }
    conflict("already_so", "recovery has not given it to a person: it looks by itself, where it is set up to")
}
