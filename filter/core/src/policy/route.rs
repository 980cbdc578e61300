//! The policy of a route: what its metadata names, with what it and its virtual host override.
//!
//! Layers, most specific first: route, virtual host, the named policy, `defaults`. The result is
//! kept by the metadata's bytes, so a request costs a look-up. What is wrong is an error for every
//! request, and a log line when it is first seen.

use super::error::found;
use super::layer::PolicyLayer;
use super::metadata::{Marking, marking};
use super::resolve::{At, policy};
use super::{Config, ConfigError, Policy};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_value::tests::host_bytes;
    use crate::policy::Mode;
    use crate::scope::ScopePolicy;
    use serde_json::{Value, json};

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
