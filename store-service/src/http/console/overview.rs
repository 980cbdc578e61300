//! The first page: what needs somebody, and what happens now.

use super::entries::table as entry_table;
use super::operations::table as operation_table;
use super::page::{at, page, rows, state};
use super::shown;
use crate::desk::{Desk, OperationFilter};
use crate::http::operations::OPEN;
use crate::http::{Api, Problem, entries, holds, operations};
use crate::operator::desk_model::HoldView;
use crate::operator::print::duration;
use crate::recent::{Event, Told};
use crate::store::{Filter, StateName};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use fencepost_protocol::grants::OperationStatus;
use maud::{Markup, html};
use std::sync::Arc;

/// Rows of each part.
const FEW: u32 = 10;

/// Rows of the page of what happened.
const MANY: usize = 200;

/// `GET /console`
pub async fn overview(State(api): State<Api>, request: Request) -> Response {
    shown(&api, request.headers(), async |at| {
        let prefixes = at.caller.bound_to().map(<[String]>::to_vec);
        let list = async |state| {
            let filter =
                Filter { state: Some(state), prefixes: prefixes.clone(), limit: FEW, ..Filter::default() };
            let found = api.service.store().entries(filter).await?;
            Ok::<_, Problem>(
                found.into_iter().map(|entry| entries::view(entry, false, None)).collect::<Vec<_>>(),
            )
        };
        let (unknown, claimed) = (list(StateName::Unknown).await?, list(StateName::Claimed).await?);
        let desk = if prefixes.is_none() { api.service.store().desk() } else { None };
        let seen = |event: &Event| may_see(prefixes.as_deref(), event);
        let recent = api.service.recent().last(FEW as usize, seen);
        let content = html! {
            h1 { "Overview" }
            @if let Some(desk) = &desk { (in_force(desk).await?) }
            section {
                h2 { "Outcomes that nobody knows" }
                p.hint { "Retries of these keys are refused until somebody finds out what happened." }
                (entry_table(&unknown))
                (more(unknown.len(), "/console/entries?state=unknown"))
            }
            (given_up(&api, prefixes.clone()).await?)
            @if let Some(desk) = &desk { (stalled(desk).await?) }
            section {
                h2 { "In flight" }
                (entry_table(&claimed))
                (more(claimed.len(), "/console/entries?state=claimed"))
            }
            section {
                h2 { "Told by this instance a moment ago" }
                (event_table(&recent))
                p { a href="/console/recent" { "All that it remembers" } }
            }
        };
        Ok(page(StatusCode::OK, "Overview", Some(&at.viewer), &content))
    })
    .await
}

fn more(count: usize, path: &str) -> Markup {
    html! { @if count == FEW as usize { p { a href=(path) { "All of them" } } } }
}

async fn in_force(desk: &Arc<dyn Desk>) -> Result<Markup, Problem> {
    let all = desk.holds().await?.into_iter().map(holds::view);
    let standing: Vec<HoldView> = all.filter(|hold| hold.lifted_at_us.is_none()).collect();
    Ok(html! {
        @for hold in &standing {
            p.notice {
                strong { "Hold " (hold.id) } " since " (at(hold.began_at_us)) " by " (hold.began_by) ": "
                @match hold.keys_left_ms {
                    Some(0) => "new keys run again",
                    Some(ms) => { "keys without an answer are held for " (duration(ms)) " more" }
                    None => "keys are not held",
                }
                @if let Some(prefix) = &hold.prefix { " (prefix " code { (prefix) } ")" }
                @if hold.grants { "; grants issued before " (at(hold.since_us)) " are refused" }
                ". " (hold.reason)
            }
        }
    })
}

/// Keys that recovery has given to a person; nothing where there is no recovery.
async fn given_up(api: &Api, prefixes: Option<Vec<String>>) -> Result<Markup, Problem> {
    let Some(recovery) = &api.recovery else { return Ok(html! {}) };
    let keys = recovery.held_list(prefixes, None, FEW).await?;
    Ok(html! {
        @if !keys.is_empty() {
            section {
                h2 { "Keys that recovery has given to a person" }
                (rows(&["Since (UTC)", "Why", "Key"], &keys, "", |marked| html! {
                    td { (at(marked.marked_at.0)) }
                    td { (marked.reason) }
                    td { a href=(format!("/console/entries/{}", marked.key)) { (marked.key) } }
                }))
            }
        }
    })
}

async fn stalled(desk: &Arc<dyn Desk>) -> Result<Markup, Problem> {
    let list = async |statuses: Vec<OperationStatus>| {
        let filter = OperationFilter { statuses: Some(statuses), limit: FEW, ..OperationFilter::default() };
        let found = desk.operations(filter).await?;
        Ok::<_, Problem>(found.into_iter().map(|seen| operations::view(seen, None)).collect::<Vec<_>>())
    };
    let waiting = list(vec![OperationStatus::NeedsReconciliation]).await?;
    let open =
        list(OPEN.into_iter().filter(|status| *status != OperationStatus::NeedsReconciliation).collect());
    let open = open.await?;
    Ok(html! {
        section {
            h2 { "Operations to be reconciled" }
            p.hint { "Recovery has come to its end; a person, or the provider, has to say what happened." }
            (operation_table(&waiting))
            (more(waiting.len(), "/console/operations?status=needs_reconciliation"))
        }
        section {
            h2 { "Open operations" }
            (operation_table(&open))
            (more(open.len(), "/console/operations"))
        }
    })
}

fn may_see(prefixes: Option<&[String]>, event: &Event) -> bool {
    prefixes.is_none_or(|some| some.iter().any(|prefix| prefix == event.key.prefix()))
}

/// `GET /console/recent`
pub async fn recent(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Response {
    shown(&api, &headers, async |at| {
        let form = super::Form::parse(uri.query().unwrap_or_default())?;
        let wished = form.filled("told").map(str::to_owned);
        let prefixes = at.caller.bound_to().map(<[String]>::to_vec);
        let fits = |event: &Event| {
            may_see(prefixes.as_deref(), event)
                && wished.as_deref().is_none_or(|wished| event.told.word() == wished)
        };
        let events = api.service.recent().last(MANY, fits);
        let content = html! {
            h1 { "Recently, on this instance" }
            section {
                p.hint { "Stores write nothing when they replay: this instance remembers its last "
                    (crate::recent::KEPT) " words to callers, and forgets them when it stops. Other instances have \
                     their own." }
                form.filters method="get" action="/console/recent" {
                    label { "What was told"
                        select name="told" {
                            option value="" { "anything" }
                            @for told in Told::ALL {
                                option value=(told.word()) selected[wished.as_deref() == Some(told.word())] {
                                    (told.word())
                                }
                            }
                        }
                    }
                    button type="submit" { "Filter" }
                }
            }
            section { (event_table(&events)) }
        };
        Ok(page(StatusCode::OK, "Recent", Some(&at.viewer), &content))
    })
    .await
}

fn event_table(events: &[Event]) -> Markup {
    rows(&["Told", "When (UTC)", "Key"], events, "Nothing.", |event| {
        html! {
            td { (state(event.told.word())) }
            td { (at(event.at_us)) }
            td { a href=(format!("/console/entries/{}", event.key)) { (event.key) } }
        }
    })
}
