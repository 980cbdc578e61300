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

/// Reads it in both forms that a host hands over: both are taken, or refused in the same words.
fn parse(changes: &[(&str, Value)]) -> Result<Config, ConfigError> {
    let document = config(changes);
    let of_text = Config::parse(document.to_string().as_bytes());
    let of_struct = Config::parse(&struct_config::tests::encode(&document));
    match (&of_text, &of_struct) {
        (Ok(text), Ok(other)) => assert_eq!(format!("{text:?}"), format!("{other:?}"), "{document}"),
        // A Struct has doubles only, so a number in it may be shown in another way.
        (Err(text), Err(other)) => {
            assert_eq!((&text.path, &text.expected), (&other.path, &other.expected), "{document}");
        }
        _ => panic!("{document}: as text {:?}, as Struct {:?}", of_text.err(), of_struct.err()),
    }
    of_text
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
fn a_field_that_stands_twice_is_named() {
    let text = config(&[]).to_string().replace("\"namespace\":", "\"namespace\":\"x\",\"namespace\":");
    let error = Config::parse(text.as_bytes()).unwrap_err();
    assert_eq!(error.path, "policies.payments.namespace");
    assert_eq!((error.found.as_str(), error.expected.as_str()), ("the field twice", "each field once"));
}

#[test]
fn problems_lead_to_a_document_of_ones_own() {
    let base = json!("https://docs.example/problems#");
    let problem = crate::problem::Problem::new(crate::problem::ProblemKind::KeyMissing, "d");
    let body = |errors: &Option<std::rc::Rc<ErrorTemplate>>| -> Value {
        serde_json::from_slice(&problem.body(errors.as_deref())).unwrap()
    };
    let config = parse(&[("defaults/errors/type_base", base.clone())]).unwrap();
    let by_policy = body(&config.policy("payments").unwrap().errors);
    assert_eq!(by_policy["type"], "https://docs.example/problems#key_missing");
    assert_eq!((&by_policy["code"], &by_policy["status"]), (&json!("key_missing"), &json!(400)));
    assert_eq!(body(&config.errors), by_policy, "where no policy is known");
    let own = [
        ("policies/payments/errors/type_base", base),
        ("defaults/errors/content_type", json!("application/json")),
        ("defaults/errors/body", json!("{\"see\": \"{type}\"}")),
    ];
    let config = parse(&own).unwrap();
    assert_eq!(
        body(&config.policy("payments").unwrap().errors)["see"],
        "https://docs.example/problems#key_missing"
    );
    assert_eq!(body(&config.errors)["see"], "urn:fencepost:problem:key_missing");
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
fn a_mistake_is_named_with_its_path_what_was_found_and_what_would_be_right() {
    // `P` stands for the policy.
    let cases = [
        // Durations and sizes.
        ("P/wait", json!("0s"), "P.wait", "\"0s\"", "a duration above zero"),
        ("P/wait", json!("-5s"), "P.wait", "\"-5s\"", "a duration above zero"),
        ("P/wait", json!(5), "P.wait", "5", "a duration above zero with a unit"),
        ("P/wait", json!(null), "P.wait", "null", "a value, or no such field"),
        ("P/wait", json!("2m"), "P.wait", "120000 ms", "1 ms to 60000 ms"),
        ("P/claim_ttl", json!("10ms"), "P.claim_ttl", "10 ms", "1000 ms to 3600000 ms"),
        ("P/max_run", json!("99999999999999999999h"), "P.max_run", "\"99999999999999999999h\"", "a duration"),
        ("P/response/ttl", json!("401d"), "P.response.ttl", "34646400000 ms", "at most 400d"),
        ("P/response/ttl", json!([]), "P.response.ttl", "[]", "a duration"),
        ("P/response/max_body", json!("17MiB"), "P.response.max_body", "17825792 bytes", "at most 16MiB"),
        (
            "P/fingerprint/max_body",
            json!("1G"),
            "P.fingerprint.max_body",
            "\"1G\"",
            "a size above zero with a unit",
        ),
        ("P/fingerprint/max_body", json!("0B"), "P.fingerprint.max_body", "\"0B\"", "a size above zero"),
        (
            "P/same_payload_window",
            json!("2d"),
            "P.same_payload_window",
            "172800000 ms",
            "1000 ms to 86400000 ms",
        ),
        ("store/timeout", json!("0ms"), "store.timeout", "\"0ms\"", "a duration above zero"),
        // Types and words.
        ("P/mode", json!("enforced"), "P.mode", "\"enforced\"", "one of `enforce`, `observe`, `off`"),
        (
            "P/key/format",
            json!("strict"),
            "P.key.format",
            "\"strict\"",
            "one of `lenient`, `structured`, `plain`",
        ),
        ("P/key/required", json!("yes"), "P.key.required", "\"yes\"", "true or false"),
        ("P/key/max_length", json!(0), "P.key.max_length", "0", "1 to 1024"),
        ("P/key/max_length", json!("64"), "P.key.max_length", "\"64\"", "a whole number"),
        ("P/methods", json!("POST"), "P.methods", "\"POST\"", "a list"),
        ("P/methods", json!(["post"]), "P.methods[0]", "\"post\"", "upper case"),
        ("P/methods", json!(["CONNECT"]), "P.methods[0]", "\"CONNECT\"", "other than CONNECT"),
        ("P/methods", json!([]), "P.methods", "[]", "at least one method"),
        ("P/response", json!("24h"), "P.response", "\"24h\"", "an object"),
        ("P/response/statuses", json!({"6xx": "store"}), "P.response.statuses.6xx", "\"6xx\"", "200 to 599"),
        (
            "P/response/statuses",
            json!({"404": "keep"}),
            "P.response.statuses.404",
            "\"keep\"",
            "store, release, or {ttl: DURATION}",
        ),
        (
            "P/response/headers",
            json!({"deny": ["a b"]}),
            "P.response.headers.deny[0]",
            "\"a b\"",
            "a header name",
        ),
        (
            "P/response/markers",
            json!({"replayed": "x-envoy-a"}),
            "P.response.markers.replayed",
            "\"x-envoy-a\"",
            "the proxy does not use",
        ),
        (
            "P/response/markers",
            json!({"replayed": "a", "expires": "A"}),
            "P.response.markers.replayed",
            "a name used twice",
            "three different",
        ),
        ("P/response/cors_expose", json!("all"), "P.response.cors_expose", "\"all\"", "true or false"),
        ("P/key/header", json!("a b"), "P.key.header", "\"a b\"", "a header name"),
        (
            "P/key/aliases",
            json!(["idempotency-key"]),
            "P.key.aliases[0]",
            "\"idempotency-key\" again",
            "each name once",
        ),
        ("P/fingerprint/query", json!("some"), "P.fingerprint.query", "\"some\"", "all, sorted, none"),
        (
            "P/fingerprint/properties",
            json!(["/a~2"]),
            "P.fingerprint.properties[0]",
            "\"/a~2\"",
            "a JSON pointer",
        ),
        ("P/namespace", json!(" "), "P.namespace", "\" \"", "1 to 255 characters"),
        ("P/errors", json!({"body": "{key}"}), "P.errors.body", "{key}", "{type}, {title}"),
        ("P/errors", json!({"body": "{code}"}), "P.errors.body", "no JSON", "JSON, as the content type says"),
        (
            "P/errors",
            json!({"content_type": "text", "body": ""}),
            "P.errors.content_type",
            "\"text\"",
            "a media type",
        ),
        ("P/errors", json!({"content_type": "text/plain"}), "P.errors.body", "nothing", "a body"),
        (
            "defaults/errors",
            json!({"content_type": "text/plain", "body": "{x}"}),
            "defaults.errors.body",
            "{x}",
            "{code}",
        ),
        ("P/execution", json!("detached"), "P.execution.detached", "\"detached\"", "this word has settings"),
        ("P/execution", json!({"inline": {}}), "P.execution.inline", "{}", "the word alone"),
        ("P/execution", json!(1), "P.execution", "1", "one of the documented words or objects"),
        ("P/mode", json!({"off": {}}), "P.mode.off", "{}", "the word alone"),
        ("P/scope", json!([{}]), "P.scope[0]", "{}", "an object of one name and its settings"),
        (
            "P/scope",
            json!([{"constant": {"value": "v"}, "host": {}}]),
            "P.scope[0]",
            "{\"constant\":{\"value\":\"v\"},\"host\":{}}",
            "an object of one name and its settings",
        ),
        ("P/scope", json!([{"host": false}]), "P.scope[0].host", "false", "{} or true"),
        // Unknown fields, at every level.
        ("polices", json!({}), "polices", "an unknown field", "one of `store`"),
        ("P/wiat", json!("5s"), "P.wiat", "an unknown field", "`wait`"),
        ("P/key/heder", json!("x"), "P.key.heder", "an unknown field", "`header`"),
        ("P/response/headers/drop", json!([]), "P.response.headers.drop", "an unknown field", "`deny`"),
        (
            "P/execution",
            json!({"detached": {"cluster": "c", "timeout": "65s", "loop": true}}),
            "P.execution.detached.loop",
            "an unknown field",
            "`loopback`",
        ),
        // Whose keys they are.
        ("P/scope", json!([]), "P.scope", "0 sources", "1 to 32 sources"),
        ("P/scope", json!(["everyone"]), "P.scope[0]", "\"everyone\"", "{jwt: ..}"),
        ("P/scope", json!(["host", "host"]), "P.scope[1]", "the same source again", "each source once"),
        (
            "P/scope",
            json!([{"jwt": {"claim": "sub"}}]),
            "P.scope[0].jwt.payload",
            "nothing",
            "the field is required",
        ),
        (
            "P/scope",
            json!([{"header": {"name": "x"}}]),
            "P.scope[0].header.trusted",
            "nothing or false",
            "true, if no client",
        ),
        (
            "P/scope",
            json!([{"metadata": {"filter": "f", "path": []}}]),
            "P.scope[0].metadata.path",
            "0 names",
            "1 to 32 names",
        ),
        ("P/anonymous", json!(true), "P.anonymous", "true beside a scope", "either a scope or anonymous"),
        ("P", json!({"namespace": "n"}), "P.scope", "nothing", "or anonymous: true"),
        ("P", json!({"anonymous": true}), "P.namespace", "nothing", "a constant"),
        // Impossible together.
        (
            "P/fingerprint",
            json!({"body": "none", "properties": ["a"]}),
            "P.fingerprint.properties",
            "1 of them",
            "it needs body: json",
        ),
        (
            "P/fingerprint",
            json!({"body": "bytes", "duplicate_members": "reject"}),
            "P.fingerprint.duplicate_members",
            "a rule",
            "it needs body: json",
        ),
        (
            "P/execution",
            json!({"detached": {"cluster": "c", "timeout": "60s"}}),
            "P.execution.detached.timeout",
            "60000 ms",
            "more than max_run (60000 ms)",
        ),
        (
            "P/downstream_keys",
            json!([{"provider": "square", "operation": "o", "header": "h", "length": 64}]),
            "P.downstream_keys[0].length",
            "64",
            "at most 45 characters for square",
        ),
        (
            "P/downstream_keys",
            json!([{"provider": "acme", "operation": "o", "header": "h", "length": 31}]),
            "P.downstream_keys[0].length",
            "31",
            "32 to 64 hex digits",
        ),
        (
            "P/downstream_keys",
            json!([{"provider": "acme", "operation": "o", "header": "h", "form": "uuid", "length": 36}]),
            "P.downstream_keys[0].length",
            "a length of a UUID",
            "no length",
        ),
        (
            "P/downstream_keys",
            json!([{"provider": "a", "operation": "o", "header": "h"}, {"provider": "b", "operation": "o", "header": "H"}]),
            "P.downstream_keys[1].header",
            "\"h\" again",
            "each header once",
        ),
        (
            "P/downstream_keys",
            json!([{"provider": "Square", "operation": "o", "header": "h"}]),
            "P.downstream_keys[0].provider",
            "\"Square\"",
            "\"square\" in this spelling",
        ),
        // Twice in one list.
        ("P/methods", json!(["POST", "PUT", "POST"]), "P.methods[2]", "\"POST\" again", "each once"),
        ("P/require_metadata", json!(["f", "f"]), "P.require_metadata[1]", "\"f\" again", "each once"),
        (
            "P/fingerprint/headers",
            json!(["X-A", "x-a"]),
            "P.fingerprint.headers[1]",
            "\"x-a\" again",
            "each once",
        ),
        ("P/fingerprint/query", json!(["a", "a"]), "P.fingerprint.query[1]", "\"a\" again", "each once"),
        (
            "P/fingerprint/hosts",
            json!(["h.example", "H.example"]),
            "P.fingerprint.hosts[1]",
            "\"h.example\" again",
            "each once",
        ),
        (
            "P/fingerprint/properties",
            json!(["a", "a"]),
            "P.fingerprint.properties[1]",
            "\"a\" again",
            "each once",
        ),
        (
            "P/response/headers",
            json!({"allow": ["a", "A"]}),
            "P.response.headers.allow[1]",
            "\"a\" again",
            "each once",
        ),
        (
            "P/fingerprint/path",
            json!({"template": "/{a}", "variables": ["a", "b"]}),
            "P.fingerprint.path.variables[1]",
            "\"b\"",
            "a {name} of the template",
        ),
        // The whole.
        (
            "defaults/namespace",
            json!("n"),
            "defaults.namespace",
            "a namespace for all policies",
            "one in each policy",
        ),
        ("store/decide_cluster", json!(""), "store.decide_cluster", "\"\"", "1 to 255 characters"),
        ("store", json!({"decide_cluster": "a"}), "store.claim_cluster", "nothing", "the field is required"),
        ("key_prefix", json!("Prod"), "key_prefix", "\"Prod\"", "[a-z0-9._-]"),
        ("unmarked_routes", json!("require_key"), "unmarked_policy", "nothing", "the name of the policy"),
        ("unmarked_routes", json!("guard"), "unmarked_routes", "\"guard\"", "one of `ignore`"),
        (
            "unmarked_policy",
            json!("payments"),
            "unmarked_policy",
            "a name",
            "while unmarked_routes is ignore",
        ),
        // Secrets have no place here.
        (
            "store/token",
            json!("hunter2"),
            "store.token",
            "a field that looks like a secret",
            "credential_injector",
        ),
        (
            "P/client_secret",
            json!("hunter2"),
            "P.client_secret",
            "a field that looks like a secret",
            "no secret here",
        ),
    ];
    for (field, value, path, found, expected) in cases {
        let shown = value.to_string();
        let field =
            field.strip_prefix('P').map_or(field.to_owned(), |rest| format!("policies/payments{rest}"));
        let path = path.strip_prefix("P").map_or(path.to_owned(), |rest| format!("policies.payments{rest}"));
        let error = error(&field, value);
        assert_eq!((&error.path, error.found.as_str()), (&path, found), "{field} = {shown}: {error}");
        assert!(error.expected.contains(expected), "{field} = {shown}: {error}");
        assert!(!error.to_string().contains("hunter2"));
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
        ("policies/payments/response/template", json!("x")),
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

#[test]
fn a_list_in_the_place_of_an_object_is_refused_and_not_read_by_position() {
    for (path, value) in [
        ("policies/payments/key", json!(["K"])),
        ("policies/payments/key", json!([])),
        ("policies/payments/response", json!([])),
        ("policies/payments/fingerprint", json!([])),
        ("policies/payments/response/markers", json!([])),
        ("policies/payments/response/headers", json!([])),
        ("policies/payments/fingerprint/path", json!(["/a", []])),
        ("policies/payments/scope", json!([["x"]])),
        ("defaults", json!([])),
        ("store", json!(["a", "b"])),
    ] {
        let refused = error(path, value.clone());
        assert!(refused.path.starts_with(&path.replace('/', ".")), "{path} {value}: {refused}");
    }
}

#[test]
fn headers_that_mean_something_in_http_carry_neither_keys_nor_markers() {
    for (path, name) in [
        ("policies/payments/key/header", "authorization"),
        ("policies/payments/key/header", "Content-Type"),
        ("policies/payments/response/markers/replayed", "content-type"),
    ] {
        let refused = error(path, json!(name));
        assert_eq!(refused.path, path.replace('/', "."), "{name}");
    }
    let downstream = json!([{"provider": "stripe", "operation": "charge", "header": "authorization"}]);
    let refused = error("policies/payments/downstream_keys", downstream);
    assert_eq!(refused.path, "policies.payments.downstream_keys[0].header");
}

#[test]
fn a_mistake_under_a_name_of_any_length_is_told_in_one_short_line() {
    let name = "é".repeat(5_000);
    let config = json!({
        "store": {"decide_cluster": "d", "claim_cluster": "c"}, "key_prefix": "p",
        "policies": {name.clone(): {"namespace": "n", "wait": 5}},
    });
    for config in [config, json!({ "store": { name: 1 } })] {
        let text = Config::parse(config.to_string().as_bytes()).unwrap_err().to_string();
        assert!(text.chars().count() < 700 && text.contains("é...é"), "{text}");
    }
}
