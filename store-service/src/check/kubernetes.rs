//! Manifests: patches of Istio and Envoy Gateway, plugins, lists, and files inside ConfigMaps.

use super::code::Code;
use super::guard::{Configuration, is_our_configuration, is_ours};
use super::place::{Findings, Place};
use super::tree::{self, Kind, Node, NotYaml};
use super::world::{LooseFilter, Position, World};
use fencepost_filter_core::guard::METADATA_NAMESPACE;
use fencepost_filter_core::scope::{ScopePolicy, ScopeSource};

/// Filters that authenticate: what is put before them runs without an identity.
const AUTHENTICATION: [&str; 6] = [
    "envoy.filters.http.jwt_authn",
    "istio_authn",
    "envoy.filters.http.ext_authz",
    "envoy.filters.http.rbac",
    "envoy.filters.http.oauth2",
    "envoy.filters.http.basic_auth",
];

/// Whether a document is a manifest.
pub(super) fn is_manifest(document: &Node) -> bool {
    document.get("apiVersion").exists() && document.get("kind").exists()
}

/// Envoy's files inside the ConfigMaps of a document, as documents with their lines.
pub(super) fn embedded(document: &Node) -> Result<Vec<Node>, NotYaml> {
    let mut found = Vec::new();
    if document.get("kind").text().is_some_and(|kind| kind.ends_with("List")) {
        for item in document.get("items").items() {
            found.extend(embedded(item)?);
        }
    }
    if document.get("kind").text() == Some("ConfigMap") {
        for member in document.get("data").members() {
            let Kind::Scalar(scalar) = &member.value.kind else { continue };
            let envoys = ["static_resources", "staticResources", "type.googleapis.com/envoy."];
            if envoys.iter().any(|word| scalar.text.contains(word)) {
                found.extend(tree::parse(&scalar.text, scalar.block_line.unwrap_or(member.line))?);
            }
        }
    }
    Ok(found)
}

/// Adds a manifest to a world of fragments. Plugins are checked at once; the number of those that
/// are ours is returned.
pub(super) fn add<'a>(
    manifest: Place<'a>,
    mesh: &mut World<'a>,
    gateway: &mut World<'a>,
    findings: &mut Findings,
) -> usize {
    let kind = manifest.get("kind").text().unwrap_or_default();
    match kind {
        "EnvoyFilter" => add_envoy_filter(manifest, mesh),
        "EnvoyPatchPolicy" => add_patch_policy(manifest, gateway),
        "WasmPlugin" => {
            let spec = manifest.get("spec");
            return check_plugin(kind, &manifest, spec, spec.get("plugin_config"), findings);
        }
        "TrafficExtension" => {
            let spec = manifest.at("spec.wasm");
            return check_plugin(kind, &manifest, spec, spec.get("plugin_config"), findings);
        }
        "EnvoyExtensionPolicy" => {
            let plugins = manifest.at("spec.wasm").items();
            return plugins
                .map(|wasm| check_plugin(kind, &manifest, wasm, wasm.get("config"), findings))
                .sum();
        }
        _ if kind.ends_with("List") => {
            return manifest.get("items").items().map(|item| add(item, mesh, gateway, findings)).sum();
        }
        _ => {}
    }
    0
}

fn add_envoy_filter<'a>(manifest: Place<'a>, world: &mut World<'a>) {
    let mut filters = Vec::new();
    let mut extensions = Vec::new();
    for patch in manifest.at("spec.config_patches").items() {
        let value = patch.at("patch.value");
        match patch.get("apply_to").text().unwrap_or_default() {
            "HTTP_FILTER" => {
                let position = match patch.at("patch.operation").text().unwrap_or_default() {
                    "INSERT_FIRST" => Position::First,
                    "INSERT_BEFORE" => {
                        let next = patch.at("match.listener.filter_chain.filter.sub_filter.name").text();
                        match next {
                            Some(name) if !AUTHENTICATION.contains(&name) => Position::Later,
                            _ => Position::First,
                        }
                    }
                    _ => Position::Later,
                };
                filters.push((value, position));
            }
            "EXTENSION_CONFIG" => {
                let name = value.get("name").text().unwrap_or_default().to_owned();
                world.extensions.insert(name, value.get("typed_config"));
                extensions.push(value);
            }
            "CLUSTER" => world.clusters.push(value),
            "LISTENER" => world.listeners.push(value),
            "HTTP_ROUTE" | "VIRTUAL_HOST" => world.loose_routes.push(value),
            "ROUTE_CONFIGURATION" => world.loose_routes.extend(value.get("virtual_hosts").items()),
            _ => {}
        }
    }
    let is_named = |extension: &Place<'_>| {
        let name = extension.get("name").text();
        filters.iter().any(|(filter, _)| filter.get("name").text() == name)
    };
    let unnamed: Vec<_> = extensions.iter().filter(|extension| !is_named(extension)).copied().collect();
    let all = filters.into_iter().chain(unnamed.into_iter().map(|extension| (extension, Position::Later)));
    for (place, position) in all {
        let filter = world.filter(place);
        world.loose_filters.push(LooseFilter { filter, position });
    }
}

