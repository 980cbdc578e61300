//! `/v1/entries`: what operators see and decide. JSON in, JSON out.
//!
//! Tokens of claims are never shown: whoever has one can finish its claim. Answers are shown only
//! where they are asked for: they may hold anything that the application said to its client.

use super::operations::age;
use super::{Api, Problem, Role};
use crate::desk::{Line, Note, entry_subject};
use crate::entry::{Micros, Row, Ruling, Settle, SettleReply, State, Version};
use crate::operator::model::{AuditLine, EntryView, ListReply, Octets, ReleaseOrder, SettleOrder};
use crate::operator::print::duration;
use crate::operator::ruling::ruling;
use crate::operator::scope::digest_of;
use crate::store::{Audit, Entry, Filter, StateName, words};
use axum::body::Body;
use axum::extract::{Path, Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fencepost_protocol::answer::decode_headers;
use fencepost_protocol::claims::ReleaseCause;
use fencepost_protocol::{ClaimToken, ScopeDigest, StoreKey};
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Longest order, with an answer in it.
const ORDER_MAX: usize = 4 * 1024 * 1024;

/// How long an order's body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest reason, in characters: browsers count these (or less), too.
const REASON_LEN_MAX: usize = 1_000;

/// Most entries in one list, and how many without a wish.
const LIST_MAX: u32 = 1_000;
const LIST_USUAL: u32 = 100;

/// A reply, or why there is none.
pub type Answered = Result<Response, Problem>;

/// `GET /v1/entries`
pub async fn list(Shared(api): Shared<Api>, request: Request) -> Answered {
    let caller = api.tokens.caller(&request, Role::Operator)?;
    let mut filter = Filter { limit: LIST_USUAL, ..Filter::default() };
    for (name, value) in query(&request)? {
        match &name[..] {
            "state" => {
                let state = StateName::ALL.into_iter().find(|state| state.word() == value);
                filter.state =
                    Some(state.ok_or_else(|| wrong("state", "claimed, completed, unknown or released"))?);
            }
            "prefix" => {
                StoreKey::check_prefix(&value)
                    .map_err(|error| Problem::bad_request("query", error.to_string()))?;
                filter.prefixes.get_or_insert_default().push(value);
            }
            "scope" => {
                filter.scope = Some(scope(&value)?);
            }
            "older_than_ms" => {
                let ms = value.parse().map_err(|_| wrong("older_than_ms", "a number of milliseconds"))?;
                filter.older_than_ms = Some(age("older_than_ms", ms)?);
            }
            "cause" => filter.cause = Some(cause(value)?),
            "held" => filter.held = Some(flag("held", &value)?),
            "after" => filter.after = Some(key(&value)?),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIST_MAX).contains(limit));
                filter.limit = limit.ok_or_else(|| wrong("limit", "1 to 1000"))?;
            }
            _ => {
                return Err(wrong(&name, "state, prefix, scope, older_than_ms, cause, held, after or limit"));
            }
        }
    }
    if let Some(bound) = caller.bound_to() {
        let wished = filter.prefixes.take();
        let may = |prefix: &&String| wished.as_ref().is_none_or(|wished| wished.contains(prefix));
        filter.prefixes = Some(bound.iter().filter(may).cloned().collect());
    }
    let limit = filter.limit as usize;
    let entries = api.service.store().entries(filter).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|entry| entry.key.to_string());
    json(&ListReply { entries: entries.into_iter().map(|entry| view(entry, false, None)).collect(), next })
}

/// `GET /v1/entries/{key}`
pub async fn show(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let key = key(&text)?;
    let caller = api.tokens.caller(&request, Role::Operator)?;
    caller.may_operate(&key)?;
    let mut answer = false;
    for (name, value) in query(&request)? {
        match (&name[..], &value[..]) {
            ("answer", "true") => answer = true,
            ("answer", "false") => {}
            _ => return Err(wrong(&name, "answer=true")),
        }
    }
    if answer && let Some(desk) = api.service.store().desk() {
        // Written down first: what can't be written down is not shown.
        let seen = seen(&api, &key, false).await?;
        let reason = "asked for by the interface".to_owned();
        let subject = entry_subject(key.as_str());
        let (who, action) = (caller.name(), "look_at_answer");
        desk.note(Note { who, action, subject, version: seen.version, state: seen.state, reason }).await?;
    }
    json(&with_looks(&api, &key, seen(&api, &key, answer).await?).await?)
}

/// With what changed nothing about the entry: who looked at the answer, or had recovery look again.
pub async fn with_looks(api: &Api, key: &StoreKey, mut view: EntryView) -> Result<EntryView, Problem> {
    let audit = view.audit.get_or_insert_default();
    audit.extend(looks(api, key).await?);
    audit.sort_by_key(|line| line.at_us);
    Ok(view)
}

