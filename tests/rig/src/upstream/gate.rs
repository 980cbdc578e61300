//! A gate holds requests until a test lets them go on.

use anyhow::{Result, anyhow};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait for arrivals.
const ARRIVAL_WITHIN: Duration = Duration::from_secs(20);

/// Shut at first. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    arrived: u64,
    admitted: u64,
}

impl Default for Gate {
    fn default() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::default())) }
    }
}

impl Gate {
    /// A shut gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everybody pass, now and later.
    pub fn open(&self) {
        self.state.send_modify(|state| state.admitted = u64::MAX);
    }

    /// Lets `n` more pass, in the order of arrival.
    pub fn admit(&self, n: u64) {
        self.state.send_modify(|state| state.admitted = state.admitted.saturating_add(n));
    }

    /// Shuts it for those that arrive from now on.
    pub fn shut(&self) {
        self.state.send_modify(|state| state.admitted = state.arrived.min(state.admitted));
    }

    /// How many have arrived so far, passed or not.
    pub fn arrived(&self) -> u64 {
        self.state.borrow().arrived
    }

    /// Waits until `n` have arrived in all.
    pub async fn wait_arrived(&self, n: u64) -> Result<()> {
        let mut state = self.state.subscribe();
        let enough = tokio::time::timeout(ARRIVAL_WITHIN, state.wait_for(|state| state.arrived >= n)).await;
        enough.map_err(|_| anyhow!("{} of {n} arrived at the gate", self.arrived()))?.map(drop)?;
        Ok(())
    }

    /// Arrives, and waits to be let through.
    pub async fn pass(&self) {
        let mut state = self.state.subscribe();
        let mut ticket = 0;
        self.state.send_modify(|state| {
            ticket = state.arrived;
            state.arrived += 1;
        });
        // Cannot fail while this gate, the sender, is alive.
        let _ = state.wait_for(|state| ticket < state.admitted).await;
    }
}
