//! Envoy's bootstrap for the rig: one listener, the filter behind authentication, plain clusters.
//!
//! Order of the filters: before, `jwt_authn`, the filter, after, `router`. A test changes anything
//! else through [`Setup::change`].

use super::route::Route;
use crate::token;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cluster of the upstream.
pub const UPSTREAM: &str = "upstream";

/// Cluster of the service for everything that answers at once.
pub const STORE: &str = "fencepost_store";

/// Cluster of the service for claims, which may wait.
pub const STORE_WAITING: &str = "fencepost_store_waiting";

/// Above what a test opens at once: Envoy's own default of 1,024 is a limit in itself.
const CIRCUIT_BREAKER: u32 = 100_000;

type Change = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// What an Envoy is started with.
#[derive(Clone)]
pub struct Setup {
    /// Configuration of the filter; without one there is no filter.
    pub filter: Option<Value>,
    /// Routes, first match wins; without any, everything goes to the upstream unmarked.
    pub routes: Vec<Route>,
    /// The upstream.
    pub upstream: SocketAddr,
    /// Whether the upstream is spoken to by HTTP/2.
    pub upstream_http2: bool,
    /// Instances of the service.
    pub stores: Vec<SocketAddr>,
    /// Clusters that lead to them.
    pub store_clusters: Vec<String>,
    /// Whether headers may be held while the body is read.
    pub allow_on_headers_stop_iteration: bool,
    /// Filters before `jwt_authn`.
    pub before: Vec<Value>,
    /// Filters between ours and the router.
    pub after: Vec<Value>,
    /// Worker threads.
    pub concurrency: u32,
    /// Port of the proxy; 0 takes a free one.
    pub port: u16,
    /// Port of the admin interface; 0 takes a free one.
    pub admin_port: u16,
    /// Another build of the filter than the usual one.
    pub wasm: Option<PathBuf>,
    /// Whether the listeners come from a file that [`super::Envoy::update_listeners`] rewrites.
    pub dynamic_listeners: bool,
    /// How long requests on a listener that was replaced may go on, in seconds.
    pub drain_seconds: u32,
    changes: Vec<Change>,
}

impl Setup {
    /// An Envoy before an upstream, without the filter.
    pub fn new(upstream: SocketAddr) -> Self {
        Self {
            filter: None,
            routes: Vec::new(),
            upstream,
            upstream_http2: false,
            stores: Vec::new(),
            store_clusters: vec![STORE.to_owned(), STORE_WAITING.to_owned()],
            allow_on_headers_stop_iteration: true,
            before: Vec::new(),
            after: Vec::new(),
            concurrency: 1,
            port: 0,
            admin_port: 0,
            wasm: None,
            dynamic_listeners: false,
            drain_seconds: 1,
            changes: Vec::new(),
        }
    }

    /// Adds the filter with its configuration and the service it asks.
    pub fn guarded(mut self, configuration: Value, store: SocketAddr) -> Self {
        self.filter = Some(configuration);
        self.stores = vec![store];
        self
    }

    /// Adds a route.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Changes the finished bootstrap; changes apply in order.
    pub fn change(mut self, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        self.changes.push(Arc::new(change));
        self
    }

    /// The bootstrap. Access log lines go to `access_log`.
    pub fn bootstrap(&self, wasm: &Path, access_log: &Path) -> Value {
        let mut clusters = vec![cluster(UPSTREAM, &[self.upstream], self.upstream_http2)];
        if !self.stores.is_empty() {
            clusters.extend(self.store_clusters.iter().map(|name| cluster(name, &self.stores, true)));
        }
        let mut bootstrap = json!({
            "node": {"id": "rig", "cluster": "rig"},
            "admin": {"address": address(SocketAddr::from(([127, 0, 0, 1], self.admin_port)))},
            "static_resources": {"listeners": [self.listener(wasm, access_log)], "clusters": clusters},
        });
        for change in &self.changes {
            change(&mut bootstrap);
        }
        bootstrap
    }

