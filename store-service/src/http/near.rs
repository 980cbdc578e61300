//! Without tokens: only from this machine, and by a name of this machine.
//!
//! A service without tokens listens on loopback, where a browser reaches it too. A stranger's page
//! whose name was made to lead to 127.0.0.1 (DNS rebinding) is of the same origin as the service, so
//! neither media type nor CORS stop it; the name in `Host` does. Calls of filters and applications
//! are not looked at: proxies name them as they like, and they decide nothing for a person.

use super::console::session::{on_loopback, own_site};
use super::{Api, Problem};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// HTTP/2 names the host in `:authority`, and HTTP/1.1 may in the request's target: from here on it
/// is in `Host` (RFC 9112 section 3.2.2, RFC 9113 section 8.3.1).
pub fn name(request: &mut Request) {
    let authority = request.uri().authority().map(|authority| HeaderValue::from_str(authority.as_str()));
    if let Some(Ok(host)) = authority {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// Lets an operator's call through, unless nobody is asked for a token and it comes from a page of
/// another name or site. A call without `Host` comes from no browser.
pub async fn guarded(State(api): State<Api>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if api.tokens.is_open() {
        if headers.contains_key(header::HOST) && !on_loopback(headers) {
            return elsewhere().into_response();
        }
        if let Err(problem) = own_site(headers) {
            return problem.into_response();
        }
    }
    next.run(request).await
}

/// What a call by another name is told.
pub fn elsewhere() -> Problem {
    let detail = "without tokens people are served by an address of this machine only";
    Problem::new(StatusCode::FORBIDDEN, "host", detail)
}
