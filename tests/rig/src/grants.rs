//! One-time grants: an issuer for tests and the demo, its tokens, and a route policy that admits them.
//!
//! The issuer signs with the key of the demo users' tokens ([`crate::token`]): public on purpose.

use crate::envoy::{Route, loopback};
use crate::scratch::Scratch;
use crate::token;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Who issues the grants.
pub const ISSUER: &str = "https://approvals.example";

/// Path that credits an account.
pub const CREDITS: &str = "/accounts/A-1187/credits";

/// Writes the service's file of issuers, for `--issuers`; with a second of leeway.
pub fn issuers(timings: &Value) -> Result<(Scratch, String)> {
    let folder = Scratch::new("issuers")?;
    let path = folder.path().join("issuers.json");
    let issuer = json!({
        "issuer": ISSUER, "audience": ["billing"], "algorithms": ["HS256"],
        "keys": {"inline": token::key_set()}, "leeway": "1s", "max_lifetime": "1h", "iat_skew": "60s",
        "caller_namespace": token::ISSUER,
        "bound": {"account": "text", "amount": "decimal", "currency": "text"},
    });
    let mut file = json!({"allow_hmac": true, "issuers": [issuer]});
    if !timings.is_null() {
        file["timings"] = timings.clone();
    }
    std::fs::write(&path, file.to_string())?;
    let path = path.display().to_string();
    Ok((folder, path))
}

/// A grant for alice: one credit of this amount in USD to account A-1187, good for some seconds.
pub fn credit(id: &str, amount: &str, seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    token::with_claims(&json!({
        "iss": ISSUER, "aud": "billing", "jti": id, "sub": "alice", "iat": now, "exp": now + seconds,
        "account": "A-1187", "amount": amount, "currency": "USD",
    }))
}

/// The policy of the route that spends them.
pub fn policy() -> Value {
    json!({
        "namespace": "credits",
        "scope": [{"jwt": {"payload": "jwt_payload", "claim": "sub"}}],
        "max_run": "10s",
        "execution": {"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": "15s"}},
        "downstream_keys": [{"provider": "stripe", "operation": "credit", "header": "x-stripe-idempotency-key"}],
        "grant": {
            "token": {"header": "X-Grant"},
            "operation_id": {"header": "X-Operation-Id"},
            "path": "/accounts/{account}/credits",
            "details": {"account": {"path": "account"}, "amount": {"body": "/amount"}, "currency": {"body": "/currency"}},
            "status_address": "https://api.example/operations/{operation_id}",
        },
    })
}

/// The configuration of a filter with that policy alone.
pub fn configuration(policy: &Value) -> Value {
    json!({
        "store": {"decide_cluster": "fencepost_store", "claim_cluster": "fencepost_store_waiting", "timeout": "2s"},
        "key_prefix": "test",
        "policies": {"credit": policy},
    })
}

/// The route that is under it.
pub fn route() -> Route {
    Route::guarded("/accounts", "credit")
}
