//! A store for one test, and the requests that tests are made of.

use fencepost_protocol::claims::{OnLost, ReleaseCause, Renewal, UnknownCause, UnknownRequest};
use fencepost_protocol::{ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest, StoreKey};
use fencepost_store::entry::{
    Claim, ClaimOutcome, Complete, Micros, Release, Ruling, Settle, SettleReply, Version,
};
use fencepost_store::store::memory::Memory;
use fencepost_store::store::postgres::{Options, Postgres, SCHEMA_VERSION, migrate_to};
use fencepost_store::store::sqlite::Sqlite;
use fencepost_store::store::{Clock, Store, StoreKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tempfile::TempDir;

/// An instance that has been calm for ever.
pub const CALM: u64 = u64::MAX;

/// Where a clock that is set starts: some day in 2026.
pub const START: Micros = Micros(1_790_000_000_000_000);

/// Length of a lease in tests, in milliseconds.
pub const TTL_MS: u32 = 30_000;

/// How long an upstream may run, in milliseconds.
pub const MAX_RUN_MS: u32 = 60_000;

/// One store, the clock that it has, and what must live as long.
pub struct Bed {
    pub store: Arc<dyn Store>,
    /// Another instance on the same database, where a store can have several.
    pub other: Arc<dyn Store>,
    hand: Option<Arc<AtomicI64>>,
    /// Of the database, on PostgreSQL.
    pub url: Option<String>,
    /// Holds the file; removed with the bed.
    #[expect(dead_code)]
    folder: Option<TempDir>,
}

impl Bed {
    /// With the real clock.
    pub async fn real(kind: StoreKind) -> Self {
        Self::open(kind, Clock::Real, None).await
    }

    /// With a clock that only the test moves.
    pub async fn set(kind: StoreKind) -> Self {
        let (clock, hand) = Clock::set(START);
        Self::open(kind, clock, Some(hand)).await
    }

    async fn open(kind: StoreKind, clock: Clock, hand: Option<Arc<AtomicI64>>) -> Self {
        match kind {
            StoreKind::Memory => {
                let store: Arc<dyn Store> = Arc::new(Memory::new(clock).unwrap());
                Self { other: store.clone(), store, hand, url: None, folder: None }
            }
            StoreKind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("store.sqlite");
                let store: Arc<dyn Store> = Arc::new(Sqlite::open(&path, clock, true).await.unwrap());
                Self { other: store.clone(), store, hand, url: None, folder: Some(folder) }
            }
            StoreKind::Postgres => Self::postgres(database().await, clock, hand).await,
        }
    }

    /// With a clock that only the test moves, on PostgreSQL with the entries in partitions.
    pub async fn partitioned() -> Self {
        let url = database().await;
        migrate_to(&url, SCHEMA_VERSION).await.unwrap();
        let client = connect(&url).await;
        let parts: String = (0..4)
            .map(|part| {
                format!(
                    "CREATE TABLE fencepost.entries_{part} PARTITION OF fencepost.entries
                     FOR VALUES WITH (MODULUS 4, REMAINDER {part});"
                )
            })
            .collect();
        client
            .batch_execute(&format!(
                "ALTER TABLE fencepost.entries RENAME TO plain;
                 CREATE TABLE fencepost.entries (LIKE fencepost.plain INCLUDING ALL) PARTITION BY HASH (key);
                 DROP TABLE fencepost.plain; {parts}"
            ))
            .await
            .unwrap();
        let (clock, hand) = Clock::set(START);
        Self::postgres(url, clock, Some(hand)).await
    }

    async fn postgres(url: String, clock: Clock, hand: Option<Arc<AtomicI64>>) -> Self {
        let store = Postgres::open(&url, clock.clone(), true, Options::default()).await.unwrap();
        let options = Options { unnamed_statements: true, ..Options::default() };
        let other = Postgres::open(&url, clock, true, options).await.unwrap();
        let (store, other): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(store), Arc::new(other));
        Self { store, other, hand, url: Some(url), folder: None }
    }

    /// One of the two instances, by turns.
    pub fn instance(&self, turn: usize) -> Arc<dyn Store> {
        if turn.is_multiple_of(2) { self.store.clone() } else { self.other.clone() }
    }

    /// Moves the clock.
    pub fn pass_ms(&self, ms: u64) {
        let us = i64::try_from(ms * 1_000).unwrap();
        self.hand.as_ref().expect("a clock that is set").fetch_add(us, Ordering::SeqCst);
    }

    /// A claim of a calm instance.
    pub async fn claim(&self, claim: &Claim) -> ClaimOutcome {
        self.store.claim(Arc::new(claim.clone()), CALM).await.unwrap()
    }

    /// Does what a person decided, about the version that the entry has now.
    pub async fn settle(&self, order: Settle) -> SettleReply {
        let entry = self.store.entry(&order.key, false).await.unwrap();
        let version = entry.map_or(order.version, |entry| entry.row.version());
        self.store.settle(Settle { version, ..order }).await.unwrap()
    }

    /// A claim that must be granted; its fence.
    pub async fn granted(&self, claim: &Claim) -> i64 {
        match self.claim(claim).await {
            ClaimOutcome::Claimed { fence, .. } => fence,
            other => panic!("not granted: {other:?}"),
        }
    }
}

