//! A database or a file with grants, operations and held keys, and recoverers on it.

use crate::entries;
use crate::provider::{KEY, Provider};
use crate::support::*;
use fencepost_protocol::grants::{MaySubmitRequest, OperationId, OperationStatus, RecordRequest};
use fencepost_store::entry::{Claim, ClaimOutcome, Micros};
use fencepost_store::grant::service::Grants;
use fencepost_store::grant::store::{Admitted, OwnerOutcome};
use fencepost_store::grant::timing::ExecutionTimings;
use fencepost_store::recovery::postgres::PostgresRecovery;
use fencepost_store::recovery::settings::Settings;
use fencepost_store::recovery::store::RecoveryStore;
use fencepost_store::recovery::worker::{Desk, Recovery};
use fencepost_store::service::Service;
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::sqlite::Sqlite;
use fencepost_store::store::{Clock, Store, StoreKind};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Every lease and rest.
    Lease,
    /// The time to send.
    Window,
    /// The longest time that an operation may be open.
    Age,
}

pub struct Bed {
    pub grants: Arc<Grants>,
    pub service: Arc<Service>,
    pub recovery: Arc<dyn RecoveryStore>,
    pub provider: Provider,
    signer: Signer,
    /// Of the database, on PostgreSQL.
    client: Option<tokio_postgres::Client>,
    /// Of the clock, on SQLite.
    hand: Option<Arc<AtomicI64>>,
    folder: tempfile::TempDir,
}

