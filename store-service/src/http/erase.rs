//! `/v1/operator/erase`: the stored answers of one caller go, batch by batch.
//!
//! A token that is bound to key prefixes erases within them, and no answers of operations, which have
//! no prefix; every reply says what it covered, so that nobody takes a part for the whole.

use super::entries::{Answered, json, order, reasoned, wrong};
use super::{Api, Problem, Role};
use crate::desk::{EraseCursor, EraseOrder as Erase, Whose};
use crate::operator::desk_model::{CallerName, Covered, EraseOrder, EraseReply};
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use fencepost_protocol::ScopeDigest;
use fencepost_protocol::grants::{Caller, TEXT_MAX};

/// `POST /v1/operator/erase`
pub async fn erase(Shared(api): Shared<Api>, request: Request) -> Answered {
    let (parts, body) = request.into_parts();
    let caller = api.tokens.caller(&parts, Role::Operator)?;
    let EraseOrder { scope, caller: named, reason, after } = order(&parts.headers, body).await?;
    let whose = whose(scope, named)?;
    let after: Option<EraseCursor> = match after.as_deref().map(str::parse).transpose() {
        Ok(after) => after,
        Err(_) => return Err(wrong("after", "what next of the last batch said")),
    };
    let prefixes = caller.bound_to().map(<[String]>::to_vec);
    let of_operations = matches!(whose, Whose::Caller(_))
        || matches!(after, Some(EraseCursor::Operations | EraseCursor::Operation(_)));
    if prefixes.is_some() && of_operations {
        let detail = "operations have no key prefix, and the token is bound to some";
        return Err(Problem::new(StatusCode::FORBIDDEN, "key_prefix", detail));
    }
    if matches!((&whose, &after), (Whose::Caller(_), Some(EraseCursor::Entry(_)))) {
        return Err(wrong("after", "what next of the last batch said"));
    }
    let covered = Covered {
        key_prefixes: prefixes.clone(),
        entries: matches!(whose, Whose::Scope(_)),
        operations: prefixes.is_none(),
    };
    let (who, reason) = (caller.name(), reasoned(reason)?);
    tracing::info!(whose = ?Hidden(&whose), who, "erasing answers");
    let erased = api.any_desk()?.erase(Erase { whose, prefixes, after, who, reason }).await?;
    let orders = metrics::counter!("fencepost_orders_total", "action" => "erase");
    orders.increment(erased.answers + erased.operations);
    json(&EraseReply {
        answers: erased.answers,
        operation_answers: erased.operations,
        left: erased.left,
        looked: erased.looked,
        next: erased.next.map(|next| next.to_string()),
        covered,
    })
}

/// For the log, which names nobody.
struct Hidden<'a>(&'a Whose);

impl std::fmt::Debug for Hidden<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Whose::Scope(scope) => write!(f, "scope {}", scope.to_hex()),
            Whose::Caller(_) => f.write_str("a caller of operations"),
        }
    }
}

fn whose(scope: Option<String>, caller: Option<CallerName>) -> Result<Whose, Problem> {
    match (scope, caller) {
        (Some(scope), None) => {
            ScopeDigest::parse(&scope).map(Whose::Scope).map_err(|_| wrong("scope", "32 hex digits"))
        }
        (None, Some(CallerName { namespace, id })) => {
            let fits = |text: &String| (1..=TEXT_MAX).contains(&text.len()) && !text.contains('\0');
            if !fits(&namespace) || !fits(&id) {
                return Err(wrong("caller", "namespace and id, 1 to 255 bytes each"));
            }
            Ok(Whose::Caller(Caller { namespace, id }))
        }
        (None, None) | (Some(_), Some(_)) => Err(wrong("scope", "exactly one of scope and caller")),
    }
}
