//! Pages of keys: a list, one with its history, and the orders about it.

use super::page::{Moment, Viewer, at, csrf, left, next, page, refused_with, rows, see, state, timeline};
use super::{Form, formed, shown};
use crate::desk::{AgainOrder, Note, entry_subject};
use crate::entry::{Ruling, Settle};
use crate::http::{Api, Problem, again, entries, operations};
use crate::operator::model::{EntryView, Octets, SettleWith};
use crate::operator::ruling::ruling;
use crate::operator::told;
use crate::operator::{milliseconds, print::duration};
use crate::store::{Filter, StateName};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::ReleaseCause;
use maud::{Markup, html};

/// Rows of a page.
const PAGE: u32 = 50;

/// `GET /console/entries`
pub async fn list(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Response {
    shown(&api, &headers, async |at| {
        let form = Form::parse(uri.query().unwrap_or_default())?;
        if let Some(key) = form.filled("key") {
            return Ok(see(&format!("/console/entries/{}", entries::key(key)?)));
        }
        let filter = filter(&form, at.caller.bound_to())?;
        let found = api.service.store().entries(filter).await?;
        let last = found.last().filter(|_| found.len() == PAGE as usize).map(|entry| entry.key.to_string());
        let found: Vec<_> = found.into_iter().map(|entry| entries::view(entry, false, None)).collect();
        let content = html! {
            h1 { "Keys" }
            section { (filters(&form)) }
            section {
                (table(&found))
                @if let Some(last) = last {
                    (next("/console/entries", &[
                        ("state", form.get("state")), ("prefix", form.get("prefix")),
                        ("scope", form.get("scope")), ("cause", form.get("cause")),
                        ("held", form.get("held")), ("older", form.get("older")), ("after", &last),
                    ]))
                }
            }
        };
        Ok(page(StatusCode::OK, "Keys", Some(&at.viewer), &content))
    })
    .await
}

fn filter(form: &Form, bound: Option<&[String]>) -> Result<Filter, Problem> {
    let state = match form.filled("state") {
        None => None,
        Some(word) => {
            let found = StateName::ALL.into_iter().find(|state| state.word() == word);
            Some(found.ok_or_else(|| entries::wrong("state", "claimed, completed, unknown or released"))?)
        }
    };
    let older = form.filled("older").map(milliseconds).transpose();
    let wished = form.filled("prefix").map(|prefix| vec![prefix.to_owned()]);
    let prefixes = match (bound, wished) {
        (None, wished) => wished,
        (Some(bound), None) => Some(bound.to_vec()),
        (Some(bound), Some(wished)) => {
            Some(bound.iter().filter(|prefix| wished.contains(prefix)).cloned().collect())
        }
    };
    Ok(Filter {
        state,
        prefixes,
        scope: form.filled("scope").map(entries::scope).transpose()?,
        cause: form.filled("cause").map(|word| entries::cause(word.to_owned())).transpose()?,
        held: form.filled("held").map(|text| entries::flag("held", text)).transpose()?,
        older_than_ms: match older.map_err(|why| entries::wrong("older", &why))? {
            Some(ms) => Some(operations::age("older", ms)?),
            None => None,
        },
        after: form.filled("after").map(entries::key).transpose()?,
        limit: PAGE,
    })
}

fn filters(form: &Form) -> Markup {
    html! {
        form.filters method="get" action="/console/entries" {
            label { "State"
                select name="state" {
                    option value="" { "any" }
                    @for state in StateName::ALL {
                        option value=(state.word()) selected[form.get("state") == state.word()] { (state.word()) }
                    }
                }
            }
            label { "Why" input name="cause" value=(form.get("cause")) placeholder="held, timeout, ..." size="12"; }
            label { "Hold"
                select name="held" {
                    option value="" { "any" }
                    option value="true" selected[form.get("held") == "true"] { "held" }
                    option value="false" selected[form.get("held") == "false"] { "not held" }
                }
            }
            label { "Prefix" input name="prefix" value=(form.get("prefix")); }
            label { "Caller (scope as JSON, or its digest)" input name="scope" value=(form.get("scope")) size="26"; }
            label { "Older than" input name="older" value=(form.get("older")) placeholder="10m" size="6"; }
            label { "or one stored key" input name="key" size="34"; }
            button type="submit" { "Show" }
        }
    }
}

/// A list as a table.
pub fn table(found: &[EntryView]) -> Markup {
    rows(&["State", "Since (UTC)", "Age", "Ends in", "Why", "Key"], found, "None.", |entry| {
        html! {
            td { (state(&entry.state)) @if entry.held == Some(true) { " " (state("held")) } }
            td { (at(entry.updated_at_us)) }
            td { (duration(entry.age_ms())) }
            td { (ends(entry)) }
            td { (entry.cause.as_deref().unwrap_or("").replace('_', " ")) }
            td { a href=(format!("/console/entries/{}", entry.key)) { (entry.key) } }
        }
    })
}

fn ends(entry: &EntryView) -> String {
    match (entry.left_ms, entry.lease_left_ms) {
        (Some(ms), _) => duration(ms),
        (None, Some(ms)) => format!("lease {}", left(ms)),
        (None, None) => "-".into(),
    }
}

/// `GET /console/entries/{key}`
pub async fn show(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    shown(&api, request.headers(), async |at| {
        let key = entries::key(&text)?;
        at.caller.may_operate(&key)?;
        one(&api, &at.viewer, &key, false).await
    })
    .await
}

/// `POST /console/entries/{key}/answer`
pub async fn answer(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    shown(&api, &parts.headers, async |at| {
        let key = entries::key(&text)?;
        at.caller.may_operate(&key)?;
        let form = formed(&at, &parts.headers, body).await?;
        let reason = entries::reasoned(form.get("reason").to_owned())?;
        let seen = entries::seen(&api, &key, false).await?;
        let note = Note {
            who: at.caller.name(),
            action: "look_at_answer",
            subject: entry_subject(key.as_str()),
            version: seen.version,
            state: seen.state,
            reason,
        };
        // Written down first: what can't be written down is not shown.
        api.any_desk()?.note(note).await?;
        one(&api, &at.viewer, &key, true).await
    })
    .await
}

/// `POST /console/entries/{key}/release`
pub async fn release(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    shown(&api, &parts.headers, async |at| {
        let key = entries::key(&text)?;
        at.caller.may_operate(&key)?;
        let form = formed(&at, &parts.headers, body).await?;
        let done = decide(&api, at.caller.name(), key, &form, Ruling::Free(ReleaseCause::Other)).await;
        Ok(done.unwrap_or_else(|problem| returned(&problem, &at.viewer, &text, &form)))
    })
    .await
}

/// `POST /console/entries/{key}/settle`
pub async fn settle(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    shown(&api, &parts.headers, async |at| {
        let key = entries::key(&text)?;
        at.caller.may_operate(&key)?;
        let form = formed(&at, &parts.headers, body).await?;
        let done = match ruled(&form) {
            Ok(ruling) => decide(&api, at.caller.name(), key, &form, ruling).await,
            Err(problem) => Err(problem),
        };
        Ok(done.unwrap_or_else(|problem| returned(&problem, &at.viewer, &text, &form)))
    })
    .await
}

/// `POST /console/entries/{key}/look-again`
pub async fn look_again(State(api): State<Api>, Path(text): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    shown(&api, &parts.headers, async |at| {
        let key = entries::key(&text)?;
        at.caller.may_operate(&key)?;
        let form = formed(&at, &parts.headers, body).await?;
        let order = AgainOrder {
            version: entries::version(form.get("version"))?,
            who: at.caller.name(),
            reason: form.get("reason").to_owned(),
            key: key.clone(),
        };
        Ok(match again::ask_again(&api, order).await {
            Ok(()) => see(&format!("/console/entries/{key}")),
            Err(problem) => returned(&problem, &at.viewer, &text, &form),
        })
    })
    .await
}

fn ruled(form: &Form) -> Result<Ruling, Problem> {
    let with = match form.get("with") {
        "not_run" => SettleWith::NotRun,
        "answer" => stated(form)?,
        _ => return Err(entries::wrong("with", "not_run or answer")),
    };
    ruling(with).map_err(|reason| Problem::bad_request("order", reason))
}

/// A refused order, with what was typed.
fn returned(problem: &Problem, viewer: &Viewer, text: &str, form: &Form) -> Response {
    let typed = [("Reason", form.get("reason")), ("Body", form.raw("body"))];
    let back = format!("/console/entries/{text}");
    refused_with(problem, Some(viewer), Some(("the key", &back)), &typed)
}

fn stated(form: &Form) -> Result<SettleWith, Problem> {
    let status = form.get("status").parse().map_err(|_| entries::wrong("status", "200 to 599"))?;
    let ttl = milliseconds(form.filled("ttl").unwrap_or("24h")).map_err(|why| entries::wrong("ttl", &why))?;
    let media = form.filled("media").map(|media| ("content-type".to_owned(), Octets(media.into())));
    // Browsers send line ends as CRLF; an answer that was typed has plain ones.
    let body = form.raw("body").replace("\r\n", "\n").into_bytes();
    Ok(SettleWith::Answer {
        status,
        headers: media.into_iter().collect(),
        body: Octets(body),
        ttl_ms: Some(ttl),
    })
}

async fn decide(
    api: &Api,
    who: String,
    key: StoreKey,
    form: &Form,
    ruling: Ruling,
) -> Result<Response, Problem> {
    let order = Settle {
        version: entries::version(form.get("version"))?,
        token: entries::own_token()?,
        force: form.get("force") == "yes",
        reason: form.get("reason").to_owned(),
        key: key.clone(),
        ruling,
        who,
    };
    entries::carry_out(api, order).await?;
    Ok(see(&format!("/console/entries/{key}")))
}

async fn one(api: &Api, viewer: &Viewer, key: &StoreKey, answer: bool) -> Result<Response, Problem> {
    let entry = entries::seen(api, key, answer).await?;
    let content = html! {
        h1 { "Key " span.mono { (entry.key) } }
        section { (facts(&entry)) }
        @if entry.status.is_some() { section { h2 { "Answer" } (answered(viewer, &entry)) } }
        section { h2 { "History" } (timeline(moments(api, key, &entry).await?)) }
        section { h2 { "Decide" } (orders(viewer, &entry, api.recovery.is_some())) }
    };
    Ok(page(StatusCode::OK, &entry.key, Some(viewer), &content))
}

fn facts(entry: &EntryView) -> Markup {
    html! {
        dl {
            dt { "State" } dd { (state(&entry.state)) }
            @if let Some(cause) = &entry.cause { dt { "Why" } dd { (cause.replace('_', " ")) } }
            @if let Some(ms) = entry.lease_left_ms { dt { "Lease" } dd { (left(ms)) } }
            @if let Some(ms) = entry.run_left_ms { dt { "May run for" } dd { (left(ms)) } }
            @if let Some(word) = &entry.on_lost { dt { "If it is lost" } dd { (word) } }
            @if let Some(ms) = entry.left_ms { dt { "Ends in" } dd { (duration(ms)) } }
            dt { "Fence" } dd.mono { (entry.fence) }
            dt { "Version" } dd.mono { (entry.version) }
            dt { "Fingerprint" } dd.mono { (entry.fingerprint) " (" (entry.scheme) ")" }
            dt { "Caller" } dd {
                a.mono href=(format!("/console/entries?scope={}", entry.scope)) { (entry.scope) }
            }
        }
    }
}

fn answered(viewer: &Viewer, entry: &EntryView) -> Markup {
    let lossy = |octets: &Octets| String::from_utf8_lossy(&octets.0).into_owned();
    html! {
        p { "Status " strong { (entry.status.unwrap_or_default()) } ", "
            (entry.headers_len.unwrap_or(0)) " bytes of headers, " (entry.body_len.unwrap_or(0)) " bytes of body." }
        @if let Some(body) = &entry.body {
            pre {
                @for (name, value) in entry.headers.iter().flatten() { (name) ": " (lossy(value)) "\n" }
                "\n" (lossy(body))
            }
        } @else {
            p.hint { "Hidden. It may hold personal data: that it was looked at, by whom and why, is written down." }
            form.filters method="post" action=(format!("/console/entries/{}/answer", entry.key)) {
                (csrf(viewer))
                label { "Reason" input name="reason" required maxlength="1000" size="40"; }
                button.plain type="submit" { "Show the answer" }
            }
        }
    }
}

async fn moments(api: &Api, key: &StoreKey, entry: &EntryView) -> Result<Vec<Moment>, Problem> {
    let moment = |at_us, what: String, detail: String| Moment { at_us, what, who: None, detail };
    let mut all = vec![moment(entry.created_at_us, "Claimed".into(), format!("fence {}", entry.fence))];
    // A person's order wrote the present state itself, and stands below.
    let by_person = entry.audit.iter().flatten().any(|line| line.at_us == entry.updated_at_us);
    if entry.updated_at_us != entry.created_at_us && !by_person {
        let what = match &entry.state[..] {
            "claimed" => "Renewed",
            "completed" => "Answered",
            "released" => "Given back",
            _ => "Outcome unknown",
        };
        all.push(moment(
            entry.updated_at_us,
            what.into(),
            entry.cause.clone().unwrap_or_default().replace('_', " "),
        ));
    }
    for line in entry.audit.iter().flatten() {
        let told = told::order(line);
        all.push(Moment {
            at_us: line.at_us,
            what: told.what,
            who: Some(line.who.clone()),
            detail: told.detail,
        });
    }
    if let Some(desk) = api.service.store().desk() {
        for line in desk.lines(entry_subject(key.as_str())).await?.into_iter().map(entries::look) {
            let told = told::order(&line);
            all.push(Moment { at_us: line.at_us, what: told.what, who: Some(line.who), detail: told.detail });
        }
    }
    for event in api.service.recent().last(20, |event| event.key == *key) {
        all.push(moment(event.at_us, format!("Told: {}", event.told.word()), "by this instance".into()));
    }
    Ok(all)
}

fn orders(viewer: &Viewer, entry: &EntryView, recovery: bool) -> Markup {
    let usual = |grave: bool, button: &str| {
        html! {
            label { "Reason" input name="reason" required maxlength="1000"; }
            @if entry.state == "claimed" {
                label.check { input type="checkbox" name="force" value="yes";
                    "I know that its request is not running any more" }
            }
            button.grave[grave] type="submit" { (button) }
        }
    };
    let path = |rest: &str| format!("/console/entries/{}/{rest}", entry.key);
    let hidden = html! { (csrf(viewer)) input type="hidden" name="version" value=(entry.version); };
    html! {
        p.hint { "Each order is about the version above: if the key has changed since, nothing is done." }
        div.orders {
            @if entry.state != "completed" {
                form method="post" action=(path("settle")) {
                    h2 { "It was carried out" }
                    p.hint { "Retries get this answer." }
                    (hidden)
                    input type="hidden" name="with" value="answer";
                    label { "Status" input name="status" value="200" inputmode="numeric" required; }
                    label { "Content type" input name="media" value="application/json"; }
                    label { "Body" textarea name="body" {} }
                    label { "Lifetime" input name="ttl" value="24h"; }
                    (usual(false, "Store this answer"))
                }
            }
            @if entry.state == "unknown" && recovery {
                form method="post" action=(path("look-again")) {
                    h2 { "The provider may answer now" }
                    p.hint { "Recovery looks it up once more. Refused unless it has given the key to a person." }
                    (hidden)
                    (usual(false, "Look again"))
                }
            }
            @if entry.state != "released" && entry.state != "completed" {
                form method="post" action=(path("settle")) {
                    h2 { "It was certainly not carried out" }
                    p.hint { "The next retry runs." }
                    (hidden)
                    input type="hidden" name="with" value="not_run";
                    (usual(false, "It did not run"))
                }
            }
            @if entry.state != "released" {
                form method="post" action=(path("release")) {
                    h2 { "It may run again, whatever happened" }
                    p.hint { "The next retry runs, even if the request was carried out." }
                    (hidden)
                    (usual(true, "Release the key"))
                }
            }
        }
    }
}
