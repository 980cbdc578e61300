//! What is measured: the fingerprint, the bare hash of the same bytes, and what a value tree costs.
//!
//! The same source is compiled into the native bench and into the wasm module.

use fencepost_filter_core::fingerprint::{FingerprintOptions, FingerprintPolicy, RequestParts};
use sha2::{Digest as _, Sha256};

/// Headers of a usual request.
const HEADERS: [(&str, &str); 7] = [
    (":method", "POST"),
    (":path", "/v1/accounts/4711/payments?dry_run=false"),
    (":authority", "payments.example"),
    ("content-type", "application/json; charset=utf-8"),
    ("user-agent", "bench/1"),
    ("accept", "*/*"),
    ("idempotency-key", "8e03978e-40d5-43e8-bc93-6894a57f9324"),
];

/// A policy and a request's headers, made once as a proxy does.
pub struct Kernel {
    policy: FingerprintPolicy,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Kernel {
    /// The default policy; none where it does not compile, which its own tests exclude.
    pub fn new() -> Option<Self> {
        let policy = FingerprintPolicy::compile(FingerprintOptions::default()).ok()?;
        let pair = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Some(Self { policy, headers: HEADERS.iter().map(pair).collect() })
    }

    /// The fingerprint of a request with this body, as the filter makes it.
    pub fn fingerprint(&self, body: &[u8]) -> [u8; 32] {
        let parts = RequestParts::new(&self.headers);
        parts.fingerprint(&self.policy, body).map_or([0; 32], |fingerprint| *fingerprint.as_bytes())
    }
}

/// SHA-256 of the bytes.
pub fn hash(body: &[u8]) -> [u8; 32] {
    Sha256::digest(body).into()
}

/// The usual way: parse into a tree with sorted maps, print it, hash the text.
pub fn tree(body: &[u8]) -> [u8; 32] {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    hash(value.to_string().as_bytes())
}
