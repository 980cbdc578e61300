//! Tests of the whole way from text to policies.

use super::*;
use crate::fingerprint::{BodyRule, QueryRule};
use crate::scope::ScopeSource;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The smallest configuration, with changes: each is a path of names and a value.
fn config(changes: &[(&str, Value)]) -> Value {
    let mut document = json!({
        "store": {"decide_cluster": "store", "claim_cluster": "store_waiting"},
        "key_prefix": "prod",
        "policies": {"payments": {"namespace": "payments", "scope": [{"jwt": {"payload": "jwt_payload", "claim": "sub"}}]}},
    });
    for (path, value) in changes {
        let mut at = &mut document;
        for name in path.split('/') {
            at = at.as_object_mut().unwrap().entry(name).or_insert(json!({}));
        }
        *at = value.clone();
    }
    document
}

fn parse(changes: &[(&str, Value)]) -> Result<Config, ConfigError> {
    Config::parse(config(changes).to_string().as_bytes())
}

fn payments(changes: &[(&str, Value)]) -> Policy {
    parse(changes).unwrap().policy("payments").unwrap().clone()
}

fn error(path: &str, value: Value) -> ConfigError {
    parse(&[(path, value)]).unwrap_err()
}

#[test]
fn the_example_of_the_design_is_a_configuration() {
    let text = json!({
        "store": {"decide_cluster": "fencepost_store", "claim_cluster": "fencepost_store_waiting", "timeout": "2s"},
        "key_prefix": "prod",
        "unmarked_routes": "ignore",
        "policies": {"payments": {
            "mode": "enforce",
            "namespace": "payments",
            "methods": ["POST", "PATCH"],
            "key": {"header": "Idempotency-Key", "aliases": [], "required": true, "format": "lenient", "max_length": 255},
            "scope": [{"jwt": {"payload": "jwt_payload", "claim": "sub"}}],
            "fingerprint": {"body": "json", "properties": [], "query": "all", "headers": [], "hosts": [], "max_body": "512KiB"},
            "concurrency": "wait",
            "wait": "5s",
            "claim_ttl": "30s",
            "max_run": "60s",
            "on_lost": "hold",
            "response": {"ttl": "24h", "unknown_ttl": "24h", "max_body": "512KiB", "oversized": "gone", "statuses": {}, "headers": {"deny": []}},
            "execution": "inline",
            "retries": "suppress",
            "downstream_keys": [{"provider": "stripe", "operation": "charge", "header": "x-stripe-idempotency-key"}],
        }},
    });
    let config = Config::parse(text.to_string().as_bytes()).unwrap();
    let policy = config.policy("payments").unwrap();
    assert_eq!(policy.methods, ["POST", "PATCH"]);
    assert_eq!(policy.downstream_keys[0].header, "x-stripe-idempotency-key");
    assert_eq!(config.store.timeout_ms, 2_000);
    assert!(config.policy("nope").is_none());
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let policy = payments(&[]);
    assert_eq!(policy.mode, Mode::Enforce);
    assert_eq!(policy.methods, ["POST", "PUT", "PATCH"]);
    assert_eq!(policy.key.names, ["idempotency-key"]);
    assert_eq!(
        (policy.key.required, policy.key.format, policy.key.max_length),
        (true, KeyFormat::Lenient, 255)
    );
    assert_eq!((policy.wait_ms, policy.claim_ttl_ms, policy.max_run_ms), (5_000, 30_000, 60_000));
    assert_eq!(
        (policy.on_lost, policy.concurrency, policy.retries),
        (OnLost::Hold, Concurrency::Wait, Retries::Suppress)
    );
    assert_eq!((policy.max_body, policy.response.max_body), (512 * 1024, 512 * 1024));
    assert_eq!((policy.response.ttl_ms, policy.response.unknown_ttl_ms), (86_400_000, 86_400_000));
    assert_eq!(policy.execution, Execution::Inline);
    assert_eq!(policy.fingerprint.options(), &crate::fingerprint::FingerprintOptions::default());
    assert_eq!(policy.response.markers, Markers::default());
}

