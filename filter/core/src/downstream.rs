//! Keys that the filter gives to the upstream for its own providers.
//!
//! They depend on the configured prefix, the caller, the client's key, the provider and the
//! operation, and on nothing that storage or a rotating secret could change: a retry a month later
//! or after a move to another database makes the same key.

use crate::digest::PartsDigest;
use crate::key::ClientKey;
use crate::scope::Scope;

/// Fewest hex digits of a key: 128 bits, so that two operations never meet by chance.
pub const HEX_DIGITS_MIN: usize = 32;

/// Most hex digits: the whole digest.
pub const HEX_DIGITS_MAX: usize = 64;

/// How a key is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownstreamForm {
    /// Lower-case hex digits, [`HEX_DIGITS_MIN`] to [`HEX_DIGITS_MAX`].
    Hex {
        /// How many.
        digits: usize,
    },
    /// 128 bits in the 8-4-4-4-12 form of a UUID; all bits are the digest's, none says a version.
    Uuid,
}

impl DownstreamForm {
    /// Characters of a key in this form.
    pub fn len(self) -> usize {
        match self {
            Self::Hex { digits } => digits,
            Self::Uuid => 36,
        }
    }

    /// No form is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// A provider's limit on key length, and the form used for it.
pub struct Provider {
    /// Most characters that it takes.
    pub length_max: usize,
    /// Form by default.
    pub form: DownstreamForm,
}

/// Names of the providers that [`provider`] knows.
pub const PROVIDERS: [&str; 4] = ["stripe", "adyen", "paypal", "square"];

/// Limits of the providers known by name; any other name has no limit of its own.
pub fn provider(name: &str) -> Option<Provider> {
    let whole = DownstreamForm::Hex { digits: HEX_DIGITS_MAX };
    let (length_max, form) = match name {
        "stripe" => (255, whole),
        "adyen" => (64, whole),
        "paypal" => (108, whole),
        "square" => (45, DownstreamForm::Uuid),
        _ => return None,
    };
    Some(Provider { length_max, form })
}

/// One key to send on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownstreamKey {
    /// Provider's name.
    pub provider: String,
    /// Operation's name; two calls to one provider need two.
    pub operation: String,
    /// Lower-case request header that carries it; a client's own copy is removed.
    pub header: String,
    /// How it is written.
    pub form: DownstreamForm,
}

/// Makes the key's text.
pub fn downstream_key(prefix: &str, scope: &Scope, key: &ClientKey, target: &DownstreamKey) -> String {
    let mut digest = PartsDigest::new("fencepost downstream key 1");
    digest
        .part(1, prefix.as_bytes())
        .part(2, scope.as_bytes())
        .part(3, key.as_bytes())
        .part(4, target.provider.as_bytes())
        .part(5, target.operation.as_bytes());
    write_key(digest, target)
}

/// Makes the key's text for an operation that a grant admitted. It depends on the operation's id, the
/// prefix, the provider and its operation only, so whoever recovers the operation makes the same one.
pub fn operation_key(prefix: &str, operation_id: &str, target: &DownstreamKey) -> String {
    let mut digest = PartsDigest::new("fencepost operation key 1");
    digest
        .part(1, prefix.as_bytes())
        .part(2, operation_id.as_bytes())
        .part(3, target.provider.as_bytes())
        .part(4, target.operation.as_bytes());
    write_key(digest, target)
}

fn write_key(digest: PartsDigest, target: &DownstreamKey) -> String {
    let mut hex = hex::encode(digest.finish());
    match target.form {
        DownstreamForm::Hex { digits } => {
            hex.truncate(digits.clamp(HEX_DIGITS_MIN, HEX_DIGITS_MAX));
            hex
        }
        DownstreamForm::Uuid => {
            let groups =
                [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
            groups.join("-")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_key::tests::{key, scope};

    fn target(name: &str) -> DownstreamKey {
        let form = provider(name).map_or(DownstreamForm::Hex { digits: 64 }, |p| p.form);
        DownstreamKey { provider: name.into(), operation: "charge".into(), header: "x-key".into(), form }
    }

    fn make(name: &str) -> String {
        downstream_key("prod", &scope("acme"), &key("k1"), &target(name))
    }

    #[test]
    fn downstream_keys_are_stable_across_releases() {
        assert_eq!(make("stripe"), "8e545e3d3899a1d8e426bc6b9f79ee55404c59dee7e8258599536e09201bb1ef");
        assert_eq!(make("square"), "4481ad5f-46be-40c5-eb0b-039f3fe7abf9");
    }

    #[test]
    fn every_preset_fits_its_provider() {
        for name in ["stripe", "adyen", "paypal", "square"] {
            assert!(make(name).len() <= provider(name).unwrap().length_max, "{name}");
            assert_eq!(make(name).len(), target(name).form.len(), "{name}");
        }
    }

    #[test]
    fn provider_and_operation_tell_keys_apart() {
        assert_ne!(make("stripe"), make("adyen"));
        let mut refund = target("stripe");
        refund.operation = "refund".into();
        assert_ne!(make("stripe"), downstream_key("prod", &scope("acme"), &key("k1"), &refund));
    }

    #[test]
    fn a_key_is_never_cut_below_128_bits() {
        let mut short = target("acme");
        short.form = DownstreamForm::Hex { digits: 4 };
        assert_eq!(downstream_key("prod", &scope("acme"), &key("k1"), &short).len(), HEX_DIGITS_MIN);
    }
}
