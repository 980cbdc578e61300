//! Our filter in a chain: its configuration, with lines, and the options of its plugin.

use super::code::Code;
use super::place::{Findings, Place};
use super::scopes;
use super::settings;
use super::tree::{self, Kind, Node};
use super::world::{Filter, filter_of};
use fencepost_filter_core::policy::{Config, ConfigError, Mode, Policy};
use serde_json::Value;
use std::rc::Rc;

/// See the module.
pub(super) struct Guard<'a> {
    pub filter: Filter<'a>,
    pub configuration: Configuration<'a>,
}

/// A configuration as written, and as the filter reads it.
pub(super) struct Configuration<'a> {
    place: Place<'a>,
    /// For lines; nothing if the text is one line of the file.
    tree: Option<Node>,
    pub json: Value,
    /// Nothing if the filter refuses it: that is a finding already.
    pub config: Option<Config>,
}

/// Whether a filter is ours: nothing but its names and its configuration tells.
pub(super) fn is_ours(filter: &Filter<'_>) -> bool {
    if filter.known {
        return true;
    }
    if filter.word() != "wasm" {
        return false;
    }
    let plugin = filter.config.get("config");
    let code = plugin.at("vm_config.code");
    let names = [
        plugin.get("name").text(),
        plugin.get("root_id").text(),
        code.at("local.filename").text(),
        code.at("remote.http_uri.uri").text(),
        Some(filter.name.as_str()),
    ];
    names.into_iter().flatten().any(|name| name.contains("fencepost"))
        || is_our_configuration(&plugin.get("configuration"))
}

/// Whether this is a configuration of ours.
pub(super) fn is_our_configuration(configuration: &Place<'_>) -> bool {
    let value = configuration.get("value");
    let text = value.text().is_some_and(|text| text.contains("decide_cluster"));
    text || [configuration, &value].iter().any(|place| place.at("store.decide_cluster").exists())
}

impl<'a> Guard<'a> {
    /// Reads it and checks it by itself.
    pub(super) fn read(filter: Filter<'a>, findings: &mut Findings) -> Self {
        let plugin = filter.config.get("config");
        let configuration = plugin.get("configuration");
        check_default(&filter, findings);
        if !plugin.exists() {
            let found = "a filter whose configuration is discovered and not in the files";
            let expected = "its TypedExtensionConfig among the files, to check it as well";
            findings.note(filter.place, Code::NotChecked, found, expected);
            let configuration = Configuration::nothing(filter.place);
            return Self { filter, configuration };
        }
        check_plugin(plugin, findings);
        let configuration = Configuration::read_any(configuration, findings);
        Self { filter, configuration }
    }

    pub(super) fn plugin(&self) -> Place<'a> {
        self.filter.config.get("config")
    }
}

/// What runs until a filter that is discovered is there, or if it never comes.
fn check_default(filter: &Filter<'_>, findings: &mut Findings) {
    let default = filter.place.at("config_discovery.default_config");
    if default.exists() && !is_ours(&filter_of(filter.place, String::new(), &default, "")) {
        let found = "a default_config that is not the filter";
        let expected = "none, or the filter itself: until it is discovered, requests pass unguarded";
        findings.error(default, Code::DefaultUnguarded, found, expected);
    }
}

fn check_plugin(plugin: Place<'_>, findings: &mut Findings) {
    let option = plugin.get("allow_on_headers_stop_iteration");
    // Wrapped values may be written as maps in a TypedStruct.
    if !option.is_true() && !option.get("value").is_true() {
        report_option(option, findings);
    }
    if !check_open(plugin, findings) && !plugin.get("failure_policy").is("FAIL_RELOAD") {
        let policy = plugin.get("failure_policy");
        let expected = "FAIL_RELOAD, which starts a failed filter anew";
        findings.note(policy, Code::FailurePolicyNoReload, policy.shown(), expected);
    }
    let vm = plugin.get("vm_config");
    let id = vm.get("vm_id");
    if vm.exists() && id.text().unwrap_or_default().is_empty() {
        let expected = "a constant vm_id of its own: VMs without one are shared";
        findings.warning(id, Code::VmIdEmpty, id.shown(), expected);
    }
    let runtime = vm.get("runtime");
    if runtime.exists() && !runtime.is("envoy.wasm.runtime.v8") {
        let expected = "envoy.wasm.runtime.v8, the runtime that is tested";
        findings.warning(runtime, Code::RuntimeUntested, runtime.shown(), expected);
    }
}

