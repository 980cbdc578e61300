//! What the files say together: listeners, their chains of filters, routes, clusters.
//!
//! A bootstrap is a world of its own, with the resource files that belong to it. Patches of meshes
//! and gateways are worlds of fragments: what they are put into is not in the files.

use super::guard::is_ours;
use super::patches::Piece;
use super::place::Place;
use super::tree::Node;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A file that was read.
pub(super) struct File {
    pub name: String,
    pub documents: Vec<Node>,
    /// What the manifests among the documents patch.
    pub pieces: Vec<Piece>,
}

/// Where a patch puts a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Position {
    /// Before all others.
    First,
    /// Before the filter of this name.
    Before(String),
    /// Behind the router, where no filter runs.
    Last,
    /// Somewhere that is not before authentication, as far as can be seen.
    Later,
}

/// A filter in a chain that is not in the files.
pub(super) struct LooseFilter<'a> {
    pub filter: Filter<'a>,
    pub position: Position,
}

/// See the module.
#[derive(Default)]
pub(super) struct World<'a> {
    /// A bootstrap, if there is one.
    pub bootstrap: Option<Place<'a>>,
    /// Whether clusters and routes may come from elsewhere as well.
    pub open: bool,
    pub listeners: Vec<Place<'a>>,
    pub clusters: Vec<Place<'a>>,
    /// The first of each name, once all files are added.
    pub clusters_by_name: HashMap<&'a str, Place<'a>>,
    pub route_configs: BTreeMap<String, Place<'a>>,
    pub extensions: BTreeMap<String, Place<'a>>,
    /// Names under which some file has our filter for discovery.
    pub ours: BTreeSet<String>,
    pub chains: Vec<Chain<'a>>,
    pub loose_filters: Vec<LooseFilter<'a>>,
    /// What patches say about things that are not in the files.
    pub pieces: Vec<(&'a Piece, Place<'a>)>,
}

/// A connection manager with what belongs to it.
pub(super) struct Chain<'a> {
    pub listener: Option<Place<'a>>,
    pub filter_chain: Option<Place<'a>>,
    pub manager: Place<'a>,
    pub filters: Vec<Filter<'a>>,
    pub routes: Option<Place<'a>>,
}

/// An HTTP filter of a chain.
#[derive(Debug, Clone)]
pub(super) struct Filter<'a> {
    /// The entry in the list.
    pub place: Place<'a>,
    pub name: String,
    /// Type of its configuration without `envoy.extensions.filters.http.`, such as `router.v3.Router`.
    pub kind: String,
    pub config: Place<'a>,
    /// Off unless a route turns it on.
    pub disabled: bool,
    /// Discovered under a name under which some file has our filter.
    pub known: bool,
}

const HTTP_FILTERS: &str = "envoy.extensions.filters.http.";
const MANAGER: &str = "HttpConnectionManager";

/// The type of a `typed_config` and its fields, with `TypedStruct` taken off.
pub(super) fn typed<'a>(config: &Place<'a>) -> (String, Place<'a>) {
    let kind = config.get("@type").text().unwrap_or_default();
    let short = |kind: &str| kind.rsplit('/').next().unwrap_or_default().to_owned();
    if kind.ends_with(".TypedStruct") {
        return (short(config.get("type_url").text().unwrap_or_default()), config.get("value"));
    }
    (short(kind), *config)
}

impl<'a> World<'a> {
    /// Adds a bootstrap.
    pub(super) fn add_bootstrap(&mut self, bootstrap: Place<'a>) {
        self.bootstrap = Some(bootstrap);
        let dynamic = bootstrap.get("dynamic_resources");
        self.open |= dynamic.get("cds_config").exists() || dynamic.get("lds_config").exists();
        let resources = bootstrap.get("static_resources");
        self.listeners.extend(resources.get("listeners").items());
        self.clusters.extend(resources.get("clusters").items());
    }