/// An empty PostgreSQL database.
pub async fn database() -> String {
    fencepost_rig::postgres::Postgres::shared().await.create_database().await
}

/// A connection of the test's own.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until something is so, and fails when it does not become so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so().await {
        assert!(std::time::Instant::now() < give_up, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

pub fn key(number: u64) -> StoreKey {
    let mut digest = [0; 16];
    digest[8..].copy_from_slice(&number.to_be_bytes());
    StoreKey::new("test", &digest).unwrap()
}

pub fn token(number: u64) -> ClaimToken {
    let mut bytes = [0xa5; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ClaimToken::from_bytes(bytes)
}

pub fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number; 32])
}

pub fn scheme(number: u8) -> Scheme {
    Scheme::parse(&format!("{number}-test")).unwrap()
}

/// A claim with usual values, under `hold`.
pub fn claim(key_number: u64, token_number: u64) -> Claim {
    Claim {
        key: key(key_number),
        token: token(token_number),
        scheme: scheme(1),
        fingerprint: fingerprint(1),
        scope: ScopeDigest::from_bytes([7; 16]),
        claim_ttl_ms: TTL_MS,
        max_run_ms: MAX_RUN_MS,
        on_lost: OnLost::Hold,
        unknown_ttl_ms: 3_600_000,
    }
}

/// The same under `rerun`.
pub fn rerun(key_number: u64, token_number: u64) -> Claim {
    Claim { on_lost: OnLost::Rerun, ..claim(key_number, token_number) }
}

/// The answer of a claim.
pub fn complete(claim: &Claim, fence: i64, body: &[u8]) -> Complete {
    Complete {
        key: claim.key.clone(),
        token: claim.token,
        fence: Fence::new(fence).unwrap(),
        scheme: claim.scheme.clone(),
        fingerprint: claim.fingerprint,
        scope: claim.scope,
        status: 201,
        headers: fencepost_protocol::answer::encode_headers(&[(b"x".to_vec(), b"y".to_vec())]).into(),
        body: body.to_vec().into(),
        ttl_ms: 86_400_000,
    }
}

/// The release of a claim.
pub fn release(claim: &Claim) -> Release {
    Release {
        key: claim.key.clone(),
        token: claim.token,
        scheme: claim.scheme.clone(),
        fingerprint: claim.fingerprint,
        scope: claim.scope,
        cause: ReleaseCause::NotRun,
        only_lease: None,
    }
}

/// An order of a person about the entry of a claim, whose version is still to be named.
pub fn order(claim: &Claim, ruling: Ruling) -> Settle {
    Settle {
        key: claim.key.clone(),
        version: Version { fence: 1, updated_at: START },
        ruling,
        token: token(900),
        force: false,
        who: "ann".into(),
        reason: "looked at the bank's side".into(),
    }
}

/// An answer of a person.
pub fn answer(body: &[u8]) -> Ruling {
    let headers = fencepost_protocol::answer::encode_headers(&[(b"x".to_vec(), b"y".to_vec())]);
    Ruling::Answer { status: 201, headers: headers.into(), body: body.to_vec().into(), ttl_ms: 86_400_000 }
}

/// The unknown outcome of a claim.
pub fn unknown(claim: &Claim) -> UnknownRequest {
    UnknownRequest { v: 1, key: claim.key.clone(), token: claim.token, cause: UnknownCause::Timeout }
}

/// A renewal of a claim.
pub fn renewal(claim: &Claim) -> Renewal {
    Renewal { key: claim.key.clone(), token: claim.token, claim_ttl_ms: TTL_MS, run_ms: MAX_RUN_MS }
}
