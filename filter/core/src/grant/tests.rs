//! What a request has to present, from its headers to what the service is asked.

use super::*;
use crate::facts::Property;
use crate::guard::{Verdict, judge};
use crate::policy::{Config, ConfigError, RoutePolicies};
use crate::scope::{resolve_scope, scope_digest};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const OPERATION: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";

/// A request with a grant, before a filter whose one policy is `credit`.
pub struct Case {
    policy: Value,
    pub headers: Vec<Pair>,
    properties: BTreeMap<String, Property>,
}

impl Facts for Case {
    fn property(&self, path: &[&str]) -> Property {
        match path {
            ["xds", "route_metadata", ..] => {
                Property::Bytes(crate::host_value::tests::host_bytes(&json!({"policy": "credit"})))
            }
            ["xds", ..] => Property::Absent,
            _ => self.properties.get(&path.join("/")).cloned().unwrap_or(Property::Absent),
        }
    }

    fn header(&self, name: &str) -> Vec<Vec<u8>> {
        let named = self.headers.iter().filter(|(other, _)| other == name.as_bytes());
        named.map(|(_, value)| value.clone()).collect()
    }
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                if value.is_null() {
                    base.remove(name);
                } else {
                    merge(base.entry(name).or_insert(json!({})), value);
                }
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// A policy; members of `over` replace its own, and null takes one away.
pub fn policy(over: Value) -> Value {
    let mut policy = json!({
        "namespace": "credits", "scope": [{"jwt": {"payload": "p", "claim": "sub"}}], "max_run": "5s",
        "execution": {"detached": {"cluster": "l", "loopback": true, "timeout": "9s"}},
        "downstream_keys": [{"provider": "stripe", "operation": "credit", "header": "x-stripe-key"}],
        "grant": {
            "token": {"header": "X-Grant"}, "operation_id": {"header": "X-Operation-Id"},
            "path": "/accounts/{account}/credits", "status_address": "https://api.example/operations/{operation_id}",
            "details": {"account": {"path": "account"}, "amount": {"body": "/amount"}, "currency": {"header": "x-currency"},
                "agent": {"scope": true}, "action": {"constant": "credit"}},
        },
    });
    merge(&mut policy, &over);
    policy
}

pub fn config(policy: &Value) -> Result<Config, ConfigError> {
    let config = json!({
        "store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p", "policies": {"credit": policy},
    });
    Config::parse(config.to_string().as_bytes())
}

impl Case {
    pub fn new(over: Value) -> Self {
        let case = Self { policy: policy(over), headers: vec![], properties: BTreeMap::new() };
        let case = case.claim("iss", "https://login.example").claim("sub", "agent-7");
        case.header(":method", "POST")
            .header(":path", "/accounts/A-1187/credits?x=1")
            .header("content-type", "application/json")
            .header("x-grant", "a.b.c")
            .header("x-operation-id", OPERATION)
            .header("x-currency", " USD ")
    }

    fn claim(mut self, name: &str, value: &str) -> Self {
        let path = format!("metadata/filter_metadata/envoy.filters.http.jwt_authn/p/{name}");
        self.properties.insert(path, Property::Bytes(value.into()));
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name.as_bytes());
        self
    }

    pub fn judge(&self) -> Verdict {
        let config = config(&self.policy).unwrap();
        judge(&config, &mut RoutePolicies::default(), self, &|| Some(self.headers.clone()))
    }

