//! Who may call: bearer tokens and client certificates with roles, bound to key prefixes.
//!
//! A request that shows a token is judged by the token alone; the certificate of its connection
//! counts where there is none, so that a wrong token is never made good by the way it came.
//!
//! The file holds SHA-256 digests, not tokens. A presented token is hashed and compared with every
//! digest in constant time, so neither the digest nor its position can be guessed by timing.

use super::Problem;
use super::link::Link;
use crate::grant::requester::Requester;
use crate::tls::{Peer, PeerName};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, StatusCode, header};
use fencepost_protocol::StoreKey;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq;

/// Longest name of a token.
const NAME_LEN_MAX: usize = 200;

/// What a token may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The calls of a filter on idempotency entries.
    Filter,
    /// Admission of grants.
    Admit,
    /// Recording that grants were issued.
    Issue,
    /// Revocation of grants.
    Revoke,
    /// Inspection and settling by people; metrics.
    Operator,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, deserialize_with = "digest")]
    token_sha256: Option<[u8; 32]>,
    /// A name in a client certificate, in place of a token.
    client_san: Option<PeerName>,
    /// Who it belongs to, in the audit.
    name: Option<String>,
    roles: Vec<Role>,
    #[serde(default)]
    key_prefixes: Vec<String>,
    /// Issuers that its calls on grants and operations are bound to; none: all.
    issuers: Option<Vec<String>>,
}

fn digest<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<[u8; 32]>, D::Error> {
    let text = String::deserialize(d)?;
    let mut bytes = [0; 32];
    hex::decode_to_slice(&text, &mut bytes)
        .map_err(|_| serde::de::Error::custom("token_sha256: expected the 64 hex digits of a SHA-256"))?;
    Ok(Some(bytes))
}

/// Why a token file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It can't be read.
    #[error("--token-file {}: {error}; expected a readable JSON file", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It is not what it should be.
    #[error(
        "--token-file {}: {detail}; expected a list such as [{{\"token_sha256\": \"64 hex digits\", \"roles\": \
         [\"filter\"], \"key_prefixes\": [\"prod\"]}}]", .path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

/// The tokens that are accepted; none at all means that everybody on this machine is.
#[derive(Default)]
pub struct Tokens {
    entries: Option<Vec<Entry>>,
}

/// A caller that showed a token with the right role.
pub struct Caller<'a> {
    entry: Option<&'a Entry>,
}

impl Tokens {
    /// No token is asked for: only for a listener on loopback.
    pub fn open() -> Self {
        Self { entries: None }
    }

