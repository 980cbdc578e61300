//! A caller's scope as a person writes it: the values that the proxy would have verified, in the
//! order of the policy's sources.
//!
//! ```json
//! {"jwt": {"iss": "https://issuer.example", "sub": "alice"}}
//! [{"host": "api.example"}, {"header": {"name": "x-tenant", "value": "acme"}}]
//! "anonymous"
//! ```
//!
//! The scope is resolved by the filter's own function, from these values in place of the proxy's.

use fencepost_filter_core::facts::{Facts, Property};
use fencepost_filter_core::scope::{Scope, ScopePolicy, ScopeSource, resolve_scope, scope_digest};
use fencepost_protocol::ScopeDigest;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::str::FromStr;

/// The forms of a source, for error messages.
const FORMS: &str = "\"anonymous\", or one or a list of {\"jwt\": {\"iss\": .., CLAIM: ..}}, {\"peer_san\": {\"uri\" or \
                     \"dns\": ..}}, {\"metadata\": {\"filter\": .., \"path\": [..], \"value\": ..}}, {\"filter_state\": \
                     {\"key\": .., \"value\": ..}}, {\"header\": {\"name\": .., \"value\": ..}}, {\"host\": ..}, \
                     {\"constant\": ..}";

/// A scope as stated.
#[derive(Clone, Debug)]
pub struct StatedScope {
    policy: ScopePolicy,
    facts: Stated,
}

/// A scope that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; expected {FORMS}")]
pub struct ScopeTextError(String);

