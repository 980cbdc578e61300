//! Public keys of issuers, as JSON Web Key Sets (RFC 7517).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;

/// Shortest RSA modulus that is accepted, in bits (RFC 7518 section 3.3).
const RSA_BITS_MIN: usize = 2_048;

/// Longest RSA modulus: verifying with a longer one costs more than any issuer's need.
const RSA_BITS_MAX: usize = 8_192;

/// Shortest secret of HS256, in bytes (RFC 7518 section 3.2).
const HMAC_LEN_MIN: usize = 32;

/// A signature algorithm. There is no `none` to choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
pub enum Algorithm {
    /// Ed25519.
    EdDSA,
    /// ECDSA on P-256.
    ES256,
    /// RSA, PKCS #1 v1.5.
    RS256,
    /// RSA, PSS.
    PS256,
    /// A shared secret: whoever can verify can issue as well. For tests.
    HS256,
}

impl Algorithm {
    /// Name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::EdDSA => "EdDSA",
            Self::ES256 => "ES256",
            Self::RS256 => "RS256",
            Self::PS256 => "PS256",
            Self::HS256 => "HS256",
        }
    }

    fn library(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::EdDSA => jsonwebtoken::Algorithm::EdDSA,
            Self::ES256 => jsonwebtoken::Algorithm::ES256,
            Self::RS256 => jsonwebtoken::Algorithm::RS256,
            Self::PS256 => jsonwebtoken::Algorithm::PS256,
            Self::HS256 => jsonwebtoken::Algorithm::HS256,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ed25519,
    P256,
    Rsa,
    Secret,
}

/// One key that may verify.
pub struct Key {
    id: Option<String>,
    /// The key's own restriction.
    algorithm: Option<String>,
    kind: Kind,
    key: DecodingKey,
}

impl Key {
    fn fits(&self, algorithm: Algorithm) -> bool {
        let kind = match algorithm {
            Algorithm::EdDSA => Kind::Ed25519,
            Algorithm::ES256 => Kind::P256,
            Algorithm::RS256 | Algorithm::PS256 => Kind::Rsa,
            Algorithm::HS256 => Kind::Secret,
        };
        let own = self.algorithm.as_deref();
        // RFC 9864 gives Ed25519 a name of its own, which key sets may use.
        let own_fits = own
            .is_none_or(|own| own == algorithm.name() || (own == "Ed25519" && algorithm == Algorithm::EdDSA));
        self.kind == kind && own_fits
    }

    /// Does the signature (base64url) belong to these bytes?
    pub fn verifies(&self, signed: &[u8], signature: &str, algorithm: Algorithm) -> bool {
        jsonwebtoken::crypto::verify(signature, signed, &self.key, algorithm.library()).unwrap_or(false)
    }
}

/// The keys of one issuer.
pub struct KeySet(Vec<Key>);

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    kid: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

