//! What is decided from headers and metadata alone.

use super::*;
use crate::host_value::tests::host_bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A request before a filter whose one policy is `pay`.
struct Case {
    config: Value,
    route: Value,
    virtual_host: Value,
    headers: Vec<Pair>,
    properties: BTreeMap<String, Property>,
}

impl Facts for Case {
    fn property(&self, path: &[&str]) -> Property {
        let marked = match path {
            ["xds", "route_metadata", "filter_metadata", "fencepost"] => &self.route,
            ["xds", "virtual_host_metadata", "filter_metadata", "fencepost"] => &self.virtual_host,
            _ => return self.properties.get(&path.join("/")).cloned().unwrap_or(Property::Absent),
        };
        if marked.is_null() { Property::Absent } else { Property::Bytes(host_bytes(marked)) }
    }

    fn header(&self, name: &str) -> Vec<Vec<u8>> {
        let named = self.headers.iter().filter(|(other, _)| other == name.as_bytes());
        named.map(|(_, value)| value.clone()).collect()
    }
}

impl Request {
    fn claim(&self) -> (&StoreKey, &[(String, String)], &[String]) {
        match &self.wants {
            Wants::Claim { key, forward, withhold, .. } => (key, forward, withhold),
            Wants::Admission(_) => panic!("decided by a grant"),
        }
    }

    fn key(&self) -> &StoreKey {
        self.claim().0
    }

    fn forward(&self) -> &[(String, String)] {
        self.claim().1
    }

    fn withhold(&self) -> &[String] {
        self.claim().2
    }
}

impl Case {
    /// A request of a route under `pay`, with a key.
    fn new(policy: Value) -> Self {
        let mut pay = json!({"namespace": "pay", "scope": ["host"]});
        pay.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
        let config = json!({
            "store": {"decide_cluster": "a", "claim_cluster": "b"}, "key_prefix": "p", "policies": {"pay": pay},
        });
        let (route, virtual_host) = (json!({"policy": "pay"}), Value::Null);
        let case = Self { config, route, virtual_host, headers: vec![], properties: BTreeMap::new() };
        let case = case.header(":method", "POST").header(":path", "/pay").header(":authority", "a");
        case.header("idempotency-key", "k1")
    }

    fn unmarked(mut self, rule: &str) -> Self {
        self.route = Value::Null;
        self.config["unmarked_routes"] = rule.into();
        if rule != "ignore" {
            self.config["unmarked_policy"] = "pay".into();
        }
        self
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name.as_bytes());
        self
    }

    fn judge(&self) -> Verdict {
        let config = Config::parse(self.config.to_string().as_bytes()).unwrap();
        judge(&config, &mut RoutePolicies::default(), self, &|| Some(self.headers.clone()))
    }

    /// `pass`, `guard`, an outcome that was observed, or a problem's code.
    fn verdict(&self) -> &'static str {
        match self.judge() {
            Verdict::Pass => "pass",
            Verdict::Refuse(refusal) => refusal.problem.kind.code(),
            Verdict::Guard(_) => "guard",
            Verdict::Observed(outcome) => outcome.as_str(),
        }
    }

    fn request(&self) -> Request {
        match self.judge() {
            Verdict::Guard(request) => *request,
            other => panic!("{other:?}"),
        }
    }
}

fn case() -> Case {
    Case::new(json!({}))
}

#[test]
fn a_key_is_required_unless_the_policy_says_optional() {
    assert_eq!(case().verdict(), "guard");
    assert_eq!(case().without("idempotency-key").verdict(), "key_missing");
    let optional = || Case::new(json!({"key": {"required": false}}));
    assert_eq!(optional().verdict(), "guard");
    assert_eq!(optional().without("idempotency-key").verdict(), "pass");
    for blank in ["", " ", "\"\"", "\"  \""] {
        for case in [case(), optional()] {
            let case = case.without("idempotency-key").header("idempotency-key", blank);
            assert_eq!(case.verdict(), "key_malformed", "a blank key is a broken client: {blank:?}");
        }
    }
}

