//! Forms as browsers send them: `application/x-www-form-urlencoded`.

use super::super::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use std::collections::HashMap;
use std::time::Duration;

/// Longest form, with an answer in it.
const FORM_MAX: usize = 1024 * 1024;

/// How long it may take.
const FORM_TIMEOUT: Duration = Duration::from_secs(30);

/// Names and values; of a name that stands twice the last.
pub struct Form(HashMap<String, String>);

impl Form {
    /// Reads it.
    pub async fn read(headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        if media.split(';').next().unwrap_or("").trim() != "application/x-www-form-urlencoded" {
            let detail = "expected a form";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", detail));
        }
        let read = tokio::time::timeout(FORM_TIMEOUT, Limited::new(body, FORM_MAX).collect()).await;
        match read {
            Ok(Ok(collected)) => Self::parse(&String::from_utf8_lossy(&collected.to_bytes())),
            Ok(Err(_)) => {
                let detail = "the form is too long, or ended early";
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
            }
            Err(_) => {
                let detail = "the form did not arrive in time";
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail))
            }
        }
    }

    /// Of a query or a form's body.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((plain(name)?, plain(value)?))
        };
        let pairs: Option<HashMap<_, _>> = pairs.map(pair).collect();
        pairs.map(Self).ok_or_else(|| Problem::bad_request("query", "the form can't be read"))
    }

    /// A value; empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |value| value.trim())
    }

    /// A value as it was written.
    pub fn raw(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A value, unless it is empty.
    pub fn filled(&self, name: &str) -> Option<&str> {
        Some(self.get(name)).filter(|value| !value.is_empty())
    }
}

fn plain(text: &str) -> Option<String> {
    super::super::entries::unescaped(&text.replace('+', "%20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_as_browsers_write_it() {
        let form = Form::parse("reason=a+b%26c%2Bd&empty=&x=1&x=2").unwrap_or_else(|_| panic!());
        assert_eq!(form.get("reason"), "a b&c+d");
        assert_eq!((form.filled("empty"), form.filled("none"), form.get("x")), (None, None, "2"));
        assert!(Form::parse("a=%zz").is_err() && Form::parse("a=%ff").is_err());
    }
}
