//! Marks where the filter does not read them: next to the right place, or under another name. What
//! was meant to be guarded is not.

use super::code::Code;
use super::guard::Guard;
use super::place::{Findings, Place};
use super::world::{Chain, routes_of, typed};
use fencepost_filter_core::guard::METADATA_NAMESPACE;
use fencepost_filter_core::policy::{Config, route_fields};

/// Checks the routes of a chain that has our filter.
pub(super) fn check(chain: &Chain<'_>, guard: &Guard<'_>, findings: &mut Findings) {
    let Some(config) = &guard.configuration.config else { return };
    if let Some(routes) = chain.routes {
        check_routes(routes, config, findings);
    }
    if let Some(listener) = chain.listener {
        check_elsewhere(listener.get("metadata"), "a listener", config, findings);
    }
}

/// A route configuration with all that is in it.
pub(super) fn check_routes(routes: Place<'_>, config: &Config, findings: &mut Findings) {
    check_elsewhere(routes.get("metadata"), "a route configuration", config, findings);
    routes.get("virtual_hosts").items().for_each(|host| check_host(host, config, findings));
}

/// A virtual host with its routes.
pub(super) fn check_host(host: Place<'_>, config: &Config, findings: &mut Findings) {
    check_names(host.get("metadata"), config, findings);
    routes_of(&host).into_iter().for_each(|(route, _)| check_route(route, config, findings));
}

/// A route.
pub(super) fn check_route(route: Place<'_>, config: &Config, findings: &mut Findings) {
    check_names(route.get("metadata"), config, findings);
    let action = route.get("route");
    check_elsewhere(action.get("metadata"), "the action of a route", config, findings);
    check_elsewhere(route.at("match.metadata"), "the match of a route", config, findings);
    for (_, entry) in route.get("typed_per_filter_config").members() {
        let policy = entry.get("policy");
        if policy.text().is_some_and(|policy| config.policies.contains_key(policy)) {
            report(policy, "a policy in typed_per_filter_config".to_owned(), findings);
        }
    }
    check_elsewhere(action.get("metadata_match"), "metadata_match", config, findings);
    for share in action.at("weighted_clusters.clusters").items() {
        check_elsewhere(share.get("metadata_match"), "metadata_match", config, findings);
        check_elsewhere(share.get("metadata"), "a share of a route", config, findings);
    }
}

/// Metadata that the filter reads: only under its own name, and only untyped.
fn check_names(metadata: Place<'_>, config: &Config, findings: &mut Findings) {
    for (name, value) in metadata.get("filter_metadata").members() {
        if name != METADATA_NAMESPACE && is_mark(name, &value, config) {
            report(value, format!("metadata for the filter under the name {name:?}"), findings);
        } else if name == METADATA_NAMESPACE && !value.exists() {
            let expected = "policy: NAME: nothing is guarded by this";
            findings.error(value, Code::RoutePolicyMissing, "null for metadata of the filter", expected);
        }
    }
    // One level is missing: meshes leave out what they do not know.
    for (name, value) in metadata.members() {
        if !["filter_metadata", "filterMetadata"].contains(&name) && is_mark(name, &value, config) {
            report(value, "metadata for the filter outside of filter_metadata".to_owned(), findings);
        }
    }
    check_typed(metadata, config, findings);
}

/// Metadata that the filter does not read.
fn check_elsewhere(metadata: Place<'_>, whose: &str, config: &Config, findings: &mut Findings) {
    for (name, value) in metadata.get("filter_metadata").members() {
        if is_mark(name, &value, config) {
            report(value, format!("metadata for the filter in {whose}"), findings);
        }
    }
    check_typed(metadata, config, findings);
}

fn check_typed(metadata: Place<'_>, config: &Config, findings: &mut Findings) {
    for (name, value) in metadata.get("typed_filter_metadata").members() {
        let inner = typed(&value).1.get("value");
        if is_mark(name, &value, config) || is_mark(name, &inner, config) {
            report(value, "metadata for the filter in typed_filter_metadata".to_owned(), findings);
        }
    }
}

/// Whether this is meant for the filter: by its name, whatever its letters, or by what it says.
fn is_mark(name: &str, value: &Place<'_>, config: &Config) -> bool {
    let policy = value.get("policy").text().is_some_and(|policy| config.policies.contains_key(policy));
    name.eq_ignore_ascii_case(METADATA_NAMESPACE)
        || policy && value.members().all(|(field, _)| route_fields().any(|known| known == field))
}

fn report(place: Place<'_>, found: String, findings: &mut Findings) {
    let expected =
        "metadata.filter_metadata.fencepost of a route or virtual host: nothing is guarded by this";
    findings.error(place, Code::MarkMisplaced, found, expected);
}
