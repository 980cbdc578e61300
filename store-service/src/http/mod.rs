//! The HTTP interface: HTTP/1.1 and HTTP/2 on one port, with or without TLS.
//!
//! Every reply, errors included, names the database (`x-fencepost-store-id`) and the protocol
//! version, so that a caller that reached the wrong service notices it on any reply.

mod again;
mod audit;
mod auth;
mod claims;
mod console;
mod desk;
pub(crate) mod entries;
mod erase;
mod framed;
mod grant_claims;
mod grant_list;
mod grants;
mod health;
pub(crate) mod holds;
mod link;
mod near;
mod openapi;
mod opening;
pub(crate) mod operations;
mod problem;
mod recovery;
mod server;

use auth::Caller;
pub use auth::{Role, TokenFileError, Tokens};
use console::Console;
pub use problem::Problem;
pub use server::{Limits, Server, ServerOptions};

use crate::grant::service::Grants;
use crate::recovery::store::RecoveryStore;
use crate::service::Service;
use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::routing::{get, post};
use fencepost_protocol::grant_claims::paths as grant_claim_paths;
use fencepost_protocol::grants::paths as grant_paths;
use fencepost_protocol::{PROTOCOL_HEADER, PROTOCOL_VERSION, STORE_ID_HEADER, paths};
use metrics_exporter_prometheus::PrometheusHandle;
use std::sync::Arc;

/// What the handlers share.
#[derive(Clone)]
pub struct Api {
    service: Arc<Service>,
    tokens: Arc<Tokens>,
    metrics: Option<PrometheusHandle>,
    grants: Option<Arc<Grants>>,
    recovery: Option<Arc<dyn RecoveryStore>>,
    console: Option<Arc<Console>>,
}

impl Api {
    /// The interface of this service for the holders of these tokens.
    pub fn new(service: Arc<Service>, tokens: Tokens, metrics: Option<PrometheusHandle>) -> Self {
        Self {
            service,
            tokens: Arc::new(tokens),
            metrics,
            grants: None,
            recovery: None,
            console: Console::new(),
        }
    }

    /// With grants.
    pub fn with_grants(self, grants: Option<Arc<Grants>>) -> Self {
        Self { grants, ..self }
    }

    /// With what recovery writes.
    pub fn with_recovery(self, recovery: Option<Arc<dyn RecoveryStore>>) -> Self {
        Self { recovery, ..self }
    }

    /// All routes.
    pub fn router(self) -> Router {
        let store_id = HeaderValue::from_str(&self.service.store().store_id().to_hex()).ok();
        // One layer for all of it: each that is added boxes every call's future and copies its route.
        let around = move |path: Option<MatchedPath>, mut request: Request, next: Next| {
            let store_id = store_id.clone();
            async move {
                near::name(&mut request);
                let mut response = crate::trace::call(path, request, next).await;
                let headers = response.headers_mut();
                headers.insert(HeaderName::from_static(PROTOCOL_HEADER), HeaderValue::from(PROTOCOL_VERSION));
                if let Some(store_id) = store_id {
                    headers.insert(HeaderName::from_static(STORE_ID_HEADER), store_id);
                }
                response
            }
        };
        Router::new()
            .route(paths::CLAIMS, post(claims::claim))
            .route(paths::COMPLETE, post(claims::complete))
            .route(paths::RELEASE, post(claims::release))
            .route(paths::UNKNOWN, post(claims::unknown))
            .route(paths::RENEW, post(claims::renew))
            .route(grant_paths::ADMIT, post(grants::admit))
            .route(grant_claim_paths::CLAIM, post(grant_claims::claim))
            .route(grant_paths::ISSUE, post(grants::issue))
            .route(grant_paths::REVOKE, post(grants::revoke))
            .route("/v1/operations/{id}", get(grants::status))
            .route("/v1/operations/{id}/may-submit", post(grants::may_submit))
            .route("/v1/operations/{id}/record", post(grants::record))
            .route("/v1/operations/{id}/finish", post(grant_claims::finish))
            .route("/v1/operations/{id}/renew", post(grants::renew))
            .route("/v1/operations/{id}/take-over", post(grants::take_over))
            .merge(operators(&self))
            .route("/healthz", get(health::healthz))
            .route("/openapi.json", get(openapi::openapi))
            .route("/readyz", get(health::readyz))
            .route("/metrics", get(health::metrics))
            .merge(console::routes())
            .method_not_allowed_fallback(|| {
                let detail = "this path does not take that method; the calls take POST, the others GET";
                std::future::ready(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail))
            })
            .fallback(|| {
                let detail = "there is nothing at this path";
                std::future::ready(Problem::new(StatusCode::NOT_FOUND, "not_found", detail))
            })
            .with_state(self)
            .layer(axum::middleware::from_fn(around))
    }
}

/// What people do.
fn operators(api: &Api) -> Router<Api> {
    Router::new()
        .route("/v1/entries", get(entries::list))
        .route("/v1/entries/{key}", get(entries::show))
        .route("/v1/entries/{key}/release", post(entries::release))
        .route("/v1/entries/{key}/settle", post(entries::settle))
        .route("/v1/entries/{key}/look-again", post(again::look_again))
        .route("/v1/operator/operations", get(operations::list))
        .route("/v1/operator/operations/{id}", get(operations::show))
        .route("/v1/operator/operations/{id}/settle", post(operations::settle))
        .route("/v1/operator/grants", get(grant_list::list))
        .route("/v1/recovery/keys", get(recovery::keys))
        .route("/v1/operator/grants/release", post(holds::release_grant))
        .route("/v1/operator/holds", get(holds::list).post(holds::begin))
        .route("/v1/operator/holds/{id}/lift", post(holds::lift))
        .route("/v1/operator/holds/{id}/free", post(holds::free))
        .route("/v1/operator/audit", get(audit::list))
        .route("/v1/operator/erase", post(erase::erase))
        .route_layer(axum::middleware::from_fn_with_state(api.clone(), near::guarded))
}
