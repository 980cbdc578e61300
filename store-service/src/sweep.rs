//! The sweeper: what ended goes, and what was lost is called lost.
//!
//! Nothing depends on it for being right: a row past its end counts as absent before it is gone.
//! Several instances may sweep at once; batches skip rows that another one has.

use crate::entry::SweepKind;
use crate::service::Service;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows in one batch: one statement, short locks.
pub const BATCH: u32 = 250;

/// Most batches of one duty in a round, so that no duty keeps back the others; a round that leaves
/// rows behind is followed by the next one at once.
pub const ROUNDS_MAX: u32 = 400;

/// How long the sweeper rests after a full batch, in times that the batch took: claims share the
/// database with it, and nobody waits for it. It does not rest after a round that left rows behind.
const REST: u32 = 3;

/// Longest rest. A batch that took longer waited for something else.
const REST_MAX: Duration = Duration::from_millis(100);

/// One round of all duties; how many rows it changed.
pub async fn run_once(service: &Service) -> Result<u64, StoreError> {
    round(service, REST).await
}

async fn round(service: &Service, rest: u32) -> Result<u64, StoreError> {
    let mut total = 0;
    for kind in SweepKind::ALL {
        for _ in 0..ROUNDS_MAX {
            let started = Instant::now();
            let result = service.store().sweep(kind, service.calm().ms(), BATCH).await;
            service.calm().note(&result);
            let changed = result?;
            metrics::counter!("fencepost_swept_total", "duty" => kind.name()).increment(changed);
            total += changed;
            if changed < u64::from(BATCH) {
                break;
            }
            tokio::time::sleep((started.elapsed() * rest).min(REST_MAX)).await;
        }
    }
    Ok(total)
}

/// Says how far the sweepers of all instances are behind. After a round: one that stopped at its
/// bounds, or failed, shows in it.
pub async fn note_lag(service: &Service) {
    match service.store().sweep_lag().await {
        #[expect(clippy::cast_precision_loss, reason = "2^53 ms are longer than any entry lives")]
        Ok(ms) => metrics::gauge!("fencepost_sweep_lag_seconds").set(ms as f64 / 1_000.0),
        // The failing statements have a metric of their own.
        Err(error) => tracing::debug!(%error, "the sweeper's lag is not known"),
    }
}

/// Sweeps for ever.
pub async fn run(service: Arc<Service>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut rest = REST;
    loop {
        ticks.tick().await;
        let swept = round(&service, rest).await;
        note_lag(&service).await;
        rest = REST;
        match swept {
            // Some duty may have stopped at its bound: what is left must not pile up.
            Ok(changed) if changed >= u64::from(ROUNDS_MAX) * u64::from(BATCH) => {
                rest = 0;
                ticks.reset_immediately();
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "sweep ended early"),
        }
    }
}
