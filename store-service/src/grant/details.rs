//! What an operation is about: compared with its grant, and bound to it by a digest.

use super::issuers::BoundKind;
use super::token::{Bound, Grant, GrantKey};
use fencepost_protocol::grants::{DETAIL_MAX, DETAILS_MAX, Details, OperationId, TEXT_MAX};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Why details do not fit their grant. The words go to callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotCovered {
    /// Too many, or too long.
    #[error("details_size")]
    Size,
    /// The caller is not the grant's subject.
    #[error("caller")]
    Caller,
    /// The tenant is not the grant's.
    #[error("tenant")]
    Tenant,
    /// A detail that the grant binds is missing or different.
    #[error("details")]
    Details,
    /// The MAC over operation id and grant is missing or wrong.
    #[error("operation_mac")]
    OperationMac,
}

/// Details that fit their grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Covered {
    /// Equal for equal details; numbers that the grant binds by value.
    pub digest: [u8; 32],
    /// As they were written, for people and for recovery.
    pub text: String,
}

/// Are the details within bounds?
pub fn within_bounds(details: &Details) -> bool {
    details.0.len() <= DETAILS_MAX
        && details.0.iter().all(|(name, value)| {
            (1..=TEXT_MAX).contains(&name.len())
                && value.len() <= DETAIL_MAX
                && !value.contains('\0')
                && !name.contains('\0')
        })
}

/// Compares details with a grant: everything that it binds must be there and equal, and nothing
/// that it names otherwise may differ.
pub fn cover(grant: &Grant, details: &Details) -> Result<Covered, NotCovered> {
    if !within_bounds(details) {
        return Err(NotCovered::Size);
    }
    for (name, bound) in &grant.bound {
        let value = details.0.get(name).ok_or(NotCovered::Details)?;
        let kind = match bound {
            Bound::Text(_) => BoundKind::Text,
            Bound::Decimal(_) => BoundKind::Decimal,
        };
        if Bound::read(kind, value).as_ref() != Some(bound) {
            return Err(NotCovered::Details);
        }
    }
    for (name, value) in &details.0 {
        if grant.other.get(name).is_some_and(|claim| claim.as_ref() != Some(value)) {
            return Err(NotCovered::Details);
        }
    }
    let canonical = details.0.iter().map(|(name, value)| {
        let bound = grant.bound.get(name).map(Bound::canonical);
        (name.as_str(), bound.unwrap_or_else(|| value.clone()))
    });
    let digest = digest(canonical);
    Ok(Covered { digest, text: to_text(details) })
}

/// JSON of the details.
pub fn to_text(details: &Details) -> String {
    // Cannot fail: text keys and values.
    serde_json::to_string(details).unwrap_or_default()
}

/// Details from their JSON.
pub fn from_text(text: &str) -> Details {
    serde_json::from_str::<BTreeMap<String, String>>(text).map(Details).unwrap_or_default()
}

fn digest<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"fencepost-details-1");
    for (name, value) in pairs {
        // Length first, so that no two lists of pairs have the same bytes.
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value);
    }
    hash.finalize().into()
}

/// The MAC that binds an operation id to a grant: HMAC-SHA-256 over a tag and the length-prefixed
/// issuer, key tenant, grant id and operation id.
pub fn operation_mac(key: &[u8], grant: &GrantKey, operation: &OperationId) -> Option<Hmac<Sha256>> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
    mac.update(b"fencepost-operation-1");
    for part in [grant.issuer.as_str(), &grant.key_tenant, &grant.grant_id, operation.as_str()] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    Some(mac)
}

/// Is the MAC right? Compared in constant time.
pub fn operation_mac_fits(
    key: &[u8],
    grant: &GrantKey,
    operation: &OperationId,
    shown: Option<&str>,
) -> bool {
    let mut bytes = [0; 32];
    let Some(()) = shown.and_then(|shown| hex::decode_to_slice(shown, &mut bytes).ok()) else {
        return false;
    };
    operation_mac(key, grant, operation).is_some_and(|mac| mac.verify_slice(&bytes).is_ok())
}

/// A short digest of a grant's name, for logs: length-prefixed, so that `ab` + `c` is not `a` + `bc`.
pub fn log_id(key: &GrantKey) -> String {
    let mut hash = Sha256::new();
    hash.update(b"fencepost-grant-1");
    for part in [&key.issuer, &key.key_tenant, &key.grant_id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    hex::encode(digest).get(..16).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Micros;
    use crate::grant::duration::Span;

    fn grant() -> Grant {
        let decimal = Bound::read(BoundKind::Decimal, "250.00").unwrap();
        Grant {
            key: GrantKey { issuer: "i".into(), key_tenant: String::new(), grant_id: "g".into() },
            subject: "s".into(),
            tenant: String::new(),
            bound: [("account".into(), Bound::Text("a1".into())), ("amount".into(), decimal)].into(),
            other: [("currency".to_owned(), Some("USD".to_owned())), ("n".to_owned(), None)].into(),
            issued_from: Micros(0),
            expires_at: Micros(0),
            leeway: Span::default(),
        }
    }

    #[test]
    fn details_must_cover_what_the_grant_binds() {
        let covered = cover(&grant(), &[("account", "a1"), ("amount", "250")].into()).unwrap();
        for same in ["250.0", "2.5e2"] {
            let other = cover(&grant(), &[("account", "a1"), ("amount", same)].into()).unwrap();
            assert_eq!(other.digest, covered.digest, "{same}");
        }
        for bad in [
            vec![("account", "a1")],
            vec![("account", "a2"), ("amount", "250")],
            vec![("account", "a1"), ("amount", "2500")],
            vec![("account", "a1"), ("amount", "x")],
            vec![("account", "a1"), ("amount", "250"), ("currency", "EUR")],
            vec![("account", "a1"), ("amount", "250"), ("n", "1")],
        ] {
            let details = Details(bad.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect());
            assert_eq!(cover(&grant(), &details), Err(NotCovered::Details), "{bad:?}");
        }
        let more = cover(&grant(), &[("account", "a1"), ("amount", "250"), ("memo", "x")].into()).unwrap();
        assert_ne!(more.digest, covered.digest);
    }

    #[test]
    fn names_are_length_prefixed() {
        let key = |issuer: &str, id: &str| GrantKey {
            issuer: issuer.into(),
            key_tenant: String::new(),
            grant_id: id.into(),
        };
        assert_ne!(log_id(&key("ab", "c")), log_id(&key("a", "bc")));
    }
}