#[test]
fn an_unset_field_never_resets_the_layer_below() {
    let changes = [
        ("defaults/wait", json!("9s")),
        ("defaults/key/aliases", json!(["X-Request-Key"])),
        ("defaults/key/max_length", json!(64)),
        ("defaults/response/statuses", json!({"404": "release", "5xx": "release"})),
        ("policies/payments/key/format", json!("plain")),
        ("policies/payments/key/max_length", json!(32)),
        ("policies/payments/response/ttl", json!("1h")),
        ("policies/payments/response/statuses", json!({"5xx": {"ttl": "1m"}})),
    ];
    let policy = payments(&changes);
    assert_eq!(policy.wait_ms, 9_000);
    assert_eq!(policy.key.names, ["idempotency-key", "x-request-key"]);
    assert_eq!((policy.key.format, policy.key.max_length), (KeyFormat::Plain, 32));
    assert_eq!(policy.response.statuses[&404], StatusRule::Release);
    assert_eq!(policy.response.classes[&5], StatusRule::Store { ttl_ms: Some(60_000) });
    assert_eq!(policy.response.unknown_ttl_ms, 3_600_000, "it follows the answer's lifetime");
}

#[test]
fn an_empty_list_is_a_value_and_resets() {
    let policy =
        payments(&[("defaults/key/aliases", json!(["x-key"])), ("policies/payments/key/aliases", json!([]))]);
    assert_eq!(policy.key.names, ["idempotency-key"]);
}

#[test]
fn every_scope_source_is_read() {
    let policy = payments(&[(
        "policies/payments/scope",
        json!([
            {"jwt": {"payload": "p", "claim": "sub", "filter": "f"}}, "peer_san", {"metadata": {"filter": "f", "path": ["a", "b"]}},
            {"filter_state": {"key": "k"}}, {"header": {"name": "X-Tenant", "trusted": true}}, {"host": {}}, {"constant": {"value": "v"}},
        ]),
    )]);
    let ScopePolicy::Sources(sources) = policy.scope else { panic!("anonymous") };
    let names: Vec<_> = sources.iter().map(ScopeSource::name).collect();
    assert_eq!(names, ["jwt", "peer_san", "metadata", "filter_state", "header", "host", "constant"]);
    assert_eq!(sources[4], ScopeSource::Header { name: "x-tenant".into() });
}

#[test]
fn scope_or_anonymous_must_be_said() {
    let bare = json!({"namespace": "n"});
    let found = error("policies/payments", bare.clone());
    assert_eq!((found.path.as_str(), found.found.as_str()), ("policies.payments.scope", "nothing"));
    let policy = payments(&[("policies/payments", json!({"namespace": "n", "anonymous": true}))]);
    assert_eq!(policy.scope, ScopePolicy::Anonymous);
    let policy = payments(&[("policies/payments", bare), ("defaults/anonymous", json!(true))]);
    assert_eq!(policy.scope, ScopePolicy::Anonymous);
    let policy = payments(&[("defaults/anonymous", json!(true))]);
    assert!(matches!(policy.scope, ScopePolicy::Sources(_)), "the policy's own scope wins");
    assert_eq!(error("policies/payments/anonymous", json!(true)).path, "policies.payments.anonymous");
    assert_eq!(error("policies/payments/scope", json!([])).path, "policies.payments.scope");
}

