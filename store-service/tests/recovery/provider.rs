//! A billing provider with the endpoints of recovery, and gates at every boundary. It counts what it
//! really did, which is what the records are compared with.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::routing::{get, post};
use fencepost_protocol::grants::OperationId;
use fencepost_rig::upstream::Gate;
use fencepost_store::recovery::sign::{KEY_ID_HEADER, SIGNATURE_HEADER, SigningKey, TIMESTAMP_HEADER};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The key file of the tests.
pub const KEY: &str = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";

#[derive(Default)]
struct Books {
    /// Every effect: the operation that it is for.
    effects: Vec<String>,
    /// References by idempotency key.
    keys: HashMap<String, String>,
    /// Operations that are refused.
    refused: HashSet<String>,
    /// What is said instead of what is so.
    instead: Option<(u16, String)>,
    /// What is said about held keys.
    answers: HashMap<String, Value>,
    /// Every look-up: what was asked for.
    lookups: Vec<String>,
}

/// The provider. Clones are the same one.
#[derive(Clone)]
pub struct Provider {
    pub addr: SocketAddr,
    books: Arc<Mutex<Books>>,
    /// Handles concurrent requests with one key as one?
    atomic: Arc<AtomicBool>,
    submits: Arc<AtomicUsize>,
    forged: Arc<AtomicUsize>,
    /// Before a look-up is answered.
    pub looking: Gate,
    /// Before a create request does anything.
    pub before_effect: Gate,
    /// After the effect, before the answer.
    pub after_effect: Gate,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self {
            addr: listener.local_addr().unwrap(),
            books: Arc::default(),
            atomic: Arc::new(AtomicBool::new(true)),
            submits: Arc::default(),
            forged: Arc::default(),
            looking: Gate::new(),
            before_effect: Gate::new(),
            after_effect: Gate::new(),
        };
        for gate in [&provider.looking, &provider.before_effect, &provider.after_effect] {
            gate.open();
        }
        let router = Router::new()
            .route("/credits/{id}", get(look_up))
            .route("/credits", post(submit))
            .route("/keys", get(look_up_key))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        provider
    }

    /// A provider whose keys are no promise for requests at once.
    pub fn not_atomic(&self) {
        self.atomic.store(false, Ordering::SeqCst);
    }

    pub fn refuse(&self, id: &OperationId) {
        self.books.lock().unwrap().refused.insert(id.to_string());
    }

    /// From now on look-ups are answered with this; `None`: with what is so.
    pub fn say(&self, instead: Option<(u16, &str)>) {
        self.books.lock().unwrap().instead = instead.map(|(status, body)| (status, body.to_owned()));
    }

    /// What is said about a held key, besides key and fence.
    pub fn answer_key(&self, key: &str, answer: Value) {
        self.books.lock().unwrap().answers.insert(key.to_owned(), answer);
    }

    /// How many effects there are for an operation.
    pub fn effects(&self, id: &OperationId) -> usize {
        self.books.lock().unwrap().effects.iter().filter(|of| *of == id.as_str()).count()
    }

    /// How many create requests came from recovery.
    pub fn submits(&self) -> usize {
        self.submits.load(Ordering::SeqCst)
    }

    pub fn lookups(&self) -> Vec<String> {
        self.books.lock().unwrap().lookups.clone()
    }

    /// How many requests were not signed with the key.
    pub fn forged(&self) -> usize {
        self.forged.load(Ordering::SeqCst)
    }

    /// The request of the original handler.
    pub async fn create(&self, id: &str) -> Result<String, String> {
        self.before_effect.pass().await;
        let made = self.create_now(id);
        self.after_effect.pass().await;
        made
    }

    /// A create request past the gates.
    pub fn create_now(&self, id: &str) -> Result<String, String> {
        let mut books = self.books.lock().unwrap();
        if let Some(known) = books.keys.get(id).filter(|_| self.atomic.load(Ordering::SeqCst)).cloned() {
            return Ok(known);
        }
        if books.refused.contains(id) {
            return Err("account_closed".to_owned());
        }
        books.effects.push(id.to_owned());
        let reference = format!("cr_{}", books.effects.len());
        books.keys.insert(id.to_owned(), reference.clone());
        Ok(reference)
    }

    fn check(&self, method: &Method, uri: &str, headers: &HeaderMap, body: &[u8]) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let timestamp = text(TIMESTAMP_HEADER).parse().unwrap_or(0);
        let key = SigningKey::parse("k1", KEY).unwrap();
        let expected = key.sign(timestamp, method.as_str(), uri, body);
        let near = (crate::support::now() - timestamp).abs() < 300;
        if text(SIGNATURE_HEADER) != expected || text(KEY_ID_HEADER) != "k1" || !near {
            self.forged.fetch_add(1, Ordering::SeqCst);
        }
    }
}

type Said = (StatusCode, String);

async fn look_up(
    State(provider): State<Provider>,
    Path(id): Path<String>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Said {
    provider.check(&method, &uri.to_string(), &headers, b"");
    provider.books.lock().unwrap().lookups.push(id.clone());
    // What is known when it is asked; the answer may take its time.
    let said = {
        let books = provider.books.lock().unwrap();
        match &books.instead {
            Some((status, body)) => (StatusCode::from_u16(*status).unwrap(), body.replace("ID", &id)),
            None => {
                let outcome = if let Some(reference) = books.keys.get(&id) {
                    json!({
                        "operation_id": id, "outcome": "succeeded", "reference": reference,
                        "answer": {
                            "status": 201, "headers": [["content-type", "text/plain"]], "body": reference,
                        },
                    })
                } else if books.refused.contains(&id) {
                    json!({"operation_id": id, "outcome": "refused", "reason": "account_closed"})
                } else {
                    json!({"operation_id": id, "outcome": "not_found"})
                };
                (StatusCode::OK, outcome.to_string())
            }
        }
    };
    provider.looking.pass().await;
    said
}

async fn submit(
    State(provider): State<Provider>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Said {
    provider.check(&method, &uri.to_string(), &headers, &body);
    provider.submits.fetch_add(1, Ordering::SeqCst);
    let asked: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(asked["details"]["account"], "A-1187");
    let id = asked["operation_id"].as_str().unwrap().to_owned();
    assert_eq!(headers["idempotency-key"], id.as_str());
    // The request runs on when its client is gone.
    let made = tokio::spawn({
        let (provider, id) = (provider.clone(), id.clone());
        async move { provider.create(&id).await }
    });
    let said = match made.await.unwrap() {
        Ok(reference) => json!({"operation_id": id, "outcome": "succeeded", "reference": reference}),
        Err(reason) => json!({"operation_id": id, "outcome": "refused", "reason": reason}),
    };
    (StatusCode::OK, said.to_string())
}

async fn look_up_key(State(provider): State<Provider>, method: Method, uri: Uri, headers: HeaderMap) -> Said {
    provider.check(&method, &uri.to_string(), &headers, b"");
    let asked: HashMap<&str, String> = uri
        .query()
        .unwrap()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.replace("%3A", ":")))
        .collect();
    let (key, fence) = (asked["key"].clone(), asked["fence"].parse::<i64>().unwrap());
    let mut said = {
        let mut books = provider.books.lock().unwrap();
        books.lookups.push(key.clone());
        books.answers.get(&key).cloned().unwrap_or_else(|| json!({"outcome": "not_found"}))
    };
    said["key"] = json!(key);
    said["fence"] = json!(fence);
    provider.looking.pass().await;
    (StatusCode::OK, said.to_string())
}
