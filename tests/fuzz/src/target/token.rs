//! Signed grants. One is good: that of the corpus, signed by a key made here.
//!
//! Promised: no other bytes than those of the good token are ever accepted, and each part of what
//! can be taken apart has one spelling.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use fencepost_store::entry::Micros;
use fencepost_store::grant::issuers::Issuers;
use fencepost_store::grant::{jws, token};
use serde_json::json;
use std::path::Path;
use std::sync::LazyLock;

/// When the good token is looked at: a moment after its issue.
const NOW: Micros = Micros(1_790_000_010_000_000);

static GOOD: LazyLock<(Issuers, String)> = LazyLock::new(|| {
    let key = SigningKey::from_bytes(&[7; 32]);
    let public = URL_SAFE_NO_PAD.encode(key.verifying_key().as_bytes());
    let config = json!({"issuers": [{
        "issuer": "https://grants.example", "audience": ["billing"], "algorithms": ["EdDSA"],
        "keys": {"inline": {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "alg": "EdDSA", "x": public}]}},
        "leeway": "2s", "max_lifetime": "1h", "iat_skew": "60s", "caller_namespace": "agents",
        "bound": {"account": "text", "amount": "decimal"},
    }]});
    let issuers = Issuers::parse(&config.to_string(), Path::new(".")).unwrap();
    let claims = json!({
        "iss": "https://grants.example", "aud": "billing", "jti": "g1", "sub": "agent-1",
        "iat": 1_790_000_000, "exp": 1_790_000_900, "account": "A-1187", "amount": "250.00",
    });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"a"}"#),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).to_bytes());
    (issuers, format!("{signed}.{signature}"))
});

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (issuers, good) = &*GOOD;
    // The corpus names it by this word, so that mutations are mutations of it.
    let text = text.replace("GOOD", good);
    if let Ok(parts) = jws::split(&text) {
        let payload = text.split('.').nth(1).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.encode(&parts.payload), payload, "a second spelling");
        for part in text.split('.') {
            let bytes = URL_SAFE_NO_PAD.decode(part).unwrap();
            assert_eq!(URL_SAFE_NO_PAD.encode(bytes), part, "a second spelling");
        }
    }
    let verified = RUNTIME.block_on(token::verify(issuers, &text, NOW)).is_ok();
    assert_eq!(verified, text == *good, "{text}");
}
