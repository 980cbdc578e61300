//! The page of the audit: every line that was written down.

use super::page::{at, next, page, rows};
use super::{Form, shown};
use crate::desk::{AuditFilter, AuditKind};
use crate::entry::Micros;
use crate::http::{Api, Problem, audit, entries};
use crate::operator::audit_model::AuditView;
use crate::operator::read_time;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};

/// Rows of a page.
const PAGE: u32 = 50;

/// `GET /console/audit`
pub async fn list(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Response {
    shown(&api, &headers, async |at| {
        let form = Form::parse(uri.query().unwrap_or_default())?;
        let filter = AuditFilter { prefixes: at.caller.bound_to().map(<[String]>::to_vec), ..filter(&form)? };
        let found = api.any_desk()?.audit(filter).await?;
        let last = found.last().filter(|_| found.len() == PAGE as usize).map(|line| line.place.to_string());
        let found: Vec<_> = found.into_iter().map(audit::view).collect();
        let content = html! {
            h1 { "Audit" }
            section {
                p.hint { "What people, recovery and the service wrote down, the newest first. It only grows." }
                (filters(&form))
            }
            section {
                (table(&found))
                @if let Some(last) = last {
                    (next("/console/audit", &[
                        ("kind", form.get("kind")), ("action", form.get("action")), ("who", form.get("who")),
                        ("subject", form.get("subject")), ("since", form.get("since")),
                        ("until", form.get("until")), ("after", &last),
                    ]))
                }
            }
        };
        Ok(page(StatusCode::OK, "Audit", Some(&at.viewer), &content))
    })
    .await
}

fn filter(form: &Form) -> Result<AuditFilter, Problem> {
    let text = |name: &str| form.filled(name).map(str::to_owned);
    let time = |name: &str| {
        let read = form.filled(name).map(read_time).transpose();
        read.map(|us| us.map(Micros)).map_err(|why| entries::wrong(name, &why))
    };
    Ok(AuditFilter {
        kinds: form.filled("kind").map(audit::kind).transpose()?.map(|kind| vec![kind]),
        action: text("action"),
        who: text("who"),
        since: time("since")?,
        until: time("until")?,
        subject: text("subject"),
        prefixes: None,
        after: match form.filled("after").map(str::parse).transpose() {
            Ok(after) => after,
            Err(_) => return Err(entries::wrong("after", "a link of the page before")),
        },
        limit: PAGE,
    })
}

fn filters(form: &Form) -> Markup {
    html! {
        form.filters method="get" action="/console/audit" {
            label { "About"
                select name="kind" {
                    option value="" { "anything" }
                    @for kind in AuditKind::ALL {
                        option value=(kind.word()) selected[form.get("kind") == kind.word()] { (kind.word()) }
                    }
                }
            }
            label { "Which" input name="subject" value=(form.get("subject")) size="36"; }
            label { "Action" input name="action" value=(form.get("action")); }
            label { "Who" input name="who" value=(form.get("who")); }
            label { "From (UTC)" input name="since" value=(form.get("since")) placeholder="2026-11-30T20:15:00Z"; }
            label { "Until" input name="until" value=(form.get("until")); }
            button type="submit" { "Show" }
        }
    }
}

fn table(found: &[AuditView]) -> Markup {
    rows(&["When (UTC), who", "Action", "About", "State", "Why"], found, "None.", |line| {
        html! {
            td { (at(line.at_us)) br; (line.who) }
            td { (line.action.replace('_', " ")) @if line.forced { " (forced)" } }
            td { (line.kind) " " (about(line)) }
            td {
                @if !line.state_before.is_empty() { (line.state_before.replace('_', " ")) " → " }
                (line.state_after.replace('_', " "))
            }
            td.wide { (line.reason) }
        }
    })
}

fn about(line: &AuditView) -> Markup {
    match &line.kind[..] {
        "entry" => html! { a href=(format!("/console/entries/{}", line.subject)) { (line.subject) } },
        "operation" => html! { a href=(format!("/console/operations/{}", line.subject)) { (line.subject) } },
        _ => html! { span.mono { (line.subject) } },
    }
}
