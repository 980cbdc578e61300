//! The policy of a route: what its metadata names, with what it and its virtual host override.
//!
//! Layers, most specific first: route, virtual host, the named policy, `defaults`. The result is
//! kept by the metadata's bytes, so a request costs a look-up. What is wrong is an error for every
//! request, and a log line when it is first seen.

use super::error::{found, reject_nulls, value_at};
use super::layer::PolicyLayer;
use super::metadata::{Marking, marking};
use super::resolve::{At, policy};
use super::shape::reject_misplaced_lists;
use super::{Config, ConfigError, Policy};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::rc::Rc;

/// Most pieces of metadata that are remembered. Each route has one; beyond, all are forgotten,
/// because routes come and go with the control plane and old ones are never asked for again.
const REMEMBERED_MAX: usize = 1_024;

/// Path of our metadata in errors.
const BASE: &str = "filter_metadata.fencepost";

/// Fields that a route's metadata may have.
pub fn route_fields() -> impl Iterator<Item = &'static str> {
    core::iter::once("policy").chain(PolicyLayer::FIELDS.iter().copied())
}

/// The metadata of a request's route and virtual host, in the host's encoding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Marks {
    /// Of the route.
    pub route: Option<Vec<u8>>,
    /// Of the virtual host.
    pub virtual_host: Option<Vec<u8>>,
}

/// Policies of routes that were seen.
#[derive(Debug, Default)]
pub struct RoutePolicies(HashMap<Marks, Result<Rc<Policy>, ConfigError>>);

impl RoutePolicies {
    /// The policy that a route's metadata makes. An error comes with `true` when it is new.
    pub fn resolve(&mut self, config: &Config, marks: Marks) -> Result<Rc<Policy>, (ConfigError, bool)> {
        if let Some(known) = self.0.get(&marks) {
            return known.clone().map_err(|error| (error, false));
        }
        let resolved = resolve(config, &marks);
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(marks, resolved.clone());
        resolved.map_err(|error| (error, true))
    }
}

fn resolve(config: &Config, marks: &Marks) -> Result<Rc<Policy>, ConfigError> {
    let read = |bytes: &Option<Vec<u8>>, whose: &str| match bytes {
        Some(bytes) => marking(bytes).map_err(|error| error.below(BASE).below(whose)),
        None => Ok(Marking::default()),
    };
    let route = read(&marks.route, "route")?;
    let virtual_host = read(&marks.virtual_host, "virtual_host")?;
    merged(config, route, virtual_host)
}

fn merged(config: &Config, route: Marking, virtual_host: Marking) -> Result<Rc<Policy>, ConfigError> {
    let name = route.policy.or(virtual_host.policy).ok_or_else(|| {
        ConfigError::new(
            format!("{BASE}.policy"),
            "nothing",
            "the name of a policy, here or on the virtual host",
        )
    })?;
    let (Some(plain), Some(layer)) = (config.policies.get(&name), config.layers.policies.get(&name)) else {
        let expected = "the name of a policy in the filter's configuration";
        return Err(ConfigError::new(format!("{BASE}.policy"), found(Some(&name.into())), expected));
    };
    if !route.overrides && !virtual_host.overrides {
        return Ok(Rc::clone(plain));
    }
    let layers = [&route.layer, &virtual_host.layer, layer, &config.layers.defaults];
    policy(&At(BASE), name, &layers).map(Rc::new)
}

/// Where overrides are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// In the metadata of the route.
    Route,
    /// In that of the virtual host.
    VirtualHost,
    /// In none by itself: what all layers together say.
    Together,
}

impl Config {
    /// The policy of a route, out of the metadata of it and of its virtual host as JSON. For tools: it
    /// is read as the filter reads what a host hands over, and merged by the same code. The path of
    /// an error begins below the metadata.
    pub fn route_policy(
        &self,
        route: Option<&Value>,
        virtual_host: Option<&Value>,
    ) -> Result<Rc<Policy>, (Level, ConfigError)> {
        let read = |mark: Option<&Value>, level| match mark {
            Some(mark) => json_marking(mark).map_err(|error| (level, error)),
            None => Ok(Marking::default()),
        };
        let route = read(route, Level::Route)?;
        let virtual_host = read(virtual_host, Level::VirtualHost)?;
        merged(self, route, virtual_host).map_err(|mut error| {
            if let Some(field) = error.path.strip_prefix(BASE).and_then(|path| path.strip_prefix('.')) {
                error.path = field.to_owned();
            }
            (Level::Together, error)
        })
    }
}