/// The digest of a caller who is named by it, as an entry shows it, or by a stated scope.
pub fn digest_of(text: &str) -> Result<ScopeDigest, ScopeTextError> {
    match ScopeDigest::parse(text) {
        Ok(digest) => Ok(digest),
        Err(_) if text.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            Err(ScopeTextError("the digest of a scope has 32 lowercase hex digits".into()))
        }
        Err(_) => Ok(scope_digest(&text.parse::<StatedScope>()?.resolve()?)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Source {
    Jwt(Map<String, Value>),
    PeerSan(San),
    Metadata { filter: String, path: Vec<String>, value: Value },
    FilterState { key: String, value: Value },
    Header { name: String, value: String },
    Host(String),
    Constant(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum San {
    Uri(String),
    Dns(String),
}

/// The stated values, where the filter looks for them.
#[derive(Clone, Debug, Default)]
struct Stated {
    properties: Vec<(Vec<String>, Vec<u8>)>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Facts for Stated {
    fn property(&self, path: &[&str]) -> Property {
        let found =
            self.properties.iter().find(|(at, _)| at.iter().map(String::as_str).eq(path.iter().copied()));
        found.map_or(Property::Absent, |(_, value)| Property::Bytes(value.clone()))
    }

    fn header(&self, name: &str) -> Vec<Vec<u8>> {
        self.headers.iter().filter(|(at, _)| at == name).map(|(_, value)| value.clone()).collect()
    }
}

impl FromStr for StatedScope {
    type Err = ScopeTextError;

    fn from_str(text: &str) -> Result<Self, ScopeTextError> {
        let bad = |error: serde_json::Error| ScopeTextError(format!("the scope can't be read ({error})"));
        let sources = match serde_json::from_str(text).map_err(bad)? {
            Value::String(word) if word == "anonymous" => {
                return Ok(Self { policy: ScopePolicy::Anonymous, facts: Stated::default() });
            }
            Value::Array(sources) if !sources.is_empty() => sources,
            one => vec![one],
        };
        let mut facts = Stated::default();
        let mut policy = Vec::with_capacity(sources.len());
        for (place, source) in sources.into_iter().enumerate() {
            policy.push(facts.state(place, serde_json::from_value(source).map_err(bad)?)?);
        }
        Ok(Self { policy: ScopePolicy::Sources(policy), facts })
    }
}

impl StatedScope {
    /// The scope as the filter makes it.
    pub fn resolve(&self) -> Result<Scope, ScopeTextError> {
        resolve_scope(&self.policy, &self.facts).map_err(|error| ScopeTextError(error.to_string()))
    }
}

impl Stated {
    /// Puts the values of a source where the filter looks for them. Names that are not part of a
    /// scope are made up, one for each place.
    fn state(&mut self, place: usize, source: Source) -> Result<ScopeSource, ScopeTextError> {
        Ok(match source {
            Source::Jwt(claims) => self.jwt(format!("stated{place}"), claims)?,
            Source::PeerSan(san) => {
                let (name, value) = match san {
                    San::Uri(value) => ("uri_san_peer_certificate", value),
                    San::Dns(value) => ("dns_san_peer_certificate", value),
                };
                self.properties.push((vec!["connection".into(), name.into()], value.into_bytes()));
                ScopeSource::PeerSan
            }
            Source::Metadata { filter, path, value } => {
                let mut at = vec!["metadata".into(), "filter_metadata".into(), filter.clone()];
                at.extend(path.iter().cloned());
                self.properties.push((at, host_value(&value)?));
                ScopeSource::Metadata { filter, path }
            }
            Source::FilterState { key, value } => {
                self.properties.push((vec!["filter_state".into(), key.clone()], host_value(&value)?));
                ScopeSource::FilterState { key }
            }
            Source::Header { name, value } => {
                let name = name.to_ascii_lowercase();
                self.headers.push((name.clone(), value.into_bytes()));
                ScopeSource::Header { name }
            }
            Source::Host(host) => {
                self.headers.push((":authority".into(), host.into_bytes()));
                ScopeSource::Host
            }
            Source::Constant(value) => ScopeSource::Constant { value },
        })
    }

    fn jwt(&mut self, payload: String, claims: Map<String, Value>) -> Result<ScopeSource, ScopeTextError> {
        let other = claims.keys().filter(|name| *name != "iss").cloned().collect::<Vec<_>>();
        let claim = match &other[..] {
            [] => "iss".to_owned(),
            [claim] => claim.clone(),
            _ => return Err(ScopeTextError("jwt: more than one claim beside iss".into())),
        };
        let filter = "stated".to_owned();
        for (name, value) in claims {
            let base = ["metadata", "filter_metadata", &filter, &payload, &name];
            self.properties.push((base.map(str::to_owned).into(), host_value(&value)?));
        }
        Ok(ScopeSource::Jwt { filter, payload, claim })
    }
}

/// A value as the host hands it over: text as it is, a number as the bytes of a double.
fn host_value(value: &Value) -> Result<Vec<u8>, ScopeTextError> {
    let bad = || ScopeTextError(format!("a value that names nobody: {value}"));
    match value {
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Number(number) => number.as_f64().map(|double| double.to_le_bytes().into()).ok_or_else(bad),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Result<Scope, ScopeTextError> {
        text.parse::<StatedScope>()?.resolve()
    }

    /// What a request of this caller resolves to in the filter.
    struct Request;
    impl Facts for Request {
        fn property(&self, path: &[&str]) -> Property {
            let value = match path {
                ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "pay", "iss"] => {
                    b"https://i".to_vec()
                }
                ["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", "pay", "sub"] => {
                    b"alice".to_vec()
                }
                ["metadata", "filter_metadata", "ns", "a", "b"] => 5.0_f64.to_le_bytes().to_vec(),
                ["connection", "uri_san_peer_certificate"] => b"spiffe://x/y".to_vec(),
                ["filter_state", "who"] => b"bob".to_vec(),
                _ => return Property::Absent,
            };
            Property::Bytes(value)
        }
        fn header(&self, name: &str) -> Vec<Vec<u8>> {
            match name {
                "x-tenant" => vec![b"acme".to_vec()],
                ":authority" => vec![b"API.example".to_vec()],
                _ => Vec::new(),
            }
        }
    }

    #[test]
    fn a_stated_scope_is_the_one_that_the_filter_makes_of_a_request() {
        let jwt = |claim: &str| ScopeSource::Jwt {
            filter: "envoy.filters.http.jwt_authn".into(),
            payload: "pay".into(),
            claim: claim.into(),
        };
        let header = ScopeSource::Header { name: "x-tenant".into() };
        for (text, sources) in [
            (r#"{"jwt": {"iss": "https://i", "sub": "alice"}}"#, vec![jwt("sub")]),
            (r#"{"jwt": {"sub": "alice", "iss": "https://i"}}"#, vec![jwt("sub")]),
            (r#"{"jwt": {"iss": "https://i"}}"#, vec![jwt("iss")]),
            (r#"{"peer_san": {"uri": "spiffe://x/y"}}"#, vec![ScopeSource::PeerSan]),
            (
                r#"[{"metadata": {"filter": "ns", "path": ["a", "b"], "value": 5}}]"#,
                vec![ScopeSource::Metadata { filter: "ns".into(), path: vec!["a".into(), "b".into()] }],
            ),
            (
                r#"{"filter_state": {"key": "who", "value": "bob"}}"#,
                vec![ScopeSource::FilterState { key: "who".into() }],
            ),
            (
                r#"[{"host": "api.example"}, {"header": {"name": "X-Tenant", "value": "acme"}}]"#,
                vec![ScopeSource::Host, header],
            ),
            (r#"{"constant": "c"}"#, vec![ScopeSource::Constant { value: "c".into() }]),
        ] {
            let made = resolve_scope(&ScopePolicy::Sources(sources), &Request).unwrap();
            assert_eq!(scope(text), Ok(made), "{text}");
        }
        assert_eq!(scope("\"anonymous\""), Ok(resolve_scope(&ScopePolicy::Anonymous, &Request).unwrap()));
    }

    #[test]
    fn a_caller_is_named_by_digest_or_by_scope() {
        let text = r#"{"jwt": {"iss": "https://i", "sub": "alice"}}"#;
        let digest = scope_digest(&scope(text).unwrap());
        assert_eq!(digest_of(text), Ok(digest));
        assert_eq!(digest_of(&digest.to_hex()), Ok(digest));
        for bad in ["", "07", "alice", "{}", &format!("{}0", digest.to_hex())] {
            assert!(digest_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_scope_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            "\"alice\"",
            r#"{"jwt": {"sub": "alice"}}"#,
            r#"{"jwt": {"iss": "i", "sub": "a", "aud": "b"}}"#,
            r#"{"jwt": {"iss": "i", "sub": ["a"]}}"#,
            r#"{"jwt": {"iss": "i", "sub": ""}}"#,
            r#"{"peer_san": {"ip": "::1"}}"#,
            r#"{"header": {"name": "x"}}"#,
            r#"{"user": "alice"}"#,
        ] {
            assert!(scope(text).is_err(), "{text}");
        }
    }
}