    /// What is asked for a body, or the code of the refusal.
    fn bound(&self, body: &str) -> Result<Bound, &'static str> {
        let config = config(&self.policy).unwrap();
        let policy = config.policy("credit").unwrap();
        let grant = policy.grant.as_ref().unwrap();
        let key = (!self.header("idempotency-key").is_empty()).then(|| StoreKey::new("p", &[1; 16]).unwrap());
        let scope = resolve_scope(&policy.scope, self).map_err(|error| Problem::from(error).kind.code())?;
        let scope = scope_digest(&scope);
        let beside = Beside { key_prefix: "p", key, scope, forward: vec![], withhold: vec![] };
        let presented = present(policy, grant, self, self.headers.clone(), beside);
        presented
            .and_then(|presented| presented.bind(policy, grant, body.as_bytes()))
            .map_err(|p| p.kind.code())
    }

    fn verdict(&self) -> &'static str {
        match self.judge() {
            Verdict::Pass => "pass",
            Verdict::Refuse(refusal) => refusal.problem.kind.code(),
            Verdict::Guard(_) => "guard",
            Verdict::Observed(outcome) => outcome.as_str(),
        }
    }
}

impl Case {
    fn lines(&self, name: &str) -> usize {
        Facts::header(self, name).len()
    }
}

const BODY: &str = r#"{"amount":250.00}"#;

#[test]
fn a_header_is_bound_with_every_blank_that_the_upstream_reads() {
    let account = |value: &str| {
        let case = Case::new(json!({"grant": {"details": {"ref": {"header": "x-account"}}}}))
            .header("x-account", value);
        case.bound(BODY).map(|bound| bound.request.details.0["ref"].clone())
    };
    assert_eq!(account(" A-1187\t").as_deref(), Ok("A-1187"));
    assert_eq!(account("A-1187\u{a0}").as_deref(), Ok("A-1187\u{a0}"));
    assert_eq!(account("\u{2003}A-1187").as_deref(), Ok("\u{2003}A-1187"));
    assert_eq!(account("A-1187\u{85}"), Err("grant_detail_missing"));
}