/// Reads metadata that is JSON.
fn json_marking(mark: &Value) -> Result<Marking, ConfigError> {
    reject_nulls(mark, &mut String::new())?;
    let Value::Object(members) = mark else {
        return Err(ConfigError::new("configuration", found(Some(mark)), "an object with the policy's name"));
    };
    let policy = match members.get("policy") {
        None => None,
        Some(Value::String(name)) if !name.is_empty() => Some(name.clone()),
        other => return Err(ConfigError::new("policy", found(other), "the name of a policy")),
    };
    let own = members.iter().filter(|(name, _)| *name != "policy");
    let own: Map<String, Value> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    let overrides = !own.is_empty();
    let own = Value::Object(own);
    // As text, so that a mistake is told in the words that it has in the configuration.
    let text = own.to_string();
    let layer = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&text))
        .map_err(|error| ConfigError::from_serde(error, |path| found(value_at(&own, path))))?;
    reject_misplaced_lists(&own)?;
    Ok(Marking { policy, overrides, layer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_value::tests::host_bytes;
    use crate::policy::Mode;
    use crate::scope::ScopePolicy;
    use proptest::prelude::*;
    use serde_json::json;

    fn config() -> Config {
        let document = json!({
            "store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p",
            "defaults": {"claim_ttl": "40s", "key": {"aliases": ["x-default"]}},
            "policies": {
                "pay": {"namespace": "pay", "scope": ["host"], "wait": "9s", "key": {"max_length": 99}},
                "detach": {"namespace": "d", "anonymous": true, "max_run": "10s",
                    "execution": {"detached": {"cluster": "c", "loopback": true, "timeout": "15s"}}},
            },
        });
        Config::parse(document.to_string().as_bytes()).unwrap()
    }

    fn resolved(route: Value, virtual_host: Value) -> Result<Rc<Policy>, ConfigError> {
        let mark = |value: Value| (!value.is_null()).then(|| host_bytes(&value));
        let marks = Marks { route: mark(route), virtual_host: mark(virtual_host) };
        RoutePolicies::default().resolve(&config(), marks).map_err(|(error, _)| error)
    }

    #[test]
    fn a_route_that_overrides_nothing_has_the_policy_itself() {
        let policy = resolved(json!({"policy": "pay"}), Value::Null).unwrap();
        assert_eq!((policy.wait_ms, policy.claim_ttl_ms, policy.key.max_length), (9_000, 40_000, 99));
        assert!(resolved(Value::Null, json!({"policy": "pay"})).is_ok(), "the virtual host's alone");
    }

    #[test]
    fn the_most_specific_word_wins_and_an_unset_field_resets_nothing() {
        let route = json!({"wait": "1s", "key": {"required": false}});
        let host = json!({"policy": "pay", "wait": "2s", "namespace": "v", "key": {"required": true, "format": "plain"}, "scope": [{"constant": {"value": "x"}}]});
        let policy = resolved(route, host).unwrap();
        assert_eq!((policy.wait_ms, policy.claim_ttl_ms, policy.namespace.as_str()), (1_000, 40_000, "v"));
        assert_eq!((policy.key.required, policy.key.max_length), (false, 99));
        assert_eq!(policy.key.format, crate::key::KeyFormat::Plain);
        assert_eq!(policy.key.names, ["idempotency-key", "x-default"]);
        let ScopePolicy::Sources(sources) = &policy.scope else { panic!("{:?}", policy.scope) };
        assert_eq!((sources.len(), sources[0].name()), (1, "constant"), "the scope is replaced as a whole");
    }

    #[test]
    fn the_route_may_name_the_policy_and_the_virtual_host_override_it() {
        let policy = resolved(json!({"policy": "detach"}), json!({"policy": "pay", "mode": "off"})).unwrap();
        assert_eq!((policy.name.as_str(), policy.mode), ("detach", Mode::Off));
        let anonymous = resolved(json!({"policy": "pay", "anonymous": true}), Value::Null).unwrap();
        assert_eq!(anonymous.scope, ScopePolicy::Anonymous, "scope and anonymous are one setting");
    }

    /// Settings in which layers may meet: alone, beside each other, nested, in lists and maps.
    fn settings() -> Vec<(&'static str, Vec<Value>)> {
        vec![
            ("wait", vec![json!("1s"), json!("2s"), json!("2m")]),
            ("mode", vec![json!("observe"), json!("off"), json!("enforce")]),
            ("methods", vec![json!(["POST"]), json!(["PUT", "PATCH"]), json!(["GET"])]),
            ("scope", vec![json!(["host"]), json!([{"constant": {"value": "v"}}])]),
            ("anonymous", vec![json!(true), json!(false)]),
            ("max_run", vec![json!("10s"), json!("70s")]),
            ("execution", vec![json!("inline"), json!({"detached": {"cluster": "c", "timeout": "65s"}})]),
            ("same_payload_window", vec![json!("1m")]),
            (
                "key",
                vec![
                    json!({"aliases": ["x-a"]}),
                    json!({"aliases": []}),
                    json!({"required": false, "format": "plain"}),
                ],
            ),
            (
                "fingerprint",
                vec![
                    json!({"body": "none"}),
                    json!({"properties": ["a"]}),
                    json!({"properties": []}),
                    json!({"query": ["a"], "headers": ["x-h"]}),
                    json!({"path": {"template": "/{a}"}}),
                ],
            ),
            (
                "response",
                vec![
                    json!({"ttl": "1h"}),
                    json!({"statuses": {"404": "release"}}),
                    json!({"statuses": {"404": {"ttl": "1m"}, "5xx": "store"}}),
                    json!({"headers": {"deny": ["a"]}}),
                    json!({"headers": {"allow": ["b"]}, "markers": {"replayed": "x-r"}}),
                    json!({"markers": {"expires": "x-r"}}),
                ],
            ),
            (
                "errors",
                vec![
                    json!({"content_type": "text/plain"}),
                    json!({"body": "1"}),
                    json!({"type_base": "urn:a:"}),
                ],
            ),
            (
                "grant",
                vec![
                    json!({"token": {"header": "x-g"}, "operation_id": {"header": "x-o"}, "details": {"a": {"constant": "1"}}}),
                    json!({"details": {"b": {"constant": "2"}}, "caller_namespace": "n"}),
                    json!({"outcome": {"failed": [402, "4xx"]}}),
                ],
            ),
            (
                "downstream_keys",
                vec![json!([]), json!([{"provider": "a", "operation": "o", "header": "x-d"}])],
            ),
        ]
    }

    fn layer() -> impl Strategy<Value = Value> {
        let one = prop::sample::select(settings())
            .prop_flat_map(|(name, values)| (Just(name), prop::sample::select(values)));
        prop::collection::vec(one, 0..5).prop_map(|fields| {
            Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        })
    }

    fn with(mut layer: Value, name: &str, value: &str) -> Value {
        layer.as_object_mut().unwrap().insert(name.to_owned(), value.into());
        layer
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn layers_of_json_and_of_a_host_make_the_same_policy(
            route in layer(), host in layer(), policy in layer(), defaults in layer(),
            named in 0..3_usize,
        ) {
            let document = json!({
                "store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p", "defaults": defaults,
                "policies": {"pay": with(policy, "namespace", "n"), "other": {"namespace": "o", "anonymous": true}},
            });
            let Ok(config) = Config::parse(document.to_string().as_bytes()) else { return Ok(()) };
            let route = if named == 1 { route } else { with(route, "policy", "pay") };
            let host = if named == 0 { host } else { with(host, "policy", if named == 1 { "pay" } else { "other" }) };
            let marks = Marks { route: Some(host_bytes(&route)), virtual_host: Some(host_bytes(&host)) };
            let of_host = RoutePolicies::default().resolve(&config, marks).map_err(|(error, _)| error);
            let of_json = config.route_policy(Some(&route), Some(&host));
            match (of_host, of_json) {
                (Ok(of_host), Ok(of_json)) => prop_assert_eq!(format!("{of_host:?}"), format!("{of_json:?}")),
                (Err(of_host), Err((level, of_json))) => {
                    let base = match level {
                        Level::Route => "route.filter_metadata.fencepost.",
                        Level::VirtualHost => "virtual_host.filter_metadata.fencepost.",
                        Level::Together => "filter_metadata.fencepost.",
                    };
                    prop_assert_eq!(of_host.path, format!("{base}{}", of_json.path));
                    prop_assert_eq!(of_host.found, of_json.found);
                    prop_assert_eq!(of_host.expected, of_json.expected);
                }
                (of_host, of_json) => prop_assert!(false, "{:?} and {:?}", of_host, of_json),
            }
        }
    }

    #[test]
    fn metadata_as_json_is_refused_where_it_is_wrong() {
        for (route, host, level, path) in [
            (json!({"policy": "pay", "wait": 5}), json!({}), Level::Route, "wait"),
            (json!({"policy": "pay", "wait": null}), json!({}), Level::Route, "wait"),
            (json!({"policy": "pay", "key": ["x"]}), json!({}), Level::Route, "key"),
            (json!({"policy": 1}), json!({}), Level::Route, "policy"),
            // The filter reads what the route replaces as well.
            (json!({"policy": "pay", "wait": "1s"}), json!({"wait": "x"}), Level::VirtualHost, "wait"),
            (json!("pay"), json!({}), Level::Route, "configuration"),
            (json!({}), json!({}), Level::Together, "policy"),
            (json!({"policy": "pya"}), json!({}), Level::Together, "policy"),
            (json!({"policy": "pay"}), json!({"scope": []}), Level::Together, "scope"),
        ] {
            let (found, error) = config().route_policy(Some(&route), Some(&host)).unwrap_err();
            assert_eq!((found, error.path.as_str()), (level, path), "{route} {host}: {error}");
        }
        assert!(config().route_policy(None, Some(&json!({"policy": "pay"}))).is_ok());
    }

    #[test]
    fn a_wrong_route_is_an_error_with_its_path() {
        for (route, host, path) in [
            (json!({"wait": "1s"}), Value::Null, "filter_metadata.fencepost.policy"),
            (json!({}), json!({}), "filter_metadata.fencepost.policy"),
            (json!({"policy": "pya"}), Value::Null, "filter_metadata.fencepost.policy"),
            (json!({"policy": "pay", "wait": 5}), Value::Null, "route.filter_metadata.fencepost.wait"),
            (json!({"policy": "pay"}), json!({"wiat": "5s"}), "virtual_host.filter_metadata.fencepost.wiat"),
            (json!("pay"), Value::Null, "route.filter_metadata.fencepost"),
            (json!({"policy": "pay", "scope": []}), Value::Null, "filter_metadata.fencepost.scope"),
            (json!({"policy": "pay", "namespace": " "}), Value::Null, "filter_metadata.fencepost.namespace"),
            // Each right by itself, wrong together.
            (
                json!({"max_run": "60s"}),
                json!({"policy": "detach"}),
                "filter_metadata.fencepost.execution.detached.timeout",
            ),
            (
                json!({"policy": "pay", "fingerprint": {"body": "none", "properties": ["a"]}}),
                Value::Null,
                "filter_metadata.fencepost.fingerprint.properties",
            ),
        ] {
            assert_eq!(resolved(route.clone(), host).expect_err(path).path, path, "{route}");
        }
    }

    #[test]
    fn what_was_resolved_is_remembered_within_bounds_and_an_error_is_new_once() {
        let (config, mut routes) = (config(), RoutePolicies::default());
        let marks = |value: Value| Marks { route: Some(host_bytes(&value)), virtual_host: None };
        let good = marks(json!({"policy": "pay", "wait": "1s"}));
        let first = routes.resolve(&config, good.clone()).unwrap();
        assert!(Rc::ptr_eq(&first, &routes.resolve(&config, good).unwrap()));
        let bad = marks(json!({"policy": "nope"}));
        assert!(matches!(routes.resolve(&config, bad.clone()), Err((_, true))));
        assert!(matches!(routes.resolve(&config, bad), Err((_, false))));
        for n in 0..3 * REMEMBERED_MAX {
            routes.resolve(&config, marks(json!({"policy": "pay", "wait": format!("{}ms", n + 1)}))).unwrap();
            assert!(routes.0.len() <= REMEMBERED_MAX);
        }
    }
}
