//! Whose key it is: an identity that the proxy verified.
//!
//! Every source that a policy lists must resolve; there is no fallback, because a shared fallback
//! would hand one caller's answer to another. A value's type is part of the scope: the text "5"
//! and the number 5 are two callers.
//!
//! **Ambiguity.** The host hands over text raw and a number as the 8 bytes of a double, with
//! nothing to tell them apart; the surrounding map has the same encoding. Here printable text
//! wins. The doubles that are integral, at most 2^53 and printable text at once have their low
//! byte not NUL and their high byte printable, so they lie in [2^51, 2^53) (for a smaller
//! integral double the low 12 bits of the fraction are zero, which is a NUL byte). Such a number
//! keeps one identity of its own; it could only meet the 8-character text with the same bytes, in
//! the same claim of the same issuer, which would have to issue both numbers above 2 * 10^15 and
//! texts. A number with a fraction whose bytes happen to be printable is likewise taken as text.

use crate::digest::PartsDigest;
use crate::facts::{Facts, Property};
use crate::host_value::decode_f64;
use fencepost_protocol::ScopeDigest;

/// Where a part of a scope comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeSource {
    /// A claim of a verified JWT, always together with its issuer.
    Jwt {
        /// Filter whose metadata holds the payload.
        filter: String,
        /// Name of the payload in that metadata (`payload_in_metadata`).
        payload: String,
        /// The claim.
        claim: String,
    },
    /// The client certificate's first URI name, else its first DNS name.
    PeerSan,
    /// Dynamic metadata of a filter.
    Metadata {
        /// The filter.
        filter: String,
        /// Path of the value inside it; at least one name.
        path: Vec<String>,
    },
    /// Filter state.
    FilterState {
        /// Its key.
        key: String,
    },
    /// A request header that the operator declared trusted.
    Header {
        /// Lower-case name.
        name: String,
    },
    /// `:authority`, lower case.
    Host,
    /// The same for everybody.
    Constant {
        /// The value.
        value: String,
    },
}

impl ScopeSource {
    /// The source's name in the configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Jwt { .. } => "jwt",
            Self::PeerSan => "peer_san",
            Self::Metadata { .. } => "metadata",
            Self::FilterState { .. } => "filter_state",
            Self::Header { .. } => "header",
            Self::Host => "host",
            Self::Constant { .. } => "constant",
        }
    }
}

/// The scope rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopePolicy {
    /// All callers share one key space; said so in the configuration.
    Anonymous,
    /// All of these together; never empty in a parsed configuration.
    Sources(Vec<ScopeSource>),
}

/// A caller's identity as canonical bytes: each part tagged and with its length.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope(Vec<u8>);

impl Scope {
    /// The canonical bytes, for digests.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.0.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        self.0.extend_from_slice(bytes);
    }
}

impl core::fmt::Debug for Scope {
    /// Its digest only: a scope names a person.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Scope({})", scope_digest(self).to_hex())
    }
}

/// Why there is no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// The source has no value for this request.
    #[error("{source_name}: no value")]
    Missing {
        /// The source's name in the configuration.
        source_name: &'static str,
    },
    /// The source has a value that names nobody: empty, a list, a fraction, several lines.
    #[error("{source_name}: unusable value")]
    Unusable {
        /// The source's name in the configuration.
        source_name: &'static str,
    },
}

mod tag {
    pub const ANONYMOUS: u8 = 0;
    pub const JWT: u8 = 1;
    pub const PEER_URI_SAN: u8 = 2;
    pub const PEER_DNS_SAN: u8 = 3;
    pub const METADATA: u8 = 4;
    pub const FILTER_STATE: u8 = 5;
    pub const HEADER: u8 = 6;
    pub const HOST: u8 = 7;
    pub const CONSTANT: u8 = 8;
    /// Names that select the value.
    pub const NAME: u8 = 32;
    pub const TEXT: u8 = 33;
    pub const NUMBER: u8 = 34;
}

/// Finds the caller's scope; every source must resolve.
pub fn resolve_scope(policy: &ScopePolicy, facts: &dyn Facts) -> Result<Scope, ScopeError> {
    let mut scope = Scope(Vec::new());
    match policy {
        ScopePolicy::Anonymous => scope.push(tag::ANONYMOUS, b""),
        ScopePolicy::Sources(sources) => {
            for source in sources {
                resolve_source(source, facts, &mut scope)?;
            }
        }
    }
    Ok(scope)
}

/// Digest of a scope, for quotas and erasure.
pub fn scope_digest(scope: &Scope) -> ScopeDigest {
    let mut digest = PartsDigest::new("fencepost scope 1");
    digest.part(1, &scope.0);
    ScopeDigest::from_bytes(digest.finish_half())
}

