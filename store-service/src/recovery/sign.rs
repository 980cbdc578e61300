//! Requests of recovery are signed, so that a provider's endpoint obeys nobody else.
//!
//! HMAC-SHA256 over these lines, each but the last ended by LF: `fencepost-recovery-v1`, the time in
//! seconds since 1970, the method, path and query as sent, and the hex SHA-256 of the body. It travels
//! with the time and the name of the key; whoever checks it refuses times that are far from its own,
//! and takes two keys for as long as one is replaced by the other.

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Header with the time.
pub const TIMESTAMP_HEADER: &str = "x-fencepost-timestamp";

/// Header with the name of the key.
pub const KEY_ID_HEADER: &str = "x-fencepost-key-id";

/// Header with the signature, in lower-case hex.
pub const SIGNATURE_HEADER: &str = "x-fencepost-signature";

/// First line of what is signed.
const VERSION: &str = "fencepost-recovery-v1";

/// A key with its name. `Debug` does not show it.
#[derive(Clone)]
pub struct SigningKey {
    id: String,
    key: Vec<u8>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({}, ..)", self.id)
    }
}

impl SigningKey {
    /// From the text of a key file: 64 or more hex digits.
    pub fn parse(id: &str, text: &str) -> Result<Self, String> {
        if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("key_id: expected 1 to 64 visible ASCII characters".into());
        }
        match hex::decode(text.trim()) {
            Ok(key) if key.len() >= 32 => Ok(Self { id: id.to_owned(), key }),
            // Nothing of the file is shown.
            _ => Err("expected 64 or more hex digits of a random key".into()),
        }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The signature of a request.
    pub fn sign(&self, timestamp: i64, method: &str, path_and_query: &str, body: &[u8]) -> String {
        // Cannot fail: HMAC takes keys of every length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.key) else { return String::new() };
        let digest = hex::encode(Sha256::digest(body));
        mac.update(format!("{VERSION}\n{timestamp}\n{method}\n{path_and_query}\n{digest}").as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Python's `hmac`, for whoever writes the other side.
    #[test]
    fn a_signature_is_the_one_that_the_documentation_describes() {
        let key = SigningKey::parse("k1", &"0b".repeat(32)).unwrap();
        let found = key.sign(1_790_000_000, "GET", "/credits/1?a=b", b"");
        assert_eq!(found, "4f448d9f269703228a8707026fe1d534547262485c646c1115741f36470bbd22");
        for other in [
            key.sign(1_790_000_001, "GET", "/credits/1?a=b", b""),
            key.sign(1_790_000_000, "POST", "/credits/1?a=b", b""),
            key.sign(1_790_000_000, "GET", "/credits/2?a=b", b""),
            key.sign(1_790_000_000, "GET", "/credits/1?a=b", b"x"),
        ] {
            assert_ne!(other, found);
        }
    }

    #[test]
    fn a_short_key_is_refused_and_none_is_shown() {
        for text in ["", "abcd", &"0b".repeat(31), &"xy".repeat(32)] {
            let error = SigningKey::parse("k1", text).unwrap_err();
            assert!(error.contains("64 or more"), "{error}");
        }
        assert!(SigningKey::parse("", &"0b".repeat(32)).is_err());
        let key = SigningKey::parse("k1", &"0b".repeat(32)).unwrap();
        assert!(!format!("{key:?}").contains("11"), "{key:?}");
    }
}
