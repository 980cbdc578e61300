//! `/v1/recovery`: what recovery could not settle. For operators.

use super::entries::{Answered, json, query, wrong};
use super::{Api, Problem, Role};
use crate::operator::model::{MarkedReply, MarkedView};
use crate::recovery::store::MarkedKey;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use fencepost_protocol::StoreKey;

/// Most keys in one list, and how many without a wish.
const LIST_MAX: u32 = 1_000;
const LIST_USUAL: u32 = 100;

/// `GET /v1/recovery/keys`: held keys that wait for a person, in the order of their keys.
pub async fn keys(State(api): State<Api>, request: Request) -> Answered {
    let caller = api.tokens.caller(&request, Role::Operator)?;
    let Some(store) = &api.recovery else {
        let detail = "this store is lost with the process: there is no recovery on it";
        return Err(Problem::new(StatusCode::NOT_FOUND, "no_desk", detail));
    };
    let (mut after, mut limit) = (None, LIST_USUAL);
    for (name, text) in query(&request)? {
        match &name[..] {
            "after" => {
                let key = StoreKey::parse(&text);
                after = Some(key.map_err(|error| Problem::bad_request("query", error.to_string()))?);
            }
            "limit" => {
                let number = text.parse().ok().filter(|limit| (1..=LIST_MAX).contains(limit));
                limit = number.ok_or_else(|| wrong("limit", "1 to 1000"))?;
            }
            _ => return Err(wrong(&name, "after or limit")),
        }
    }
    let prefixes = caller.bound_to().map(<[String]>::to_vec);
    let found = store.held_list(prefixes, after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|last| last.key.to_string());
    json(&MarkedReply { keys: found.iter().map(view).collect(), next })
}

fn view(marked: &MarkedKey) -> MarkedView {
    MarkedView {
        key: marked.key.to_string(),
        version: marked.version.to_string(),
        attempts: marked.attempts,
        result: marked.result.clone(),
        reason: marked.reason.clone(),
        marked_at_us: marked.marked_at.0,
        by: marked.by.clone(),
    }
}