async fn looks(api: &Api, key: &StoreKey) -> Result<Vec<AuditLine>, Problem> {
    let Some(desk) = api.service.store().desk() else { return Ok(Vec::new()) };
    let lines = desk.lines(entry_subject(key.as_str())).await?;
    Ok(lines.into_iter().map(look).collect())
}

/// A look at an answer, as a line of the audit.
pub fn look(line: Line) -> AuditLine {
    AuditLine {
        at_us: line.at.0,
        who: line.who,
        action: line.action,
        version: line.version_before,
        state_before: line.state_before,
        state_after: line.state_after,
        forced: false,
        reason: line.reason,
    }
}

/// `POST /v1/entries/{key}/release`
pub async fn release(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let key = key(&text)?;
    let (parts, body) = request.into_parts();
    let caller = api.tokens.caller(&parts, Role::Operator)?;
    caller.may_operate(&key)?;
    let ReleaseOrder { version, reason, force } = order(&parts.headers, body).await?;
    let who = caller.name();
    let ruling = Ruling::Free(ReleaseCause::Other);
    decide(
        &api,
        Settle { key, version: self::version(&version)?, ruling, token: own_token()?, force, who, reason },
    )
    .await
}

/// `POST /v1/entries/{key}/settle`
pub async fn settle(Shared(api): Shared<Api>, Path(text): Path<String>, request: Request) -> Answered {
    let key = key(&text)?;
    let (parts, body) = request.into_parts();
    let caller = api.tokens.caller(&parts, Role::Operator)?;
    caller.may_operate(&key)?;
    let SettleOrder { version, reason, force, with } = order(&parts.headers, body).await?;
    let who = caller.name();
    let ruling = ruling(with).map_err(|reason| Problem::bad_request("order", reason))?;
    decide(
        &api,
        Settle { key, version: self::version(&version)?, ruling, token: own_token()?, force, who, reason },
    )
    .await
}

async fn decide(api: &Api, order: Settle) -> Answered {
    let key = order.key.clone();
    carry_out(api, order).await?;
    shown(api, &key, false).await
}

/// Does what a person decided, or says why not.
pub async fn carry_out(api: &Api, order: Settle) -> Result<(), Problem> {
    let order = Settle { reason: reasoned(order.reason)?, ..order };
    let key = order.key.clone();
    let action = order.ruling.action();
    tracing::info!(%key, action, who = %order.who, "order of an operator");
    let conflict = |code, detail: String| Err(Problem::new(StatusCode::CONFLICT, code, detail));
    match api.service.settle(order).await? {
        SettleReply::Settled => {
            metrics::counter!("fencepost_orders_total", "action" => action).increment(1);
            Ok(())
        }
        SettleReply::Absent => Err(absent()),
        SettleReply::Changed => {
            conflict("version_changed", "the entry is not any more what was shown: look at it again".into())
        }
        SettleReply::Running { left_ms } => conflict(
            "may_be_running",
            format!("its request may be running, for {} more; force says that it is not", duration(left_ms)),
        ),
        SettleReply::Standing => conflict(
            "already_so",
            "the entry is free already, or has an answer; an answer is released before it is replaced".into(),
        ),
    }
}

async fn shown(api: &Api, key: &StoreKey, answer: bool) -> Answered {
    json(&seen(api, key, answer).await?)
}

/// One entry, and what people did to it.
pub async fn seen(api: &Api, key: &StoreKey, answer: bool) -> Result<EntryView, Problem> {
    let store = api.service.store();
    let entry = store.entry(key, answer).await?.ok_or_else(absent)?;
    let audit = store.audit(key).await?;
    Ok(view(entry, answer, Some(audit)))
}

/// There is nothing under a key.
pub fn absent() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_entry", "there is no live entry under this key")
}

/// A token of nobody's claim.
pub fn own_token() -> Result<ClaimToken, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "no random numbers"))?;
    Ok(ClaimToken::from_bytes(bytes))
}

/// A stored key.
pub fn key(text: &str) -> Result<StoreKey, Problem> {
    StoreKey::parse(text).map_err(|error| Problem::bad_request("key", error.to_string()))
}

/// The word of a cause.
pub fn cause(word: String) -> Result<String, Problem> {
    let words = "a cause as a list shows it, such as held, timeout, lease_expired or not_run";
    if words::is_cause(&word) { Ok(word) } else { Err(wrong("cause", words)) }
}

/// Yes or no.
pub fn flag(name: &str, text: &str) -> Result<bool, Problem> {
    text.parse().map_err(|_| wrong(name, "true or false"))
}

