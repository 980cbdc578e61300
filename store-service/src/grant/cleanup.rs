//! The loop that deletes records of use whose grants can't be admitted any more, and archives rows
//! that are long past their end, where that is wished.
//!
//! A record that goes too early lets its grant in again, so nothing is deleted before the bound on
//! admissions was seen to hold on this store; where it does not, records are kept, and `/readyz`
//! says why.

use super::service::{CleanupState, Grants};
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Most rows of one batch.
const BATCH: u32 = 1_000;

/// Most batches of one round.
const ROUND_MAX: u32 = 100;

/// Runs until it is dropped.
pub async fn run(grants: Arc<Grants>, interval: Duration) {
    loop {
        run_once(&grants).await;
        tokio::time::sleep(interval).await;
    }
}

/// One round: looks at the bound where it is not known to hold, then deletes what is due.
pub async fn run_once(grants: &Grants) {
    if grants.cleanup() != CleanupState::On {
        grants.note_bound(grants.store().check_bound().await);
    }
    if grants.cleanup() != CleanupState::On {
        return;
    }
    let done = async {
        batches("fencepost_grant_records_deleted_total", || grants.store().cleanup(BATCH)).await?;
        if let Some(after) = grants.issuers().archive_rows_after {
            batches("fencepost_grant_rows_archived_total", || grants.store().archive(after, BATCH)).await?;
        }
        Ok(())
    };
    if let Err(error) = done.await {
        metrics::counter!("fencepost_grant_cleanup_failures_total").increment(1);
        tracing::warn!(%error, "the cleanup of used grants failed");
        // Whatever it was, the bound is looked at again before anything goes.
        grants.note_bound(Err(error));
    }
}

/// Batches until one is not full.
async fn batches<F: Future<Output = Result<u64, StoreError>>>(
    counter: &'static str,
    mut batch: impl FnMut() -> F,
) -> Result<(), StoreError> {
    for _ in 0..ROUND_MAX {
        let changed = batch().await?;
        metrics::counter!(counter).increment(changed);
        if changed < u64::from(BATCH) {
            break;
        }
    }
    Ok(())
}