    /// Adds what a running Envoy says of its configuration (`/config_dump`): the whole of it.
    pub(super) fn add_dump(&mut self, dump: Place<'a>) {
        for part in dump.get("configs").items() {
            let (kind, part) = typed(&part);
            match kind.rsplit('.').next().unwrap_or_default() {
                "BootstrapConfigDump" => self.add_bootstrap(part.get("bootstrap")),
                "ListenersConfigDump" => {
                    let dynamic = part.get("dynamic_listeners").items();
                    self.listeners.extend(dynamic.map(|one| one.at("active_state.listener")));
                }
                "ClustersConfigDump" => {
                    let dynamic = part.get("dynamic_active_clusters").items();
                    self.clusters.extend(dynamic.map(|one| one.get("cluster")));
                }
                "RoutesConfigDump" => {
                    for one in part.get("dynamic_route_configs").items() {
                        self.add_resource(one.get("route_config"));
                    }
                }
                "EcdsConfigDump" => {
                    for one in part.get("ecds_filters").items() {
                        self.add_resource(one.get("ecds_filter"));
                    }
                }
                _ => {}
            }
        }
        self.open = false;
    }

    /// Adds a resource of a discovery service.
    pub(super) fn add_resource(&mut self, resource: Place<'a>) {
        // A resource may be wrapped, with its name and version.
        let (kind, resource) = match typed(&resource) {
            (kind, inner) if kind.ends_with("discovery.v3.Resource") => typed(&inner.get("resource")),
            typed => typed,
        };
        let name = resource.get("name").text().unwrap_or_default().to_owned();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Listener" => self.listeners.push(resource),
            "Cluster" => self.clusters.push(resource),
            "RouteConfiguration" => {
                self.route_configs.insert(name, resource);
            }
            "TypedExtensionConfig" => {
                self.extensions.insert(name, resource.get("typed_config"));
            }
            _ => {}
        }
    }

    /// Finds the chains, once all files are added.
    pub(super) fn connect(&mut self) {
        let mut chains = Vec::new();
        for listener in &self.listeners {
            let many = listener.get("filter_chains").items();
            let default = Some(listener.get("default_filter_chain")).filter(Place::exists);
            for filter_chain in many.chain(default) {
                for filter in filter_chain.get("filters").items() {
                    let (kind, manager) = typed(&filter.get("typed_config"));
                    if kind.ends_with(MANAGER) {
                        chains.push(self.chain(Some(*listener), Some(filter_chain), manager));
                    }
                }
            }
            let (kind, manager) = typed(&listener.at("api_listener.api_listener"));
            if kind.ends_with(MANAGER) {
                chains.push(self.chain(Some(*listener), None, manager));
            }
        }
        self.chains = chains;
        for cluster in &self.clusters {
            if let Some(name) = cluster.get("name").text() {
                self.clusters_by_name.entry(name).or_insert(*cluster);
            }
        }
        self.add_unnamed();
    }

    /// Filters that are discovered, and whose chain is not in the files.
    fn add_unnamed(&mut self) {
        let chains = self.chains.iter().flat_map(|chain| &chain.filters);
        let named: Vec<_> = chains
            .chain(self.loose_filters.iter().map(|loose| &loose.filter))
            .map(|filter| &filter.name)
            .collect();
        let unnamed = self.extensions.iter().filter(|(name, _)| !named.contains(name));
        let loose = unnamed.map(|(name, place)| LooseFilter {
            filter: filter_of(*place, name.clone(), place, ""),
            position: Position::Later,
        });
        let loose: Vec<_> = loose.collect();
        self.loose_filters.extend(loose);
    }

    fn chain(
        &self,
        listener: Option<Place<'a>>,
        filter_chain: Option<Place<'a>>,
        manager: Place<'a>,
    ) -> Chain<'a> {
        let inline = manager.get("route_config");
        let routes = if inline.exists() {
            Some(inline)
        } else {
            let name = manager.at("rds.route_config_name").text();
            name.and_then(|name| self.route_configs.get(name).copied())
        };
        let filters = manager.get("http_filters").items().map(|place| self.filter(place)).collect();
        Chain { listener, filter_chain, manager, filters, routes }
    }

    /// Reads an entry of a list of filters; configuration that is discovered is looked up.
    pub(super) fn filter(&self, place: Place<'a>) -> Filter<'a> {
        let name = place.get("name").text().unwrap_or_default().to_owned();
        let discovery = place.get("config_discovery");
        let written = if discovery.exists() {
            let default = discovery.get("default_config");
            let other = promises_wasm(&discovery) && !typed(&default).0.contains(".wasm.");
            // Ours by its name, and something else until it comes.
            let replaced = (name.contains("fencepost") || self.ours.contains(&name))
                && !is_ours(&filter_of(place, String::new(), &default, ""));
            // What runs until the promised filter comes says nothing about it.
            let until = if other || replaced { Place::nothing(place.file) } else { default };
            self.extensions.get(&name).copied().unwrap_or(until)
        } else {
            place.get("typed_config")
        };
        let promised = discovery.get("type_urls").items().next().and_then(|url| url.text());
        let known = discovery.exists() && self.ours.contains(&name);
        Filter { known, ..filter_of(place, name, &written, promised.unwrap_or_default()) }
    }

    pub(super) fn cluster(&self, name: &str) -> Option<Place<'a>> {
        self.clusters_by_name.get(name).copied()
    }
}

