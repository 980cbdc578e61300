//! The shipped JSON Schema: current, and right about the shipped configurations.

use crate::{envoy, shipped};
use fencepost_store::check::schema_text;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::path::Path;

fn validator() -> Validator {
    jsonschema::validator_for(&serde_json::from_str(&schema_text()).unwrap()).unwrap()
}

/// Every configuration of the filter in a value.
fn configurations(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(members) => {
            if members.contains_key("key_prefix") {
                found.push(value.clone());
            }
            members.values().for_each(|member| configurations(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| configurations(item, found)),
        Value::String(text) if text.contains("decide_cluster") => {
            configurations(&serde_json::from_str(text).unwrap(), found);
        }
        _ => {}
    }
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    // A document that is not a configuration may have several in one file.
    text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap()).collect()
}

#[test]
fn the_shipped_schema_is_current() {
    // To renew it: cargo run -p fencepost-store -- schema > envoy/fencepost.schema.json
    assert!(shipped("fencepost.schema.json") == schema_text(), "envoy/fencepost.schema.json is not current");
}

#[test]
fn every_shipped_configuration_fulfils_the_schema() {
    let validator = validator();
    let mut found = Vec::new();
    for folder in [".", "policies", "ecds", "istio", "gateway"] {
        for entry in std::fs::read_dir(envoy().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                read(&path).iter().for_each(|value| configurations(value, &mut found));
            }
        }
    }
    // The examples of the document.
    let document = shipped("../docs/configuration.md");
    for block in document.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap();
        configurations(&serde_saphyr::from_str(text).unwrap(), &mut found);
    }
    assert!(found.len() >= 11, "{}", found.len());
    for configuration in &found {
        let errors: Vec<_> = validator.iter_errors(configuration).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}\n{configuration:#}");
    }
}

#[test]
fn what_a_type_refuses_the_schema_refuses_too() {
    let validator = validator();
    let with = |policy: Value| {
        json!({
            "store": {"decide_cluster": "a", "claim_cluster": "b"},
            "key_prefix": "p",
            "policies": {"pay": policy},
        })
    };
    let good = json!({
        "namespace": "n",
        "scope": ["host", {"peer_san": {}}, {"jwt": {"payload": "p", "claim": "c"}}],
        "execution": {"detached": {"cluster": "c", "loopback": true, "timeout": "65s"}},
        "fingerprint": {"query": ["a"], "path": {"template": "/{a}"}},
        "response": {"statuses": {"503": "release", "4xx": {"ttl": "10m"}}},
        "downstream_keys": [{"provider": "stripe", "operation": "o", "header": "h", "length": 40}],
    });
    assert!(validator.is_valid(&with(good)));
    for bad in [
        json!({"wiat": "5s"}),
        json!({"wait": 5}),
        json!({"wait": "0s"}),
        json!({"wait": "5"}),
        json!({"wait": null}),
        json!({"mode": "on"}),
        json!({"methods": "POST"}),
        json!({"scope": ["jwt"]}),
        json!({"scope": [{"jwt": {"payload": "p"}}]}),
        json!({"scope": [{"jwt": {"payload": "p", "claim": "c"}, "host": {}}]}),
        json!({"execution": "detached"}),
        json!({"execution": {"detached": {"cluster": "c"}}}),
        json!({"fingerprint": {"query": "some"}}),
        json!({"response": {"statuses": {"600": "store"}}}),
        json!({"response": {"statuses": {"500": "keep"}}}),
        json!({"key": {"max_length": "255"}}),
        json!({"token": "x"}),
    ] {
        assert!(!validator.is_valid(&with(bad.clone())), "{bad}");
    }
    assert!(!validator.is_valid(&json!({"key_prefix": "p"})));
}
