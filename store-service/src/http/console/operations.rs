//! Pages of operations: a list, one with its history, and the order that ends it.

use super::page::{Moment, Viewer, at, csrf, left, next, page, refused_with, rows, see, state, timeline};
use super::{Form, formed, shown};
use crate::desk::{Desk, OperationFilter};
use crate::grant::store::read_status;
use crate::http::operations::{self, OPEN};
use crate::http::{Api, Problem, entries};
use crate::operator::desk_model::{EndingWord, OperationView};
use crate::operator::print::duration;
use crate::operator::{milliseconds, told};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};
use std::sync::Arc;

/// Rows of a page.
const PAGE: u32 = 50;

const STATUSES: [&str; 6] = ["open", "admitted", "unknown", "needs_reconciliation", "succeeded", "failed"];

impl super::At<'_> {
    /// The desk, for those who are bound to no prefixes.
    fn desk(&self, api: &Api) -> Result<Arc<dyn Desk>, Problem> {
        if self.caller.bound_to().is_some() {
            let detail = "operations have no key prefix, and the token is bound to some";
            return Err(Problem::new(StatusCode::FORBIDDEN, "key_prefix", detail));
        }
        api.any_desk()
    }
}

/// `GET /console/operations`
pub async fn list(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Response {
    shown(&api, &headers, async |at| {
        let desk = at.desk(&api)?;
        let form = Form::parse(uri.query().unwrap_or_default())?;
        if let Some(id) = form.filled("id") {
            return Ok(see(&format!("/console/operations/{}", operations::id(id)?)));
        }
        let found = desk.operations(filter(&form)?).await?;
        let last = found.last().filter(|_| found.len() == PAGE as usize).map(|seen| seen.id.to_string());
        let found: Vec<_> = found.into_iter().map(|seen| operations::view(seen, None)).collect();
        let content = html! {
            h1 { "Operations" }
            section { (filters(&form)) }
            section {
                (table(&found))
                @if let Some(last) = last {
                    (next("/console/operations", &[
                        ("status", form.get("status")), ("issuer", form.get("issuer")),
                        ("tenant", form.get("tenant")), ("caller", form.get("caller")),
                        ("cause", form.get("cause")), ("namespace", form.get("namespace")),
                        ("older", form.get("older")), ("after", &last),
                    ]))
                }
            }
        };
        Ok(page(StatusCode::OK, "Operations", Some(&at.viewer), &content))
    })
    .await
}

fn filter(form: &Form) -> Result<OperationFilter, Problem> {
    let statuses = match form.filled("status").unwrap_or("open") {
        "any" => None,
        "open" => Some(OPEN.to_vec()),
        word => Some(vec![read_status(word).ok_or_else(|| entries::wrong("status", "one of the list"))?]),
    };
    let older = form.filled("older").map(milliseconds).transpose();
    let text = |name: &str| form.filled(name).map(str::to_owned);
    Ok(OperationFilter {
        statuses,
        issuer: text("issuer"),
        tenant: text("tenant"),
        caller_namespace: text("namespace"),
        caller_id: text("caller"),
        cause: text("cause"),
        older_than_ms: match older.map_err(|why| entries::wrong("older", &why))? {
            Some(ms) => Some(operations::age("older", ms)?),
            None => None,
        },
        after: form.filled("after").map(operations::id).transpose()?,
        limit: PAGE,
    })
}

fn filters(form: &Form) -> Markup {
    html! {
        form.filters method="get" action="/console/operations" {
            label { "Status"
                select name="status" {
                    @for word in STATUSES {
                        option value=(word) selected[form.get("status") == word] { (word.replace('_', " ")) }
                    }
                    option value="any" selected[form.get("status") == "any"] { "any" }
                }
            }
            label { "Issuer" input name="issuer" value=(form.get("issuer")); }
            label { "Tenant" input name="tenant" value=(form.get("tenant")); }
            label { "Caller" input name="caller" value=(form.get("caller")); }
            label { "Its namespace" input name="namespace" value=(form.get("namespace")); }
            label { "Why" input name="cause" value=(form.get("cause")) placeholder="owner, not_found, ..." size="14"; }
            label { "Older than" input name="older" value=(form.get("older")) placeholder="10m" size="6"; }
            label { "or one operation" input name="id" size="36"; }
            button type="submit" { "Show" }
        }
    }
}

/// A list as a table.
pub fn table(found: &[OperationView]) -> Markup {
    let age = |seen: &OperationView| u64::try_from((seen.now_us - seen.created_at_us) / 1_000).unwrap_or(0);
    rows(&["Status", "Why", "Admitted (UTC)", "Age", "Caller", "Operation"], found, "None.", |seen| {
        html! {
            td { (state(&seen.status)) }
            td { (seen.cause.as_deref().unwrap_or("").replace('_', " ")) }
            td { (at(seen.created_at_us)) }
            td { (duration(age(seen))) }
            td { (seen.caller) }
            td { a href=(format!("/console/operations/{}", seen.operation_id)) { (seen.operation_id) } }
        }
    })
}

/// `GET /console/operations/{id}`
pub async fn show(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    shown(&api, request.headers(), async |at| {
        let desk = at.desk(&api)?;
        let seen = operations::shown(&*desk, operations::id(&text)?).await?;
        Ok(one(&at.viewer, &seen))
    })
    .await
}

/// `POST /console/operations/{id}/settle`
pub async fn settle(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    shown(&api, &parts.headers, async |at| {
        let desk = at.desk(&api)?;
        let id = operations::id(&text)?;
        let form = formed(&at, &parts.headers, body).await?;
        let outcome = match form.get("outcome") {
            "succeeded" => EndingWord::Succeeded,
            "failed" => EndingWord::Failed,
            "look_again" => EndingWord::LookAgain,
            _ => return Err(entries::wrong("outcome", "succeeded, failed or look_again")),
        };
        let reference = form.filled("reference").map(str::to_owned);
        let (version, reason) = (form.get("version"), form.get("reason").to_owned());
        let (who, at_id) = (at.caller.name(), id.clone());
        let done = operations::decide(desk, who, at_id, version, reason, outcome, reference).await;
        Ok(match done {
            Ok(_) => see(&format!("/console/operations/{id}")),
            Err(problem) => {
                let typed = [("Reason", form.get("reason")), ("Reference", form.get("reference"))];
                let back = format!("/console/operations/{id}");
                refused_with(&problem, Some(&at.viewer), Some(("the operation", &back)), &typed)
            }
        })
    })
    .await
}

fn one(viewer: &Viewer, seen: &OperationView) -> Response {
    let content = html! {
        h1 { "Operation " span.mono { (seen.operation_id) } }
        section { (facts(seen)) }
        section { h2 { "History" } (timeline(moments(seen))) }
        section {
            h2 { "Decide" }
            @if seen.has_ended() { p.empty { "Its end is recorded, and an end is never changed." } } @else { (orders(viewer, seen)) }
        }
    };
    page(StatusCode::OK, &seen.operation_id, Some(viewer), &content)
}

fn facts(seen: &OperationView) -> Markup {
    html! {
        dl {
            dt { "Status" } dd { (state(&seen.status)) }
            @if let Some(cause) = &seen.cause { dt { "Why" } dd { (cause.replace('_', " ")) } }
            @if let Some(reference) = &seen.reference { dt { "Reference" } dd.mono { (reference) } }
            dt { "Caller" } dd { (seen.caller) " in " (seen.caller_namespace) }
            @if !seen.tenant.is_empty() { dt { "Tenant" } dd { (seen.tenant) } }
            dt { "Grant" } dd { span.mono { (seen.grant_id) } " of " (seen.issuer) }
            @for (name, value) in &seen.details { dt { (name) } dd.mono { (value) } }
            @if !seen.has_ended() {
                dt { "Lease" } dd { (left(seen.lease_left_ms)) @if seen.resting { ", recovery rests" } }
                dt { "May be sent for" } dd { (left(seen.submit_left_ms)) }
            }
            dt { "Version" } dd.mono { (seen.version) }
        }
    }
}

fn moments(seen: &OperationView) -> Vec<Moment> {
    let mut all = vec![Moment {
        at_us: seen.created_at_us,
        what: "Admitted".into(),
        who: Some(seen.caller.clone()),
        detail: String::new(),
    }];
    let told = seen.history.iter().flatten().map(|event| {
        let line = told::event(event);
        Moment { at_us: event.at_us, what: line.what, who: Some(event.who.clone()), detail: line.detail }
    });
    all.extend(told);
    if !all.iter().any(|moment| moment.at_us == seen.updated_at_us) {
        let what = format!("Recorded: {}", seen.status.replace('_', " "));
        all.push(Moment { at_us: seen.updated_at_us, what, who: None, detail: "by its owner".into() });
    }
    all
}

fn orders(viewer: &Viewer, seen: &OperationView) -> Markup {
    let form = |outcome: &str, title: &str, hint: &str, button: &str| {
        let ends = outcome != "look_again";
        html! {
            form method="post" action=(format!("/console/operations/{}/settle", seen.operation_id)) {
                h2 { (title) }
                p.hint { (hint) }
                (csrf(viewer))
                input type="hidden" name="version" value=(seen.version);
                input type="hidden" name="outcome" value=(outcome);
                @if ends { label { "The provider's id or code" input name="reference" maxlength="255"; } }
                label { "Reason" input name="reason" required maxlength="1000"; }
                button.grave[outcome == "failed"] type="submit" { (button) }
            }
        }
    };
    html! {
        p.hint { "Look for the effect where it would be first. An end that is said here is never changed again." }
        div.orders {
            (form("succeeded", "The effect exists", "Retries are told that it succeeded.", "It succeeded"))
            (form("failed", "There is no effect, and none can come",
                "Refused while its owner may still be sending.", "It failed"))
            @if seen.status == "needs_reconciliation" {
                (form("look_again", "The provider may answer now",
                    "Recovery looks it up again, as if it had never looked; it is unknown until then.", "Look again"))
            }
        }
    }
}
