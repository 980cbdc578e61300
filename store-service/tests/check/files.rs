//! What is read, and how files are put together.

use crate::{assert_findings, check_one, envoy, shipped};
use fencepost_store::check::Code::*;
use fencepost_store::check::Severity::{Error, Note, Warning};
use fencepost_store::check::check;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::Path;

fn all_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            found.push(path.strip_prefix(envoy()).unwrap().display().to_string());
        }
    }
}

#[test]
fn every_shipped_manifest_is_clean_alone_and_with_its_neighbours() {
    let mut names = Vec::new();
    all_files(&envoy(), &mut names);
    names.retain(|name| !name.starts_with("policies/"));
    names.sort();
    assert!(names.len() >= 10, "{names:?}");
    let read = |name: &String| (name.clone(), shipped(name).into_bytes());
    for name in &names {
        let report = check(&[read(name)]).unwrap();
        // A file without a filter is no clean one, but one that says so.
        let only_nothing = report.findings.iter().all(|finding| finding.code == NothingFound);
        assert!(report.is_clean(true) || report.summary.filters == 0 && only_nothing, "{report}");
    }
    let folders = ["ecds/", "istio/", "gateway/", "kubernetes/"];
    for folder in folders {
        let together: Vec<_> = names.iter().filter(|name| name.starts_with(folder)).map(read).collect();
        assert!(!together.is_empty(), "{folder}");
        let report = check(&together).unwrap();
        assert!(report.is_clean(folder != "kubernetes/"), "{report}");
        assert!(report.summary.filters == 1 || folder == "kubernetes/", "{folder}: {report}");
    }
}

#[test]
fn a_bootstrap_in_json_and_in_camel_case_is_read_too() {
    let text = shipped("edge.yaml").replace("FAIL_RELOAD", "FAIL_OPEN");
    let value: Value = serde_saphyr::from_str(&text).unwrap();
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    let camel = pretty.replace("failure_policy", "failurePolicy").replace("typed_config", "typedConfig");
    for json in [pretty, camel] {
        let report = check_one(&json);
        let marker = if json.contains("failurePolicy") { "failurePolicy" } else { "failure_policy" };
        assert_findings("json", &json, &report, &[(Error, FailurePolicyOpen, marker)]);
    }
}

