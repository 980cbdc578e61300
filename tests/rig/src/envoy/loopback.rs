//! The loopback chain of detached execution: an internal listener of the same Envoy that carries
//! the real routes and reports how each request ended.

use super::bootstrap::{connection_manager, typed};
use serde_json::{Value, json};

/// Cluster that leads to the internal listener.
pub const LOOPBACK: &str = "fencepost_loopback";

/// The ending of a request, as the filter reads it.
const REPORT: &str =
    "%RESPONSE_CODE_DETAILS%|%RESPONSE_FLAGS%|%UPSTREAM_REQUEST_ATTEMPT_COUNT%|%UPSTREAM_WIRE_BYTES_SENT%";

/// Adds the chain to a bootstrap whose routes are final: for `Setup::change`.
pub fn add(bootstrap: &mut Value) {
    let routes = connection_manager(bootstrap)
        .and_then(|manager| manager.pointer("/route_config/virtual_hosts/0/routes").cloned())
        .unwrap_or_default();
    let listener = listener(routes);
    if let Some(listeners) = array(bootstrap, "/static_resources/listeners") {
        listeners.push(listener);
    }
    if let Some(clusters) = array(bootstrap, "/static_resources/clusters") {
        clusters.push(cluster());
    }
    bootstrap["bootstrap_extensions"] = json!([{
        "name": "envoy.bootstrap.internal_listener",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
        },
    }]);
}

fn array<'a>(bootstrap: &'a mut Value, path: &str) -> Option<&'a mut Vec<Value>> {
    bootstrap.pointer_mut(path).and_then(Value::as_array_mut)
}

fn cluster() -> Value {
    json!({
        "name": LOOPBACK,
        // An overflow here has no report, so it would be an unknown outcome.
        "circuit_breakers": {"thresholds": [{
            "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000,
        }]},
        "load_assignment": {"cluster_name": LOOPBACK, "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": {"envoy_internal_address": {"server_listener_name": LOOPBACK}}},
        }]}]},
    })
}

fn listener(mut routes: Value) -> Value {
    if let Some(routes) = routes.as_array_mut() {
        // No route must be as positive an ending as any other.
        routes.push(json!({"match": {"prefix": "/"}, "direct_response": {"status": 404}}));
    }
    let set = |key: &str, value: &str| json!({"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"});
    let mutations = json!({"mutations": {"request_mutations": [
        // The same headers on the filter's own call are consumed by that call's router.
        {"append": set("x-envoy-max-retries", "0")},
        {"append": set("x-envoy-upstream-rq-timeout-ms", "%REQ(x-fencepost-max-run-ms)%")},
        {"remove": "x-fencepost-max-run-ms"},
    ]}});
    let manager = json!({
        "stat_prefix": "loopback",
        "use_remote_address": false,
        "forward_client_cert_details": "ALWAYS_FORWARD_ONLY",
        "http_filters": [
            typed("envoy.filters.http.header_mutation", "extensions.filters.http.header_mutation.v3.HeaderMutation", mutations),
            typed("envoy.filters.http.router", "extensions.filters.http.router.v3.Router", json!({})),
        ],
        "route_config": {"name": "loopback", "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "response_headers_to_add": [set("x-fencepost-ending", REPORT)],
            "routes": routes,
        }]},
    });
    let kind = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    json!({
        "name": LOOPBACK,
        "internal_listener": {},
        "filter_chains": [{"filters": [typed("envoy.filters.network.http_connection_manager", kind, manager)]}],
    })
}
