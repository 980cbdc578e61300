//! Issuers, tokens, and a service on a database of its own.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use fencepost_protocol::grants::{AdmitRequest, Caller, Details, GrantToken, OperationId};
use fencepost_store::grant::issuers::Issuers;
use fencepost_store::grant::postgres::{Options, PostgresGrants};
use fencepost_store::grant::service::Grants;
use fencepost_store::grant::store::GrantStore;
use fencepost_store::store::postgres::{self, Postgres};
use fencepost_store::store::{Clock, Store};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const ISSUER: &str = "https://approvals.example";
pub const NAMESPACE: &str = "https://login.example";
pub const AGENT: &str = "agent-7";

/// Seconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Signs with Ed25519.
pub struct Signer {
    key: SigningKey,
    kid: String,
}

impl Signer {
    pub fn new(number: u8) -> Self {
        Self { key: SigningKey::from_bytes(&[number; 32]), kid: format!("key-{number}") }
    }

    pub fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.verifying_key().as_bytes());
        json!({"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": self.kid, "x": x})
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.kid});
        self.sign_parts(&header.to_string(), &claims.to_string())
    }

    pub fn sign_parts(&self, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))
    }
}

/// A grant id that no other test has.
pub fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("g-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Claims of a credit of 250 USD to one account, good for `seconds`.
pub fn claims(id: &str, seconds: i64) -> Value {
    json!({
        "iss": ISSUER, "aud": "billing", "jti": id, "sub": AGENT, "iat": now(), "exp": now() + seconds,
        "account": "A-1187", "amount": "250.00", "currency": "USD",
    })
}

/// Details that fit those claims.
pub fn details() -> Details {
    [("account", "A-1187"), ("amount", "250.00"), ("currency", "USD")].into()
}

/// An operation id that no other test has.
pub fn fresh_operation() -> OperationId {
    OperationId::from_random(rand::random())
}

pub fn agent() -> Caller {
    Caller { namespace: NAMESPACE.into(), id: AGENT.into() }
}

pub fn request(token: &str, operation_id: OperationId) -> AdmitRequest {
    AdmitRequest {
        token: Some(GrantToken::new(token)),
        grant: None,
        operation_id,
        operation_mac: None,
        caller: agent(),
        tenant: None,
        details: details(),
    }
}

/// One issuer with this key, and members that replace or add to its settings.
pub fn config(signer: &Signer, issuer: Value, rest: Value) -> Value {
    let mut entry = json!({
        "issuer": ISSUER, "audience": ["billing"], "algorithms": ["EdDSA"],
        "keys": {"inline": {"keys": [signer.jwk()]}},
        "leeway": "2s", "max_lifetime": "1h", "iat_skew": "60s", "caller_namespace": NAMESPACE,
        "bound": {"account": "text", "amount": "decimal", "currency": "text"},
    });
    merge(&mut entry, issuer);
    let mut config = json!({"issuers": [entry]});
    merge(&mut config, rest);
    config
}

/// Members of the second go over those of the first; null takes one away.
pub fn merge(base: &mut Value, over: Value) {
    let Value::Object(over) = over else { return };
    let base = base.as_object_mut().unwrap();
    for (name, value) in over {
        if value.is_null() {
            base.remove(&name);
        } else {
            base.insert(name, value);
        }
    }
}

pub fn issuers(config: &Value) -> Issuers {
    Issuers::parse(&config.to_string(), Path::new(".")).unwrap_or_else(|error| panic!("{error}"))
}

/// An empty database with the schema.
pub async fn database() -> String {
    let url = fencepost_rig::postgres::Postgres::shared().await.create_database().await;
    postgres::migrate_to(&url, postgres::SCHEMA_VERSION).await.unwrap();
    url
}

/// A store of grants on it, as one instance has it.
pub async fn grant_store(url: &str, admission_url: Option<&str>, issuers: &Issuers) -> Arc<dyn GrantStore> {
    let options =
        postgres::Options { claim_connections: 1, finish_connections: 1, ..postgres::Options::default() };
    let store = Postgres::open(url, Clock::Real, true, options).await.unwrap();
    let options = Options {
        url: url.to_owned(),
        admission_url: admission_url.map(str::to_owned),
        unnamed_statements: false,
        connections: 8,
    };
    Arc::new(PostgresGrants::open(&options, store.store_id(), issuers.timings).unwrap())
}

/// An instance.
pub async fn grants_on(url: &str, config: &Value) -> Arc<Grants> {
    let issuers = issuers(config);
    let store = grant_store(url, None, &issuers).await;
    store.pin(&issuers).await.unwrap();
    Grants::new(issuers, store)
}

/// A connection of the test's own.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A number that the database says.
pub async fn count(client: &tokio_postgres::Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Waits until something is so, and fails when it does not become so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let give_up = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(std::time::Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
