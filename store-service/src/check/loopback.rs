//! Where detached requests go: the cluster, the internal listener, and the routes there. The chain
//! itself is in `loopback_chain`.

use super::clusters::{check_breakers, missing};
use super::code::Code;
use super::guard::Guard;
use super::loopback_chain::{self, Needs};
use super::matching::{Match, Table, example};
use super::place::{Findings, Place};
use super::routes::Marked;
use super::times::check_run;
use super::undone::check_rules;
use super::world::{Chain, World, routes_of, typed};
use fencepost_filter_core::policy::{Execution, Mode, Policy, Retries};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Envoy's own circuit breakers, and one.
const BREAKERS_MIN: u64 = 1_025;

/// Checks where detached requests go: once per cluster, and once per route.
pub(super) fn check(world: &World<'_>, guard: &Guard<'_>, marked: &[Marked<'_>], findings: &mut Findings) {
    let mut clusters = BTreeMap::new();
    for (policy, own) in policies(guard, marked) {
        if let Execution::Detached { cluster, loopback, .. } = &policy.execution {
            let (believed, needs) = clusters
                .entry(cluster.clone())
                .or_insert((false, Needs { retries: Retries::Suppress, max_run_ms: 0 }));
            *believed |= *loopback;
            if policy.retries == Retries::Allow {
                needs.retries = Retries::Allow;
            }
            needs.max_run_ms = needs.max_run_ms.max(policy.max_run_ms);
            let setting = "execution.detached.cluster";
            let place = match own {
                Some(marked) => marked.place_of(guard, setting),
                None => guard.configuration.line_of_setting(&policy.name, setting),
            };
            if world.cluster(cluster).is_none() {
                missing(world, place, cluster, Code::DetachedClusterMissing, findings);
            }
        }
    }
    for (name, (believed, needs)) in clusters {
        let Some(cluster) = world.cluster(&name) else { continue };
        if !believed {
            check_without(&name, marked, findings);
            continue;
        }
        check_breakers(cluster, BREAKERS_MIN, Code::LoopbackClusterBreakers, findings);
        let Some(listener_name) = internal_listener(cluster) else {
            let found = format!("cluster {name:?} with loopback: true, which leads to no internal listener");
            findings.error(
                cluster,
                Code::LoopbackNotInternal,
                found,
                "an endpoint with envoy_internal_address",
            );
            continue;
        };
        check_listener(world, cluster, listener_name, findings);
        let is_loopback = |chain: &&Chain<'_>| {
            chain.listener.is_some_and(|listener| listener.get("name").is(listener_name))
        };
        for chain in world.chains.iter().filter(is_loopback) {
            loopback_chain::check(chain, &needs, findings);
            let hosts = Hosts::new(chain);
            for marked in marked.iter().filter(|marked| leads_to(&marked.policy, &name)) {
                check_route(chain, &hosts, marked, findings);
            }
        }
    }
}

/// Policies of the configuration, and those that routes make by what they override.
fn policies<'m, 'a>(
    guard: &Guard<'a>,
    marked: &'m [Marked<'a>],
) -> Vec<(Rc<Policy>, Option<&'m Marked<'a>>)> {
    let written: Vec<_> = guard.configuration.shared_policies().collect();
    let overridden = marked.iter().filter(|marked| {
        marked.policy.mode != Mode::Off && !written.iter().any(|policy| Rc::ptr_eq(policy, &marked.policy))
    });
    let overridden: Vec<_> = overridden.map(|marked| (Rc::clone(&marked.policy), Some(marked))).collect();
    written.into_iter().map(|policy| (policy, None)).chain(overridden).collect()
}

fn leads_to(policy: &Policy, name: &str) -> bool {
    matches!(&policy.execution, Execution::Detached { cluster, .. } if cluster == name)
}

/// Name of the internal listener that a cluster leads to.
fn internal_listener<'a>(cluster: Place<'a>) -> Option<&'a str> {
    let localities = cluster.at("load_assignment.endpoints").items();
    let mut endpoints = localities.flat_map(|locality| locality.get("lb_endpoints").items());
    endpoints.find_map(|one| one.at("endpoint.address.envoy_internal_address.server_listener_name").text())
}

