//! `/console`: what an operator does in a browser. Pages are made on the server, work without
//! scripts, load nothing from elsewhere, and do what `/v1/entries` and `/v1/operator` do.
//!
//! Everything that is shown is escaped by the templates. Stored bodies are hidden until somebody
//! asks for one with a reason, which is written down first.

mod asked;
mod audit;
mod entries;
mod form;
mod operations;
mod overview;
mod page;
pub(super) mod session;

use super::link::Link;
use super::near::elsewhere;
use super::{Api, Caller, Problem, Role};
use crate::grant::limiter::Limiter;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use form::Form;
use maud::html;
use page::{Viewer, page, see};
use session::{Session, Sessions, on_loopback, own_site};
use std::sync::Arc;
use std::time::Instant;

/// Wrong tokens a minute, all together: people are few. The right one is let in whatever others try.
const WRONG_PER_MINUTE: u32 = 30;

/// What the console keeps.
pub struct Console {
    sessions: Sessions,
    wrong: Limiter,
}

impl Console {
    /// A console of this process; none without random numbers.
    pub fn new() -> Option<Arc<Self>> {
        Some(Arc::new(Self { sessions: Sessions::new()?, wrong: Limiter::new(WRONG_PER_MINUTE) }))
    }
}

/// Its routes.
pub fn routes() -> Router<Api> {
    Router::new()
        .route("/console", get(overview::overview))
        .route("/console/style.css", get(page::style))
        .route("/console/login", get(login_page).post(login))
        .route("/console/logout", post(logout))
        .route("/console/audit", get(audit::list))
        .route("/console/recent", get(overview::recent))
        .route("/console/entries", get(entries::list))
        .route("/console/entries/{key}", get(entries::show))
        .route("/console/entries/{key}/answer", post(entries::answer))
        .route("/console/entries/{key}/release", post(entries::release))
        .route("/console/entries/{key}/settle", post(entries::settle))
        .route("/console/entries/{key}/look-again", post(entries::look_again))
        .route("/console/operations", get(operations::list))
        .route("/console/operations/{id}", get(operations::show))
        .route("/console/operations/{id}/settle", post(operations::settle))
        .layer(axum::middleware::from_fn(asked::remembered))
}

/// Who is at a page.
struct At<'a> {
    caller: Caller<'a>,
    viewer: Viewer,
    session: Session,
}

impl Api {
    fn console(&self) -> Result<&Console, Problem> {
        let missing = || Problem::new(StatusCode::NOT_FOUND, "not_found", "there is no console here");
        self.console.as_deref().ok_or_else(missing)
    }

    /// The session of a request, and the token that it stands for.
    fn at(&self, headers: &HeaderMap) -> Result<Option<At<'_>>, Problem> {
        let console = self.console()?;
        if self.tokens.is_open() && !on_loopback(headers) {
            return Err(elsewhere());
        }
        let Some(session) = console.sessions.find(headers) else { return Ok(None) };
        let Some(caller) = self.tokens.caller_by_digest(&session.digest, Role::Operator) else {
            return Ok(None);
        };
        let viewer = Viewer { who: caller.name(), csrf: session.csrf.clone() };
        Ok(Some(At { caller, viewer, session }))
    }
}

/// Runs a page for somebody who is logged in; others are led to the login.
async fn shown<'a, F>(api: &'a Api, headers: &HeaderMap, work: impl FnOnce(At<'a>) -> F) -> Response
where
    F: Future<Output = Result<Response, Problem>>,
{
    match api.at(headers) {
        Err(problem) => page::refused(&problem, None),
        Ok(None) => see(asked::LOGIN),
        Ok(Some(at)) => {
            let viewer = Viewer { who: at.viewer.who.clone(), csrf: at.viewer.csrf.clone() };
            match work(at).await {
                Ok(response) => response,
                Err(problem) => page::refused(&problem, Some(&viewer)),
            }
        }
    }
}

/// Reads a form that belongs to the session, or refuses it.
async fn formed(at: &At<'_>, headers: &HeaderMap, body: axum::body::Body) -> Result<Form, Problem> {
    own_site(headers)?;
    let form = Form::read(headers, body).await?;
    at.session.check(form.get("csrf"))?;
    Ok(form)
}

async fn login_page(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Response {
    // A query that can't be read asks for no page.
    let form = Form::parse(uri.query().unwrap_or_default()).ok();
    let to = form.as_ref().map_or("", |form| form.raw("to"));
    match api.at(&headers) {
        Err(problem) => page::refused(&problem, None),
        Ok(Some(_)) => asked::go(to),
        Ok(None) => login_form(&api, StatusCode::OK, None, to),
    }
}

fn login_form(api: &Api, status: StatusCode, wrong: Option<&str>, to: &str) -> Response {
    let content = html! {
        section.login {
            h1 { "Log in" }
            @if let Some(wrong) = wrong { p.alert role="alert" { (wrong) } }
            form method="post" action="/console/login" {
                @if let Some(to) = asked::page(to) { input type="hidden" name="to" value=(to); }
                @if api.tokens.is_open() {
                    p.hint { "This service asks for no tokens: whoever is on this machine may do everything." }
                } @else {
                    label { "Operator token"
                        input type="password" name="token" autocomplete="off" required autofocus;
                    }
                }
                button type="submit" { "Log in" }
            }
        }
    };
    page(status, "Log in", None, &content)
}

async fn login(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let form = match may_begin(&api, &parts.headers) {
        Ok(()) => Form::read(&parts.headers, body).await,
        Err(problem) => Err(problem),
    };
    let begun = form.map(|form| {
        let again =
            |problem: Problem| login_form(&api, problem.status(), Some(problem.detail()), form.raw("to"));
        begin(&api, &parts, &form).unwrap_or_else(again)
    });
    begun.unwrap_or_else(|problem| login_form(&api, problem.status(), Some(problem.detail()), ""))
}

fn may_begin(api: &Api, headers: &HeaderMap) -> Result<(), Problem> {
    own_site(headers)?;
    if api.tokens.is_open() && !on_loopback(headers) { Err(elsewhere()) } else { Ok(()) }
}

fn begin(api: &Api, parts: &Parts, form: &Form) -> Result<Response, Problem> {
    let console = api.console()?;
    // Looked at first: what others get wrong must not keep out who has the right one.
    let digest = api.tokens.digest_of(form.get("token"), Role::Operator).map_err(|problem| {
        if console.wrong.take("login", Instant::now()) {
            return problem;
        }
        let detail = "too many wrong tokens; the right one is let in";
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_often", detail)
    })?;
    let secure = Link::is_encrypted(&parts.extensions)
        || parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto.as_bytes() == b"https");
    let cookie = console.sessions.begin(&digest, secure);
    Ok(with_cookie(asked::go(form.raw("to")), &cookie))
}

async fn logout(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let ended = async |at: At<'_>| {
        formed(&at, &parts.headers, body).await?;
        let cookie = api.console()?.sessions.end(&at.session);
        Ok(with_cookie(see(asked::LOGIN), &cookie))
    };
    shown(&api, &parts.headers, ended).await
}

fn with_cookie(response: Response, cookie: &str) -> Response {
    match HeaderValue::from_str(cookie) {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], response).into_response(),
        Err(_) => response,
    }
}
