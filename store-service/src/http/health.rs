//! Health, readiness and metrics.

use super::{Api, Problem, Role};
use crate::grant::service::CleanupState;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// The process lives.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// The store answers and the service is not stopping. It asks nobody: it says what the heartbeat
/// and the last operations found, so that probes put no load on the database.
pub async fn readyz(State(api): State<Api>) -> Response {
    let mut reasons = Vec::new();
    if api.service.draining() {
        reasons.push("the service is stopping".to_owned());
    }
    if let Some(reason) = api.service.calm().outage() {
        reasons.push(reason);
    }
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let store = api.service.store();
    let mut body = serde_json::json!({
        "ready": reasons.is_empty(),
        "store": store.kind().name(),
        "store_id": store.store_id(),
        "other_instances": store.hearing().name(),
        "reasons": reasons,
        "warnings": store.warnings(),
    });
    if let Some(grants) = &api.grants {
        body["grants"] = match grants.cleanup() {
            CleanupState::Checking => serde_json::json!({ "cleanup": "checking" }),
            CleanupState::On => serde_json::json!({ "cleanup": "on" }),
            CleanupState::Off(reason) => serde_json::json!({ "cleanup": "off", "reason": reason }),
        };
    }
    let content_type = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, content_type)], body.to_string()).into_response()
}

/// Metrics in the Prometheus text format.
pub async fn metrics(State(api): State<Api>, parts: Parts) -> Result<Response, Problem> {
    api.tokens.caller(&parts, Role::Operator)?;
    let Some(handle) = &api.metrics else {
        return Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "metrics are not collected"));
    };
    metrics::gauge!("fencepost_parked_callers").set(api.service.waiters().len() as f64);
    metrics::gauge!("fencepost_calm_seconds").set(api.service.calm().ms() as f64 / 1_000.0);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
    Ok(([(header::CONTENT_TYPE, content_type)], handle.render()).into_response())
}
