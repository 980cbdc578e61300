//! Manifests: patches of Istio and Envoy Gateway, plugins, lists, and files inside ConfigMaps.

use super::code::Code;
use super::guard::{Configuration, check_changed, is_our_configuration, is_ours};
use super::patches::segments;
use super::place::{Findings, Place};
use super::tree::{self, Kind, Node, NotYaml};
use super::world::{LooseFilter, Position, World, filter_of};
use fencepost_filter_core::scope::{ScopePolicy, ScopeSource};

/// Filters that authenticate, and the first one in Istio: what is put before them runs without an
/// identity.
pub(super) const AUTHENTICATION: [&str; 9] = [
    "envoy.filters.http.jwt_authn",
    "istio_authn",
    "istio.authn",
    "istio.metadata_exchange",
    "envoy.filters.http.api_key_auth",
    "envoy.filters.http.ext_authz",
    "envoy.filters.http.rbac",
    "envoy.filters.http.oauth2",
    "envoy.filters.http.basic_auth",
];

/// Whether a document is a manifest.
pub(super) fn is_manifest(document: &Node) -> bool {
    document.get("apiVersion").exists() && document.get("kind").exists()
}

/// Envoy's files inside the ConfigMaps of a document, as documents with their lines. One that can't
/// be read is no reason not to read the others.
pub(super) fn embedded(document: &Node) -> (Vec<Node>, Vec<NotYaml>) {
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    if document.get("kind").text().is_some_and(|kind| kind.ends_with("List")) {
        for item in document.get("items").items() {
            let (inner, not_yaml) = embedded(item);
            found.extend(inner);
            unread.extend(not_yaml);
        }
    }
    if document.get("kind").text() == Some("ConfigMap") {
        for member in document.get("data").members() {
            let Kind::Scalar(scalar) = &member.value.kind else { continue };
            let envoys = ["static_resources", "staticResources", "type.googleapis.com/envoy."];
            if !envoys.iter().any(|word| scalar.text.contains(word)) {
                continue;
            }
            let line = scalar.block_line.unwrap_or(member.line);
            match tree::parse(&scalar.text, line) {
                Ok(inner) if inner.iter().all(|one| matches!(one.kind, Kind::Map(_) | Kind::Null)) => {
                    found.extend(inner);
                }
                Ok(_) => unread.push(NotYaml { line, message: "neither a map nor empty".to_owned() }),
                Err(error) => unread.push(error),
            }
        }
    }
    (found, unread)
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
        "EnvoyFilter" => add_envoy_filter(manifest, mesh, findings),
        "EnvoyPatchPolicy" => add_patch_policy(manifest, gateway, findings),
        "WasmPlugin" if manifest.get("apiVersion").text().is_some_and(|api| api.starts_with(HIGRESS)) => {
            return check_higress(kind, &manifest, findings);
        }
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

fn add_envoy_filter<'a>(manifest: Place<'a>, world: &mut World<'a>, findings: &mut Findings) {
    let patches = || manifest.at("spec.config_patches").items();
    // Filters look their configurations up.
    for extension in patches().filter(|patch| patch.get("apply_to").is("EXTENSION_CONFIG")) {
        let value = extension.at("patch.value");
        let name = value.get("name").text().unwrap_or_default().to_owned();
        world.extensions.insert(name, value.get("typed_config"));
    }
    let at_gateway = manifest.at("spec.target_refs").items().any(|target| target.get("kind").is("Gateway"));
    check_contexts(&patches().collect::<Vec<_>>(), findings);
    for patch in patches() {
        let value = patch.at("patch.value");
        let context = patch.at("match.context");
        if at_gateway
            && patch.get("apply_to").is("HTTP_FILTER")
            && context.text().is_some_and(|at| at.starts_with("SIDECAR"))
        {
            let found = format!("a patch for {} of a Gateway", context.shown());
            let expected = "a workloadSelector of the sidecars: Gateways and waypoints have no such context";
            findings.error(context, Code::FilterMisplaced, found, expected);
        }
        match patch.get("apply_to").text().unwrap_or_default() {
            "HTTP_FILTER" => add_http_filter(patch, world, findings),
            "CLUSTER" => world.clusters.push(value),
            "HTTP_ROUTE" => check_operation(patch, findings),
            "LISTENER" if !patch.at("patch.operation").is("MERGE") => world.listeners.push(value),
            // Pieces of the others are read apart.
            _ => {}
        }
    }
}