/// The names under which resources have our filter.
pub(super) fn names_of_ours<'a>(resources: impl Iterator<Item = Place<'a>>) -> BTreeSet<String> {
    let mut world = World::default();
    resources.for_each(|resource| world.add_resource(resource));
    let ours = world.extensions.into_iter();
    ours.filter(|(name, place)| is_ours(&filter_of(*place, name.clone(), place, "")))
        .map(|(name, _)| name)
        .collect()
}

fn promises_wasm(discovery: &Place<'_>) -> bool {
    let mut promised = discovery.get("type_urls").items();
    promised.any(|url| url.text().is_some_and(|url| url.contains(".wasm.")))
}

/// A filter out of its `typed_config`, or of the type that discovery promises.
pub(super) fn filter_of<'a>(
    place: Place<'a>,
    name: String,
    written: &Place<'a>,
    promised: &str,
) -> Filter<'a> {
    let (kind, config) = typed(written);
    let kind =
        if kind.is_empty() { promised.rsplit('/').next().unwrap_or_default().to_owned() } else { kind };
    let kind = kind.strip_prefix(HTTP_FILTERS).map(str::to_owned).unwrap_or(kind);
    Filter { place, name, kind, config, disabled: place.get("disabled").is_true(), known: false }
}

/// The routes of a virtual host, in a list or in the leaves of a matcher tree; with whether their
/// order is that in which they are tried.
pub(super) fn routes_of<'a>(host: &Place<'a>) -> Vec<(Place<'a>, bool)> {
    let mut routes: Vec<_> = host.get("routes").items().map(|route| (route, true)).collect();
    let mut found = Vec::new();
    add_leaves(&host.get("matcher"), &mut found);
    routes.extend(found.into_iter().map(|route| (route, false)));
    routes
}

fn add_leaves<'a>(of: &Place<'a>, found: &mut Vec<Place<'a>>) {
    let action = of.at("action.typed_config");
    if action.exists() {
        let (kind, action) = typed(&action);
        match kind.rsplit('.').next().unwrap_or_default() {
            "Route" => found.push(action),
            "RouteList" => found.extend(action.get("routes").items()),
            _ => {}
        }
        return;
    }
    of.items().for_each(|inner| add_leaves(&inner, found));
    of.members().for_each(|(_, inner)| add_leaves(&inner, found));
}

impl<'a> Filter<'a> {
    /// First word of the type: `jwt_authn`, `wasm`, `router`.
    pub(super) fn word(&self) -> &str {
        self.kind.split('.').next().unwrap_or_default()
    }
}

impl<'a> Chain<'a> {
    pub(super) fn is_internal(&self) -> bool {
        self.listener.is_some_and(|listener| listener.get("internal_listener").exists())
    }

    pub(super) fn virtual_hosts(&self) -> impl Iterator<Item = Place<'a>> + use<'a> {
        self.routes.map(|routes| routes.get("virtual_hosts").items()).into_iter().flatten()
    }
}
