//! Signed tokens in the compact form (RFC 7515 section 7.1): taken apart strictly, and verified with
//! keys and algorithms that configuration chose, never the token.
//!
//! Refused although a lenient reader would take them: other serialisations, base64 with padding,
//! blanks or spare bits (two spellings of one token), a member twice, `crit` of any content, `none`,
//! and headers that carry or point to a key. No error says anything of the token's contents.

use super::keys::{Algorithm, KeySet};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fencepost_protocol::grants::TOKEN_MAX;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// Why a token is not accepted. The words are stable and go to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unacceptable {
    /// Longer than allowed.
    #[error("token_too_long")]
    TooLong,
    /// Not a signed token in the compact form.
    #[error("token_malformed")]
    Malformed,
    /// Its header asks for something that is never done.
    #[error("token_header")]
    Header,
    /// Its algorithm is not one of its issuer's.
    #[error("token_algorithm")]
    Algorithm,
    /// None of its issuer's keys fits; they may have to be read again.
    #[error("token_key")]
    Key,
    /// The signature does not fit.
    #[error("token_signature")]
    Signature,
    /// Nobody that is known issued it.
    #[error("token_issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("token_audience")]
    Audience,
    /// A claim is missing or not what it should be.
    #[error("token_claims")]
    Claims,
    /// It lives longer than its issuer's grants may.
    #[error("token_lifetime")]
    Lifetime,
    /// It says that it was issued in the future, or is not valid yet.
    #[error("token_not_yet")]
    NotYet,
    /// It names a version of the leeway that is not configured.
    #[error("token_leeway")]
    Leeway,
}

/// A token taken apart. Nothing in it is proven.
pub struct Unverified<'a> {
    signed: &'a str,
    signature: &'a str,
    header: Header,
    /// Bytes of the payload: only to find whose keys to use.
    pub payload: Vec<u8>,
}

struct Header {
    algorithm: String,
    key_id: Option<String>,
}

/// An object without a member twice; values as they are written.
pub struct Members(pub BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    if members.insert(name, value).is_some() {
                        return Err(A::Error::custom("a member stands twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        d.deserialize_map(Object)
    }
}

impl Members {
    /// Reads an object.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// A member of a type; `None` when it is absent or of another type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }
}

/// Takes a token apart.
pub fn split(token: &str) -> Result<Unverified<'_>, Unacceptable> {
    if token.len() > TOKEN_MAX {
        return Err(Unacceptable::TooLong);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(Unacceptable::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(Unacceptable::Malformed)?;
    if payload.contains('.') {
        return Err(Unacceptable::Malformed);
    }
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| Unacceptable::Malformed);
    let header = read_header(&bytes(header)?)?;
    bytes(signature)?;
    Ok(Unverified { signed, signature, header, payload: bytes(payload)? })
}

fn read_header(bytes: &[u8]) -> Result<Header, Unacceptable> {
    let members = Members::parse(bytes).ok_or(Unacceptable::Malformed)?;
    // What would change how the token is read, or bring a key along (RFC 7515 section 4.1).
    const NEVER: [&str; 9] = ["crit", "b64", "zip", "enc", "jwk", "jku", "x5c", "x5u", "p2c"];
    if NEVER.iter().any(|name| members.0.contains_key(*name)) {
        return Err(Unacceptable::Header);
    }
    let algorithm = members.get("alg").ok_or(Unacceptable::Malformed)?;
    let key_id = match members.0.contains_key("kid") {
        true => Some(members.get("kid").ok_or(Unacceptable::Malformed)?),
        false => None,
    };
    Ok(Header { algorithm, key_id })
}

impl Unverified<'_> {
    /// Verifies the signature with one of these keys and algorithms.
    pub fn verify(&self, keys: &KeySet, allowed: &[Algorithm]) -> Result<(), Unacceptable> {
        let algorithm = allowed.iter().find(|algorithm| algorithm.name() == self.header.algorithm);
        let algorithm = *algorithm.ok_or(Unacceptable::Algorithm)?;
        let key = keys.choose(self.header.key_id.as_deref(), algorithm).ok_or(Unacceptable::Key)?;
        if key.verifies(self.signed.as_bytes(), self.signature, algorithm) {
            Ok(())
        } else {
            Err(Unacceptable::Signature)
        }
    }
}
