//! The loops of recovery: each looks for work of one kind, and does a bounded amount of it.
//!
//! What is taken is worked on at once: no operation waits under our lease for a free place. A loop
//! that is told to stop takes nothing more and finishes what it has; what is cut nevertheless goes on
//! when its lease ends, here or elsewhere.

use super::held::HeldEnded;
use super::operation::Ended;
use super::provider::{Place, Provider};
use super::settings::Settings;
use super::store::{Note, RecoveryStore, TakeOver, Taken};
use super::{held, operation};
use crate::grant::duration::Span;
use crate::grant::timing::ExecutionTimings;
use crate::service::Service;
use crate::store::StoreError;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Highest number in the metrics of what waits.
const BACKLOG_MAX: u32 = 10_000;

/// Rows of one batch of tidying.
const TIDY_BATCH: u32 = 500;

/// What every piece of work needs.
pub struct Desk {
    settings: Settings,
    timings: ExecutionTimings,
    store: Arc<dyn RecoveryStore>,
    service: Arc<Service>,
    actor: String,
}

impl Desk {
    /// With a name for the history that no other instance has.
    pub fn new(
        settings: Settings,
        timings: ExecutionTimings,
        store: Arc<dyn RecoveryStore>,
        service: Arc<Service>,
        instance: &str,
    ) -> Self {
        Self { settings, timings, store, service, actor: format!("recovery/{instance}") }
    }

    /// What the file says.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Durations.
    pub fn timings(&self) -> &ExecutionTimings {
        &self.timings
    }

    /// Where it is written.
    pub fn store(&self) -> &dyn RecoveryStore {
        &*self.store
    }

    /// The service of the entries.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Name in the history.
    pub fn actor(&self) -> String {
        self.actor.clone()
    }

    /// A rest after so many before it.
    pub fn rest(&self, before: u32) -> Span {
        let mut chance = [128];
        // Without random numbers there is no spreading, and nothing else is lost.
        let _ = getrandom::fill(&mut chance);
        let [chance] = chance;
        self.settings.backoff.rest(before, chance)
    }
}

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Operations, by how the work on them ended.
    pub operations: HashMap<Ended, u32>,
    /// Held keys, by how the work on them ended.
    pub keys: HashMap<HeldEnded, u32>,
}

impl Round {
    fn add(&mut self, other: Self) {
        other.operations.into_iter().for_each(|(ended, n)| *self.operations.entry(ended).or_default() += n);
        other.keys.into_iter().for_each(|(ended, n)| *self.keys.entry(ended).or_default() += n);
    }
}

/// One kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Duty {
    /// Operations of the provider at this place.
    Operations(usize),
    /// Held keys of the provider at this place.
    Keys(usize),
    /// Operations that have been open for too long, whoever serves them.
    Overdue,
    /// Rows that are not needed any more, and metrics.
    Tidy,
}

/// Recovery of one instance.
pub struct Recovery {
    desk: Desk,
    stop: watch::Receiver<bool>,
}

impl Recovery {
    /// Until `stop` says true, or its sender is gone.
    pub fn new(desk: Desk, stop: watch::Receiver<bool>) -> Arc<Self> {
        Arc::new(Self { desk, stop })
    }

    fn duties(&self) -> Vec<Duty> {
        let mut duties = vec![Duty::Overdue, Duty::Tidy];
        for (place, provider) in self.desk.settings.providers.iter().enumerate() {
            duties.extend(provider.operations.as_ref().map(|_| Duty::Operations(place)));
            duties.extend(provider.keys.as_ref().map(|_| Duty::Keys(place)));
        }
        duties
    }

    /// One round of every kind of work, without timers.
    pub async fn run_once(&self) -> Result<Round, StoreError> {
        let mut round = Round::default();
        for done in join_all(self.duties().into_iter().map(|duty| self.round(duty))).await {
            round.add(done?);
        }
        Ok(round)
    }

    /// All loops, until told to stop and done with what they have.
    pub async fn run(self: Arc<Self>) {
        join_all(self.duties().into_iter().map(|duty| self.repeat(duty))).await;
    }

