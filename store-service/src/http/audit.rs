//! `/v1/operator/audit`: every line that people, recovery and the service wrote down, in one list.
//!
//! A token bound to key prefixes sees the lines about entries with these prefixes.

use super::entries::{Answered, json, query, wrong};
use super::operations::limit;
use super::{Api, Problem, Role};
use crate::desk::{AuditFilter, AuditKind, AuditSeen};
use crate::entry::Micros;
use crate::operator::audit_model::{AuditReply, AuditView};
use axum::extract::{Request, State as Shared};

/// How many without a wish.
const LIST_USUAL: u32 = 100;

/// Latest time that can be asked for, in microseconds since 1970: the end of the year 9999.
const AT_US_MAX: i64 = 253_402_300_799_999_999;

/// `GET /v1/operator/audit`
pub async fn list(Shared(api): Shared<Api>, request: Request) -> Answered {
    let caller = api.tokens.caller(&request, Role::Operator)?;
    let mut filter = AuditFilter { limit: LIST_USUAL, ..AuditFilter::default() };
    for (name, value) in query(&request)? {
        match &name[..] {
            "kind" => filter.kinds.get_or_insert_default().push(kind(&value)?),
            "action" => filter.action = Some(value),
            "who" => filter.who = Some(value),
            "subject" => filter.subject = Some(value),
            "since_us" => filter.since = Some(time("since_us", &value)?),
            "until_us" => filter.until = Some(time("until_us", &value)?),
            "after" => {
                let place = value.parse();
                filter.after = Some(place.map_err(|_| wrong("after", "what next of the last page said"))?);
            }
            "limit" => filter.limit = limit(&value)?,
            _ => {
                let known = "kind, action, who, subject, since_us, until_us, after or limit";
                return Err(wrong(&name, known));
            }
        }
    }
    filter.prefixes = caller.bound_to().map(<[String]>::to_vec);
    let limit = filter.limit as usize;
    let found = api.any_desk()?.audit(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|line| line.place.to_string());
    json(&AuditReply { lines: found.into_iter().map(view).collect(), next })
}

/// A kind of lines.
pub fn kind(word: &str) -> Result<AuditKind, Problem> {
    let words = "entry, operation, grant, hold, scope, caller or issuer";
    AuditKind::read(word).ok_or_else(|| wrong("kind", words))
}

fn time(name: &str, text: &str) -> Result<Micros, Problem> {
    let us = text.parse().ok().filter(|us| (0..=AT_US_MAX).contains(us));
    us.map(Micros).ok_or_else(|| wrong(name, "microseconds since 1970, until the year 9999"))
}

/// A line as JSON says it.
pub fn view(seen: AuditSeen) -> AuditView {
    AuditView {
        at_us: seen.place.at.0,
        kind: seen.kind,
        subject: seen.subject,
        action: seen.action,
        who: seen.who,
        version: seen.version,
        state_before: seen.state_before,
        state_after: seen.state_after,
        forced: seen.forced,
        reason: seen.reason,
    }
}