fn add_patch_policy<'a>(manifest: Place<'a>, world: &mut World<'a>) {
    for patch in manifest.at("spec.json_patches").items() {
        let kind = patch.get("type").text().unwrap_or_default();
        let path = patch.at("operation.path").text().unwrap_or_default();
        let json_path = patch.at("operation.json_path").text().unwrap_or_default();
        let value = patch.at("operation.value");
        let last = path.rsplit('/').next().unwrap_or_default();
        match kind.rsplit('.').next().unwrap_or_default() {
            "Cluster" => world.clusters.push(value),
            "Listener" if [path, json_path].iter().any(|path| path.contains("http_filters")) => {
                let first = if last == "0" { Position::First } else { Position::Later };
                let list: Vec<_> = value.items().collect();
                let one = if list.is_empty() { vec![value] } else { list };
                for place in one {
                    let filter = world.filter(place);
                    world.loose_filters.push(LooseFilter { filter, position: first });
                }
            }
            "Listener" => world.listeners.push(value),
            // The metadata itself, without the route around it.
            "RouteConfiguration" if last == METADATA_NAMESPACE => world.loose_marks.push(value),
            "RouteConfiguration" => world.loose_routes.push(value),
            _ => {}
        }
    }
}

/// A plugin of a mesh or gateway. None of them can set the host option.
fn check_plugin<'a>(
    kind: &str,
    manifest: &Place<'a>,
    spec: Place<'a>,
    configuration: Place<'a>,
    findings: &mut Findings,
) -> usize {
    let names = [
        manifest.at("metadata.name"),
        spec.get("plugin_name"),
        spec.get("name"),
        spec.get("url"),
        spec.at("code.image.url"),
        spec.at("code.http.url"),
    ];
    let named = names.iter().filter_map(Place::text).any(|name| name.contains("fencepost"));
    if !named && !is_our_configuration(&configuration) {
        return 0;
    }
    findings.error(
        manifest.get("kind"),
        Code::HostOptionUnsettable,
        format!("a {kind}, which can't set allow_on_headers_stop_iteration"),
        "an EnvoyFilter or EnvoyPatchPolicy that adds the filter with allow_on_headers_stop_iteration: true",
    );
    let strategy = spec.get("fail_strategy");
    let open = spec.get("fail_open");
    if strategy.is("FAIL_OPEN") || open.is_true() {
        let place = if strategy.exists() { strategy } else { open };
        let expected = "no such setting: requests would pass unguarded when the filter fails";
        findings.error(place, Code::FailurePolicyOpen, place.shown(), expected);
    }
    if !configuration.exists() {
        findings.error(configuration, Code::ConfigMissing, "no configuration", "the filter's configuration");
        return 1;
    }
    let configuration = Configuration::read_struct(configuration, findings);
    let phase = spec.get("phase");
    if phase.is("AUTHN") {
        report_first(&configuration, phase, findings);
    }
    1
}

/// The filter runs first: sources of scope that another filter makes are not there yet.
pub(super) fn report_first(configuration: &Configuration<'_>, place: Place<'_>, findings: &mut Findings) {
    let needs = configuration.policies().find_map(|policy| {
        let ScopePolicy::Sources(sources) = &policy.scope else { return None };
        let made = |source: &&ScopeSource| {
            matches!(
                source,
                ScopeSource::Jwt { .. } | ScopeSource::Metadata { .. } | ScopeSource::FilterState { .. }
            )
        };
        sources.iter().find(made).map(|source| (policy.name.clone(), source.name()))
    });
    if let Some((policy, source)) = needs {
        let found =
            format!("the filter before authentication, while policy {policy:?} is scoped by {source}");
        let expected = "a place after authentication, such as right before the router";
        findings.error(place, Code::AuthenticationMissing, found, expected);
    }
}

/// Whether a loose filter is ours.
pub(super) fn ours<'w, 'a>(world: &'w World<'a>) -> impl Iterator<Item = &'w LooseFilter<'a>> {
    world.loose_filters.iter().filter(|loose| is_ours(&loose.filter))
}
