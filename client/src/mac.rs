//! Binding an operation id to its grant, for issuers that are configured to need it.

use crate::OperationId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The MAC that the server sends with the form: HMAC-SHA-256 over a tag and the length-prefixed
/// issuer, key tenant (empty where ids are unique by themselves), grant id and operation id; as 64
/// lower-case hex digits. `None` never happens with a key of usual length.
pub fn operation_mac(
    key: &[u8],
    issuer: &str,
    key_tenant: &str,
    grant_id: &str,
    operation: &OperationId,
) -> Option<String> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).ok()?;
    mac.update(b"fencepost-operation-1");
    for part in [issuer, key_tenant, grant_id, operation.as_str()] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    Some(hex::encode(mac.finalize().into_bytes()))
}
