//! The memory store: the executable specification behind a lock. Lost with the process.

use super::{
    Audit, Beat, Clock, Entry, Filter, OpenError, StateName, Store, StoreError, StoreKind, random_store_id,
};
use crate::entry::{
    self, Change, Claim, ClaimOutcome, Complete, Micros, Release, Row, Settle, SettleReply, Step, SweepKind,
};
use async_trait::async_trait;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreId, StoreKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Entries in memory.
pub struct Memory {
    store_id: StoreId,
    clock: Clock,
    rows: Mutex<HashMap<StoreKey, Row>>,
    audit: Mutex<Vec<(StoreKey, Audit)>>,
}

impl Memory {
    /// An empty store.
    pub fn new(clock: Clock) -> Result<Self, OpenError> {
        Ok(Self { store_id: random_store_id()?, clock, rows: Mutex::default(), audit: Mutex::default() })
    }

    /// The row of a key, for comparisons.
    pub fn row(&self, key: &StoreKey) -> Option<Row> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn apply<R>(&self, key: &StoreKey, decide: impl FnOnce(Option<&Row>, Micros) -> Step<R>) -> R {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let step = decide(rows.get(key), self.clock.now());
        match step.change {
            Change::Keep => {}
            Change::Put(row) => {
                rows.insert(key.clone(), *row);
            }
            Change::Drop => {
                rows.remove(key);
            }
        }
        step.reply
    }
}

#[async_trait]
impl Store for Memory {
    fn kind(&self) -> StoreKind {
        StoreKind::Memory
    }

    fn store_id(&self) -> StoreId {
        self.store_id
    }

    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError> {
        Ok(self.apply(&claim.key, |row, now| entry::claim(row, &claim, now, calm_ms)))
    }

    async fn complete(&self, complete: Complete) -> Result<CompleteReply, StoreError> {
        Ok(self.apply(&complete.key, |row, now| entry::complete(row, &complete, now)))
    }

    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError> {
        Ok(self.apply(&release.key, |row, now| entry::release(row, &release, now)))
    }

    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        Ok(self.apply(&request.key, |row, now| entry::unknown(row, &request, now)))
    }

    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        let one = |renewal: &Renewal| self.apply(&renewal.key, |row, now| entry::renew(row, renewal, now));
        Ok(renewals.iter().map(one).collect())
    }

    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let due = |(key, row): (&StoreKey, &Row)| match entry::sweep(row, kind, now, calm_ms) {
            Change::Keep => None,
            change => Some((key.clone(), change)),
        };
        let changes: Vec<_> = rows.iter().filter_map(due).take(limit as usize).collect();
        let count = changes.len() as u64;
        for (key, change) in changes {
            match change {
                Change::Keep => {}
                Change::Put(row) => {
                    rows.insert(key, *row);
                }
                Change::Drop => {
                    rows.remove(&key);
                }
            }
        }
        Ok(count)
    }

    async fn sweep_lag(&self) -> Result<u64, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = rows.values().filter_map(Row::until).min();
        let lag = oldest.map_or(0, |oldest| self.clock.now().0.saturating_sub(oldest.0));
        Ok(u64::try_from(lag / 1_000).unwrap_or(0))
    }

    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let row = rows.get(key).filter(|row| row.live(now));
        Ok(row.map(|row| Entry::of(key.clone(), row.clone(), answer, now)))
    }

    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let mut found: Vec<_> =
            rows.iter().filter(|(key, row)| row.live(now) && filter.lets(key, row, now)).collect();
        // There are no holds here.
        found.retain(|_| filter.held != Some(true));
        found.sort_by_key(|(key, _)| *key);
        let entry = |(key, row): (&StoreKey, &Row)| Entry {
            held: Some(false),
            ..Entry::of(key.clone(), row.clone(), false, now)
        };
        Ok(found.into_iter().take(filter.limit as usize).map(entry).collect())
    }

    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError> {
        let audit = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(audit.iter().filter(|(of, _)| of == key).map(|(_, line)| line.clone()).collect())
    }

    async fn settle(&self, order: Settle) -> Result<SettleReply, StoreError> {
        let mut line = None;
        let reply = self.apply(&order.key, |row, now| {
            let step = entry::settle(row, &order, now);
            if let (Some(row), Change::Put(after)) = (row, &step.change) {
                line = Some(Audit {
                    at: now,
                    who: order.who.clone(),
                    action: order.ruling.action().into(),
                    version: row.version(),
                    state_before: StateName::of(&row.state).word().into(),
                    state_after: StateName::of(&after.state).word().into(),
                    forced: order.force,
                    reason: order.reason.clone(),
                });
            }
            step
        });
        let mut audit = self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        audit.extend(line.map(|line| (order.key, line)));
        Ok(reply)
    }

    async fn heartbeat(&self) -> Result<Beat, StoreError> {
        Ok(Beat::Calm)
    }
}