    fn listener(&self, wasm: &Path, access_log: &Path) -> Value {
        let everything = [Route::to("/")];
        let routes = if self.routes.is_empty() { &everything } else { self.routes.as_slice() };
        let mut filters = self.before.clone();
        filters.push(jwt_authn());
        filters.extend(self.filter.as_ref().map(|configuration| self.wasm_filter(configuration, wasm)));
        filters.extend(self.after.iter().cloned());
        filters.push(typed(
            "envoy.filters.http.router",
            "extensions.filters.http.router.v3.Router",
            json!({}),
        ));
        let manager = json!({
            "stat_prefix": "ingress",
            "codec_type": "AUTO",
            "http_filters": filters,
            "access_log": [access_log_file(access_log)],
            "route_config": {
                "name": "rig",
                "virtual_hosts": [{
                    "name": "all",
                    "domains": ["*"],
                    "routes": routes.iter().map(Route::to_json).collect::<Vec<_>>(),
                }],
            },
        });
        let kind = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
        json!({
            "name": "ingress",
            // A port that another Envoy has is an error, not a port to share.
            "enable_reuse_port": false,
            "address": address(SocketAddr::from(([127, 0, 0, 1], self.port))),
            "filter_chains": [{"filters": [typed("envoy.filters.network.http_connection_manager", kind, manager)]}],
        })
    }

    fn wasm_filter(&self, configuration: &Value, wasm: &Path) -> Value {
        // VMs with equal ids and code are shared; each Envoy of ours is to have its own.
        static VMS: AtomicU64 = AtomicU64::new(0);
        let vm_id = format!("fencepost-{}", VMS.fetch_add(1, Ordering::Relaxed));
        let config = json!({
            "name": "fencepost",
            "root_id": "fencepost",
            "allow_on_headers_stop_iteration": self.allow_on_headers_stop_iteration,
            "failure_policy": "FAIL_RELOAD",
            "configuration": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": configuration.to_string(),
            },
            "vm_config": {
                "vm_id": vm_id,
                "runtime": "envoy.wasm.runtime.v8",
                "code": {"local": {"filename": wasm}},
            },
        });
        typed("envoy.filters.http.wasm", "extensions.filters.http.wasm.v3.Wasm", json!({"config": config}))
    }
}

/// The connection manager of the listener, for [`Setup::change`].
pub fn connection_manager(bootstrap: &mut Value) -> Option<&mut Value> {
    bootstrap.pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
}

/// An extension with its configuration; `kind` without `envoy.` before it.
pub fn typed(name: &str, kind: &str, config: Value) -> Value {
    let mut typed = Map::new();
    typed.insert("@type".into(), format!("type.googleapis.com/envoy.{kind}").into());
    if let Value::Object(config) = config {
        typed.extend(config);
    }
    json!({"name": name, "typed_config": typed})
}

/// A cluster of fixed addresses.
pub fn cluster(name: &str, endpoints: &[SocketAddr], http2: bool) -> Value {
    let endpoints = endpoints.iter().map(|addr| json!({"endpoint": {"address": address(*addr)}}));
    let protocol = if http2 { "http2_protocol_options" } else { "http_protocol_options" };
    let http = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {protocol: {}},
    });
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints.collect::<Vec<_>>()}],
        },
        "circuit_breakers": {"thresholds": [{
            "max_connections": CIRCUIT_BREAKER,
            "max_pending_requests": CIRCUIT_BREAKER,
            "max_requests": CIRCUIT_BREAKER,
            "max_retries": CIRCUIT_BREAKER,
        }]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http},
    })
}

fn address(addr: SocketAddr) -> Value {
    json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}})
}

/// Checks tokens of the demo users. A request without a token passes without identity.
fn jwt_authn() -> Value {
    let provider = json!({
        "issuer": token::ISSUER,
        "local_jwks": {"inline_string": token::key_set().to_string()},
        "payload_in_metadata": "jwt_payload",
        "forward": true,
    });
    let allowed = json!([{"provider_name": "demo"}, {"allow_missing": {}}]);
    let config = json!({
        "providers": {"demo": provider},
        "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": allowed}}}],
    });
    typed("envoy.filters.http.jwt_authn", "extensions.filters.http.jwt_authn.v3.JwtAuthentication", config)
}

/// One JSON object for each request, with what the filter says of it.
fn access_log_file(path: &Path) -> Value {
    let format = json!({
        "method": "%REQ(:METHOD)%",
        "path": "%REQ(:PATH)%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "result": "%FILTER_STATE(wasm.fencepost.result:PLAIN)%",
    });
    let config = json!({"path": path, "log_format": {"json_format": format}});
    typed("envoy.access_loggers.file", "extensions.access_loggers.file.v3.FileAccessLog", config)
}