    async fn repeat(&self, duty: Duty) {
        let mut ticks = tokio::time::interval(self.desk.settings.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut stop = self.stop.clone();
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                _ = ticks.tick() => {}
            }
            if let Err(error) = self.round(duty).await {
                metrics::counter!("fencepost_recovery_failures_total").increment(1);
                tracing::warn!(%error, ?duty, "a round of recovery ended early");
            }
        }
    }

    fn stopping(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    async fn round(&self, duty: Duty) -> Result<Round, StoreError> {
        match duty {
            Duty::Operations(place) => self.operations(place).await,
            Duty::Keys(place) => self.keys(place).await,
            Duty::Overdue => self.overdue().await,
            Duty::Tidy => self.tidy().await.map(|()| Round::default()),
        }
    }

    async fn operations(&self, place: usize) -> Result<Round, StoreError> {
        let mut round = Round::default();
        let Some(provider) = self.desk.settings.providers.get(place) else { return Ok(round) };
        let Some(at) = &provider.operations else { return Ok(round) };
        let take = |free| self.take(Some(at.issuers.clone()), None, &provider.name, free);
        let work = |taken, place| operation::work(&self.desk, Some(provider), Some(place), taken);
        round.operations = self.work_off(provider, take, work).await?;
        Ok(round)
    }

    async fn keys(&self, place: usize) -> Result<Round, StoreError> {
        let mut round = Round::default();
        let Some(provider) = self.desk.settings.providers.get(place) else { return Ok(round) };
        let Some(at) = &provider.keys else { return Ok(round) };
        let lease = self.desk.timings.recovery_lease;
        let take = |free| self.desk.store.held_take(at.prefixes.clone(), lease, self.desk.actor(), free);
        let work = |taken, place| held::work(&self.desk, provider, at, place, taken);
        round.keys = self.work_off(provider, take, work).await?;
        Ok(round)
    }

    /// Takes work as the provider has places for it, one batch at most, and does it at once; how often
    /// it ended in which way. Whatever fails, what is in work is finished.
    async fn work_off<'a, W, E: Eq + Hash, T, D>(
        &self,
        provider: &'a Provider,
        take: impl Fn(u32) -> T,
        work: impl Fn(W, Place<'a>) -> D,
    ) -> Result<HashMap<E, u32>, StoreError>
    where
        T: Future<Output = Result<Vec<W>, StoreError>>,
        D: Future<Output = E>,
    {
        let mut all = HashMap::new();
        let mut left = self.desk.settings.batch;
        let mut failed = None;
        let mut busy = FuturesUnordered::new();
        loop {
            let mut first = None;
            if left > 0 && !self.stopping() {
                tokio::select! {
                    biased;
                    Some(ended) = busy.next() => {
                        *all.entry(ended).or_default() += 1;
                        continue;
                    }
                    place = provider.place() => first = place,
                }
            }
            // It may have been told to stop while it waited.
            if let Some(first) = first.filter(|_| !self.stopping()) {
                let mut places = vec![first];
                while places.len() < left as usize
                    && let Some(place) = provider.free_place()
                {
                    places.push(place);
                }
                let free = u32::try_from(places.len()).unwrap_or(u32::MAX);
                let taken = take(free).await.unwrap_or_else(|error| {
                    failed = Some(error);
                    Vec::new()
                });
                left = if taken.len() < places.len() { 0 } else { left.saturating_sub(free) };
                busy.extend(taken.into_iter().zip(places).map(|(taken, place)| work(taken, place)));
            }
            match busy.next().await {
                Some(ended) => *all.entry(ended).or_default() += 1,
                None => return failed.map_or(Ok(all), Err),
            }
        }
    }

    async fn overdue(&self) -> Result<Round, StoreError> {
        let mut round = Round::default();
        if self.stopping() {
            return Ok(round);
        }
        let age = Span::ms(self.desk.settings.give_up.age_ms);
        let taken = self.take(None, Some(age), "open for too long", self.desk.settings.batch).await?;
        // One after the other: each may be the provider's turn as well.
        for taken in taken {
            let provider = self.desk.settings.of_issuer(&taken.row.key.issuer);
            let place = match provider {
                Some(provider) => provider.place().await,
                None => None,
            };
            let ended = operation::work(&self.desk, provider, place, taken).await;
            *round.operations.entry(ended).or_default() += 1;
        }
        Ok(round)
    }

    async fn take(
        &self,
        issuers: Option<Vec<String>>,
        older_than: Option<Span>,
        detail: &str,
        limit: u32,
    ) -> Result<Vec<Taken>, StoreError> {
        let note = Note { actor: self.desk.actor(), result: String::new(), detail: detail.to_owned() };
        let lease = self.desk.timings.recovery_lease;
        self.desk.store.take_over(TakeOver { issuers, older_than, lease, limit, note }).await
    }

    async fn tidy(&self) -> Result<(), StoreError> {
        let backlog = self.desk.store.backlog(BACKLOG_MAX).await?;
        for (what, number) in [
            ("stalled", backlog.stalled),
            ("needs_reconciliation", backlog.needs_reconciliation),
            ("keys_for_person", backlog.marked_keys),
        ] {
            #[expect(clippy::cast_precision_loss, reason = "bounded by BACKLOG_MAX")]
            metrics::gauge!("fencepost_recovery_waiting", "what" => what).set(number as f64);
        }
        let mut after = None;
        loop {
            after = self.desk.store.held_tidy(after, TIDY_BATCH).await?;
            if after.is_none() || self.stopping() {
                return Ok(());
            }
        }
    }
}

/// Runs recovery beside the service; ends it in order.
pub struct Running {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts the loops.
    pub fn start(desk: Desk) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(Recovery::new(desk, stopped).run()) }
    }

    /// Nothing more is taken from now on.
    pub fn tell(&self) {
        let _ = self.stop.send(true);
    }

    /// Nothing more is taken; waits for what is in work, up to `patience`.
    pub async fn stop(self, patience: Duration) {
        self.tell();
        let mut task = self.task;
        if tokio::time::timeout(patience, &mut task).await.is_err() {
            tracing::warn!("the drain timeout cut recovery; what it had goes on when the leases end");
            task.abort();
        }
    }
}