impl KeySet {
    /// Reads a key set. Keys of other kinds and uses are left out, as RFC 7517 section 5 asks; a key
    /// that should fit and can't be used is an error, and so is a set of which nothing is left.
    pub fn parse(text: &str) -> Result<Self, String> {
        let set: Jwks = serde_json::from_str(text)
            .map_err(|_| "not a JSON Web Key Set: expected {\"keys\": [..]}".to_owned())?;
        let mut keys = Vec::new();
        for (at, value) in set.keys.into_iter().enumerate() {
            let jwk: Jwk =
                serde_json::from_value(value).map_err(|_| format!("keys[{at}]: not a JSON Web Key"))?;
            if let Some(key) = read(jwk).map_err(|reason| format!("keys[{at}]: {reason}"))? {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            return Err("none of its keys is for signatures of a known kind".into());
        }
        Ok(Self(keys))
    }

    /// The key for a token: the one with its key id, or the only one that fits where it names none.
    pub fn choose(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting =
            self.0.iter().filter(|key| key.fits(algorithm) && (id.is_none() || key.id.as_deref() == id));
        let key = fitting.next()?;
        fitting.next().is_none().then_some(key)
    }
}

fn read(jwk: Jwk) -> Result<Option<Key>, String> {
    let for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
        && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !for_signatures {
        return Ok(None);
    }
    let bytes = |member: &Option<String>, name: &str| {
        let text = member.as_deref().ok_or_else(|| format!("{name} is missing"))?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("{name} is not base64url"))
    };
    let (kind, key) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("OKP", Some("Ed25519")) => {
            let x = bytes(&jwk.x, "x")?;
            if x.len() != 32 {
                return Err(format!("found an Ed25519 key of {} bytes; expected 32", x.len()));
            }
            (Kind::Ed25519, DecodingKey::from_ed_der(&x))
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&jwk.x, "x")?, bytes(&jwk.y, "y")?);
            if x.len() != 32 || y.len() != 32 {
                return Err("found a P-256 key whose x or y is not 32 bytes".into());
            }
            (Kind::P256, DecodingKey::from_ec_der(&[&[4][..], &x, &y].concat()))
        }
        ("RSA", _) => {
            let (n, e) = (bytes(&jwk.n, "n")?, bytes(&jwk.e, "e")?);
            let length = bits(&n);
            if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&length) {
                return Err(format!(
                    "found an RSA key of {length} bits; expected {RSA_BITS_MIN} to {RSA_BITS_MAX}"
                ));
            }
            if bits(&e) < 2 || bits(&e) > 32 {
                return Err("found an RSA exponent that is no small odd number; expected 65537".into());
            }
            (Kind::Rsa, DecodingKey::from_rsa_raw_components(&n, &e))
        }
        ("oct", _) => {
            let secret = bytes(&jwk.k, "k")?;
            if secret.len() < HMAC_LEN_MIN {
                return Err(format!(
                    "found a secret of {} bytes; expected {HMAC_LEN_MIN} or more",
                    secret.len()
                ));
            }
            let key = DecodingKey::from_secret(&secret).map_err(|_| "found a secret that can't be used")?;
            (Kind::Secret, key)
        }
        _ => return Ok(None),
    };
    Ok(Some(Key { id: jwk.kid, algorithm: jwk.alg, kind, key }))
}

/// Length of a big-endian number, in bits.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().skip_while(|byte| **byte == 0);
    let bytes = significant.clone().count();
    significant.take(1).map(|first| bytes * 8 - first.leading_zeros() as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(bits: usize) -> String {
        let n =
            URL_SAFE_NO_PAD.encode([vec![0x80_u8 >> (7 - (bits - 1) % 8)], vec![1; (bits - 1) / 8]].concat());
        format!(r#"{{"keys": [{{"kty": "RSA", "n": "{n}", "e": "AQAB"}}]}}"#)
    }

    #[test]
    fn rsa_keys_below_2048_bits_are_refused() {
        assert!(KeySet::parse(&rsa(2_048)).is_ok());
        let message = KeySet::parse(&rsa(2_047)).err().unwrap();
        assert!(message.contains("2047 bits"), "{message}");
        assert!(KeySet::parse(&rsa(1_024)).is_err());
    }

    #[test]
    fn keys_of_other_uses_are_left_out_and_broken_ones_refused() {
        let ed = |rest: &str| format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", {rest}}}]}}"#);
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        assert!(KeySet::parse(&ed(&format!(r#""x": "{x}""#))).is_ok());
        for text in [
            ed(&format!(r#""x": "{x}", "use": "enc""#)),
            ed(&format!(r#""x": "{}""#, URL_SAFE_NO_PAD.encode([7; 31]))),
            ed(&format!(r#""x": "{x}=""#)),
            ed(r#""kid": "1""#),
            r#"{"keys": []}"#.into(),
            r#"{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}"#.into(),
            "[]".into(),
        ] {
            assert!(KeySet::parse(&text).is_err(), "{text}");
        }
    }
}
