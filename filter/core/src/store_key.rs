//! The key of an entry in the store.
//!
//! It is a digest: the client's key is not in it and can't be found from it without guessing. The
//! guard depth is part of it, so that two guards on one request's way never wait for each other.
//! The namespace is a constant of its own, so that renaming a policy moves nothing.

use crate::digest::PartsDigest;
use crate::key::ClientKey;
use crate::scope::Scope;
use fencepost_protocol::{IdError, StoreKey};

/// Derives the store key; fails only for a prefix that a parsed configuration can't hold.
pub fn derive_store_key(
    prefix: &str,
    namespace: &str,
    depth: u32,
    scope: &Scope,
    key: &ClientKey,
) -> Result<StoreKey, IdError> {
    derive("fencepost store key 1", prefix, namespace, depth, scope, key)
}

/// The key of a request that is only observed: never one of [`derive_store_key`].
pub fn derive_observed_key(
    prefix: &str,
    namespace: &str,
    depth: u32,
    scope: &Scope,
    key: &ClientKey,
) -> Result<StoreKey, IdError> {
    derive("fencepost observed key 1", prefix, namespace, depth, scope, key)
}

fn derive(
    domain: &str,
    prefix: &str,
    namespace: &str,
    depth: u32,
    scope: &Scope,
    key: &ClientKey,
) -> Result<StoreKey, IdError> {
    let mut digest = PartsDigest::new(domain);
    digest
        .part(1, namespace.as_bytes())
        .part(2, &depth.to_be_bytes())
        .part(3, scope.as_bytes())
        .part(4, key.as_bytes());
    StoreKey::new(prefix, &digest.finish_half())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::facts::{Facts, Property};
    use crate::key::{KeyFormat, parse_key};
    use crate::scope::{ScopePolicy, ScopeSource, resolve_scope};

    struct NoFacts;
    impl Facts for NoFacts {
        fn property(&self, _: &[&str]) -> Property {
            Property::Absent
        }
        fn header(&self, _: &str) -> Vec<Vec<u8>> {
            Vec::new()
        }
    }

    pub(crate) fn scope(value: &str) -> Scope {
        let policy = ScopePolicy::Sources(vec![ScopeSource::Constant { value: value.into() }]);
        resolve_scope(&policy, &NoFacts).unwrap()
    }

    pub(crate) fn key(value: &str) -> ClientKey {
        parse_key(&[value.as_bytes()], KeyFormat::Lenient, 255).unwrap()
    }

    #[test]
    fn store_key_is_stable_across_releases() {
        let made = derive_store_key("prod", "payments", 0, &scope("acme"), &key("k1")).unwrap();
        assert_eq!(made.as_str(), "prod:5d156d4c67cb1ee2cbe7e39f77950664");
    }

    #[test]
    fn every_part_tells_keys_apart() {
        let base = derive_store_key("prod", "payments", 0, &scope("acme"), &key("k1")).unwrap();
        for other in [
            derive_store_key("test", "payments", 0, &scope("acme"), &key("k1")),
            derive_store_key("prod", "payouts", 0, &scope("acme"), &key("k1")),
            derive_store_key("prod", "payments", 1, &scope("acme"), &key("k1")),
            derive_store_key("prod", "payments", 0, &scope("acm"), &key("ek1")),
            derive_store_key("prod", "payments", 0, &scope("acme"), &key("k2")),
            derive_observed_key("prod", "payments", 0, &scope("acme"), &key("k1")),
        ] {
            assert_ne!(other.unwrap(), base);
        }
    }

    #[test]
    fn a_bad_prefix_is_an_error() {
        assert!(derive_store_key("Prod", "n", 0, &scope("a"), &key("k")).is_err());
    }
}
