//! What patches of Istio and Envoy Gateway say about things that are not in the files: pieces of
//! routes, virtual hosts, connection managers and listeners.
//!
//! A patch may set a whole route or one field deep inside it; a piece is always written as the whole
//! thing, with nothing but that field. Filters and clusters that patches add are read in
//! `kubernetes`.

use super::tree::{Kind, Member, Node};

/// What a piece is a piece of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Route,
    VirtualHost,
    RouteConfiguration,
    Manager,
    Listener,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub part: Part,
    /// Of a mesh; otherwise of a gateway.
    pub mesh: bool,
    /// What the patch selects: two pieces with one target belong together.
    pub target: String,
    /// Whether it selects every route there is.
    pub everything: bool,
    pub node: Node,
}

/// The pieces in a document.
pub(super) fn pieces(document: &Node) -> Vec<Piece> {
    match document.get("kind").text().unwrap_or_default() {
        "EnvoyFilter" => {
            let patches = document.get("spec").get("config_patches").items();
            patches.iter().filter_map(of_envoy_filter).collect()
        }
        "EnvoyPatchPolicy" => {
            let patches = document.get("spec").get("json_patches").items();
            patches.iter().filter_map(of_json_patch).collect()
        }
        kind if kind.ends_with("List") => document.get("items").items().iter().flat_map(pieces).collect(),
        _ => Vec::new(),
    }
}

fn of_envoy_filter(patch: &Node) -> Option<Piece> {
    let value = patch.get("patch").get("value");
    let manager = value.get("typed_config");
    let (part, node) = match patch.get("apply_to").text()? {
        "HTTP_ROUTE" => (Part::Route, value),
        "VIRTUAL_HOST" => (Part::VirtualHost, value),
        "ROUTE_CONFIGURATION" => (Part::RouteConfiguration, value),
        "NETWORK_FILTER" if manager.exists() => (Part::Manager, manager),
        "LISTENER" if patch.get("patch").get("operation").text() == Some("MERGE") => (Part::Listener, value),
        _ => return None,
    };
    if !node.exists() {
        return None;
    }
    let routes = patch.get("match").get("route_configuration");
    let route = routes.get("vhost").get("route");
    Some(Piece {
        part,
        mesh: true,
        target: routes.to_json().to_string(),
        everything: part != Part::Route || !route.exists(),
        node: node.clone(),
    })
}

fn of_json_patch(patch: &Node) -> Option<Piece> {
    let operation = patch.get("operation");
    if !matches!(operation.get("op").text(), Some("add" | "replace")) {
        return None;
    }
    let segments = segments(operation);
    let after = |name: &str, skipped: usize| {
        let at = segments.iter().rposition(|segment| segment == name)?;
        Some((at + 1 + skipped, segments.get(at + 1 + skipped..)?))
    };
    let kind = patch.get("type").text()?.rsplit('.').next().unwrap_or_default();
    let (part, (from, rest)) = match kind {
        "RouteConfiguration" => {
            let route = after("routes", 1).map(|rest| (Part::Route, rest));
            let host = || after("virtual_hosts", 1).map(|rest| (Part::VirtualHost, rest));
            route.or_else(host).unwrap_or((Part::RouteConfiguration, (0, segments.as_slice())))
        }
        "Listener" if segments.iter().any(|segment| segment == "http_filters") => return None,
        "Listener" => match after("typed_config", 0) {
            Some(rest) => (Part::Manager, rest),
            // The whole of it is a listener like any other.
            None if segments.is_empty() => return None,
            None => (Part::Listener, (0, segments.as_slice())),
        },
        _ => return None,
    };
    let node = rest.iter().rev().fold(operation.get("value").clone(), |value, name| wrapped(value, name));
    let selected = segments.get(..from).unwrap_or_default();
    Some(Piece {
        part,
        mesh: false,
        target: format!("{} {}", patch.get("name").text().unwrap_or_default(), selected.join("/")),
        everything: part != Part::Route || selected.last().is_some_and(|last| last == "*"),
        node,
    })
}

fn wrapped(value: Node, name: &str) -> Node {
    let line = value.line;
    Node { line, kind: Kind::Map(vec![Member { name: name.to_owned(), line, value }]) }
}

/// The way to what a JSON patch changes: a JSON path, and a JSON pointer below it.
pub(super) fn segments(operation: &Node) -> Vec<String> {
    let mut segments = Vec::new();
    let path = operation.get("json_path").text().unwrap_or_default();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            // A filter may have brackets of its own: the last one before a dot or the end closes it.
            let end = rest.find("].").or_else(|| rest.rfind(']')).unwrap_or(rest.len());
            let inner = rest.get(1..end).unwrap_or_default();
            segments.push(inner.trim_matches(['\'', '"']).to_owned());
            rest = rest.get(end + 1..).unwrap_or_default();
        } else {
            let name = rest.trim_start_matches('.');
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at_checked(end).unwrap_or_default();
            if !name.is_empty() {
                segments.push(snake_case(name));
            }
            rest = after;
        }
    }
    let pointer = operation.get("path").text().unwrap_or_default();
    let pointed = pointer.split('/').filter(|segment| !segment.is_empty());
    segments.extend(pointed.map(|segment| snake_case(&segment.replace("~1", "/").replace("~0", "~"))));
    segments
}

/// Fields have their names of the protocol, or those of its JSON.
pub(super) fn snake_case(name: &str) -> String {
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return name.to_owned();
    }
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tree;

    #[test]
    fn a_deep_change_is_a_piece_of_the_whole() {
        for (operation, part, piece) in [
            (
                "{op: add, path: /virtual_hosts/0/routes/1/route/retry_policy, value: {retry_on: 5xx}}",
                Part::Route,
                r#"{"route":{"retry_policy":{"retry_on":"5xx"}}}"#,
            ),
            (
                "{op: add, jsonPath: \"$.virtual_hosts[*].routes[?(@.name=='a.b/[c]')].route\", path: timeout, value: 1s}",
                Part::Route,
                r#"{"route":{"timeout":"1s"}}"#,
            ),
            (
                "{op: replace, jsonPath: '..routes[*]', path: /metadata/filter_metadata/a~1b, value: x}",
                Part::Route,
                r#"{"metadata":{"filter_metadata":{"a/b":"x"}}}"#,
            ),
            (
                "{op: add, path: /virtualHosts/0/requestMirrorPolicies, value: []}",
                Part::VirtualHost,
                r#"{"request_mirror_policies":[]}"#,
            ),
            ("{op: add, path: /vhds, value: {}}", Part::RouteConfiguration, r#"{"vhds":{}}"#),
        ] {
            let text = format!("{{type: x.RouteConfiguration, name: n, operation: {operation}}}");
            let patch = tree::parse(&text, 1).unwrap().remove(0);
            let found = of_json_patch(&patch).unwrap();
            assert_eq!((found.part, found.node.to_json().to_string().as_str()), (part, piece), "{operation}");
        }
    }
}