#[test]
fn a_mistake_is_named_by_its_path() {
    let cases = [
        ("policies/payments/wait", json!("0s"), "policies.payments.wait"),
        ("policies/payments/wait", json!(5), "policies.payments.wait"),
        ("policies/payments/wait", json!("2m"), "policies.payments.wait"),
        ("policies/payments/wait", json!(null), "policies.payments.wait"),
        ("policies/payments/claim_ttl", json!("10ms"), "policies.payments.claim_ttl"),
        ("policies/payments/claim_ttl", json!("-1s"), "policies.payments.claim_ttl"),
        ("policies/payments/max_run", json!("99999999999999999999h"), "policies.payments.max_run"),
        ("policies/payments/response/ttl", json!("401d"), "policies.payments.response.ttl"),
        (
            "policies/payments/response/statuses",
            json!({"6xx": "store"}),
            "policies.payments.response.statuses.6xx",
        ),
        (
            "policies/payments/response/statuses",
            json!({"404": "keep"}),
            "policies.payments.response.statuses.404",
        ),
        ("policies/payments/response/max_body", json!("17MiB"), "policies.payments.response.max_body"),
        (
            "policies/payments/response/headers",
            json!({"deny": ["a b"]}),
            "policies.payments.response.headers.deny[0]",
        ),
        ("policies/payments/fingerprint/max_body", json!("1G"), "policies.payments.fingerprint.max_body"),
        (
            "policies/payments/fingerprint",
            json!({"body": "none", "properties": ["a"]}),
            "policies.payments.fingerprint.properties",
        ),
        (
            "policies/payments/fingerprint/properties",
            json!(["/a~2"]),
            "policies.payments.fingerprint.properties[0]",
        ),
        ("policies/payments/fingerprint/query", json!("some"), "policies.payments.fingerprint.query"),
        ("policies/payments/methods", json!(["post"]), "policies.payments.methods[0]"),
        ("policies/payments/methods", json!([]), "policies.payments.methods"),
        ("policies/payments/methods", json!(["CONNECT"]), "policies.payments.methods[0]"),
        ("policies/payments/key/header", json!("a b"), "policies.payments.key.header"),
        ("policies/payments/key/aliases", json!(["idempotency-key"]), "policies.payments.key.aliases[0]"),
        ("policies/payments/key/max_length", json!(0), "policies.payments.key.max_length"),
        ("policies/payments/key/format", json!("strict"), "policies.payments.key.format"),
        ("policies/payments/wiat", json!("5s"), "policies.payments.wiat"),
        (
            "policies/payments/scope",
            json!([{"header": {"name": "x"}}]),
            "policies.payments.scope[0].header.trusted",
        ),
        ("policies/payments/scope", json!(["everyone"]), "policies.payments.scope[0]"),
        (
            "policies/payments/scope",
            json!([{"jwt": {"claim": "sub"}}]),
            "policies.payments.scope[0].jwt.payload",
        ),
        ("policies/payments/scope", json!(["host", "host"]), "policies.payments.scope[1]"),
        ("policies/payments/namespace", json!(" "), "policies.payments.namespace"),
        (
            "policies/payments/downstream_keys",
            json!([{"provider": "square", "operation": "o", "header": "h", "length": 64}]),
            "policies.payments.downstream_keys[0].length",
        ),
        (
            "policies/payments/downstream_keys",
            json!([{"provider": "acme", "operation": "o", "header": "h", "length": 31}]),
            "policies.payments.downstream_keys[0].length",
        ),
        ("defaults/namespace", json!("n"), "defaults.namespace"),
        ("store/timeout", json!("0ms"), "store.timeout"),
        ("store/decide_cluster", json!(""), "store.decide_cluster"),
        ("key_prefix", json!("Prod"), "key_prefix"),
        ("unmarked_routes", json!("require_key"), "unmarked_policy"),
        ("unmarked_policy", json!("payments"), "unmarked_policy"),
        ("policy", json!({}), "policy"),
    ];
    for (path, value, expected) in cases {
        let shown = value.to_string();
        let error = error(path, value);
        assert_eq!(error.path, expected, "{path} = {shown}: {error}");
        assert!(!error.expected.is_empty() && !error.found.is_empty(), "{error:?}");
    }
}