#[test]
fn details_are_the_text_of_the_request() {
    let bound = Case::new(json!({})).bound(r#"{"note":"x", "amount": 9007199254740993.10}"#).unwrap();
    let details = bound.request.details.0;
    let of = |name: &str| details.get(name).map(String::as_str);
    assert_eq!(
        (of("account"), of("amount"), of("currency"), of("agent"), of("action")),
        (Some("A-1187"), Some("9007199254740993.10"), Some("USD"), Some("agent-7"), Some("credit"))
    );
    assert_eq!((details.len(), details.contains_key("fencepost.request")), (7, true));
    assert_eq!(of("fencepost.scope").map(str::len), Some(32), "whose it is counts in all its parts");
    let caller = bound.request.caller;
    assert_eq!((caller.namespace.as_str(), caller.id.as_str()), ("https://login.example", "agent-7"));
    assert_eq!(bound.request.token.map(|token| token.expose().to_owned()).as_deref(), Some("a.b.c"));
}

#[test]
fn another_request_with_the_same_operation_has_another_fingerprint() {
    let request = |case: Case, body| case.bound(body).unwrap().request.details.0["fencepost.request"].clone();
    let first = request(Case::new(json!({})), BODY);
    assert_eq!(first, request(Case::new(json!({})), r#"{ "amount" : 250.00 }"#));
    assert_ne!(first, request(Case::new(json!({})), r#"{"amount":250}"#));
    assert_ne!(first, request(Case::new(json!({})), r#"{"amount":250.00,"note":"x"}"#));
    let keyed = Case::new(json!({})).header("idempotency-key", "k").bound(BODY).unwrap().request.details;
    assert!(keyed.0.contains_key("fencepost.key"), "a key is one more detail");
}

#[test]
fn what_is_missing_is_named_and_nothing_is_asked() {
    let case = || Case::new(json!({}));
    for (case, body, code) in [
        (case().without("x-grant"), BODY, "grant_missing"),
        (case().without("x-grant").header("x-grant", " "), BODY, "grant_missing"),
        (case().header("x-grant", "d.e.f"), BODY, "grant_missing"),
        (case().without("x-operation-id"), BODY, "operation_id_invalid"),
        (case().header("x-operation-id", OPERATION), BODY, "operation_id_invalid"),
        (case().without("x-operation-id").header("x-operation-id", "7"), BODY, "operation_id_invalid"),
        (case().without("x-currency"), BODY, "grant_detail_missing"),
        (case().without(":path").header(":path", "/accounts//credits"), BODY, "grant_detail_missing"),
        (case().without(":path").header(":path", "/other"), BODY, "grant_detail_missing"),
        (case(), r#"{"amount":null}"#, "grant_detail_missing"),
        (case(), r#"{"sum":1}"#, "grant_detail_missing"),
        (case(), "amount=1", "grant_detail_missing"),
        (case(), r#"{"amount":1,"Amount":2}"#, "body_ambiguous"),
        (case(), r#"{"amount":1,"amount":1}"#, "body_ambiguous"),
        (case().without("content-type"), BODY, "grant_detail_missing"),
        (case().claim("sub", ""), BODY, "scope_missing"),
        (case().claim("sub", "\0\0\0\0\0\0\u{14}@"), BODY, "scope_unusable"),
    ] {
        assert_eq!(case.bound(body).map(|_| "bound"), Err(code), "{:?} {body}", case.headers);
    }
}

#[test]
fn the_body_may_carry_all_of_it() {
    let place = |pointer: &str| json!({"header": null, "body": pointer});
    let grant = json!({"grant": {"token": place("/grant"), "operation_id": place("/operation/id"),
        "operation_mac": {"body": "/operation/mac"}}});
    let case = || Case::new(grant.clone()).without("x-grant").without("x-operation-id");
    let body = format!(r#"{{"grant":"d.e.f","operation":{{"id":"{OPERATION}","mac":"aa"}},"amount":1}}"#);
    let request = case().bound(&body).unwrap().request;
    assert_eq!((request.operation_id.as_str(), request.operation_mac.as_deref()), (OPERATION, Some("aa")));
    assert_eq!(request.token.unwrap().expose(), "d.e.f");
    assert_eq!(case().bound(BODY).map(|_| ()), Err("grant_missing"));
    let without_id = r#"{"grant":"d.e.f","amount":1}"#;
    assert_eq!(case().bound(without_id).map(|_| ()), Err("operation_id_invalid"));
}

#[test]
fn a_scheme_of_its_own_is_read_and_an_ordinary_credential_is_not() {
    let named = |value: &str| {
        let over = json!({"grant": {"token": {"header": "Authorization"}, "scheme": "Grant"}});
        Case::new(over).header("authorization", value).bound(BODY).map(|b| b.request.token.unwrap())
    };
    assert_eq!(named("grant  a.b.c").unwrap().expose(), "a.b.c");
    for other in ["Bearer a.b.c", "Grant", "Grant a.b.c d", "a.b.c"] {
        assert_eq!(named(other).map(|_| ()), Err("grant_missing"), "{other}");
    }
}

#[test]
fn the_upstream_gets_the_operation_and_not_the_grant() {
    let bound = Case::new(json!({})).bound(BODY).unwrap();
    let key = operation_key(
        "p",
        OPERATION,
        &config(&policy(json!({}))).unwrap().policy("credit").unwrap().downstream_keys[0],
    );
    assert_eq!(bound.forward, [(OPERATION_HEADER.into(), OPERATION.into()), ("x-stripe-key".into(), key)]);
    for name in ["x-grant", OPERATION_HEADER, "x-stripe-key"] {
        assert!(bound.withhold.iter().any(|other| other == name), "{name}");
    }
    let kept = Case::new(json!({"grant": {"strip": false}})).bound(BODY).unwrap();
    assert!(!kept.withhold.iter().any(|other| other == "x-grant"));
}

#[test]
fn safe_methods_pass_and_what_is_not_covered_is_refused() {
    let method = |name: &str| Case::new(json!({})).without(":method").header(":method", name);
    assert_eq!(method("POST").verdict(), "guard");
    for safe in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(method(safe).verdict(), "pass", "{safe}");
    }
    assert_eq!(method("DELETE").verdict(), "unguardable");
    assert_eq!(Case::new(json!({})).without("x-grant").verdict(), "grant_missing");
    let grpc = Case::new(json!({})).without("content-type").header("content-type", "application/grpc");
    assert_eq!(grpc.verdict(), "unguardable");
    let twice = Case::new(json!({})).header("x-fencepost-depth", "1").header(OPERATION_HEADER, OPERATION);
    assert_eq!((twice.lines(OPERATION_HEADER), twice.verdict()), (1, "unguardable"));
    assert_eq!(Case::new(json!({})).header(OPERATION_HEADER, OPERATION).verdict(), "guard", "a client's own");
}

#[test]
fn what_could_spend_a_grant_twice_is_no_configuration() {
    let error = |over: Value| config(&policy(over)).map(|_| ()).expect_err("refused");
    for (over, path) in [
        (json!({"execution": null}), "execution"),
        (json!({"execution": "inline"}), "execution"),
        (json!({"mode": "observe"}), "mode"),
        (json!({"on_lost": "rerun"}), "on_lost"),
        (json!({"retries": "allow"}), "retries"),
        (json!({"methods": ["POST", "GET"]}), "methods[1]"),
        (json!({"fail_open": {"owner": "me"}}), "fail_open"),
        (json!({"scope": null, "anonymous": true}), "anonymous"),
        (json!({"scope": ["host"]}), "scope[0]"),
        (json!({"scope": ["peer_san"]}), "grant.caller_namespace"),
        (json!({"grant": {"caller_namespace": "n"}}), "grant.caller_namespace"),
        (json!({"grant": {"token": null}}), "grant.token"),
        (json!({"grant": {"token": {"body": "/t"}}}), "grant.token"),
        (json!({"grant": {"token": {"header": "Authorization"}}}), "grant.scheme"),
        (json!({"grant": {"token": {"header": "Authorization"}, "scheme": "bearer"}}), "grant.scheme"),
        (json!({"grant": {"token": {"header": null, "body": "/t"}, "strip": true}}), "grant.strip"),
        (json!({"grant": {"operation_id": null}}), "grant.operation_id"),
        (json!({"grant": {"operation_id": {"header": null, "path": "account"}}}), "grant.operation_id"),
        (
            json!({"grant": {"operation_id": {"header": "x-fencepost-operation-id"}}}),
            "grant.operation_id.header",
        ),
        (json!({"grant": {"details": {"amount": {"body": "amount"}}}}), "grant.details.amount.body"),
        (json!({"grant": {"details": {"account": {"path": "id"}}}}), "grant.details.account.path"),
        (json!({"grant": {"details": {"fencepost.key": {"scope": true}}}}), "grant.details.fencepost.key"),
        (json!({"grant": {"details": null}}), "grant.details"),
        (json!({"grant": {"outcome": {"failed": ["2xx"]}}}), "grant.outcome.failed"),
        (json!({"grant": {"outcome": {"failed": [199]}}}), "grant.outcome.failed[0]"),
        (json!({"grant": {"outcome": {"failed": ["6xx"]}}}), "grant.outcome.failed[0]"),
        (json!({"grant": {"status_address": "/operations"}}), "grant.status_address"),
        (json!({"grant": {"reruns": 2}}), "grant.reruns"),
    ] {
        let error = error(over.clone());
        assert_eq!(error.path, format!("policies.credit.{path}"), "{over}: {error}");
    }
    let unmarked = json!({
        "store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p", "policies": {"credit": policy(json!({}))},
        "unmarked_routes": "guard_when_key_present", "unmarked_policy": "credit",
    });
    assert_eq!(Config::parse(unmarked.to_string().as_bytes()).unwrap_err().path, "unmarked_policy");
    assert!(config(&policy(json!({"mode": "off"}))).is_ok());
}