impl Bed {
    pub async fn new(kind: StoreKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("recovery.key"), KEY).unwrap();
        let signer = Signer::new(1);
        let settings = config(&signer, json!({}), json!({}));
        let timeout = Duration::from_secs(5);
        if kind == StoreKind::Postgres {
            let url = database().await;
            let store = Postgres::open(&url, Clock::Real, true, Options::default()).await.unwrap();
            let recovery = PostgresRecovery::open(&url, false, store.store_id(), timeout).unwrap();
            return Self {
                grants: grants_on(&url, &settings).await,
                service: Service::new(Arc::new(store)),
                recovery: Arc::new(recovery),
                provider: Provider::start().await,
                signer,
                client: Some(connect(&url).await),
                hand: None,
                folder,
            };
        }
        let (clock, hand) = Clock::set(Micros(now() * 1_000_000));
        let store = Sqlite::open(&folder.path().join("store.sqlite"), clock, true).await.unwrap();
        let issuers = issuers(&settings);
        let (recovery, grant_store) = (store.recovery().unwrap(), store.grants(issuers.timings).unwrap());
        Self {
            grants: Grants::new(issuers, grant_store),
            service: Service::new(Arc::new(store)),
            recovery,
            provider: Provider::start().await,
            signer,
            client: None,
            hand: Some(hand),
            folder,
        }
    }

    /// Settings with this contract.
    pub fn settings(&self, atomic: bool, over: Value) -> Value {
        let to = self.provider.addr;
        let mut settings = settings(to, atomic);
        merge(&mut settings, over);
        settings
    }

    /// A recoverer with these settings.
    pub fn recoverer(&self, name: &str, settings: &Value) -> Arc<Recovery> {
        let timings = ExecutionTimings::default();
        let settings = Settings::parse(&settings.to_string(), self.folder.path(), &timings);
        let settings = settings.unwrap_or_else(|error| panic!("{error}"));
        let desk = Desk::new(settings, timings, self.recovery.clone(), self.service.clone(), name);
        // A sender that lives for ever: nobody is told to stop.
        let (stop, stopped) = watch::channel(false);
        std::mem::forget(stop);
        Recovery::new(desk, stopped)
    }

    /// A recoverer whose provider keeps its promise about concurrent keys, or gives none.
    pub fn usual(&self, atomic: bool) -> Arc<Recovery> {
        self.recoverer("one", &self.settings(atomic, json!({})))
    }

    pub async fn admitted(&self) -> OperationId {
        let ask = request(&self.signer.sign(&claims(&fresh_id(), 3_000)), fresh_operation());
        let admitted = self.grants.admit(ask.clone()).await.unwrap();
        assert!(matches!(admitted, Admitted::Now(_)), "{admitted:?}");
        ask.operation_id
    }

    /// Admitted, and its owner says nothing any more.
    pub async fn stalled(&self) -> OperationId {
        let id = self.admitted().await;
        self.pass(Over::Lease).await;
        id
    }

    /// Lets time pass.
    pub async fn pass(&self, over: Over) {
        if let Some(hand) = &self.hand {
            let seconds = match over {
                Over::Lease => 700,
                Over::Window => 22 * 3_600 + 1,
                Over::Age => 24 * 3_600 + 1,
            };
            hand.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
            return;
        }
        let sql = match over {
            Over::Lease => {
                "UPDATE fencepost.operations SET lease_until = clock_timestamp() - interval '1 second';
                 UPDATE fencepost.held_keys SET next_at = clock_timestamp() - interval '1 second'"
            }
            Over::Window => {
                "UPDATE fencepost.operations SET submit_by = clock_timestamp() - interval '1 second'"
            }
            Over::Age => {
                "UPDATE fencepost.operations SET created_at = created_at - interval '25 hours',
                    submit_by = submit_by - interval '25 hours', lease_until = clock_timestamp() - interval '1 second'"
            }
        };
        self.client.as_ref().unwrap().batch_execute(sql).await.unwrap();
    }

    pub async fn status(&self, id: &OperationId) -> OperationStatus {
        self.grants.operation(id.clone(), &agent(), "").await.unwrap().unwrap().status
    }

    pub async fn reference(&self, id: &OperationId) -> Option<String> {
        self.grants.operation(id.clone(), &agent(), "").await.unwrap().unwrap().reference
    }

    /// Steps of the history with what was known before each.
    pub async fn history(&self, id: &OperationId) -> Vec<(String, String)> {
        let events = self.grants.store().history(id.clone()).await.unwrap();
        events.into_iter().map(|event| (event.step, event.result)).collect()
    }

    /// What the original handler records, as the owner that it was admitted as.
    pub async fn handler_records(&self, id: &OperationId, outcome: OperationStatus) -> OwnerOutcome {
        let request = RecordRequest {
            owner_version: 1,
            expected_status: OperationStatus::Admitted,
            outcome,
            reference: Some("of the handler".into()),
        };
        self.grants.record(id.clone(), request).await.unwrap()
    }

    pub async fn handler_may_submit(&self, id: &OperationId) -> OwnerOutcome {
        let request = MaySubmitRequest { owner_version: 1, expected_status: OperationStatus::Admitted };
        self.grants.may_submit(id.clone(), request).await.unwrap()
    }

    pub fn store(&self) -> &dyn Store {
        self.service.store()
    }

    /// A key whose outcome is unknown; its claim and fence.
    pub async fn held(&self, number: u64) -> (Claim, i64) {
        self.unknown(entries::claim(number, number)).await
    }

    /// The same of this claim.
    pub async fn unknown(&self, claim: Claim) -> (Claim, i64) {
        let claimed = self.store().claim(Arc::new(claim.clone()), u64::MAX).await.unwrap();
        let ClaimOutcome::Claimed { fence, .. } = claimed else { panic!("{claimed:?}") };
        self.store().unknown(entries::unknown(&claim)).await.unwrap();
        (claim, fence)
    }

    /// What a retry of the claim's request is told.
    pub async fn retry(&self, claim: &Claim) -> ClaimOutcome {
        let again = Claim { token: entries::token(5_000), ..claim.clone() };
        self.store().claim(Arc::new(again), u64::MAX).await.unwrap()
    }

    /// Every request of recovery was signed.
    pub fn check_signatures(&self) {
        assert_eq!(self.provider.forged(), 0);
    }
}

/// Settings for a provider at this address.
pub fn settings(to: std::net::SocketAddr, atomic: bool) -> Value {
    let mut operations = json!({
        "issuers": [ISSUER],
        "lookup": {"url": format!("http://{to}/credits/{{operation_id}}?account={{detail.account}}")},
        "contract": {
            "lookup": true, "atomic_concurrent_keys": atomic, "same_parameters": true, "key_retention": "24h",
        },
    });
    if atomic {
        operations["submit"] = json!({"url": format!("http://{to}/credits")});
    }
    json!({
        "every": "100ms",
        "give_up": {"attempts": 3},
        "providers": {"billing": {
            "sign": {"key_id": "k1", "key_file": "recovery.key"},
            "operations": operations,
            "keys": {
                "prefixes": ["test"],
                "lookup": {"url": format!("http://{to}/keys?key={{key}}&fence={{fence}}")},
            },
        }},
    })
}
