//! What every page has: its frame, its headers, and words for people.

use super::super::Problem;
use crate::operator::print::{duration, time};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

/// Nothing but this origin's own style sheet is loaded, nothing runs, and no other site may frame
/// a page or be sent a form of it.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const STYLE: &str = include_str!("style.css");

/// Who looks, for the frame of a page.
pub struct Viewer {
    /// Name of the token.
    pub who: String,
    /// What forms carry.
    pub csrf: String,
}

/// `GET /console/style.css`
pub async fn style() -> Response {
    let content_type = HeaderValue::from_static("text/css; charset=utf-8");
    let mut response = ([(header::CONTENT_TYPE, content_type)], STYLE).into_response();
    guard(&mut response);
    response
}

/// A list as a table, one row of cells for each; `none` in place of an empty one.
pub fn rows<T>(heads: &[&str], found: &[T], none: &str, cells: impl Fn(&T) -> Markup) -> Markup {
    html! {
        @if found.is_empty() { p.empty { (none) } } @else {
            div.scroll { table {
                thead { tr { @for head in heads { th { (head) } } } }
                tbody { @for one in found { tr { (cells(one)) } } }
            } }
        }
    }
}

/// A page.
pub fn page(status: StatusCode, title: &str, viewer: Option<&Viewer>, content: &Markup) -> Response {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Fencepost" }
                link rel="stylesheet" href="/console/style.css";
            }
            body {
                header {
                    a.brand href="/console" { "Fencepost" }
                    @if let Some(viewer) = viewer {
                        nav aria-label="Sections" {
                            a href="/console" { "Overview" }
                            a href="/console/entries?state=unknown" { "Keys" }
                            a href="/console/operations" { "Operations" }
                            a href="/console/audit" { "Audit" }
                            a href="/console/recent" { "Recent" }
                        }
                        form.out method="post" action="/console/logout" {
                            span { (viewer.who) }
                            (csrf(viewer))
                            button.plain type="submit" { "Log out" }
                        }
                    }
                }
                main { (content) }
            }
        }
    };
    let content_type = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], markup.into_string()).into_response();
    guard(&mut response);
    response
}

fn guard(response: &mut Response) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
        // Not less: without it a browser would not say from where a form comes.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// The hidden field of a form.
pub fn csrf(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name="csrf" value=(viewer.csrf); }
}

/// What was refused, as a page.
pub fn refused(problem: &Problem, viewer: Option<&Viewer>) -> Response {
    refused_with(problem, viewer, None, &[])
}

/// The same for an order: with the way back to what it was about, and what a person had typed, so that
/// it is not lost.
pub fn refused_with(
    problem: &Problem,
    viewer: Option<&Viewer>,
    about: Option<(&str, &str)>,
    typed: &[(&str, &str)],
) -> Response {
    metrics::counter!("fencepost_problems_total", "code" => problem.code()).increment(1);
    let content = html! {
        h1 { "Nothing was done" }
        p.alert { strong { (problem.code()) } " " (problem.detail()) }
        @if typed.iter().any(|(_, text)| !text.is_empty()) {
            section {
                h2 { "What you had written" }
                @for (name, text) in typed.iter().filter(|(_, text)| !text.is_empty()) {
                    label { (name) textarea readonly { (text) } }
                }
            }
        }
        p {
            @if let Some((name, path)) = about { a href=(path) { "Look at " (name) " again" } " · " }
            a href="/console" { "Back to the overview" }
        }
    };
    page(problem.status(), "Nothing was done", viewer, &content)
}

/// Somewhere else, after a form: a reload does not send it again.
pub fn see(path: &str) -> Response {
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console"));
    let not_kept = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, location), not_kept]).into_response()
}

/// A word for a state, coloured by what it asks for.
pub fn state(word: &str) -> Markup {
    html! { span class=(format!("state {word}")) { (word.replace('_', " ")) } }
}

/// A time.
pub fn at(us: i64) -> Markup {
    let text = time(us);
    html! { time datetime=(format!("{}Z", text.replacen(' ', "T", 1))) { (text) } }
}

/// A duration, or that it is over.
pub fn left(ms: u64) -> String {
    if ms == 0 { "over".into() } else { duration(ms) }
}

/// One line of a timeline.
pub struct Moment {
    /// When.
    pub at_us: i64,
    /// What.
    pub what: String,
    /// By whom.
    pub who: Option<String>,
    /// More about it.
    pub detail: String,
}

/// A timeline, oldest first.
pub fn timeline(mut moments: Vec<Moment>) -> Markup {
    moments.sort_by_key(|moment| moment.at_us);
    html! {
        ol.timeline {
            @for moment in &moments {
                li {
                    (at(moment.at_us))
                    div {
                        strong { (moment.what) }
                        @if let Some(who) = &moment.who { " by " (who) }
                        @if !moment.detail.is_empty() { p { (moment.detail) } }
                    }
                }
            }
        }
    }
}

/// A link to the next page of a list.
pub fn next(path: &str, pairs: &[(&str, &str)]) -> Markup {
    let set = pairs.iter().filter(|(_, value)| !value.is_empty());
    let set: Vec<_> =
        set.map(|(name, value)| format!("{name}={}", crate::operator::escaped(value))).collect();
    html! { p { a href=(format!("{path}?{}", set.join("&"))) { "Next page" } } }
}
