//! Tokens of demo users: JWTs that the rig's Envoy verifies.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// Who issues them.
pub const ISSUER: &str = "https://issuer.example";

/// The key that signs them. Public on purpose: these tokens open nothing but a demo.
const DEMO_KEY: &[u8; 64] = b"fencepost demo key, not a secret: fencepost demo key, no secret!";

/// A token for a user, valid until the year 2100.
pub fn for_user(subject: &str) -> String {
    with_claims(&json!({"iss": ISSUER, "sub": subject, "exp": 4_102_444_800_u64}))
}

/// A signed token with any claims.
pub fn with_claims(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": "HS256", "typ": "JWT", "kid": "demo"})), part(claims));
    let mut mac = Hmac::<Sha256>::new(DEMO_KEY.into());
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// The key set that verifies them.
pub fn key_set() -> Value {
    json!({"keys": [{"kty": "oct", "alg": "HS256", "kid": "demo", "k": URL_SAFE_NO_PAD.encode(DEMO_KEY)}]})
}