/// A caller, by digest or stated scope.
pub fn scope(text: &str) -> Result<ScopeDigest, Problem> {
    digest_of(text).map_err(|error| Problem::bad_request("query", format!("scope: {error}")))
}

/// A version.
pub fn version(text: &str) -> Result<Version, Problem> {
    text.parse()
        .map_err(|error: crate::entry::VersionError| Problem::bad_request("version", error.to_string()))
}

/// What is wrong with a part of a call.
pub fn wrong(what: &str, expected: &str) -> Problem {
    Problem::bad_request("order", format!("{what}: expected {expected}"))
}

/// A reason that can be written down.
pub fn reasoned(reason: String) -> Result<String, Problem> {
    // PostgreSQL keeps no NUL in a text.
    if reason.trim().is_empty() || reason.chars().count() > REASON_LEN_MAX || reason.contains('\0') {
        return Err(wrong("reason", "why, in 1 to 1000 characters"));
    }
    Ok(reason)
}

/// Names and values of the query: only what these calls use, whose values are plain or `%XX`.
pub fn query(request: &Request) -> Result<Vec<(String, String)>, Problem> {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let bad = || Problem::bad_request("query", "the query can't be read");
            Ok((unescaped(name).ok_or_else(bad)?, unescaped(value).ok_or_else(bad)?))
        })
        .collect()
}

/// Text of a query.
pub fn unescaped(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        plain.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?,
            byte => byte,
        });
    }
    // PostgreSQL keeps no NUL in a text.
    String::from_utf8(plain).ok().filter(|text| !text.contains('\0'))
}

/// Reads an order.
pub async fn order<T: DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    // No web page can send this type to another origin unasked, so none can give orders to a service
    // on the loopback of whoever looks at it.
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !media_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        let detail = "expected the media type application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail));
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, ORDER_MAX).collect()).await;
    let body: Bytes = match read {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => {
            let detail = format!("the order is longer than {ORDER_MAX} bytes, or ended early");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
        }
        Err(_) => {
            let detail = "the body did not arrive in time";
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail));
        }
    };
    serde_json::from_slice(&body).map_err(|error| Problem::bad_request("order", error.to_string()))
}

/// A reply of JSON.
pub fn json(reply: &impl Serialize) -> Answered {
    let text = serde_json::to_vec(reply).map_err(|error| {
        tracing::error!(%error, "a reply can't be written");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "reply", "the reply can't be written")
    })?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response())
}

/// An entry as JSON says it.
pub fn view(entry: Entry, answer: bool, audit: Option<Vec<Audit>>) -> EntryView {
    let Entry { key, row, headers_len, body_len, held, now } = entry;
    let version = row.version().to_string();
    let mut view = EntryView {
        key: key.to_string(),
        state: StateName::of(&row.state).word().into(),
        version,
        fence: row.fence,
        scheme: row.scheme.as_str().to_owned(),
        fingerprint: row.fingerprint.to_hex(),
        scope: row.scope.to_hex(),
        created_at_us: row.created_at.0,
        updated_at_us: row.updated_at.0,
        now_us: now.0,
        held,
        audit: audit.map(|lines| lines.into_iter().map(line).collect()),
        ..EntryView::default()
    };
    about(&mut view, &row, now);
    if let State::Completed { status, headers, body, .. } = row.state {
        view.status = Some(status);
        view.headers_len = Some(headers_len);
        view.body_len = Some(body_len);
        if answer {
            let pairs = decode_headers(&headers).unwrap_or_default();
            let pair = |(name, value): (Vec<u8>, Vec<u8>)| {
                (String::from_utf8_lossy(&name).into_owned(), Octets(value))
            };
            view.headers = Some(pairs.into_iter().map(pair).collect());
            view.body = Some(Octets(body.to_vec()));
        }
    }
    view
}

/// What the row says about its end.
fn about(view: &mut EntryView, row: &Row, now: Micros) {
    match &row.state {
        State::Claimed(lease) => {
            view.on_lost = Some(words::on_lost(lease.on_lost).into());
            view.lease_left_ms = Some(lease.until.ms_after(now));
            view.run_left_ms = Some(lease.run_until.ms_after(now));
        }
        State::Unknown { .. } | State::Released { .. } => view.cause = words::cause(&row.state),
        State::Completed { .. } => {}
    }
    view.left_ms = row.until().map(|until| until.ms_after(now));
}

fn line(audit: Audit) -> AuditLine {
    AuditLine {
        at_us: audit.at.0,
        who: audit.who,
        action: audit.action,
        version: audit.version.to_string(),
        state_before: audit.state_before,
        state_after: audit.state_after,
        forced: audit.forced,
        reason: audit.reason,
    }
}