/// Without a loopback the route's own features are not applied.
fn check_without(cluster: &str, marked: &[Marked<'_>], findings: &mut Findings) {
    const OF_ROUTES: [&str; 4] = [
        "request_headers_to_add",
        "request_headers_to_remove",
        "response_headers_to_add",
        "response_headers_to_remove",
    ];
    const OF_ACTIONS: [&str; 8] = [
        "prefix_rewrite",
        "regex_rewrite",
        "path_rewrite_policy",
        "host_rewrite_literal",
        "host_rewrite_header",
        "host_rewrite_path_regex",
        "auto_host_rewrite",
        "hash_policy",
    ];
    for marked in marked.iter().filter(|marked| leads_to(&marked.policy, cluster)) {
        let action = marked.action();
        let of_routes = OF_ROUTES.iter().flat_map(|name| [marked.route.get(name), marked.host.get(name)]);
        let lost = of_routes.chain(OF_ACTIONS.iter().map(|name| action.get(name))).find(Place::exists);
        let other = action.get("cluster").text().is_some_and(|of_route| of_route != cluster);
        if lost.is_some() || other {
            let place = lost.unwrap_or_else(|| action.get("cluster"));
            let found = format!(
                "a route under policy {:?}, which is sent to {cluster:?} as it came",
                marked.policy.name
            );
            let expected =
                "a loopback, which applies the route, or nothing on the route that changes requests";
            findings.warning(place, Code::DetachedWithoutLoopback, found, expected);
        }
    }
}

fn check_listener(world: &World<'_>, cluster: Place<'_>, name: &str, findings: &mut Findings) {
    let Some(listener) = world.listeners.iter().find(|listener| listener.get("name").is(name)) else {
        if world.bootstrap.is_some() && !world.open {
            let found = format!("internal listener {name:?}, which does not exist");
            findings.error(
                cluster,
                Code::LoopbackListenerMissing,
                found,
                "a listener of that name with internal_listener",
            );
        }
        return;
    };
    let address = listener.get("address");
    if address.exists() || !listener.get("internal_listener").exists() {
        let place = if address.exists() { address } else { *listener };
        let found = format!("listener {name:?} with an address of its own");
        let expected = "internal_listener: {} and no address: others could go around the guard";
        findings.error(place, Code::LoopbackListenerOpen, found, expected);
    }
    let Some(bootstrap) = world.bootstrap else { return };
    let mut extensions = bootstrap.get("bootstrap_extensions").items();
    let is_it = |extension: &Place<'_>| {
        extension.get("name").is("envoy.bootstrap.internal_listener")
            || typed(&extension.get("typed_config")).0.ends_with("internal_listener.v3.InternalListener")
    };
    if !extensions.any(|extension| is_it(&extension)) {
        let found = "no bootstrap extension for internal listeners";
        let expected = "envoy.bootstrap.internal_listener in bootstrap_extensions";
        findings.error(bootstrap, Code::InternalListenerExtensionMissing, found, expected);
    }
}

/// The virtual hosts of a loopback, with the paths of their routes.
struct Hosts<'a> {
    all: Vec<(Place<'a>, Vec<Place<'a>>, Table<'a>)>,
    /// The first with a domain.
    by_domain: HashMap<&'a str, usize>,
}

impl<'a> Hosts<'a> {
    fn new(chain: &Chain<'a>) -> Self {
        let (mut all, mut by_domain) = (Vec::new(), HashMap::new());
        for host in chain.virtual_hosts() {
            for domain in host.get("domains").items().filter_map(|domain| domain.text()) {
                by_domain.entry(domain).or_insert(all.len());
            }
            let routes: Vec<_> = routes_of(&host).into_iter().map(|(route, _)| route).collect();
            let table = Table::new(routes.iter().map(|route| Match::new(route.get("match"))));
            all.push((host, routes, table));
        }
        Self { all, by_domain }
    }

    /// The one for the domains of another, and the route there that takes the paths of a match.
    fn find(&self, domains: Place<'_>, of: &Match<'_>) -> Option<(Place<'a>, Option<Place<'a>>)> {
        let domains = domains.items().filter_map(|domain| domain.text());
        let own = domains.filter_map(|domain| self.by_domain.get(domain)).min();
        let (host, routes, table) = self.all.get(*own.or_else(|| self.by_domain.get("*"))?)?;
        Some((*host, table.first_by_path(of).and_then(|index| routes.get(index).copied())))
    }
}

/// A guarded route must exist in the loopback as well.
fn check_route(chain: &Chain<'_>, hosts: &Hosts<'_>, marked: &Marked<'_>, findings: &mut Findings) {
    let Some(path) = example(&marked.route.get("match")) else { return };
    if chain.routes.is_none() {
        return;
    }
    let found = hosts.find(marked.host.get("domains"), &Match::new(marked.route.get("match")));
    let (host, found) = found.map_or((None, None), |(host, found)| (Some(host), found));
    match (found, host) {
        (Some(route), Some(host)) if route.get("route").exists() => {
            let shares = route.at("route.weighted_clusters.clusters").items();
            for level in [Some(route), Some(host), chain.routes].into_iter().flatten().chain(shares) {
                check_rules(&level, &marked.policy, findings);
            }
            let own = route.at("route.retry_policy");
            let retries = if own.exists() { own } else { host.get("retry_policy") };
            check_run(&route.get("route"), &retries, &marked.policy, findings);
        }
        (Some(route), _) if route.get("redirect").exists() => {}
        _ => {
            let found = format!("a guarded route for {path:?} that the loopback does not have");
            let expected = "the same route in the loopback chain, where it is really taken";
            findings.error(marked.route, Code::LoopbackRouteMissing, found, expected);
        }
    }
}