/// A plugin of which only a part is written.
pub(super) fn check_changed(plugin: Place<'_>, findings: &mut Findings) {
    let option = plugin.get("allow_on_headers_stop_iteration");
    if option.exists() && !option.is_true() && !option.get("value").is_true() {
        report_option(option, findings);
    }
    check_open(plugin, findings);
}

fn report_option(option: Place<'_>, findings: &mut Findings) {
    findings.error(
        option,
        Code::HostOptionMissing,
        option.shown(),
        "allow_on_headers_stop_iteration: true, or Envoy can't hold a request while its body comes in",
    );
}

fn check_open(plugin: Place<'_>, findings: &mut Findings) -> bool {
    let policy = plugin.get("failure_policy");
    let open = plugin.get("fail_open");
    // By its name, or by its number in the protobuf enum.
    let is_open = policy.is("FAIL_OPEN") || policy.number() == Some(3) || open.is_true();
    if is_open {
        let place = if policy.exists() { policy } else { open };
        let expected = "FAIL_RELOAD: a filter that failed must not let requests through unguarded";
        findings.error(place, Code::FailurePolicyOpen, place.shown(), expected);
    }
    is_open
}

impl<'a> Configuration<'a> {
    fn nothing(place: Place<'a>) -> Self {
        Self { place, tree: None, json: Value::Null, config: None }
    }

    /// From the `configuration` of a plugin, a protobuf Any.
    pub(super) fn read_any(any: Place<'a>, findings: &mut Findings) -> Self {
        if !any.exists() {
            findings.error(any, Code::ConfigMissing, "no configuration", "the filter's configuration");
            return Self::nothing(any);
        }
        let kind = any.get("@type").text().unwrap_or_default();
        let value = any.get("value");
        match (kind.rsplit('/').next().unwrap_or_default(), &value.node.kind) {
            ("google.protobuf.StringValue", Kind::Scalar(_)) => Self::read_text(value, findings),
            ("google.protobuf.Struct", Kind::Map(_)) => Self::read_struct(value, findings),
            (kind, _) => {
                let found = format!("a configuration of type {kind:?} with {}", value.shown());
                let expected = "google.protobuf.StringValue with JSON text, or google.protobuf.Struct";
                findings.error(any, Code::ConfigForm, found, expected);
                Self::nothing(any)
            }
        }
    }

    /// From JSON text.
    fn read_text(place: Place<'a>, findings: &mut Findings) -> Self {
        let Kind::Scalar(scalar) = &place.node.kind else { return Self::nothing(place) };
        let first_line = scalar.block_line;
        let parsed = tree::parse(&scalar.text, first_line.unwrap_or(1));
        // Such as a name that stands twice, which YAML refuses and JSON does not.
        let no_tree = parsed.as_ref().err().map(|error| error.line).filter(|_| first_line.is_some());
        let tree = parsed.ok().filter(|documents| first_line.is_some() && documents.len() == 1);
        let tree = tree.and_then(|mut documents| documents.pop());
        let json = serde_json::from_str::<Value>(&scalar.text);
        let no_json = json.as_ref().err().map(|error| (error.line(), not_json(error)));
        let mut read = Self { place, tree, json: json.unwrap_or_default(), config: None };
        let line = match (&no_json, first_line) {
            (Some((line, _)), Some(first)) => Some(first + line.saturating_sub(1)),
            (Some(_), None) => None,
            (None, _) => no_tree,
        };
        let parsed = Config::parse(scalar.text.as_bytes()).map_err(|error| match &no_json {
            Some((_, found)) => ConfigError { found: found.clone(), ..error },
            None => error,
        });
        read.config = read.accept(parsed, findings, |read, error| match line {
            Some(line) => place.on_line(line),
            None if no_json.is_some() => place,
            None => read.line_of(&error.path),
        });
        read
    }

    /// From a map.
    pub(super) fn read_struct(place: Place<'a>, findings: &mut Findings) -> Self {
        let json = place.node.to_json();
        let mut read = Self { place, tree: Some(place.node.clone()), json, config: None };
        let parsed = Config::parse(read.json.to_string().as_bytes());
        read.config = read.accept(parsed, findings, |read, error| read.line_of(&error.path));
        read
    }

