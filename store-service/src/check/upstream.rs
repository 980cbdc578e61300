//! What is set at a cluster, or at the router for all of them, and acts on a guarded request behind
//! everything that the route says.

use super::code::Code;
use super::order;
use super::place::{Findings, Place};
use super::routes::Marked;
use super::times::{limit, show};
use super::world::{Filter, World};
use fencepost_filter_core::policy::Retries;

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Checks the clusters of a guarded route that runs inline, and the router.
pub(super) fn check(world: &World<'_>, behind: &[Filter<'_>], marked: &Marked<'_>, findings: &mut Findings) {
    for router in behind.iter().filter(|filter| filter.word() == "router") {
        check_filters(world, router.config.get("upstream_http_filters"), findings);
    }
    let action = marked.action();
    let shares = action.at("weighted_clusters.clusters").items().map(|share| share.get("name"));
    for name in shares.chain([action.get("cluster")]) {
        let Some(cluster) = name.text().and_then(|name| world.cluster(name)) else { continue };
        check_cluster(world, cluster, marked, findings);
    }
}

fn check_cluster(world: &World<'_>, cluster: Place<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let policy = &marked.policy;
    let name = cluster.get("name");
    let options = cluster.get("typed_extension_protocol_options").get(HTTP_OPTIONS);
    check_filters(world, options.get("http_filters"), findings);
    for mirror in options.get("request_mirror_policies").items() {
        let to = mirror.get("cluster");
        let found = format!("requests to cluster {} mirrored to {}", name.shown(), to.shown());
        if to.text() == name.text() {
            let expected = "no mirror to the route's own cluster: it would run everything twice";
            findings.error(mirror, Code::RouteMirror, found, expected);
        } else {
            let expected = "no mirror, unless what runs there has no effect";
            findings.warning(mirror, Code::RouteMirror, found, expected);
        }
    }
    let retries = options.get("retry_policy");
    if policy.retries == Retries::Allow && retries.exists() && retries.get("num_retries").number() != Some(0)
    {
        let found = format!(
            "a retry policy of cluster {}, and retries: allow in policy {:?}",
            name.shown(),
            policy.name
        );
        let expected = "retries: suppress, unless the upstream itself tells repetitions";
        findings.warning(retries, Code::RouteRetries, found, expected);
    }
    let max_run = u64::from(policy.max_run_ms);
    let common = [options, cluster].map(|of| of.at("common_http_protocol_options.max_stream_duration"));
    for (place, ms) in common.into_iter().filter_map(limit).filter(|(_, ms)| *ms < max_run) {
        let found = format!(
            "streams of at most {} to cluster {}, under policy {:?}",
            show(ms),
            name.shown(),
            policy.name
        );
        let expected = format!("at least max_run ({}): what is cut has an unknown outcome", show(max_run));
        findings.warning(place, Code::StreamDurationShort, found, expected);
    }
}

fn check_filters(world: &World<'_>, filters: Place<'_>, findings: &mut Findings) {
    for place in filters.items() {
        let filter = world.filter(place);
        if !filter.disabled {
            order::report(&filter, place, findings);
        }
    }
}
