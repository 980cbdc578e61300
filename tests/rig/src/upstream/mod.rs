//! A sample upstream in this process (HTTP/1.1 and HTTP/2 without TLS) that counts what it runs.
//!
//! A request is *seen* when its head arrives and *executed* when its body is complete; both are
//! recorded, with whether the peer left before the answer's end. Without a script it answers 201,
//! `{"n":N}` and `Location: PATH/N`.
//!
//! For use from outside this process it answers, uncounted: `GET /_rig/executions` (JSON),
//! `POST /_rig/gates/NAME/open`.

mod behaviour;
mod gate;
mod ledger;
mod serve;

pub use behaviour::{AnswerBody, Behaviour, Ending};
pub use gate::Gate;
pub use ledger::Seen;

use crate::process::guard;
use anyhow::{Context, Result, anyhow};
use ledger::Ledger;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longest wait for something to happen.
const HAPPENS_WITHIN: Duration = Duration::from_secs(20);

/// The upstream. Dropping it closes all its connections.
pub struct Upstream {
    addr: SocketAddr,
    ledger: Arc<Ledger>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Upstream {
    /// Starts it on a port that was free.
    pub async fn start() -> Result<Self> {
        let listener = serve::listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let addr = listener.local_addr()?;
        let ledger = Arc::new(Ledger::default());
        let serving = serve::spawn(listener, Arc::clone(&ledger))?;
        Ok(Self { addr, ledger, serving: Mutex::new(Some(serving)) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Executions in total.
    pub fn executions(&self) -> u64 {
        self.ledger.executions().values().sum()
    }

    /// Executions on a path.
    pub fn executions_of(&self, path: &str) -> u64 {
        self.ledger.executions().get(path).copied().unwrap_or(0)
    }

    /// Executions on every path.
    pub fn all_executions(&self) -> BTreeMap<String, u64> {
        self.ledger.executions()
    }

    /// All requests whose head arrived, in that order.
    pub fn seen(&self) -> Vec<Seen> {
        self.ledger.seen()
    }

    /// Those on a path.
    pub fn seen_on(&self, path: &str) -> Vec<Seen> {
        self.ledger.seen().into_iter().filter(|seen| seen.path == path).collect()
    }

    /// Sets what every request on a path gets; its own `x-test-*` headers add to it.
    pub fn script(&self, path: &str, behaviour: Behaviour) {
        self.ledger.script(path, behaviour);
    }

    /// Sets what the next request on a path gets; further calls queue up.
    pub fn script_next(&self, path: &str, behaviour: Behaviour) {
        self.ledger.script_next(path, behaviour);
    }

    /// The gate that requests name by `x-test-gate`.
    pub fn gate(&self, name: &str) -> Gate {
        self.ledger.gate(name)
    }

    /// Waits until the requests seen so far fulfil a condition.
    pub async fn wait_until(&self, what: &str, condition: impl Fn(&[Seen]) -> bool) -> Result<()> {
        let mut changes = self.ledger.subscribe();
        let happens = async {
            while !condition(&self.ledger.seen()) {
                changes.changed().await.context("the ledger is gone")?;
            }
            Ok(())
        };
        let bounded = tokio::time::timeout(HAPPENS_WITHIN, happens).await;
        bounded.map_err(|_| anyhow!("{what} did not happen; seen: {:#?}", self.ledger.seen()))?
    }

    /// Closes the listener and all connections: connecting is refused from now on.
    pub async fn close(&self) {
        let serving = guard(&self.serving).take();
        if let Some(serving) = serving {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Listens again on the same port.
    pub async fn open_again(&self) -> Result<()> {
        let serving = serve::spawn(serve::listen(self.addr)?, Arc::clone(&self.ledger))?;
        *guard(&self.serving) = Some(serving);
        Ok(())
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(serving) = guard(&self.serving).take() {
            serving.abort();
        }
    }
}