/// The one identity of a source as text, with the set of ids that it is from where the source
/// says so: the issuer of a JWT. Only text will do: a number is another caller than its digits.
pub fn resolve_identity(
    source: &ScopeSource,
    facts: &dyn Facts,
) -> Result<(Option<String>, String), ScopeError> {
    let name = source.name();
    let text = |bytes: Vec<u8>| {
        let unusable = ScopeError::Unusable { source_name: name };
        printable(&bytes).ok_or(unusable)?;
        String::from_utf8(bytes).map_err(|_| unusable)
    };
    let property = |path: &[&str]| read(facts, name, path).and_then(text);
    let id = match source {
        ScopeSource::Jwt { filter, payload, claim } => {
            let base = ["metadata", "filter_metadata", filter.as_str(), payload.as_str()];
            let issuer = property(&[base.as_slice(), &["iss"]].concat())?;
            return Ok((Some(issuer), property(&[base.as_slice(), &[claim.as_str()]].concat())?));
        }
        ScopeSource::PeerSan => match property(&["connection", "uri_san_peer_certificate"]) {
            Err(ScopeError::Missing { .. }) => property(&["connection", "dns_san_peer_certificate"])?,
            found => found?,
        },
        ScopeSource::Metadata { filter, path } => {
            let mut full = vec!["metadata", "filter_metadata", filter.as_str()];
            full.extend(path.iter().map(String::as_str));
            property(&full)?
        }
        ScopeSource::FilterState { key } => property(&["filter_state", key])?,
        ScopeSource::Header { name: header } => text(one_line(facts, name, header)?)?,
        ScopeSource::Host => text(one_line(facts, name, ":authority")?.to_ascii_lowercase())?,
        ScopeSource::Constant { value } => value.clone(),
    };
    Ok((None, id))
}

fn resolve_source(source: &ScopeSource, facts: &dyn Facts, scope: &mut Scope) -> Result<(), ScopeError> {
    let name = source.name();
    match source {
        ScopeSource::Jwt { filter, payload, claim } => {
            // The names of filter and payload are left out: renaming them moves nobody.
            scope.push(tag::JWT, b"");
            let base = ["metadata", "filter_metadata", filter.as_str(), payload.as_str()];
            for claim in ["iss", claim.as_str()] {
                let value = read(facts, name, &[base.as_slice(), &[claim]].concat())?;
                scope.push(tag::NAME, claim.as_bytes());
                push_value(scope, name, &value)?;
            }
        }
        ScopeSource::PeerSan => {
            let (kind, value) = match read(facts, name, &["connection", "uri_san_peer_certificate"]) {
                Ok(value) => (tag::PEER_URI_SAN, value),
                Err(ScopeError::Missing { .. }) => {
                    (tag::PEER_DNS_SAN, read(facts, name, &["connection", "dns_san_peer_certificate"])?)
                }
                Err(unusable) => return Err(unusable),
            };
            scope.push(kind, b"");
            scope.push(tag::TEXT, printable(&value).ok_or(ScopeError::Unusable { source_name: name })?);
        }
        ScopeSource::Metadata { filter, path } => {
            let mut full = vec!["metadata", "filter_metadata", filter.as_str()];
            full.extend(path.iter().map(String::as_str));
            let value = read(facts, name, &full)?;
            scope.push(tag::METADATA, b"");
            for name in core::iter::once(filter).chain(path) {
                scope.push(tag::NAME, name.as_bytes());
            }
            push_value(scope, name, &value)?;
        }
        ScopeSource::FilterState { key } => {
            let value = read(facts, name, &["filter_state", key])?;
            scope.push(tag::FILTER_STATE, key.as_bytes());
            push_value(scope, name, &value)?;
        }
        ScopeSource::Header { name: header } => {
            let value = one_line(facts, name, header)?;
            scope.push(tag::HEADER, header.as_bytes());
            scope.push(tag::TEXT, &value);
        }
        ScopeSource::Host => {
            let value = one_line(facts, name, ":authority")?;
            scope.push(tag::HOST, b"");
            scope.push(tag::TEXT, &value.to_ascii_lowercase());
        }
        ScopeSource::Constant { value } => scope.push(tag::CONSTANT, value.as_bytes()),
    }
    Ok(())
}

/// A property; the host gives an absent one as nothing or as no bytes, for certificates.
fn read(facts: &dyn Facts, source_name: &'static str, path: &[&str]) -> Result<Vec<u8>, ScopeError> {
    match facts.property(path) {
        Property::Absent => Err(ScopeError::Missing { source_name }),
        Property::Unreadable => Err(ScopeError::Unusable { source_name }),
        Property::Bytes(bytes) if bytes.is_empty() => Err(ScopeError::Missing { source_name }),
        Property::Bytes(bytes) => Ok(bytes),
    }
}