#[test]
fn unmarked_routes_follow_their_rule() {
    let keyless = |case: Case| case.without("idempotency-key");
    assert_eq!(case().unmarked("ignore").verdict(), "pass");
    assert_eq!(case().unmarked("guard_when_key_present").verdict(), "guard");
    assert_eq!(keyless(case().unmarked("guard_when_key_present")).verdict(), "pass");
    assert_eq!(case().unmarked("require_key").verdict(), "guard");
    assert_eq!(keyless(case().unmarked("require_key")).verdict(), "key_missing");
    let get = |case: Case| case.without(":method").header(":method", "GET");
    assert_eq!(get(keyless(case().unmarked("require_key"))).verdict(), "pass");
    let optional = Case::new(json!({"key": {"required": false}})).unmarked("require_key");
    assert_eq!(keyless(optional).verdict(), "key_missing", "the rule for unmarked routes says more");
}

#[test]
fn safe_methods_pass_and_others_outside_the_list_are_refused_where_a_key_is_required() {
    let with = |case: Case, method: &str| case.without(":method").header(":method", method).verdict();
    for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
        assert_eq!(with(case(), method), "pass", "{method}");
    }
    for method in ["DELETE", "CONNECT", "post", "BREW"] {
        assert_eq!(with(case(), method), "unguardable", "{method}");
        assert_eq!(with(Case::new(json!({"key": {"required": false}})), method), "pass", "{method}");
    }
    assert_eq!(
        with(Case::new(json!({"methods": ["DELETE", "GET"]})), "GET"),
        "guard",
        "a listed safe method"
    );
}

#[test]
fn grpc_and_upgrades_are_refused_where_a_key_is_required_and_pass_where_it_is_not() {
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("content-type", "Application/gRPC+proto"),
        ("upgrade", "websocket"),
        (":protocol", "websocket"),
    ] {
        assert_eq!(case().header(name, value).verdict(), "unguardable", "{value}");
        let optional = Case::new(json!({"key": {"required": false}})).header(name, value);
        assert_eq!(optional.verdict(), "pass", "{value}");
    }
    assert_eq!(case().header("content-type", "application/json").verdict(), "guard");
}

#[test]
fn every_line_of_every_name_is_a_key() {
    let aliased = || Case::new(json!({"key": {"aliases": ["X-Key"]}}));
    assert_eq!(aliased().without("idempotency-key").header("x-key", "k1").verdict(), "guard");
    assert_eq!(aliased().header("x-key", "k1").verdict(), "key_malformed", "both names, even if equal");
    assert_eq!(case().header("idempotency-key", "k1").verdict(), "key_malformed");
    assert_eq!(case().header("x-key", "k2").verdict(), "guard", "no name of the policy");
    let key_of = |case: Case| case.request().key().clone();
    let alias = aliased().without("idempotency-key").header("x-key", "\"k1\"");
    assert_eq!(key_of(alias), key_of(case()), "the name does not count");
}

#[test]
fn keys_that_differ_in_case_are_two_and_the_key_itself_is_in_nothing() {
    let key = |value: &str| {
        case().without("idempotency-key").header("idempotency-key", value).request().key().clone()
    };
    assert_ne!(key("Abc"), key("abc"));
    let request =
        case().without("idempotency-key").header("idempotency-key", "alice@example.org-42").request();
    assert!(!request.key().as_str().contains("alice"));
    assert!(request.forward().iter().all(|(_, value)| !value.contains("alice")));
}

#[test]
fn metadata_that_is_wrong_or_unreadable_stops_the_request_and_is_told_to_the_operator() {
    for route in
        [json!({"policy": "pya"}), json!({"policy": "pay", "wait": 5}), json!({"wait": "5s"}), json!("pay")]
    {
        let case = Case { route, ..case() };
        let Verdict::Refuse(refusal) = case.judge() else { panic!("{:?}", case.route) };
        assert_eq!(refusal.problem.kind, ProblemKind::PolicyUnreadable);
        let Some(Warning::New(warning)) = refusal.warning else { panic!("{:?}", refusal.warning) };
        assert!(warning.contains("filter_metadata.fencepost"), "{warning}");
    }
    struct Nulls;
    impl Facts for Nulls {
        fn property(&self, path: &[&str]) -> Property {
            match path {
                ["xds", "route_metadata", "filter_metadata", "fencepost"] => Property::Unreadable,
                ["xds", "route_metadata", "filter_metadata", "fencepost", "response"] => Property::Unreadable,
                _ => Property::Absent,
            }
        }
        fn header(&self, _: &str) -> Vec<Vec<u8>> {
            Vec::new()
        }
    }
    let config = Config::parse(case().config.to_string().as_bytes()).unwrap();
    let verdict = judge(&config, &mut RoutePolicies::default(), &Nulls, &|| None);
    let Verdict::Refuse(refusal) = verdict else { panic!("{verdict:?}") };
    assert_eq!(refusal.problem.kind, ProblemKind::PolicyUnreadable);
    let Some(Warning::Repeated(warning)) = refusal.warning else { panic!("{:?}", refusal.warning) };
    assert!(warning.contains("route_metadata.filter_metadata.fencepost.response: found null"), "{warning}");
}