#[test]
fn a_configuration_on_one_line_is_found_by_the_line_of_its_text() {
    let mut text = shipped("edge.yaml");
    let (start, end) = (text.find("value: |").unwrap(), text.find("          # 3. The router").unwrap());
    let config: Value = serde_json::from_str(&text[start + "value: |".len()..end]).unwrap();
    let one_line = config.to_string().replace(r#""wait":"5s""#, r#""wait":"0s""#);
    text.replace_range(start..end, &format!("value: '{one_line}'\n"));
    assert_findings("one line", &text, &check_one(&text), &[(Error, ConfigInvalid, "value: '")]);
}

#[test]
fn resource_files_belong_to_the_bootstrap_beside_them() {
    let bootstrap = shipped("ecds/bootstrap.yaml");
    let filter = shipped("ecds/fencepost.yaml").replace(r#""wait": "5s""#, r#""wait": "0s""#);
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let alone = check_one(&bootstrap);
    assert_findings("alone", &bootstrap, &alone, &[(Note, NotChecked, "- name: fencepost")]);
    let report = check(&[file("b.yaml", &bootstrap), file("f.yaml", &filter)]).unwrap();
    assert_findings("both", &filter, &report, &[(Error, ConfigInvalid, r#""wait""#)]);
    assert_eq!(report.findings[0].file, "f.yaml");

    // Routes of a file of their own.
    let edge = shipped("edge.yaml");
    let (head, tail) = edge.split_once("          route_config:\n").unwrap();
    let (routes, clusters) = tail.split_once("  clusters:\n").unwrap();
    let outer = format!("{head}          rds: {{route_config_name: ingress}}\n  clusters:\n{clusters}");
    let kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    let inner = format!("resources:\n          - \"@type\": {kind}\n{routes}")
        .replace("policy: payments", "policy: pay");
    let report = check(&[file("b.yaml", &outer), file("rds.yaml", &inner)]).unwrap();
    let codes: Vec<_> = report.findings.iter().map(|finding| (finding.file.as_str(), finding.code)).collect();
    assert_eq!(codes, [("rds.yaml", RoutePolicyUnknown)], "{report}");
}

#[test]
fn the_dump_of_a_running_envoy_is_read_whole() {
    let mut bootstrap: Value = serde_saphyr::from_str(&shipped("ecds/bootstrap.yaml")).unwrap();
    let resources: Value = serde_saphyr::from_str(&shipped("ecds/fencepost.yaml")).unwrap();
    let part = |kind: &str| json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{kind}ConfigDump")});
    let mut listeners = part("Listeners");
    let taken = |value: &mut Value, name: &str| value["static_resources"][name].take();
    let mut ingress = taken(&mut bootstrap, "listeners")[0].take();
    let manager = ingress.pointer_mut("/filter_chains/0/filters/0/typed_config").unwrap();
    let mut route_config = json!({"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"});
    for (name, value) in manager["route_config"].take().as_object().unwrap() {
        route_config[name.as_str()] = value.clone();
    }
    manager["rds"] = json!({"route_config_name": "ingress"});
    listeners["dynamic_listeners"] = json!([{"name": "ingress", "active_state": {"listener": ingress}}]);
    let mut clusters = part("Clusters");
    let all = taken(&mut bootstrap, "clusters");
    let all = all.as_array().unwrap().iter().map(|cluster| json!({"cluster": cluster}));
    clusters["dynamic_active_clusters"] = all.collect();
    let mut routes = part("Routes");
    routes["dynamic_route_configs"] = json!([{"route_config": route_config}]);
    let mut filters = part("Ecds");
    filters["ecds_filters"] = json!([{"ecds_filter": resources["resources"][0]}]);
    bootstrap["dynamic_resources"] = json!({"lds_config": {"ads": {}}, "cds_config": {"ads": {}}});
    let mut first = part("Bootstrap");
    first["bootstrap"] = bootstrap;
    let dump =
        serde_json::to_string_pretty(&json!({"configs": [first, clusters, filters, listeners, routes]}))
            .unwrap();
    let clean = check_one(&dump);
    assert!(clean.findings.is_empty() && clean.summary.filters == 1, "{clean}");
    let broken = dump
        .replace("FAIL_RELOAD", "FAIL_OPEN")
        .replace("\"name\": \"fencepost_store\"", "\"name\": \"other\"");
    let promised = [(Error, FailurePolicyOpen, "FAIL_OPEN"), (Error, StoreClusterMissing, "value")];
    let report = check_one(&broken);
    let lines: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(lines.len(), promised.len(), "{report}");
    assert!(promised.iter().all(|(severity, code, _)| lines.contains(&(*severity, *code))), "{report}");
}

#[test]
fn two_bootstraps_do_not_mix() {
    let detached = shipped("detached.yaml");
    let edge = shipped("edge.yaml").replacen(
        r#""decide_cluster": "fencepost_store""#,
        r#""decide_cluster": "fencepost_loopback""#,
        1,
    );
    let files = [("a.yaml".to_owned(), detached.into_bytes()), ("b.yaml".to_owned(), edge.into_bytes())];
    let report = check(&files).unwrap();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!((report.findings[0].file.as_str(), report.findings[0].code), ("b.yaml", StoreClusterMissing));
}

#[test]
fn filters_that_differ_need_ids_of_their_own() {
    let edge = shipped("edge.yaml");
    let (start, end) = (edge.find("  - name: ingress\n").unwrap(), edge.find("  clusters:\n").unwrap());
    let listener = &edge[start..end];
    let with = |second: &str| format!("{}{second}{}", &edge[..end], &edge[end..]);
    let same = check_one(&with(listener));
    assert!(same.findings.is_empty(), "{same}");
    let text = with(&listener.replace(r#""key_prefix": "prod""#, r#""key_prefix": "beta""#));
    assert_findings("shared ids", &text, &check_one(&text), &[(Warning, RootIdShared, "root_id: fencepost")]);
    let own = text.replacen("vm_id: fencepost", "vm_id: fencepost-beta", 1);
    assert!(check_one(&own).findings.is_empty());
}

#[test]
fn a_policy_is_in_use_if_any_listener_uses_it() {
    let edge = shipped("edge.yaml");
    let (start, end) = (edge.find("  - name: ingress\n").unwrap(), edge.find("  clusters:\n").unwrap());
    let unmarked =
        edge[start..end].replace("metadata: {filter_metadata: {fencepost: {policy: payments}}}", "name: x");
    let text = format!("{}{unmarked}{}", &edge[..end], &edge[end..]);
    assert!(check_one(&text).findings.is_empty());
}

#[test]
fn overrides_of_virtual_host_and_route_are_merged() {
    let edge = shipped("edge.yaml");
    let host = "domains: [\"*\"]\n              metadata: {filter_metadata: {fencepost: {policy: payments, max_run: 110s}}}\n";
    let text = edge.replacen("domains: [\"*\"]\n", host, 1).replace("{policy: payments}", "{wait: 10s}");
    // 10 s + 2 s + 110 s are more than 120 s, on the marked route; without the override, not on the other.
    assert_findings(
        "merged",
        &text,
        &check_one(&text),
        &[(Warning, StreamIdleTimeoutShort, "stream_idle_timeout")],
    );
}

#[test]
fn patches_of_a_mesh_are_read_as_fragments() {
    let text = shipped("istio/envoyfilter.yaml");
    for (from, to, promised) in [
        ("FAIL_RELOAD", "FAIL_OPEN", (Error, FailurePolicyOpen, "FAIL_OPEN")),
        ("operation: INSERT_BEFORE", "operation: INSERT_FIRST", (Error, AuthenticationMissing, "value:")),
        ("allow_on_headers_stop_iteration: true", "x: 1", (Error, HostOptionMissing, "config:")),
        ("{policy: payments}", "{policy: pay}", (Error, RoutePolicyUnknown, "policy: pay}")),
        ("vm_id: ", "x: ", (Warning, VmIdEmpty, "vm_config:")),
    ] {
        assert!(text.contains(from), "{from}");
        let broken = text.replacen(from, to, 1);
        assert_findings(from, &broken, &check_one(&broken), &[promised]);
    }
    // A list of manifests is the same.
    let first = text.split("\n---\n").next().unwrap();
    let indented: String = first.lines().map(|line| format!("  {line}\n")).collect();
    let list =
        format!("apiVersion: v1\nkind: List\nitems:\n-\n{}", indented.replace("FAIL_RELOAD", "FAIL_OPEN"));
    assert_findings("list", &list, &check_one(&list), &[(Error, FailurePolicyOpen, "FAIL_OPEN")]);
}

#[test]
fn patches_of_a_gateway_are_read_as_fragments() {
    let text = shipped("gateway/envoypatchpolicy.yaml");
    let broken = text.replacen("FAIL_RELOAD", "FAIL_OPEN", 1);
    assert_findings("gateway", &broken, &check_one(&broken), &[(Error, FailurePolicyOpen, "FAIL_OPEN")]);
    let broken = text.replacen("policy: payments", "policy: pay", 1);
    assert_findings("gateway", &broken, &check_one(&broken), &[(Error, RoutePolicyUnknown, "policy: pay")]);
}

#[test]
fn plugins_of_meshes_and_gateways_cannot_set_the_host_option() {
    let config = "{store: {decide_cluster: a, claim_cluster: b}, key_prefix: p, policies: {}}";
    let plugin = format!(
        "apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {{name: x}}\nspec:\n  \
         url: oci://registry.example/fencepost:1\n  phase: AUTHZ\n  pluginConfig: {config}\n"
    );
    assert_findings(
        "plugin",
        &plugin,
        &check_one(&plugin),
        &[(Error, HostOptionUnsettable, "kind: WasmPlugin")],
    );
    let open = format!("{plugin}  failStrategy: FAIL_OPEN\n");
    let promised = [(Error, HostOptionUnsettable, "kind"), (Error, FailurePolicyOpen, "failStrategy")];
    assert_findings("open", &open, &check_one(&open), &promised);
    let jwt = "policies: {pay: {namespace: pay, scope: [{jwt: {payload: p, claim: sub}}]}}";
    let early = plugin.replace("policies: {}", jwt).replace("AUTHZ", "AUTHN");
    let promised = [(Error, HostOptionUnsettable, "kind"), (Error, AuthenticationMissing, "phase")];
    assert_findings("early", &early, &check_one(&early), &promised);
    let gateway = format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyExtensionPolicy\nmetadata: {{name: x}}\nspec:\n  \
         wasm:\n  - name: guard\n    config: {config}\n"
    );
    assert_findings("gateway", &gateway, &check_one(&gateway), &[(Error, HostOptionUnsettable, "kind")]);
    let other = plugin.replace("fencepost", "other").replace("decide_cluster", "x");
    assert_findings("other", &other, &check_one(&other), &[(Warning, NothingFound, "apiVersion")]);
}

#[test]
fn a_bootstrap_inside_a_config_map_keeps_its_lines() {
    let edge = shipped("edge.yaml").replace("FAIL_RELOAD", "FAIL_OPEN");
    let inner: String = edge.lines().map(|line| format!("    {line}\n")).collect();
    let map =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  envoy.yaml: |\n{inner}");
    assert_findings("map", &map, &check_one(&map), &[(Error, FailurePolicyOpen, "FAIL_OPEN")]);
}

#[test]
fn what_a_config_map_has_that_cannot_be_read_is_a_note() {
    let edge = shipped("edge.yaml").replace("FAIL_RELOAD", "FAIL_OPEN");
    let inner: String = edge.lines().map(|line| format!("    {line}\n")).collect();
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  notes: |\n    static_resources: [\n  \
         list: |\n    - static_resources\n  envoy.yaml: |\n{inner}"
    );
    let promised =
        [(Note, NotChecked, ""), (Note, NotChecked, "- static"), (Error, FailurePolicyOpen, "FAIL_OPEN")];
    assert_findings("map", &map, &check_one(&map), &promised);
}

#[test]
fn a_discovered_filter_is_checked_by_itself() {
    let filter = shipped("ecds/fencepost.yaml");
    let report = check_one(&filter);
    assert!(report.is_clean(true) && report.summary.filters == 1, "{report}");
    let broken = filter.replace(r#""wait": "5s""#, r#""wait": "0s""#).replace("FAIL_RELOAD", "FAIL_OPEN");
    let promised = [(Error, FailurePolicyOpen, "FAIL_OPEN"), (Error, ConfigInvalid, r#""wait""#)];
    assert_findings("ecds", &broken, &check_one(&broken), &promised);
}

#[test]
fn a_filter_that_another_file_shows_to_be_ours_has_no_other_default() {
    let bootstrap = shipped("ecds/bootstrap.yaml").replace("- name: fencepost\n", "- name: guard\n");
    let other = "config_discovery:\n              default_config: {'@type': x/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation}\n";
    let second =
        bootstrap.replacen("config_discovery:\n", other, 1).replace("fencepost.yaml", "elsewhere.yaml");
    let filter = shipped("ecds/fencepost.yaml").replacen("name: fencepost\n", "name: guard\n", 1);
    let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
    let files = [file("a.yaml", &bootstrap), file("b.yaml", &second), file("fencepost.yaml", &filter)];
    let report = check(&files).unwrap();
    let found: Vec<_> =
        report.findings.iter().map(|one| (one.file.as_str(), one.severity, one.code)).collect();
    assert_eq!(found, [("b.yaml", Note, NotChecked), ("b.yaml", Error, DefaultUnguarded)], "{report}");
}

#[test]
fn another_wasm_filter_in_place_of_one_that_is_discovered_is_no_configuration_of_ours() {
    let other = "config_discovery:\n              default_config: {'@type': x/envoy.extensions.filters.http.wasm.v3.Wasm, config: {name: other}}\n";
    let text = shipped("ecds/bootstrap.yaml").replacen("config_discovery:\n", other, 1);
    let promised = [(Note, NotChecked, "- name: fencepost"), (Error, DefaultUnguarded, "default_config")];
    assert_findings("another wasm filter", &text, &check_one(&text), &promised);
}

/// The shipped edge with its filter inside something else: the text is what is around the filter's
/// `name` and `typed_config`, which stand where `FILTER` does.
fn nested(around: &str) -> String {
    let edge = shipped("edge.yaml");
    let start = edge.find("          - name: fencepost\n").unwrap();
    let end = edge[start..].find("          # 3. The router").unwrap() + start;
    let filter = edge[start..end].replacen("          - ", "            ", 1);
    let inner: String = filter.lines().map(|line| format!("          {line}\n")).collect();
    format!("{}{}{}", &edge[..start], around.replace("FILTER", &inner), &edge[end..])
}

#[test]
fn a_filter_inside_another_is_checked_by_itself_and_said_not_to_be_followed() {
    let matcher = "          - name: matched\n            typed_config:\n              '@type': x/envoy.extensions.common.matching.v3.ExtensionWithMatcher\n              extension_config:\nFILTER";
    let text = nested(matcher);
    assert_findings("matcher", &text, &check_one(&text), &[(Note, NotChecked, "name: fencepost")]);
    let open = text.replace("FAIL_RELOAD", "FAIL_OPEN");
    let promised = [(Note, NotChecked, "name: fencepost"), (Error, FailurePolicyOpen, "FAIL_OPEN")];
    assert_findings("open", &open, &check_one(&open), &promised);
    let composite = "          - name: composite\n            typed_config:\n              '@type': x/envoy.extensions.filters.http.composite.v3.Composite\n              named_filter_chains:\n                guarded:\n                  typed_config:\n                  -\nFILTER";
    let text = nested(composite);
    assert_findings("composite", &text, &check_one(&text), &[(Note, NotChecked, "name: fencepost")]);

    // In the chain, and in that of an upgrade.
    let edge = shipped("edge.yaml");
    let upgrade = "upgrade_configs: [{upgrade_type: websocket, filters: [{name: fencepost, config_discovery: {type_urls: [x/envoy.extensions.filters.http.wasm.v3.Wasm]}}]}]";
    let text = edge.replacen("request_headers_timeout: 10s", upgrade, 1);
    let report = check_one(&text);
    let codes: Vec<_> = report.findings.iter().map(|one| (one.severity, one.code)).collect();
    assert_eq!(codes, [(Note, NotChecked), (Note, NotChecked)], "{report}");
}

#[test]
fn numbers_are_read_as_those_who_read_the_file_do() {
    let edge = shipped("edge.yaml");
    let struct_of = |number: &str| {
        edge.replacen(
            "protobuf.StringValue\n                  value: |\n",
            "protobuf.Struct\n                  value:\n",
            1,
        )
        .replacen(r#""wait": "5s""#, &format!(r#""key": {{"max_length": {number}}}"#), 1)
    };
    let (whole, fraction) = (struct_of("9"), struct_of("9.0"));
    assert_findings("whole", &whole, &check_one(&whole), &[]);
    // Text for Envoy, which reads no fractions in YAML.
    assert_findings("YAML", &fraction, &check_one(&fraction), &[(Error, ConfigInvalid, "9.0")]);
    let mut json: Value = serde_saphyr::from_str(&whole).unwrap();
    let length = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/1/typed_config/config/configuration/value/policies/payments/key/max_length";
    *json.pointer_mut(length).unwrap() = json!(9.0);
    let text = serde_json::to_string_pretty(&json).unwrap();
    assert!(text.contains(": 9.0"), "{text}");
    for (name, codes) in [("e.json", vec![]), ("-", vec![]), ("e.yaml", vec![ConfigInvalid])] {
        let report = check(&[(name.to_owned(), text.clone().into_bytes())]).unwrap();
        assert_eq!(report.findings.iter().map(|one| one.code).collect::<Vec<_>>(), codes, "{name}: {report}");
    }
    // A manifest becomes JSON before anybody reads it.
    let patch = with_patch(
        "  - {applyTo: HTTP_ROUTE, match: {}, patch: {operation: MERGE, value: {metadata: {filter_metadata: {fencepost: {policy: payments, key: {max_length: 9.0}}}}}}}",
    );
    let report = check_one(&patch);
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn plugins_of_higress_have_a_default_and_rules() {
    let config = "{store: {decide_cluster: a, claim_cluster: b}, key_prefix: p, policies: {}}";
    let plugin = |fields: &str| {
        format!(
            "apiVersion: extensions.higress.io/v1alpha1\nkind: WasmPlugin\nmetadata: {{name: x}}\nspec:\n  \
             url: oci://registry.example/fencepost:1\n  phase: AUTHZ\n{fields}"
        )
    };
    let option = (Error, HostOptionUnsettable, "kind: WasmPlugin");
    let wrong = config.replace("key_prefix: p", "key_prefix: 5");
    let rule = |config: &str| format!("  matchRules:\n  - ingress: [default/pay]\n    config: {config}\n");
    for (name, fields, mut promised) in [
        ("default", format!("  defaultConfig: {config}\n"), vec![]),
        (
            "wrong default",
            format!("  defaultConfig: {wrong}\n"),
            vec![(Error, ConfigInvalid, "key_prefix: 5")],
        ),
        ("none", String::new(), vec![(Error, ConfigMissing, "spec")]),
        (
            "off",
            format!("  defaultConfig: {config}\n  defaultConfigDisable: true\n"),
            vec![(Error, ConfigMissing, "spec")],
        ),
        (
            "rule",
            format!("  defaultConfig: {config}\n{}", rule(config)),
            vec![(Error, ConfigInvalid, "matchRules")],
        ),
        (
            "wrong rule",
            format!("  defaultConfigDisable: true\n{}", rule(&wrong)),
            vec![(Error, ConfigInvalid, "matchRules"), (Error, ConfigInvalid, "key_prefix: 5")],
        ),
        (
            "rule that is off",
            format!("  defaultConfig: {config}\n{}    configDisable: true\n", rule(&wrong)),
            vec![],
        ),
    ] {
        let text = plugin(&fields);
        promised.insert(0, option);
        assert_findings(name, &text, &check_one(&text), &promised);
    }
    let early = plugin(&rule(
        "{store: {decide_cluster: a, claim_cluster: b}, key_prefix: p, policies: {pay: {namespace: pay, scope: [{jwt: {payload: p, claim: sub}}]}}}",
    ))
    .replace("AUTHZ", "AUTHN");
    let promised = [option, (Error, AuthenticationMissing, "phase"), (Error, ConfigInvalid, "matchRules")];
    assert_findings("early", &early, &check_one(&early), &promised);
    let other = plugin(&rule("{a: 1}")).replace("fencepost", "other");
    assert_findings("other", &other, &check_one(&other), &[(Warning, NothingFound, "apiVersion")]);
}

#[test]
fn a_filter_that_may_be_ours_is_not_missing() {
    let text = shipped("ecds/bootstrap.yaml").replace("- name: fencepost\n", "- name: guard\n");
    let report = check_one(&text);
    let codes: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(codes, [(Warning, NothingFound), (Note, NotChecked)], "{report}");
}

/// Adds a patch to the shipped EnvoyFilter.
fn with_patch(patch: &str) -> String {
    shipped("istio/envoyfilter.yaml").replacen(
        "  configPatches:\n",
        &format!("  configPatches:\n{patch}\n"),
        1,
    )
}

#[test]
fn what_patches_of_a_mesh_say_about_routes_and_listeners_is_checked() {
    let route = "  - {applyTo: HTTP_ROUTE, match: {routeConfiguration: {vhost: {route: {name: NAME}}}}, patch: {operation: MERGE, value: VALUE}}";
    let of_route = |value: &str| route.replace("NAME", "default").replace("VALUE", value);
    let host = |value: &str| {
        format!("  - {{applyTo: VIRTUAL_HOST, match: {{}}, patch: {{operation: MERGE, value: {value}}}}}")
    };
    let manager = |value: &str| {
        format!(
            "  - {{applyTo: NETWORK_FILTER, match: {{}}, patch: {{operation: MERGE, value: {{name: m, typed_config: {value}}}}}}}"
        )
    };
    let listener = "  - {applyTo: LISTENER, match: {}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 65536}}}";
    let filter = |operation: &str, sub: &str, value: &str| {
        format!(
            "  - {{applyTo: HTTP_FILTER, match: {{listener: {{filterChain: {{filter: {{subFilter: {{name: {sub}}}}}}}}}}}, patch: {{operation: {operation}{value}}}}}"
        )
    };
    let cases = [
        (of_route("{route: {hedge_policy: {hedge_on_per_try_timeout: true}}}"), vec![(Error, RouteHedging)]),
        (of_route("{route: {request_mirror_policies: [{cluster: b}]}}"), vec![(Warning, RouteMirror)]),
        (of_route("{route: {internal_redirect_policy: {}}}"), vec![(Error, RouteInternalRedirect)]),
        (of_route("{route: {timeout: 5s}}"), vec![(Warning, RouteTimeoutReplaced)]),
        (of_route("{route: {retry_policy: {per_try_timeout: 5s}}}"), vec![(Warning, PerTryTimeoutShort)]),
        (
            of_route("{request_headers_to_add: [{header: {key: x-envoy-max-retries, value: a}}]}"),
            vec![(Error, HeadersUndone)],
        ),
        (
            of_route(
                "{typed_per_filter_config: {fencepost: {'@type': x/envoy.config.route.v3.FilterConfig, disabled: true}}}",
            ),
            vec![(Error, FilterDisabled)],
        ),
        // Another route's.
        (route.replace("NAME", "other").replace("VALUE", "{route: {internal_redirect_policy: {}}}"), vec![]),
        (host("{hedge_policy: {hedge_on_per_try_timeout: true}}"), vec![(Error, RouteHedging)]),
        (
            host("{per_request_buffer_limit_bytes: 1000}"),
            vec![(Warning, RequestBufferSmall), (Error, ResponseBufferSmall)],
        ),
        (manager("{stream_idle_timeout: 3s}"), vec![(Error, StreamIdleTimeoutShort)]),
        (manager("{local_reply_config: {body_format: {}}}"), vec![(Error, LocalReplyRewritten)]),
        (manager("{stream_idle_timeout: 0s}"), vec![]),
        (listener.to_owned(), vec![(Warning, RequestBufferSmall), (Error, ResponseBufferSmall)]),
        (filter("REMOVE", "fencepost", ""), vec![(Error, FilterMisplaced)]),
        (filter("REMOVE", "envoy.filters.http.cors", ""), vec![]),
        (filter("MERGE", "fencepost", ", value: {disabled: true}"), vec![(Error, FilterDisabled)]),
    ];
    for (patch, codes) in cases {
        let report = check_one(&with_patch(&patch));
        let found: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
        assert_eq!(found, codes, "{patch}\n{report}");
    }
    let text = shipped("istio/envoyfilter.yaml");
    for (operation, name, codes) in [
        ("INSERT_BEFORE", "istio.authn", vec![(Error, AuthenticationMissing)]),
        ("INSERT_BEFORE", "istio_authn", vec![(Error, AuthenticationMissing)]),
        ("INSERT_BEFORE", "istio.metadata_exchange", vec![(Error, AuthenticationMissing)]),
        ("INSERT_BEFORE", "envoy.filters.http.fault", vec![(Warning, AnsweringFilterAfter)]),
        ("INSERT_AFTER", "envoy.filters.http.router", vec![(Error, FilterMisplaced)]),
        ("INSERT_AFTER", "envoy.filters.http.jwt_authn", vec![]),
        ("ADD", "envoy.filters.http.router", vec![(Error, FilterMisplaced)]),
    ] {
        let moved = text
            .replacen(
                "subFilter: {name: envoy.filters.http.router}",
                &format!("subFilter: {{name: {name}}}"),
                1,
            )
            .replacen("operation: INSERT_BEFORE", &format!("operation: {operation}"), 1);
        let report = check_one(&moved);
        let found: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
        assert_eq!(found, codes, "{operation} {name}\n{report}");
    }
}

#[test]
fn json_patches_are_read_wherever_they_point() {
    let text = shipped("gateway/envoypatchpolicy.yaml");
    let route = "$.virtual_hosts[*].routes[?(@.name=='httproute/default/payments/rule/0/match/0/*')]";
    let patch = |kind: &str, operation: &str| {
        format!(
            "  - {{type: type.googleapis.com/envoy.config.{kind}, name: default/eg/http, operation: {operation}}}"
        )
    };
    let routes = |operation: String| patch("route.v3.RouteConfiguration", &operation);
    let listener = |operation: &str| patch("listener.v3.Listener", operation);
    let cases = [
        (
            routes(format!("{{op: add, jsonPath: \"{route}\", path: /route/internal_redirect_policy, value: {{}}}}")),
            vec![(Error, RouteInternalRedirect)],
        ),
        (
            routes("{op: add, jsonPath: '$.virtual_hosts[*].routes[*].route', path: hedgePolicy, value: {hedge_on_per_try_timeout: true}}".into()),
            vec![(Error, RouteHedging)],
        ),
        (
            routes("{op: add, path: /virtual_hosts/0/request_mirror_policies, value: [{cluster: a}]}".into()),
            vec![(Warning, RouteMirror)],
        ),
        (
            routes("{op: replace, jsonPath: '..routes[*]', path: /metadata, value: {filter_metadata: {fencepost: {policy: nope}}}}".into()),
            vec![(Error, RoutePolicyUnknown)],
        ),
        (
            listener("{op: add, path: /default_filter_chain/filters/0/typed_config/stream_idle_timeout, value: 2s}"),
            vec![(Error, StreamIdleTimeoutShort)],
        ),
        (
            listener("{op: add, path: /per_connection_buffer_limit_bytes, value: 32768}"),
            vec![(Warning, RequestBufferSmall), (Error, ResponseBufferSmall)],
        ),
        (
            listener("{op: remove, jsonPath: \"$.default_filter_chain.filters[0].typed_config.http_filters[?(@.name=='fencepost')]\"}"),
            vec![(Error, FilterMisplaced)],
        ),
    ];
    for (patch, codes) in cases {
        let report = check_one(&text.replacen("  jsonPatches:\n", &format!("  jsonPatches:\n{patch}\n"), 1));
        let found: Vec<_> = report.findings.iter().map(|finding| (finding.severity, finding.code)).collect();
        assert_eq!(found, codes, "{patch}\n{report}");
    }
    let moved = text.replacen("http_filters[?(@.name=='envoy.filters.http.router')]", "http_filters", 1);
    let moved = moved.replacen("http_filters\"\n", "http_filters\"\n      path: /-\n", 1);
    assert_findings("behind the router", &moved, &check_one(&moved), &[(Error, FilterMisplaced, "value:")]);
}

#[test]
fn local_replies_may_be_rewritten_if_replays_are_left_out() {
    let edge = shipped("edge.yaml");
    for filter in [
        "{response_flag_filter: {flags: [UF, UH]}}",
        "{and_filter: {filters: [{response_flag_filter: {flags: [UT]}}, {status_code_filter: {}}]}}",
        "{header_filter: {header: {name: Idempotency-Key, present_match: true, invert_match: true}}}",
        "{extension_filter: {name: x, typed_config: {expression: '!response.code_details.startsWith(\"fencepost\")'}}}",
    ] {
        let config = format!("local_reply_config: {{mappers: [{{filter: {filter}, status_code: 500}}]}}");
        let report = check_one(&edge.replace("request_headers_timeout: 10s", &config));
        assert!(report.findings.is_empty(), "{filter}: {report}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_line() {
    for (text, line) in [
        (&b"a: 1\nb: [\n"[..], 2),
        (b"a: 1\n  b: 2\n", 2),
        (b"a: 1\nb: \xff\n", 2),
        (b"just text", 1),
        (b"- a\n- b\n", 1),
        (b"a: 1\na: 2\n", 2),
        (b"a: *nobody\n", 1),
    ] {
        let error = check(&[("f".to_owned(), text.to_vec())]).unwrap_err();
        assert_eq!((error.file.as_str(), error.line), ("f", line), "{error}");
    }
    let nothing = check_one("");
    assert!(nothing.is_clean(false) && !nothing.is_clean(true), "nothing seen is not clean to the strict");
}

#[test]
fn the_filters_configuration_by_itself_is_read() {
    let text = shipped("policies/demo.yaml");
    let report = check_one(&text);
    assert!(report.is_clean(true) && report.summary.filters == 1, "{report}");
    let broken = text.replace("key_prefix: demo", "key_prefix: Demo");
    assert_findings("bare", &broken, &check_one(&broken), &[(Error, ConfigInvalid, "key_prefix")]);
}

#[test]
fn what_tools_print_around_a_bootstrap_or_listeners_is_taken_off() {
    let broken = shipped("edge.yaml").replace("FAIL_RELOAD", "FAIL_OPEN");
    let bootstrap: Value = serde_saphyr::from_str(&broken).unwrap();
    let promised = [(Error, FailurePolicyOpen, "FAIL_OPEN")];
    let wrapped = serde_json::to_string_pretty(&json!({"bootstrap": bootstrap})).unwrap();
    assert_findings("wrapped", &wrapped, &check_one(&wrapped), &promised);
    let listeners = serde_json::to_string_pretty(&bootstrap["static_resources"]["listeners"]).unwrap();
    let report = check_one(&listeners);
    assert!(report.findings.iter().any(|finding| finding.code == FailurePolicyOpen), "{report}");
}

#[test]
fn a_mark_that_istio_ignores_is_found() {
    let text = shipped("istio/envoyfilter.yaml");
    let (before, after) = text.split_once("applyTo: HTTP_ROUTE").unwrap();
    for (operation, marker) in [("operation: ADD\n", "operation: ADD"), ("x: 1\n", "patch:")] {
        let after = after.replacen("operation: MERGE\n", operation, 1);
        let broken = format!("{before}applyTo: HTTP_ROUTE{after}");
        assert_findings("ignored", &broken, &check_one(&broken), &[(Error, MarkMisplaced, marker)]);
    }
}

#[test]
fn a_patch_of_a_mesh_with_a_class_is_before_the_router() {
    let text = shipped("istio/envoyfilter.yaml");
    let of_class = |class: &str| {
        text.replacen("operation: INSERT_BEFORE", &format!("operation: ADD\n      filterClass: {class}"), 1)
    };
    for class in ["AUTHZ", "STATS"] {
        assert!(check_one(&of_class(class)).is_clean(true), "{class}");
    }
    let last = of_class("UNSPECIFIED");
    assert_findings("last", &last, &check_one(&last), &[(Error, FilterMisplaced, "value:")]);
    let waypoint = text.replacen(
        "workloadSelector: {labels: {app: payments}}",
        "targetRefs: [{kind: Gateway, group: gateway.networking.k8s.io, name: waypoint}]",
        1,
    );
    assert_findings("waypoint", &waypoint, &check_one(&waypoint), &[(Error, FilterMisplaced, "SIDECAR")]);
}

#[test]
fn a_discovered_filter_has_no_other_in_its_place_until_it_comes() {
    let text = shipped("istio/envoyfilter.yaml");
    let mutation = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation";
    let broken = text.replacen(
        "          type_urls:",
        &format!("          default_config: {{'@type': {mutation}}}\n          type_urls:"),
        1,
    );
    assert_findings("default", &broken, &check_one(&broken), &[(Error, DefaultUnguarded, "default_config")]);
}

proptest! {
    #[test]
    fn any_bytes_are_a_report_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = check(&[("f".to_owned(), bytes)]);
    }

    #[test]
    fn a_damaged_manifest_is_a_report_or_an_error(
        file in prop::sample::select(vec!["edge.yaml", "detached.yaml", "istio/envoyfilter.yaml"]),
        from in any::<prop::sample::Index>(),
        len in 0..200_usize,
        with in "[-a-z0-9:{}\\[\\]\" \n*&|]{0,20}",
    ) {
        let mut text: Vec<char> = shipped(file).chars().collect();
        let from = from.index(text.len());
        let to = (from + len).min(text.len());
        text.splice(from..to, with.chars());
        let _ = check(&[("f".to_owned(), text.into_iter().collect::<String>().into_bytes())]);
    }
}
