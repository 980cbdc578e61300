//! The page that somebody asked for before the login: they are led to it afterwards.
//!
//! Only pages of this console are gone to, so that no link to the login leads anybody elsewhere. An
//! order that came too late is not sent again: its page is shown.

use super::see;
use crate::operator::escaped;
use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;

/// Where nobody is logged in yet.
pub const LOGIN: &str = "/console/login";

/// Longest page that is remembered, with its query.
const LEN_MAX: usize = 2_048;

/// Has the way to the login remember where it began.
pub async fn remembered(request: Request, next: Next) -> Response {
    let uri = request.uri();
    let asked = match *request.method() {
        Method::POST => uri.path().rsplit_once('/').map_or("", |(page, _)| page).to_owned(),
        _ => uri.path_and_query().map_or("", PathAndQuery::as_str).to_owned(),
    };
    let mut response = next.run(request).await;
    let to_login =
        response.headers().get(header::LOCATION).is_some_and(|to| to.as_bytes() == LOGIN.as_bytes());
    if let Some(page) = page(&asked).filter(|page| to_login && *page != "/console")
        && let Ok(to) = HeaderValue::from_str(&format!("{LOGIN}?to={}", escaped(page)))
    {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

/// Leads to the page that was asked for, or to the first one.
pub fn go(asked: &str) -> Response {
    see(page(asked).unwrap_or("/console"))
}

/// A page of this console; none for the ways in and out, and for anything else.
pub fn page(text: &str) -> Option<&str> {
    let parsed: PathAndQuery = text.parse().ok()?;
    let rest = parsed.path().strip_prefix("/console")?;
    let mut segments = rest.split('/');
    // What stands behind the name of the console begins with a slash, or is nothing.
    let whole = segments.next() == Some("")
        && segments.all(|segment| {
            // Browsers take an escaped dot for a dot.
            let dots = segment.to_ascii_lowercase().replace("%2e", ".");
            !segment.is_empty() && dots.chars().any(|c| c != '.') && !segment.contains('\\')
        });
    let other = ["/login", "/logout", "/style.css"].contains(&rest);
    (whole && !other && text.len() <= LEN_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_console_are_gone_to() {
        for good in [
            "/console",
            "/console/entries",
            "/console/entries?state=unknown&after=prod:07",
            "/console/entries/prod:5d156d4c67cb1ee2cbe7e39f77950664",
            "/console?x=//evil.example",
        ] {
            assert_eq!(page(good), Some(good));
        }
        for bad in [
            "",
            "/",
            "//evil.example",
            "//evil.example/console",
            "/\\evil.example",
            "https://evil.example/console",
            "https:console",
            "javascript:alert(1)",
            "console",
            "evil.example",
            "/consoles",
            "/console.evil.example",
            "/console@evil.example",
            "/console//evil.example",
            "/console/",
            "/console/\\evil.example",
            "/console/../v1/entries",
            "/console/%2e%2E/v1/entries",
            "/console/.%2e/v1/entries",
            "/console/a\r\nset-cookie: x",
            "/console/ä b",
            "/console/login",
            "/console/login?to=/console",
            "/console/logout",
            "/v1/entries",
        ] {
            assert_eq!(page(bad), None, "{bad}");
        }
        assert_eq!(page(&format!("/console/{}", "a".repeat(LEN_MAX))), None);
    }
}