/// Exactly one line, not blank, without control characters.
fn one_line(facts: &dyn Facts, source_name: &'static str, header: &str) -> Result<Vec<u8>, ScopeError> {
    let lines = facts.header(header);
    let [line] = lines.as_slice() else {
        return Err(if lines.is_empty() {
            ScopeError::Missing { source_name }
        } else {
            ScopeError::Unusable { source_name }
        });
    };
    let line = line.trim_ascii();
    let control = line.iter().any(|b| *b < 0x20 || *b == 0x7f);
    if line.is_empty() || control { Err(ScopeError::Unusable { source_name }) } else { Ok(line.to_vec()) }
}

/// Largest integer up to which doubles hold every integer.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

fn push_value(scope: &mut Scope, source_name: &'static str, bytes: &[u8]) -> Result<(), ScopeError> {
    if let Some(text) = printable(bytes) {
        scope.push(tag::TEXT, text);
        return Ok(());
    }
    match decode_f64(bytes) {
        Some(number) if number.abs() <= INTEGER_MAX && number.trunc() == number => {
            // In range by the guard; minus zero becomes zero.
            scope.push(tag::NUMBER, (number as i64).to_string().as_bytes());
            Ok(())
        }
        _ => Err(ScopeError::Unusable { source_name }),
    }
}

