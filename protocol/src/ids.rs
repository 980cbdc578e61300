//! Identifiers on the wire. Each is checked once, here, when it is parsed.

use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Why a text is not the identifier that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the stated number of lower-case hex digits.
    #[error("{what}: expected {digits} lower-case hex digits")]
    Hex {
        /// The identifier's name.
        what: &'static str,
        /// How many digits it has.
        digits: usize,
    },
    /// A store key that is not `prefix:32hex`.
    #[error(
        "store key: expected PREFIX:32 lower-case hex digits, with a prefix of 1 to 63 characters from [a-z0-9._-]"
    )]
    StoreKey,
    /// A fingerprint scheme that is not 1 to 32 characters from `[a-z0-9-]`.
    #[error("fingerprint scheme: expected 1 to 32 characters from [a-z0-9-]")]
    Scheme,
    /// A fence that is zero, negative or beyond 2^53 - 1.
    #[error("fence: expected an integer from 1 to 9007199254740991")]
    Fence,
}

fn lower_hex<const N: usize>(text: &str, what: &'static str) -> Result<[u8; N], IdError> {
    let bad = IdError::Hex { what, digits: N * 2 };
    let mut bytes = [0; N];
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(bad);
    }
    hex::decode_to_slice(text, &mut bytes).map_err(|_| bad)?;
    Ok(bytes)
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $what:literal, debug = $debug:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// From raw bytes.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }
            /// From a slice of exactly the right length.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self)
            }
            /// The raw bytes.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
            /// Lower-case hex, as on the wire.
            pub fn to_hex(&self) -> String {
                hex::encode(self.0)
            }
            /// Parses lower-case hex of exactly the right length.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                lower_hex(text, $what).map(Self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let show: fn(&Self) -> String = $debug;
                write!(f, "{}({})", stringify!($name), show(self))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.to_hex())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                Self::parse(&text).map_err(D::Error::custom)
            }
        }
    };
}

hex_id! {
    /// 128 random bits, chosen by the filter before the call, so that a resend is the same claim.
    /// Whoever has it can finish the claim: `Debug` shows none of it.
    ClaimToken, 16, "claim token", debug = |_| "..".into()
}
hex_id! {
    /// SHA-256 over the fields that make two requests the same.
    Fingerprint, 32, "fingerprint", debug = ClaimFingerprintDebug::show
}
hex_id! {
    /// First half of a SHA-256 over the caller's scope: for quotas and erasure, never for lookup.
    ScopeDigest, 16, "scope digest", debug = |id| id.to_hex()
}
hex_id! {
    /// The random identity of one database, made when its schema was first created.
    StoreId, 16, "store id", debug = |id| id.to_hex()
}

struct ClaimFingerprintDebug;
impl ClaimFingerprintDebug {
    fn show(id: &Fingerprint) -> String {
        hex::encode(&id.0[..4])
    }
}

/// `prefix:32hex`: a readable prefix and half a SHA-256. The client's key is not in it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StoreKey(String);

impl StoreKey {
    /// Longest prefix, in bytes.
    pub const PREFIX_LEN_MAX: usize = 63;

    /// Builds a key from its two parts.
    pub fn new(prefix: &str, digest: &[u8; 16]) -> Result<Self, IdError> {
        Self::check_prefix(prefix)?;
        Ok(Self(format!("{prefix}:{}", hex::encode(digest))))
    }

    /// Checks that a text may stand before the colon: 1 to 63 characters from `[a-z0-9._-]`.
    pub fn check_prefix(prefix: &str) -> Result<(), IdError> {
        let fits = (1..=Self::PREFIX_LEN_MAX).contains(&prefix.len())
            && prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
        if fits { Ok(()) } else { Err(IdError::StoreKey) }
    }

    /// Parses the whole key.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let (prefix, digest) = text.split_once(':').ok_or(IdError::StoreKey)?;
        Self::check_prefix(prefix)?;
        lower_hex::<16>(digest, "store key").map_err(|_| IdError::StoreKey)?;
        Ok(Self(text.to_owned()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the colon.
    pub fn prefix(&self) -> &str {
        self.0.split_once(':').map_or("", |(prefix, _)| prefix)
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of the rules that made a fingerprint: a version and a digest of the options, such as
/// `1-0f3a9c2e`. Fingerprints of different schemes are never compared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scheme(String);

impl Scheme {
    /// Parses 1 to 32 characters from `[a-z0-9-]`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let fits = (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if fits { Ok(Self(text.to_owned())) } else { Err(IdError::Scheme) }
    }

    /// The scheme as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The fencing number of a claim: grows with every claim of a key, across deletion too.
///
/// It is the greater of the old fence plus one and the database's microseconds since 1970, and
/// stays below 2^53, so JSON readers that use doubles keep it exact.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fence(i64);

impl Fence {
    /// Largest value that survives a JSON reader with doubles.
    pub const MAX: i64 = (1 << 53) - 1;

    /// From a number between 1 and [`Fence::MAX`].
    pub fn new(value: i64) -> Result<Self, IdError> {
        if (1..=Self::MAX).contains(&value) { Ok(Self(value)) } else { Err(IdError::Fence) }
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                Self::parse(&text).map_err(D::Error::custom)
            }
        }
    };
}
text_serde!(StoreKey);
text_serde!(Scheme);

impl Serialize for Fence {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_i64(self.0)
    }
}

impl<'de> Deserialize<'de> for Fence {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Fence::new(i64::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_key_needs_a_prefix_and_32_lower_case_hex_digits() {
        let digest = "0123456789abcdef0123456789abcdef";
        assert!(StoreKey::parse(&format!("prod:{digest}")).is_ok());
        for bad in [
            "",
            ":",
            "prod",
            "prod:",
            &format!(":{digest}"),
            &format!("PROD:{digest}"),
            &format!("prod:{}", digest.to_uppercase()),
            &format!("prod:{digest}0"),
            &format!("a:b:{digest}"),
            &format!("{}:{digest}", "p".repeat(64)),
            &format!("pr od:{digest}"),
        ] {
            assert_eq!(StoreKey::parse(bad), Err(IdError::StoreKey), "{bad}");
        }
    }

    #[test]
    fn token_debug_shows_nothing_of_it() {
        let token = ClaimToken::from_bytes([0xab; 16]);
        assert_eq!(format!("{token:?}"), "ClaimToken(..)");
    }

    #[test]
    fn fence_stays_exact_in_doubles() {
        assert!(Fence::new(0).is_err());
        assert!(Fence::new(Fence::MAX).is_ok());
        assert!(Fence::new(Fence::MAX + 1).is_err());
    }
}