#[test]
fn a_policy_that_is_off_passes_everything() {
    let off = Case { virtual_host: json!({"mode": "off"}), ..case() };
    assert_eq!(off.without("idempotency-key").without(":authority").verdict(), "pass");
}

#[test]
fn a_filter_that_must_run_first_and_did_not_stops_the_request() {
    let required = || Case::new(json!({"require_metadata": ["jwt"]}));
    assert_eq!(required().verdict(), "metadata_missing");
    for property in [Property::Bytes(vec![0; 4]), Property::Unreadable] {
        let mut case = required();
        case.properties.insert("metadata/filter_metadata/jwt".into(), property);
        assert_eq!(case.verdict(), "guard");
    }
}

#[test]
fn an_observing_policy_refuses_nothing_and_says_what_it_would_have_refused() {
    let observing = |more: Value| {
        let mut policy = json!({"mode": "observe"});
        policy.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Case::new(policy)
    };
    let plain = || observing(json!({}));
    assert_eq!(plain().without("idempotency-key").verdict(), "would_refuse_key_missing");
    assert_eq!(plain().header("idempotency-key", "k2").verdict(), "would_refuse_key_malformed");
    let long = plain().without("idempotency-key").header("idempotency-key", &"k".repeat(256));
    assert_eq!(long.verdict(), "would_refuse_key_too_long");
    assert_eq!(plain().without(":authority").verdict(), "would_refuse_scope");
    assert_eq!(plain().header("content-length", "524289").verdict(), "would_refuse_body_too_large");
    assert_eq!(plain().header("upgrade", "websocket").verdict(), "would_refuse_unguardable");
    assert_eq!(observing(json!({"require_metadata": ["x"]})).verdict(), "would_refuse_unreadable");
    let observed = plain().header("x-fencepost-fence", "7").request();
    assert_ne!(observed.key(), case().request().key(), "keys of their own");
    assert_eq!(observed.observed_headers(), [("x-fencepost-depth".into(), "1".into())]);
    assert!(observed.withhold().is_empty());
    assert!(case().request().observed_headers().is_empty());
}

#[test]
fn each_guard_on_the_way_has_keys_of_its_own_and_a_forged_depth_is_refused() {
    let deeper = case().header("x-fencepost-depth", "1").request();
    assert_ne!(deeper.key(), case().request().key());
    assert!(deeper.forward().contains(&("x-fencepost-depth".into(), "2".into())));
    for bad in ["", "x", "-1", "32", "99999999999"] {
        assert_eq!(case().header("x-fencepost-depth", bad).verdict(), "unguardable", "{bad}");
    }
}

#[test]
fn a_refusal_speaks_in_the_words_of_its_policy_or_else_of_the_defaults() {
    let mut case = Case::new(json!({"errors": {"content_type": "text/plain", "body": "no: {code}"}}));
    case.config["defaults"] = json!({"errors": {"content_type": "text/x", "body": "default: {code}"}});
    let said = |case: &Case| {
        let config = Config::parse(case.config.to_string().as_bytes()).unwrap();
        let Verdict::Refuse(refusal) = case.judge() else { panic!() };
        String::from_utf8(refusal.reply(&config).body.to_vec()).unwrap()
    };
    let mut keyless = case.without("idempotency-key");
    assert_eq!(said(&keyless), "no: key_missing");
    keyless.route = json!({"policy": "pya"});
    assert_eq!(said(&keyless), "default: policy_unreadable");
    keyless.route = json!({"policy": "pay"});
    keyless.config["policies"]["pay"].as_object_mut().unwrap().remove("errors");
    assert_eq!(said(&keyless), "default: key_missing");
}