#[test]
fn an_error_reads_as_one_sentence() {
    assert_eq!(
        error("policies/payments/wait", json!("0s")).to_string(),
        "policies.payments.wait: found \"0s\", expected a duration above zero with a unit, such as 250ms, 30s, 5m, 24h or 7d"
    );
    let missing = Config::parse(br#"{"store": {"decide_cluster": "a", "claim_cluster": "b"}}"#).unwrap_err();
    assert_eq!(missing.to_string(), "key_prefix: found nothing, expected a value: the field is required");
}

#[test]
fn secrets_are_refused_and_not_repeated() {
    for field in ["token", "client_secret", "Password", "authorization"] {
        let error = error(&format!("store/{field}"), json!("hunter2"));
        assert_eq!(error.path, format!("store.{field}"));
        assert!(error.expected.contains("credential_injector"), "{error}");
        assert!(!error.to_string().contains("hunter2"));
    }
}

#[test]
fn what_is_not_built_is_refused_and_never_ignored() {
    for (path, value) in [
        ("policies/payments/fail_open", json!({"owner": "me"})),
        ("policies/payments/grant", json!({})),
        ("policies/payments/response/template", json!("x")),
        ("policies/payments/fingerprint/numbers", json!("jcs")),
    ] {
        let error = error(path, value);
        assert!(error.expected.contains("not available in this version"), "{path}: {error}");
    }
}

#[test]
fn a_detached_call_outlasts_the_run_that_it_waits_for() {
    let detached = |timeout| json!({"detached": {"cluster": "c", "loopback": true, "timeout": timeout}});
    let _ = parse(&[("policies/payments/execution", detached("65s"))]);
    let error = error("policies/payments/execution", detached("60s"));
    assert_eq!(error.path, "policies.payments.execution.detached.timeout");
}

#[test]
fn unmarked_routes_name_a_policy_that_exists() {
    let config = parse(&[
        ("unmarked_routes", json!("guard_when_key_present")),
        ("unmarked_policy", json!("payments")),
    ]);
    assert_eq!(
        config.unwrap().unmarked_routes,
        UnmarkedRoutes::GuardWhenKeyPresent { policy: "payments".into() }
    );
    let error =
        parse(&[("unmarked_routes", json!("require_key")), ("unmarked_policy", json!("nope"))]).unwrap_err();
    assert_eq!(error.path, "unmarked_policy");
}

#[test]
fn a_name_given_twice_is_refused() {
    for text in [
        r#"{"key_prefix": "a", "key_prefix": "b"}"#,
        r#"{"key_prefix": "a", "policies": {"p": {"namespace": "n"}, "p": {"namespace": "n"}}}"#,
        r#"{"key_prefix": "a", "policies": {"p": {"wait": "1s", "wait": "2s"}}}"#,
    ] {
        assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn fingerprint_settings_are_read() {
    let policy = payments(&[(
        "policies/payments/fingerprint",
        json!({
            "properties": ["amount", "/a/b"], "query": ["page"], "headers": ["X-Version"], "hosts": ["A.example"],
            "path": {"template": "/v1/{id}/pay", "variables": ["id"]},
        }),
    )]);
    let options = policy.fingerprint.options();
    assert_eq!(options.body, BodyRule::Json);
    assert_eq!(options.query, QueryRule::Names(vec!["page".into()]));
    assert_eq!(
        (options.headers.as_slice(), options.hosts.as_slice()),
        (["x-version".to_owned()].as_slice(), ["a.example".to_owned()].as_slice())
    );
    for bad in ["v1", "/{a}/{a}", "/x{a}", "/{}"] {
        let error = error("policies/payments/fingerprint/path", json!({"template": bad}));
        assert_eq!(error.path, "policies.payments.fingerprint.path.template", "{bad}");
    }
}

#[test]
fn no_json_no_object_and_nothing_are_errors() {
    for text in ["", "x", "[]", "null", "1", "{", "{}"] {
        assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(Config::parse("[".repeat(100_000).as_bytes()).is_err());
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_an_error(text in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Config::parse(&text);
    }

    #[test]
    fn any_value_in_any_field_is_an_error_or_fine(
        field in "policies/payments/(wait|key|scope|response|fingerprint|execution|downstream_keys|methods)",
        text in "[a-z0-9{}\\[\\]\":,. -]{0,12}", number in any::<f64>()) {
        let _ = parse(&[(field.as_str(), json!(text))]);
        let _ = parse(&[(field.as_str(), json!([text]))]);
        let _ = parse(&[(field.as_str(), json!({text: number}))]);
    }
}
