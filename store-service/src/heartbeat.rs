//! The heartbeat: notices an outage of the store while nobody asks for anything.
//!
//! It is what readiness reports, and what the grace after an outage is counted from.

use crate::service::Service;
use std::sync::Arc;
use std::time::Duration;

/// How often. An outage shorter than this takes at most this much from a lease that lives ten
/// times as long, with renewals at a third of it.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Beats for ever.
pub async fn run(service: Arc<Service>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The service takes note of the result itself.
        let _ = service.heartbeat().await;
    }
}
