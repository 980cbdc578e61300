//! Errors as problem+json (RFC 9457).

use crate::store::StoreError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// One error reply. `code` is stable; `detail` is for people and never holds a token or a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Problem {
    /// An error with its stable code.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    /// 400 for a value that is not what it should be.
    pub fn bad_request(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// For people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                // The reason stays inside: it may name hosts and users. /readyz and the log have it.
                let detail = "the store does not answer now; the same request may be sent again";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", detail)
            }
            StoreError::Sealed(_) => {
                // The log says with which key.
                let detail = "the stored answer can't be opened with the service's keys; nothing was done";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "answer_sealed", detail)
            }
            StoreError::Broken(reason) => {
                tracing::error!(%reason, "operation failed");
                let detail = "the store could not decide; the service's log says why";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store_broken", detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into_response_with(serde_json::Map::new())
    }
}

impl Problem {
    /// With further members.
    pub fn into_response_with(self, members: serde_json::Map<String, serde_json::Value>) -> Response {
        metrics::counter!("fencepost_problems_total", "code" => self.code).increment(1);
        let mut body = serde_json::json!({
            "type": format!("urn:fencepost:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let Some(object) = body.as_object_mut() {
            object.extend(members);
        }
        let content_type = HeaderValue::from_static("application/problem+json");
        let mut response =
            (self.status, [(header::CONTENT_TYPE, content_type)], body.to_string()).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