    /// Reads a token file.
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let text =
            std::fs::read(path).map_err(|error| TokenFileError::Read { path: path.to_owned(), error })?;
        Self::parse(&text).map_err(|detail| TokenFileError::Content { path: path.to_owned(), detail })
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let entries: Vec<Entry> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if entries.is_empty() {
            return Err("the list is empty, so nobody could call".into());
        }
        let mut digests = HashSet::new();
        for entry in &entries {
            match (&entry.token_sha256, &entry.client_san) {
                (Some(_), None) | (None, Some(_)) => {}
                _ => return Err("expected each entry with one of token_sha256 and client_san".into()),
            }
            if let Some(digest) = &entry.token_sha256 {
                // What a shell makes of a variable that is not set.
                if digest[..] == Sha256::digest(b"")[..] {
                    return Err("token_sha256: found the digest of an empty token".into());
                }
                if !digests.insert(digest) {
                    let twice = "stands twice; expected one entry for each token, with all its roles";
                    return Err(format!("token_sha256: {} {twice}", hex::encode(digest)));
                }
            }
            if entry.roles.is_empty() {
                return Err("an entry without roles".into());
            }
            if entry.name.as_ref().is_some_and(|name| name.trim().is_empty() || name.len() > NAME_LEN_MAX) {
                return Err(format!("a name that is blank or longer than {NAME_LEN_MAX} bytes"));
            }
            if entry.roles.contains(&Role::Filter) && entry.key_prefixes.is_empty() {
                return Err("an entry with the role filter and without key_prefixes".into());
            }
            if let Some(issuers) = &entry.issuers {
                if issuers.is_empty() || issuers.iter().any(String::is_empty) {
                    return Err("issuers: found none, or an empty name; leave it out for all issuers".into());
                }
                let bound = |role: &Role| matches!(role, Role::Admit | Role::Issue | Role::Revoke);
                if !entry.roles.iter().any(bound) || entry.roles.contains(&Role::Operator) {
                    return Err(
                        "issuers: found on an entry that it does not bind; expected one of the roles admit, \
                                issue and revoke, and not operator"
                            .into(),
                    );
                }
            }
            for prefix in &entry.key_prefixes {
                StoreKey::check_prefix(prefix).map_err(|error| format!("key prefix {prefix:?}: {error}"))?;
            }
        }
        Ok(Self { entries: Some(entries) })
    }

    /// The caller, if it may act in this role.
    pub fn caller<'a>(&self, shown: impl Into<Shown<'a>>, role: Role) -> Result<Caller<'_>, Problem> {
        let Some(entries) = &self.entries else {
            return Ok(Caller { entry: None });
        };
        let Shown { headers, peer } = shown.into();
        let entry = match (bearer(headers), peer) {
            (Some(token), _) => find(entries, &Sha256::digest(token).into(), role)?,
            (None, Some(peer)) if !headers.contains_key(header::AUTHORIZATION) => {
                find_peer(entries, peer, role)?
            }
            (None, _) => {
                return Err(unauthorized("a bearer token is needed: Authorization: Bearer TOKEN"));
            }
        };
        Ok(Caller { entry: Some(entry) })
    }

    /// Does any entry ask for a client certificate?
    pub fn know_certificates(&self) -> bool {
        self.entries.iter().flatten().any(|entry| entry.client_san.is_some())
    }

    /// Is no token asked for?
    pub fn is_open(&self) -> bool {
        self.entries.is_none()
    }

    /// The digest of a token that may act in this role; zeros where no token is asked for.
    pub fn digest_of(&self, token: &str, role: Role) -> Result<[u8; 32], Problem> {
        let Some(entries) = &self.entries else { return Ok([0; 32]) };
        let digest = Sha256::digest(token).into();
        find(entries, &digest, role).map(|_| digest)
    }

    /// The caller whose token has this digest, if it may act in this role.
    pub fn caller_by_digest(&self, digest: &[u8; 32], role: Role) -> Option<Caller<'_>> {
        match &self.entries {
            None => (*digest == [0; 32]).then_some(Caller { entry: None }),
            Some(entries) => Some(Caller { entry: Some(find(entries, digest, role).ok()?) }),
        }
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

/// The entry of a token. Every digest is compared, each in constant time.
fn find<'a>(entries: &'a [Entry], digest: &[u8; 32], role: Role) -> Result<&'a Entry, Problem> {
    let mut found = None;
    for entry in entries {
        if entry.token_sha256.is_some_and(|known| bool::from(known.ct_eq(digest))) {
            found = Some(entry);
        }
    }
    let entry = found.ok_or_else(|| unauthorized("the bearer token is not known"))?;
    if entry.roles.contains(&role) {
        return Ok(entry);
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "role", "the token does not have the role for this call"))
}

/// The first entry with a name of this certificate that has the role.
fn find_peer<'a>(entries: &'a [Entry], peer: &Peer, role: Role) -> Result<&'a Entry, Problem> {
    let mut named = entries.iter().filter(|entry| entry.client_san.as_ref().is_some_and(|san| peer.is(san)));
    let mut rest = named.clone();
    if let Some(entry) = named.find(|entry| entry.roles.contains(&role)) {
        return Ok(entry);
    }
    if rest.next().is_none() {
        return Err(unauthorized("no name in the client certificate is known, and there is no bearer token"));
    }
    let detail = "the client certificate does not have the role for this call";
    Err(Problem::new(StatusCode::FORBIDDEN, "role", detail))
}

/// What a caller shows: the headers of its request, and the certificate of its connection.
pub struct Shown<'a> {
    headers: &'a HeaderMap,
    peer: Option<&'a Peer>,
}

impl<'a, B> From<&'a Request<B>> for Shown<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self { headers: request.headers(), peer: Link::peer(request.extensions()) }
    }
}

impl<'a> From<&'a Parts> for Shown<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self { headers: &parts.headers, peer: Link::peer(&parts.extensions) }
    }
}

impl<'a> Caller<'a> {
    /// As calls on grants see it.
    pub fn requester(&self) -> Requester<'a> {
        Requester::new(self.name(), self.entry.and_then(|entry| entry.issuers.as_deref()))
    }
}