/// Whether routes are marked where the filter is put, among the patches of one manifest.
fn check_contexts(patches: &[Place<'_>], findings: &mut Findings) {
    let is = |patch: &Place<'_>, kind: &str| patch.get("apply_to").is(kind);
    let puts_ours = |patch: &Place<'_>| {
        let value = patch.at("patch.value");
        is(patch, "HTTP_FILTER")
            && (value.get("name").text().is_some_and(|name| name.contains("fencepost"))
                || is_ours(&filter_of(value, String::new(), &value.get("typed_config"), "")))
    };
    let filters: Vec<_> = patches.iter().filter(|patch| puts_ours(patch)).map(context).collect();
    for patch in patches.iter().filter(|patch| is(patch, "HTTP_ROUTE") || is(patch, "VIRTUAL_HOST")) {
        let Some(here) = context(patch) else { continue };
        let marks = super::routes::mark(&patch.at("patch.value")).exists();
        if marks && !filters.is_empty() && !filters.iter().any(|of| of.is_none_or(|of| of == here)) {
            let found =
                format!("metadata of the filter in context {here}, where this manifest puts no filter");
            let expected = "the context of the filter, unless another manifest puts one there";
            findings.warning(patch.at("match.context"), Code::RouteWithoutFilter, found, expected);
        }
    }
}

/// The context of a patch; none is any.
fn context<'a>(patch: &Place<'a>) -> Option<&'a str> {
    patch.at("match.context").text().filter(|context| *context != "ANY")
}

/// Istio leaves what is added to a route, or has no operation, as if it were not there.
fn check_operation(patch: Place<'_>, findings: &mut Findings) {
    let operation = patch.at("patch.operation");
    let mark = super::routes::mark(&patch.at("patch.value"));
    if mark.exists()
        && (!operation.exists() || ["ADD", "REPLACE", "INVALID"].iter().any(|word| operation.is(word)))
    {
        let found = format!("metadata of the filter in a patch with operation {}", operation.shown());
        let expected = "operation: MERGE: Istio ignores this patch, so nothing is guarded";
        findings.error(operation, Code::MarkMisplaced, found, expected);
    }
}

fn add_http_filter<'a>(patch: Place<'a>, world: &mut World<'a>, findings: &mut Findings) {
    let value = patch.at("patch.value");
    let name = patch.at("match.listener.filter_chain.filter.sub_filter.name");
    let next = name.text().unwrap_or_default();
    let filter = world.filter(value);
    let is_router = next == ROUTER;
    let position = match patch.at("patch.operation").text().unwrap_or_default() {
        "INSERT_FIRST" => Position::First,
        "INSERT_BEFORE" if next.is_empty() => Position::First,
        "INSERT_BEFORE" => Position::Before(next.to_owned()),
        "INSERT_AFTER" if is_router || next.is_empty() => Position::Last,
        // With a class, Istio puts it behind its own filters of that class, before the router.
        "ADD" if ["AUTHN", "AUTHZ", "STATS"].iter().any(|class| patch.at("patch.filter_class").is(class)) => {
            Position::Later
        }
        "ADD" => Position::Last,
        "REMOVE" | "REPLACE" if next.contains("fencepost") && !is_ours(&filter) => {
            return report_removed(name, findings);
        }
        "REMOVE" => return,
        "MERGE" => {
            if next.contains("fencepost") || is_ours(&filter) {
                check_merged(value, findings);
            }
            return;
        }
        _ => Position::Later,
    };
    world.loose_filters.push(LooseFilter { filter, position });
}

const ROUTER: &str = "envoy.filters.http.router";

fn report_removed(place: Place<'_>, findings: &mut Findings) {
    let found = "a patch that takes the filter out";
    findings.error(
        place,
        Code::FilterMisplaced,
        found,
        "no such patch: nothing is guarded without the filter",
    );
}

/// A change of our filter: only what it says.
fn check_merged(value: Place<'_>, findings: &mut Findings) {
    let disabled = value.get("disabled");
    if disabled.is_true() {
        let expected = "it on, or no metadata of it on any route";
        findings.error(disabled, Code::FilterDisabled, "the filter off", expected);
    }
    let plugin = super::world::typed(&value.get("typed_config")).1.get("config");
    if plugin.exists() {
        check_changed(plugin, findings);
    }
}

