//! The clusters that lead to the service.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::times::show;
use super::world::World;
use crate::waiters;

/// Envoy's own circuit breakers.
const ENVOY_DEFAULT: u64 = 1_024;

/// Envoy's own connect timeout.
const CONNECT_MS: u64 = 5_000;

/// Longest that a claim parks in the service in one call.
const PARK_MS: u64 = 2_000;

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// See the module.
pub(super) fn check(world: &World<'_>, guard: &Guard<'_>, findings: &mut Findings) {
    let Some(config) = &guard.configuration.config else { return };
    let store = &config.store;
    if store.decide_cluster == store.claim_cluster {
        let found = format!("one cluster, {:?}, for both kinds of calls", store.claim_cluster);
        let expected = "two: claims that wait must never hold up the calls that free them";
        findings.warning(
            guard.configuration.line_of("store.claim_cluster"),
            Code::StoreClustersSame,
            found,
            expected,
        );
    }
    let timeout = u64::from(store.timeout_ms);
    for (setting, name, requests_min) in [
        ("decide_cluster", &store.decide_cluster, ENVOY_DEFAULT + 1),
        ("claim_cluster", &store.claim_cluster, waiters::TOTAL_MAX as u64),
    ] {
        match world.cluster(name) {
            Some(cluster) => check_cluster(cluster, timeout, requests_min, findings),
            None => {
                let place = guard.configuration.line_of(&format!("store.{setting}"));
                missing(world, place, name, Code::StoreClusterMissing, findings);
            }
        }
    }
}

/// A cluster that is not in the files: wrong only where it can't come from elsewhere.
pub(super) fn missing(world: &World<'_>, place: Place<'_>, name: &str, code: Code, findings: &mut Findings) {
    if world.bootstrap.is_some() && !world.open {
        let found = format!("cluster {name:?}, which does not exist");
        findings.error(place, code, found, "a cluster of the bootstrap");
    } else if !name.contains('|') {
        let found = format!("cluster {name:?}, which is not in the files");
        findings.note(place, Code::NotChecked, found, "the file that has it, to check it as well");
    }
}

fn check_cluster(cluster: Place<'_>, timeout: u64, requests_min: u64, findings: &mut Findings) {
    let name = cluster.get("name").shown();
    let options = cluster.get("typed_extension_protocol_options").get(HTTP_OPTIONS);
    let http2 = [
        options.at("explicit_http_config.http2_protocol_options"),
        options.get("auto_config"),
        cluster.get("http2_protocol_options"),
    ];
    if !http2.iter().any(Place::exists) {
        let expected = "explicit_http_config: {http2_protocol_options: {}}: with HTTP/1, each waiting claim holds a connection";
        findings.warning(
            cluster,
            Code::StoreClusterHttp1,
            format!("cluster {name} without HTTP/2"),
            expected,
        );
    }
    let connect = cluster.get("connect_timeout");
    let connect_ms = if connect.exists() { connect.millis().unwrap_or_default() } else { CONNECT_MS };
    if connect_ms >= timeout {
        let found = format!("a connect timeout of {} in cluster {name}", show(connect_ms));
        let expected =
            format!("less than store.timeout ({}), so that a call can be made again in time", show(timeout));
        findings.warning(connect, Code::StoreConnectTimeoutLong, found, expected);
    }
    check_breakers(cluster, requests_min, Code::StoreClusterBreakers, findings);
    let duration = options.at("common_http_protocol_options.max_stream_duration");
    if let Some(ms) = duration.millis().filter(|ms| *ms > 0 && *ms < timeout + PARK_MS) {
        let found = format!("calls of at most {} in cluster {name}", show(ms));
        let expected =
            format!("at least {} (store.timeout + {PARK_MS} ms that a claim parks)", show(timeout + PARK_MS));
        findings.warning(duration, Code::StoreStreamDurationShort, found, expected);
    }
}

/// Requests that go to a cluster at once: the calls' priority is the default one.
pub(super) fn check_breakers(cluster: Place<'_>, requests_min: u64, code: Code, findings: &mut Findings) {
    let name = cluster.get("name").shown();
    let mut thresholds = cluster.at("circuit_breakers.thresholds").items();
    let default = |threshold: &Place<'_>| {
        let priority = threshold.get("priority");
        !priority.exists() || priority.is("DEFAULT") || priority.is("0")
    };
    let threshold = thresholds.find(default);
    for setting in ["max_requests", "max_pending_requests"] {
        let place =
            threshold.map_or_else(|| cluster.get("circuit_breakers"), |threshold| threshold.get(setting));
        let value = threshold.and_then(|_| place.number()).unwrap_or(ENVOY_DEFAULT);
        if value < requests_min {
            let found = format!("{setting} {value} in cluster {name}");
            findings.warning(place, code, found, format!("at least {requests_min}"));
            return;
        }
    }
}
