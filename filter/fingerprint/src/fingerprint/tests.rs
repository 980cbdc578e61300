//! Tests of whole fingerprints.

use super::*;
use proptest::prelude::*;

fn headers(content_type: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    [
        (":method", "POST"),
        (":path", "/pay?x=1"),
        (":authority", "api.example"),
        ("content-type", content_type),
    ]
    .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
    .to_vec()
}

fn policy(change: impl FnOnce(&mut FingerprintOptions)) -> FingerprintPolicy {
    let mut options = FingerprintOptions::default();
    change(&mut options);
    FingerprintPolicy::compile(options).unwrap()
}

fn of_body(policy: &FingerprintPolicy, body: &str) -> Fingerprint {
    RequestParts::new(&headers("application/json")).fingerprint(policy, body.as_bytes()).unwrap()
}

fn with(policy: &FingerprintPolicy, set: &[(&str, &str)]) -> Fingerprint {
    let mut all = headers("application/json");
    for (name, _) in set {
        all.retain(|(other, _)| other != name.as_bytes());
    }
    all.extend(set.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())));
    RequestParts::new(&all).fingerprint(policy, b"{}").unwrap()
}

#[test]
fn fingerprints_are_stable_across_releases() {
    let policy = policy(|_| {});
    assert_eq!(
        of_body(&policy, r#"{"b": 1, "a": [true, "\u0041"]}"#).to_hex(),
        "89a124575de95ce4ea4c714bcc22e4d383aef60e3924d30601289ed726d79cca"
    );
    assert_eq!(
        of_body(&policy, "no json").to_hex(),
        "6636f0108437a83d34e5b2298440cff80e6d2888141f68daecd86b06e6032b55"
    );
}

#[test]
fn every_field_tells_requests_apart() {
    let policy = policy(|_| {});
    let all = [
        with(&policy, &[]),
        with(&policy, &[(":method", "PUT")]),
        with(&policy, &[(":path", "/pay")]),
        with(&policy, &[(":path", "/pay?")]),
        with(&policy, &[(":path", "/pay?x=2")]),
        with(&policy, &[(":path", "/pa?yx=1")]),
        with(&policy, &[("content-type", "application/vnd.a+json")]),
        with(&policy, &[("content-type", "text/plain")]),
        with(&policy, &[("content-encoding", "gzip")]),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(all.iter().skip(i + 1).all(|other| other != one), "{i}");
    }
}

#[test]
fn what_moves_from_one_field_to_the_next_is_another_request() {
    let policy = policy(|options| options.headers = vec!["x-a".into(), "x-b".into()]);
    let of = |method: &str, path: &str, a: &str, b: &str, body: &str| {
        let fields =
            [(":method", method), (":path", path), ("content-type", "text/plain"), ("x-a", a), ("x-b", b)];
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        RequestParts::new(&fields).fingerprint(&policy, body.as_bytes()).unwrap()
    };
    for (one, other) in [
        (of("POST", "/pay?a|b", "", "", "c"), of("POST", "/pay?a", "", "", "b|c")),
        (of("POST", "/pay:{}", "", "", ""), of("POST", "/pay", "", "", "{}")),
        (of("POST", "/pay?a", "", "", "b"), of("POST", "/pay?ab", "", "", "")),
        (of("POST", "/p", "1", "23", ""), of("POST", "/p", "12", "3", "")),
        (of("POST", "/p", "", "1", ""), of("POST", "/p", "1", "", "")),
        (of("POS", "T/p", "", "", ""), of("POST", "/p", "", "", "")),
        (of("POST", "/p\n", "", "", ""), of("POST", "/p", "", "", "\n")),
    ] {
        assert_ne!(one, other);
    }
}

#[test]
fn what_a_proxy_may_change_is_not_compared() {
    let policy = policy(|_| {});
    let base = with(&policy, &[]);
    for same in [
        ("content-type", "Application/JSON; charset=utf-8"),
        ("content-encoding", "identity"),
        (":authority", "other.example"),
        ("user-agent", "x"),
    ] {
        assert_eq!(with(&policy, &[same]), base, "{same:?}");
    }
}

#[test]
fn declared_headers_and_hosts_are_compared() {
    let headers = policy(|o| o.headers = vec!["x-version".into(), "x-other".into()]);
    assert_ne!(with(&headers, &[("X-Version", "1")]), with(&headers, &[("x-version", "2")]));
    assert_ne!(with(&headers, &[("x-version", "1")]), with(&headers, &[("x-other", "1")]));
    assert_ne!(with(&headers, &[("x-version", "")]), with(&headers, &[]));
    let hosts = policy(|o| o.hosts = vec!["a.example".into(), "b.example".into()]);
    let of = |host| with(&hosts, &[(":authority", host)]);
    assert_ne!(of("a.example"), of("b.example"));
    assert_ne!(of("a.example:8443"), of("x.example"));
    assert_eq!(of("A.Example"), of("a.example"));
    assert_eq!(of("x.example"), of("y.example"), "hosts that are not declared tell nothing apart");
}

#[test]
fn json_is_compared_by_meaning_and_numbers_by_text() {
    let policy = policy(|_| {});
    assert_eq!(
        of_body(&policy, r#"{"a":1,"b":"é"}"#),
        of_body(&policy, " { \"b\" : \"\\u00e9\" , \"a\" : 1 } ")
    );
    for (one, two) in [
        ("1", "1.0"),
        ("9007199254740993", "9007199254740992"),
        ("1e5", "1E5"),
        ("[1,2]", "[2,1]"),
        (r#"{"a":null}"#, "{}"),
        (r#"{"a":"1"}"#, r#"{"a":1}"#),
        ("\"a b\"", "\"ab\""),
        ("", "null"),
        ("[]", "{}"),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2,"a":1}"#),
        ("\"\u{e9}\"", "\"e\u{301}\""),
    ] {
        assert_ne!(of_body(&policy, one), of_body(&policy, two), "{one} and {two}");
    }
}

#[test]
fn what_is_not_json_is_compared_by_bytes_under_its_own_tag() {
    let json = policy(|_| {});
    let bytes = policy(|o| o.body = BodyRule::Bytes);
    assert_ne!(of_body(&json, "{ }"), of_body(&bytes, "{ }"));
    assert_eq!(of_body(&json, "{ }"), of_body(&json, "{}"));
    assert_ne!(of_body(&bytes, "{ }"), of_body(&bytes, "{}"));
    assert_eq!(of_body(&json, "{"), of_body(&bytes, "{"), "not JSON: as bytes");
    assert_ne!(of_body(&json, "{"), of_body(&json, " {"));
    let text = headers("text/plain");
    let of = |body: &[u8]| RequestParts::new(&text).fingerprint(&json, body).unwrap();
    assert_ne!(of(b"{}"), of(b"{ }"));
}

#[test]
fn duplicate_members_go_by_the_rule() {
    let twice = r#"{"a":1,"a":2}"#;
    let last = policy(|o| o.duplicate_members = DuplicateMembers::Last);
    assert_eq!(of_body(&last, twice), of_body(&last, r#"{"a":2}"#));
    let reject = policy(|o| o.duplicate_members = DuplicateMembers::Reject);
    let parts = headers("application/json");
    assert_eq!(
        RequestParts::new(&parts).fingerprint(&reject, twice.as_bytes()),
        Err(FingerprintError::DuplicateMember)
    );
    assert!(RequestParts::new(&parts).fingerprint(&reject, b"{").is_ok(), "what is not JSON has no members");
}

#[test]
fn without_a_body_nothing_of_it_is_compared() {
    let none = policy(|o| o.body = BodyRule::None);
    assert!(!none.needs_body());
    assert_eq!(of_body(&none, "a"), of_body(&none, "b"));
}

#[test]
fn only_chosen_properties_are_compared() {
    let amount = policy(|o| o.properties = vec!["amount".into(), "/to/iban".into()]);
    let of = |body| of_body(&amount, body);
    assert_eq!(of(r#"{"amount":1,"sentAt":"1"}"#), of(r#"{"sentAt":"2","AMOUNT":1}"#));
    let all = [
        r#"{"amount":1}"#,
        r#"{"amount":"1"}"#,
        r#"{"amount":null}"#,
        r#"{}"#,
        r#"{"amount":1,"to":{"iban":"x"}}"#,
        r#"{"to":{"iban":1}}"#,
        r#"[]"#,
        r#"[1]"#,
        r#"{"amount":1,"Amount":2}"#,
        "no json",
        "",
    ];
    for (i, one) in all.iter().enumerate() {
        for other in all.iter().skip(i + 1) {
            assert_ne!(of(one), of(other), "{one} and {other}");
        }
    }
}

proptest! {
    #[test]
    fn any_request_has_a_fingerprint(
        headers in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..12), proptest::collection::vec(any::<u8>(), 0..20)), 0..5),
        json in any::<bool>(), body in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut headers = headers;
        if json {
            headers.push((b"content-type".to_vec(), b"application/json".to_vec()));
        }
        let policy = policy(|o| { o.properties = vec!["a".into()]; o.query = QueryRule::Sorted; });
        let one = RequestParts::new(&headers).fingerprint(&policy, &body).unwrap();
        prop_assert_eq!(one, RequestParts::new(&headers).fingerprint(&policy, &body).unwrap());
    }
}