fn add_patch_policy<'a>(manifest: Place<'a>, world: &mut World<'a>, findings: &mut Findings) {
    for patch in manifest.at("spec.json_patches").items() {
        let kind = patch.get("type").text().unwrap_or_default();
        let operation = patch.get("operation");
        let value = operation.get("value");
        let way = segments(operation.node);
        let at = way.iter().position(|segment| segment == "http_filters");
        match (kind.rsplit('.').next().unwrap_or_default(), at) {
            ("Cluster", _) => world.clusters.push(value),
            ("Listener", Some(at)) => {
                add_patched_filters(operation, way.get(at + 1..).unwrap_or_default(), world, findings);
            }
            ("Listener", None) if way.is_empty() => world.listeners.push(value),
            // Pieces of the others are read apart.
            _ => {}
        }
    }
}

/// A change of the list of filters, or of one in it.
fn add_patched_filters<'a>(
    operation: Place<'a>,
    below: &[String],
    world: &mut World<'a>,
    findings: &mut Findings,
) {
    let value = operation.get("value");
    let selected = below.first().map(String::as_str).unwrap_or_default();
    let op = operation.get("op").text().unwrap_or_default();
    if op == "remove" || below.len() > 1 {
        // A filter itself, or a field of it.
        let ours = selected.contains("fencepost");
        match below.get(1..).unwrap_or_default() {
            [] if ours && op == "remove" => report_removed(operation, findings),
            [field] if ours && field == "disabled" && value.is_true() => {
                let expected = "it on, or no metadata of it on any route";
                findings.error(value, Code::FilterDisabled, "the filter off", expected);
            }
            _ => {}
        }
        return;
    }
    let named =
        selected.split(['\'', '"']).find(|word| word.contains("envoy.filters.") || word.contains("authn"));
    let position = match (selected, named) {
        ("0", _) => Position::First,
        ("-", _) => Position::Last,
        (_, Some(name)) => Position::Before(name.to_owned()),
        _ => Position::Later,
    };
    let list: Vec<_> = value.items().collect();
    for place in if list.is_empty() { vec![value] } else { list } {
        let filter = world.filter(place);
        world.loose_filters.push(LooseFilter { filter, position: position.clone() });
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
    if !is_named(manifest, spec) && !is_our_configuration(&configuration) {
        return 0;
    }
    check_settings(kind, manifest, spec, findings);
    if configuration.exists() {
        check_configuration(configuration, spec, findings);
    } else {
        findings.error(configuration, Code::ConfigMissing, "no configuration", "the filter's configuration");
    }
    1
}

const HIGRESS: &str = "extensions.higress.io/";

/// A plugin of Higress, with configurations for chosen routes and domains beside the default one.
fn check_higress<'a>(kind: &str, manifest: &Place<'a>, findings: &mut Findings) -> usize {
    let spec = manifest.get("spec");
    let own = spec.get("plugin_config");
    let off = spec.get("default_config_disable").is_true();
    let default = if own.exists() || off { own } else { spec.get("default_config") };
    let rules: Vec<_> = spec
        .get("match_rules")
        .items()
        .filter(|rule| !own.exists() && !rule.get("config_disable").is_true())
        .map(|rule| rule.get("config"))
        .collect();
    let all: Vec<_> = rules.iter().copied().chain([default]).filter(Place::exists).collect();
    if !is_named(manifest, spec) && !all.iter().any(is_our_configuration) {
        return 0;
    }
    check_settings(kind, manifest, spec, findings);
    for configuration in &all {
        check_configuration(*configuration, spec, findings);
    }
    if !rules.is_empty() {
        let found =
            "matchRules, which get into the configuration as _rules_, a field that the filter refuses";
        let expected = "no matchRules: routes are chosen by their metadata, and policies are told by name";
        findings.error(spec.get("match_rules"), Code::ConfigInvalid, found, expected);
    } else if !default.exists() {
        findings.error(default, Code::ConfigMissing, "no configuration", "the filter's configuration");
    }
    1
}

/// Whether a plugin is ours by its names.
fn is_named(manifest: &Place<'_>, spec: Place<'_>) -> bool {
    let names = [
        manifest.at("metadata.name"),
        spec.get("plugin_name"),
        spec.get("name"),
        spec.get("url"),
        spec.at("code.image.url"),
        spec.at("code.http.url"),
    ];
    names.iter().filter_map(Place::text).any(|name| name.contains("fencepost"))
}

fn check_settings(kind: &str, manifest: &Place<'_>, spec: Place<'_>, findings: &mut Findings) {
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
}

fn check_configuration<'a>(configuration: Place<'a>, spec: Place<'a>, findings: &mut Findings) {
    let configuration = Configuration::read_struct(configuration, findings);
    let phase = spec.get("phase");
    if phase.is("AUTHN") {
        report_first(&configuration, phase, findings);
    }
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