impl Caller<'_> {
    /// The name of its token, or the beginning of its digest.
    pub fn name(&self) -> String {
        match self.entry {
            Some(Entry { name: Some(name), .. }) => name.clone(),
            Some(Entry { client_san: Some(san), .. }) => format!("certificate {}", san.as_str()),
            Some(entry) => {
                let digest = entry.token_sha256.unwrap_or_default();
                format!("token {}", hex::encode(digest.first_chunk::<4>().unwrap_or(&[0; 4])))
            }
            None => "anybody on this machine".into(),
        }
    }

    /// The key prefixes that an operator is bound to, if to any.
    pub fn bound_to(&self) -> Option<&[String]> {
        self.entry.map(|entry| &entry.key_prefixes[..]).filter(|prefixes| !prefixes.is_empty())
    }

    /// May an operator act on this key? One without prefixes may on all.
    pub fn may_operate(&self, key: &StoreKey) -> Result<(), Problem> {
        if self.bound_to().is_none() { Ok(()) } else { self.may_use(key) }
    }

    /// May the caller act on this key?
    pub fn may_use(&self, key: &StoreKey) -> Result<(), Problem> {
        match self.entry {
            Some(entry) if !entry.key_prefixes.iter().any(|prefix| prefix == key.prefix()) => {
                let detail = "the token is not bound to this key's prefix";
                Err(Problem::new(StatusCode::FORBIDDEN, "key_prefix", detail))
            }
            _ => Ok(()),
        }
    }
}

