//! The Envoys that are measured: the same listener, routes and clusters, with or without the filter.

use crate::bed;
use anyhow::{Context, Result};
use fencepost_rig::envoy::{Envoy, Route, STORE, STORE_WAITING, Setup, connection_manager, loopback};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

/// An Envoy and its process.
pub struct Running {
    envoy: Envoy,
    /// The process, of which the time on a core is read.
    pub pid: i32,
}

impl Running {
    /// Starts one.
    pub async fn start(start: impl Future<Output = Result<Envoy>>) -> Result<Self> {
        let before = bed::children("envoy")?;
        let envoy = start.await?;
        let new = bed::children("envoy")?.into_iter().find(|pid| !before.contains(pid));
        Ok(Self { envoy, pid: new.context("no Envoy was started")? })
    }

    /// Where it takes requests.
    pub fn proxy(&self) -> SocketAddr {
        self.envoy.proxy()
    }
}

/// The filter's configuration: one policy inline, one detached, both without a token to verify.
pub fn configuration() -> Value {
    let policy = |execution: Value| {
        json!({
            "namespace": "bench",
            "scope": [{"constant": {"value": "bench"}}],
            "max_run": "10s",
            "execution": execution,
        })
    };
    json!({
        "store": {"decide_cluster": STORE, "claim_cluster": STORE_WAITING, "timeout": "2s"},
        "key_prefix": "bench",
        "policies": {
            "inline": policy(json!("inline")),
            "detached": policy(json!({"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": "15s"}})),
        },
    })
}

fn routes(setup: Setup) -> Setup {
    setup
        .route(Route::to("/v1/").cluster(STORE))
        .route(Route::to("/healthz").cluster(STORE))
        .route(Route::to("/direct").extra("direct_response", json!({"status": 200})))
        .route(Route::guarded("/pay", "inline"))
        .route(Route::guarded("/detached", "detached"))
        .route(Route::to("/open"))
        .route(Route::to("/floor/"))
}

/// An Envoy with the filter.
pub async fn guarded(upstream: SocketAddr, store: SocketAddr) -> Result<Envoy> {
    Envoy::start(&routes(Setup::new(upstream).guarded(configuration(), store)).change(loopback::add)).await
}

/// The same without it.
pub async fn plain(upstream: SocketAddr, store: SocketAddr) -> Result<Envoy> {
    let mut setup = routes(Setup::new(upstream).guarded(json!({}), store)).change(loopback::add);
    setup.filter = None;
    Envoy::start(&setup).await
}

/// The filter is off in the chain, and turned on by the routes that have a policy.
pub async fn off_by_default(upstream: SocketAddr, store: SocketAddr) -> Result<Envoy> {
    let setup = routes(Setup::new(upstream).guarded(configuration(), store)).change(loopback::add);
    Envoy::start(&setup.change(turn_off)).await
}

/// A filter that does nothing in the place of ours.
pub async fn noop(upstream: SocketAddr, store: SocketAddr, wasm: &Path) -> Result<Envoy> {
    let mut setup = routes(Setup::new(upstream).guarded(json!({}), store)).change(loopback::add);
    setup.wasm = Some(wasm.to_owned());
    Envoy::start(&setup).await
}

/// A filter that calls the store as ours does, and does nothing else.
pub async fn calls(upstream: SocketAddr, store: SocketAddr, wasm: &Path) -> Result<Envoy> {
    let configuration = json!({"calls": true});
    let mut setup = routes(Setup::new(upstream).guarded(configuration, store)).change(loopback::add);
    setup.wasm = Some(wasm.to_owned());
    Envoy::start(&setup).await
}

/// As docs/configuration.md has it.
fn turn_off(bootstrap: &mut Value) {
    const ON: &str = "type.googleapis.com/envoy.config.route.v3.FilterConfig";
    let Some(manager) = connection_manager(bootstrap) else { return };
    let filters = manager.get_mut("http_filters").and_then(Value::as_array_mut);
    let wasm = "envoy.filters.http.wasm";
    for filter in filters.into_iter().flatten().filter(|filter| filter.get("name") == Some(&wasm.into())) {
        filter["disabled"] = true.into();
    }
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes").and_then(Value::as_array_mut);
    for route in routes.into_iter().flatten().filter(|route| route.get("metadata").is_some()) {
        route["typed_per_filter_config"] = json!({wasm: {"@type": ON, "config": {}}});
    }
}
