//! The description of the interface (OpenAPI 3.1). Written by hand beside the types; tests compare
//! it with the routes.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`
pub async fn openapi() -> Response {
    let content_type = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, content_type)], DOCUMENT).into_response()
}