    fn accept(
        &self,
        parsed: Result<Config, ConfigError>,
        findings: &mut Findings,
        place: impl Fn(&Self, &ConfigError) -> Place<'a>,
    ) -> Option<Config> {
        match parsed {
            Ok(config) => {
                for policy in config.policies.values().filter(|policy| policy.mode != Mode::Off) {
                    let path = format!("policies.{}.scope", policy.name);
                    let at = |index: Option<usize>| {
                        self.line_of(&index.map_or(path.clone(), |index| format!("{path}[{index}]")))
                    };
                    scopes::check(policy, at, findings);
                    let at = |setting: &str| Some(self.line_of_setting(&policy.name, setting));
                    settings::check(policy, at, findings);
                }
                Some(config)
            }
            Err(error) => {
                let found = format!("{}: {}", error.path, error.found);
                findings.error(place(self, &error), Code::ConfigInvalid, found, error.expected);
                None
            }
        }
    }

    /// The line of a field, or of the nearest one around it.
    pub(super) fn line_of(&self, path: &str) -> Place<'a> {
        let line = self.tree.as_ref().and_then(|tree| locate(tree, path));
        line.map_or(self.place, |line| self.place.on_line(line))
    }

    /// The line of a setting of a policy; of the policy if it takes the default.
    pub(super) fn line_of_setting(&self, policy: &str, setting: &str) -> Place<'a> {
        self.line_of(&format!("policies.{policy}.{setting}"))
    }

    /// Policies that guard.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        let policies = self.config.as_ref().map(|config| config.policies.values());
        policies.into_iter().flatten().map(AsRef::as_ref).filter(|policy| policy.mode != Mode::Off)
    }

    /// The same, to keep.
    pub(super) fn shared_policies(&self) -> impl Iterator<Item = Rc<Policy>> {
        let policies = self.config.as_ref().map(|config| config.policies.values());
        policies.into_iter().flatten().filter(|policy| policy.mode != Mode::Off).map(Rc::clone)
    }
}

/// What is wrong with text that is no JSON, in words that do not presume a parser.
fn not_json(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    let plain = match message {
        "trailing comma" => "a comma with nothing after it",
        "trailing characters" => "more text after the end of the JSON object",
        "expected value" => "something that is no value: a word without quotes, a comma too many, or nothing",
        "expected `:`" => "a name without a colon after it",
        "expected `,` or `}`" => "no comma or closing brace after a member",
        "expected `,` or `]`" => "no comma or closing bracket after an element",
        "key must be a string" => "a name without double quotes",
        eof if eof.starts_with("EOF while parsing") => "the end of the text in the middle of it",
        other => other,
    };
    format!("no JSON: {plain} (column {})", error.column())
}

/// Line of a path such as `policies.pay.scope[0].jwt` in a tree. Names may have dots in them.
fn locate(tree: &Node, path: &str) -> Option<usize> {
    let (mut node, mut rest, mut line) = (tree, path, None);
    'next: while !rest.is_empty() {
        for member in node.members() {
            let Some(after) = rest.strip_prefix(member.name.as_str()) else { continue };
            if after.is_empty() || after.starts_with(['.', '[']) {
                (node, rest, line) = (&member.value, after.trim_start_matches('.'), Some(member.line));
                continue 'next;
            }
        }
        let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let item =
            index.and_then(|(index, after)| Some((node.items().get(index.parse::<usize>().ok()?)?, after)));
        let Some((item, after)) = item else { return line };
        (node, rest, line) = (item, after.trim_start_matches('.'), Some(item.line));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_lines() {
        let tree =
            tree::parse("policies:\n  a.b:\n    scope:\n    - {}\n    - jwt:\n        x: 1\n", 1).unwrap();
        for (path, line) in [
            ("policies", Some(1)),
            ("policies.a.b", Some(2)),
            ("policies.a.b.wait", Some(2)),
            ("policies.a.b.scope[1].jwt.x", Some(6)),
            ("policies.a.b.scope[1]", Some(5)),
            ("policies.a.b.scope[7]", Some(3)),
            ("store", None),
            ("", None),
        ] {
            assert_eq!(locate(&tree[0], path), line, "{path}");
        }
    }
}