/// Text without control characters that is not blank.
fn printable(bytes: &[u8]) -> Option<&[u8]> {
    let text = core::str::from_utf8(bytes).ok()?;
    (!text.trim().is_empty() && !text.chars().any(char::is_control)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct MapFacts {
        properties: BTreeMap<String, Property>,
        headers: Vec<(String, Vec<u8>)>,
    }

    impl MapFacts {
        fn with(mut self, path: &str, bytes: &[u8]) -> Self {
            self.properties.insert(path.to_owned(), Property::Bytes(bytes.to_vec()));
            self
        }
        fn header_line(mut self, name: &str, value: &[u8]) -> Self {
            self.headers.push((name.to_owned(), value.to_vec()));
            self
        }
    }

    impl Facts for MapFacts {
        fn property(&self, path: &[&str]) -> Property {
            self.properties.get(&path.join("/")).cloned().unwrap_or(Property::Absent)
        }
        fn header(&self, name: &str) -> Vec<Vec<u8>> {
            self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect()
        }
    }

    const JWT: &str = "metadata/filter_metadata/envoy.filters.http.jwt_authn/jwt_payload";

    fn jwt() -> ScopePolicy {
        ScopePolicy::Sources(vec![ScopeSource::Jwt {
            filter: "envoy.filters.http.jwt_authn".into(),
            payload: "jwt_payload".into(),
            claim: "sub".into(),
        }])
    }

    fn with_sub(bytes: &[u8]) -> Result<Scope, ScopeError> {
        let facts = MapFacts::default()
            .with(&format!("{JWT}/iss"), b"https://issuer")
            .with(&format!("{JWT}/sub"), bytes);
        resolve_scope(&jwt(), &facts)
    }

    #[test]
    fn jwt_needs_issuer_and_claim() {
        let only_sub = MapFacts::default().with(&format!("{JWT}/sub"), b"alice");
        assert_eq!(resolve_scope(&jwt(), &only_sub), Err(ScopeError::Missing { source_name: "jwt" }));
        let only_iss = MapFacts::default().with(&format!("{JWT}/iss"), b"i");
        assert_eq!(resolve_scope(&jwt(), &only_iss), Err(ScopeError::Missing { source_name: "jwt" }));
        let other =
            MapFacts::default().with(&format!("{JWT}/iss"), b"other").with(&format!("{JWT}/sub"), b"alice");
        assert_ne!(resolve_scope(&jwt(), &other).unwrap(), with_sub(b"alice").unwrap());
    }

    #[test]
    fn a_number_and_its_text_are_two_callers() {
        assert_ne!(with_sub(b"5").unwrap(), with_sub(&5f64.to_le_bytes()).unwrap());
        assert_eq!(with_sub(&0f64.to_le_bytes()).unwrap(), with_sub(&(-0f64).to_le_bytes()).unwrap());
        assert_ne!(with_sub(&5f64.to_le_bytes()).unwrap(), with_sub(&(-5f64).to_le_bytes()).unwrap());
    }

    #[test]
    fn numbers_must_be_integral_and_exact() {
        assert!(with_sub(&9_007_199_254_740_992f64.to_le_bytes()).is_ok());
        for bad in [9_007_199_254_740_994f64, 1.5, f64::NAN, f64::INFINITY, -1e300] {
            assert_eq!(
                with_sub(&bad.to_le_bytes()),
                Err(ScopeError::Unusable { source_name: "jwt" }),
                "{bad}"
            );
        }
    }

    #[test]
    fn small_integers_are_never_taken_for_text() {
        for exponent in 0..51 {
            for step in [0u64, 1, 2, 0x3333_3333_3333_3333, 0x5555_5555_5555_5555, u64::MAX] {
                let integer = (1u64 << exponent) | (step & ((1u64 << exponent) - 1));
                assert_eq!(printable(&(integer as f64).to_le_bytes()), None, "{integer}");
                assert_eq!(printable(&(-(integer as f64)).to_le_bytes()), None, "-{integer}");
            }
        }
    }

    #[test]
    fn lists_objects_bools_null_and_blank_are_refused() {
        let map = b"\x01\0\0\0\x01\0\0\0\x01\0\0\0a\0b\0";
        for bad in [map.as_slice(), b"\0\0\0\0", b"\x01", b"\x00", b"   ", b"a\0b", b"\xff\xfe"] {
            assert_eq!(with_sub(bad), Err(ScopeError::Unusable { source_name: "jwt" }), "{bad:?}");
        }
        assert_eq!(with_sub(b""), Err(ScopeError::Missing { source_name: "jwt" }));
        let mut facts = MapFacts::default().with(&format!("{JWT}/iss"), b"i");
        facts.properties.insert(format!("{JWT}/sub"), Property::Unreadable);
        assert_eq!(resolve_scope(&jwt(), &facts), Err(ScopeError::Unusable { source_name: "jwt" }));
    }

    #[test]
    fn a_trusted_header_has_exactly_one_line() {
        let policy = ScopePolicy::Sources(vec![ScopeSource::Header { name: "x-tenant".into() }]);
        let one = MapFacts::default().header_line("x-tenant", b" acme ");
        assert!(resolve_scope(&policy, &one).is_ok());
        assert_eq!(
            resolve_scope(&policy, &one.header_line("x-tenant", b"acme")),
            Err(ScopeError::Unusable { source_name: "header" })
        );
        assert_eq!(
            resolve_scope(&policy, &MapFacts::default()),
            Err(ScopeError::Missing { source_name: "header" })
        );
        let blank = MapFacts::default().header_line("x-tenant", b"  ");
        assert_eq!(resolve_scope(&policy, &blank), Err(ScopeError::Unusable { source_name: "header" }));
    }

    #[test]
    fn host_is_compared_without_case() {
        let policy = ScopePolicy::Sources(vec![ScopeSource::Host]);
        let of = |host: &[u8]| {
            resolve_scope(&policy, &MapFacts::default().header_line(":authority", host)).unwrap()
        };
        assert_eq!(of(b"API.example"), of(b"api.example"));
        assert_ne!(of(b"api.example"), of(b"api.example:8443"));
    }

    #[test]
    fn uri_and_dns_names_of_a_certificate_are_two_callers() {
        let policy = ScopePolicy::Sources(vec![ScopeSource::PeerSan]);
        let uri = MapFacts::default().with("connection/uri_san_peer_certificate", b"x");
        let dns = MapFacts::default().with("connection/dns_san_peer_certificate", b"x");
        assert_ne!(resolve_scope(&policy, &uri).unwrap(), resolve_scope(&policy, &dns).unwrap());
        assert!(resolve_scope(&policy, &MapFacts::default()).is_err());
    }

    #[test]
    fn every_listed_source_must_resolve() {
        let policy = ScopePolicy::Sources(vec![
            ScopeSource::Constant { value: "team".into() },
            ScopeSource::FilterState { key: "user".into() },
        ]);
        assert_eq!(
            resolve_scope(&policy, &MapFacts::default()),
            Err(ScopeError::Missing { source_name: "filter_state" })
        );
        assert!(resolve_scope(&policy, &MapFacts::default().with("filter_state/user", b"u")).is_ok());
    }

    #[test]
    fn debug_shows_no_identity() {
        assert!(!format!("{:?}", with_sub(b"alice").unwrap()).contains("alice"));
    }

    proptest! {
        #[test]
        fn any_value_is_a_scope_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = with_sub(&bytes);
        }

        #[test]
        fn different_values_are_different_callers(
            a in proptest::collection::vec(any::<u8>(), 8), b in proptest::collection::vec(any::<u8>(), 8)) {
            if let (Ok(one), Ok(two)) = (with_sub(&a), with_sub(&b)) {
                prop_assert_eq!(one == two, a == b || decode_f64(&a) == decode_f64(&b));
            }
        }
    }
}