/// The token of the only Authorization header (RFC 6750 section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_rig::authority::{Authority, dns, uri};

    impl<'a> From<&'a HeaderMap> for Shown<'a> {
        fn from(headers: &'a HeaderMap) -> Self {
            Self { headers, peer: None }
        }
    }

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_certificate_opens_the_roles_of_its_names_and_never_makes_a_wrong_token_good() {
        let sha = hex::encode(Sha256::digest(b"secret"));
        let text = format!(
            r#"[{{"client_san": "uri:spiffe://prod/envoy", "roles": ["filter"], "key_prefixes": ["prod"]}},
                {{"client_san": "dns:desk.example", "roles": ["operator"]}},
                {{"token_sha256": "{sha}", "roles": ["operator"]}}]"#
        );
        let tokens = Tokens::parse(text.as_bytes()).unwrap();
        assert!(tokens.know_certificates());
        let issued = |names| Peer::of(&Authority::new().issue(names).cert_der);
        let envoy = issued(vec![uri("spiffe://prod/envoy")]);
        let none = HeaderMap::new();
        fn asked(tokens: &Tokens, shown: Shown<'_>, role: Role) -> Result<String, Problem> {
            tokens.caller(shown, role).map(|caller| caller.name())
        }
        let code = |result: Result<String, Problem>| result.unwrap_err().status().as_u16();
        assert_eq!(
            asked(&tokens, Shown { headers: &none, peer: Some(&envoy) }, Role::Filter).unwrap(),
            "certificate uri:spiffe://prod/envoy"
        );
        let caller = tokens.caller(Shown { headers: &none, peer: Some(&envoy) }, Role::Filter).ok().unwrap();
        assert!(caller.may_use(&StoreKey::new("prod", &[0; 16]).unwrap()).is_ok());
        assert_eq!(
            caller.may_use(&StoreKey::new("test", &[0; 16]).unwrap()).unwrap_err().code(),
            "key_prefix"
        );
        assert_eq!(code(asked(&tokens, Shown { headers: &none, peer: Some(&envoy) }, Role::Operator)), 403);
        let wrong = [headers("Bearer other"), headers("Basic x"), headers("Bearer ")];
        for wrong in &wrong {
            assert_eq!(code(asked(&tokens, Shown { headers: wrong, peer: Some(&envoy) }, Role::Filter)), 401);
        }
        // A token beside a certificate is what counts.
        let token = headers("Bearer secret");
        assert_eq!(code(asked(&tokens, Shown { headers: &token, peer: Some(&envoy) }, Role::Filter)), 403);
        assert!(asked(&tokens, Shown { headers: &token, peer: Some(&envoy) }, Role::Operator).is_ok());
        let stranger = issued(vec![uri("spiffe://prod/other"), dns("spiffe")]);
        assert_eq!(code(asked(&tokens, Shown { headers: &none, peer: Some(&stranger) }, Role::Filter)), 401);
        let nameless = Peer::default();
        assert_eq!(code(asked(&tokens, Shown { headers: &none, peer: Some(&nameless) }, Role::Filter)), 401);
        let both = issued(vec![uri("spiffe://prod/envoy"), dns("desk.example")]);
        assert_eq!(
            asked(&tokens, Shown { headers: &none, peer: Some(&both) }, Role::Operator).unwrap(),
            "certificate dns:desk.example"
        );
    }

    fn tokens() -> Tokens {
        let sha = hex::encode(Sha256::digest(b"secret"));
        let text = format!(r#"[{{"token_sha256": "{sha}", "roles": ["filter"], "key_prefixes": ["prod"]}}]"#);
        Tokens::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_token_opens_its_role_and_its_prefixes_only() {
        let tokens = tokens();
        let caller = tokens.caller(&headers("Bearer secret"), Role::Filter).unwrap_or_else(|_| panic!());
        assert!(caller.may_use(&StoreKey::new("prod", &[0; 16]).unwrap()).is_ok());
        let refused = caller.may_use(&StoreKey::new("prod2", &[0; 16]).unwrap()).unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.code()), (403, "key_prefix"));
        let refused = tokens.caller(&headers("bearer secret"), Role::Operator).err().unwrap();
        assert_eq!((refused.status().as_u16(), refused.code()), (403, "role"));
    }

    #[test]
    fn an_unknown_or_missing_token_is_401() {
        for headers in
            [headers("Bearer other"), headers("Basic secret"), headers("Bearer "), HeaderMap::new()]
        {
            assert_eq!(tokens().caller(&headers, Role::Filter).err().unwrap().status().as_u16(), 401);
        }
    }

    #[test]
    fn an_operator_is_bound_to_its_prefixes_if_it_has_any() {
        let sha = |token: &str| hex::encode(Sha256::digest(token));
        let text = format!(
            r#"[{{"token_sha256": "{}", "name": "ann", "roles": ["operator"]}},
                {{"token_sha256": "{}", "roles": ["operator"], "key_prefixes": ["prod"]}}]"#,
            sha("one"),
            sha("two")
        );
        let tokens = Tokens::parse(text.as_bytes()).unwrap();
        let key = |prefix| StoreKey::new(prefix, &[0; 16]).unwrap();
        let one = headers("Bearer one");
        let ann = tokens.caller(&one, Role::Operator).unwrap_or_else(|_| panic!());
        assert_eq!((ann.name().as_str(), ann.bound_to()), ("ann", None));
        assert!(ann.may_operate(&key("test")).is_ok());
        let two = headers("Bearer two");
        let other = tokens.caller(&two, Role::Operator).unwrap_or_else(|_| panic!());
        assert_eq!(other.name(), format!("token {}", &sha("two")[..8]));
        assert!(other.may_operate(&key("prod")).is_ok());
        assert_eq!(other.may_operate(&key("test")).unwrap_err().code(), "key_prefix");
    }

    #[test]
    fn a_token_file_that_would_open_nothing_or_everything_is_refused() {
        let sha = "0".repeat(64);
        for text in [
            "[]".to_owned(),
            "{}".to_owned(),
            format!(r#"[{{"token_sha256": "{sha}", "roles": []}}]"#),
            // The digest of an empty token, and one token with two entries, of which one would be dead.
            format!(r#"[{{"token_sha256": "{}", "roles": ["operator"]}}]"#, hex::encode(Sha256::digest(b""))),
            format!(
                r#"[{{"token_sha256": "{sha}", "roles": ["operator"], "key_prefixes": ["prod"]}},
                    {{"token_sha256": "{sha}", "roles": ["operator"]}}]"#
            ),
            r#"[{"roles": ["operator"]}]"#.to_owned(),
            format!(r#"[{{"token_sha256": "{sha}", "client_san": "dns:a", "roles": ["operator"]}}]"#),
            r#"[{"client_san": "envoy", "roles": ["operator"]}]"#.to_owned(),
            r#"[{"client_san": "dns:*.a", "roles": ["operator"]}]"#.to_owned(),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["filter"]}}]"#),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["filter"], "key_prefixes": ["A B"]}}]"#),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["filter"], "key_prefix": ["prod"]}}]"#),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["admit"], "issuers": []}}]"#),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["operator"], "issuers": ["i"]}}]"#),
            format!(r#"[{{"token_sha256": "{sha}", "roles": ["admit", "operator"], "issuers": ["i"]}}]"#),
            r#"[{"token_sha256": "abc", "roles": ["operator"]}]"#.to_owned(),
        ] {
            assert!(Tokens::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
