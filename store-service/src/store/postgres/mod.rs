//! The PostgreSQL store: any number of instances, decided by the database.
//!
//! One statement decides one kind of operation for a batch of keys, in autocommit, by the
//! database's clock; `sql/` has one file for each, and its head says what it locks and why it is
//! right. What a caller is told when nothing was written comes from the row that the statement
//! returned, through the same pure functions that the other stores apply.
//!
//! Rooms: [`session`] is a checked connection, [`lane`] the workers that own them, [`batch`] puts
//! operations together, `claim_*` are the kinds of operation.

mod address;
mod batch;
mod chore;
mod claim_acquire;
mod claim_complete;
mod claim_look;
mod claim_mark_waited;
mod claim_release;
mod claim_renew;
mod claim_unknown;
mod durability;
mod entry_read;
mod entry_settle;
pub(crate) mod fault;
mod freed;
mod heartbeat;
mod lane;
mod listen;
pub(crate) mod migrate;
mod notice;
pub(crate) mod row;
pub(crate) mod session;
pub mod statements;

use super::{
    Audit, Beat, Clock, Ear, Ears, Entry, Filter, Hearing, Mark, OpenError, Store, StoreError, StoreKind,
    Woken, random_store_id, view, words,
};
use crate::desk::Desk;
use crate::desk::postgres::PostgresDesk;
use crate::entry::{Change, Claim, ClaimOutcome, Complete, Release, Settle, SettleReply, Step, SweepKind};
use crate::seal::SealStore;
use crate::seal::postgres::PostgresSeals;
use async_trait::async_trait;
use batch::{Answers, Queue, RunError, Told};
use chore::Chore;
use claim_acquire::ClaimAcquire;
use claim_complete::ClaimComplete;
use claim_look::ClaimLook;
use claim_mark_waited::ClaimMarkWaited;
use claim_release::ClaimRelease;
use claim_renew::ClaimRenew;
use claim_unknown::ClaimUnknown;
use durability::Durability;
use entry_read::{EntryRead, Read};
use entry_settle::EntrySettle;
use fencepost_protocol::claims::{
    CompleteReply, Refusal, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreId, StoreKey};
use freed::Freed;
use futures_util::future::try_join_all;
use lane::Lane;
use listen::Listener;
use notice::Notice;
use row::{Seen, decode};
use session::Connector;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinHandle;

pub use migrate::SCHEMA_VERSION;

/// Settings.
#[derive(Clone)]
pub struct Options {
    /// Connections for claims.
    pub claim_connections: usize,
    /// Connections for everything else.
    pub finish_connections: usize,
    /// Unnamed statements, for transaction-mode poolers.
    pub unnamed_statements: bool,
    /// Where to listen to other instances, if not at the store's own address.
    pub listen_url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { claim_connections: 4, finish_connections: 3, unnamed_statements: false, listen_url: None }
    }
}

/// Entries in PostgreSQL.
pub struct Postgres {
    store_id: StoreId,
    acquire: Arc<Queue<ClaimAcquire>>,
    complete: Arc<Queue<ClaimComplete>>,
    release: Arc<Queue<ClaimRelease>>,
    unknown: Arc<Queue<ClaimUnknown>>,
    renew: Arc<Queue<ClaimRenew>>,
    chores: Arc<Queue<Chore>>,
    settles: Arc<Queue<EntrySettle>>,
    reads: Arc<Queue<EntryRead>>,
    marks: Arc<Queue<ClaimMarkWaited>>,
    looks: Arc<Queue<ClaimLook>>,
    notices: Arc<Queue<Notice>>,
    desk: Arc<PostgresDesk>,
    seals: Arc<PostgresSeals>,
    instance: String,
    ears: Arc<Ears>,
    durability: Arc<Durability>,
    workers: Vec<JoinHandle<()>>,
}

impl Postgres {
    /// Connects, checks the server and the schema (`migrate` brings it up to date first), and
    /// starts the workers.
    pub async fn open(url: &str, clock: Clock, migrate: bool, options: Options) -> Result<Self, OpenError> {
        let connector = Connector::new(url, options.unnamed_statements)?;
        let listening = match &options.listen_url {
            Some(url) => Connector::new(url, true)?,
            None => connector.clone(),
        };
        let instance = random_name()?;
        let mut client = connector.client().await?;
        if migrate {
            migrate::migrate(&mut client, SCHEMA_VERSION).await?;
        }
        migrate::check(&client).await?;
        let store_id = migrate::store_id(&client).await?;
        drop(client);
        let desk = Arc::new(PostgresDesk::new(url, options.unnamed_statements, store_id)?);
        let seals = Arc::new(PostgresSeals::new(desk.pool()));
        let mut claims = Lane::new();
        let mut finish = Lane::new();
        let acquire = claims.queue(&clock);
        let complete = finish.queue(&clock);
        let release = finish.queue(&clock);
        let unknown = finish.queue(&clock);
        let renew = finish.queue(&clock);
        let chores = finish.queue(&clock);
        let settles = finish.queue(&clock);
        let reads = finish.queue(&clock);
        let notices = finish.queue(&clock);
        let marks = claims.queue(&clock);
        let looks = claims.queue(&clock);
        let ears = Arc::new(Ears::new(Hearing::Polling("not connected yet".into())));
        let mut workers = claims.start(options.claim_connections.max(1), &connector, store_id);
        workers.extend(finish.start(options.finish_connections.max(1), &connector, store_id));
        let listener = Listener {
            connector: listening,
            expected: store_id,
            instance: instance.clone(),
            ears: ears.clone(),
            notices: notices.clone(),
        };
        workers.push(tokio::spawn(listener.run()));
        Ok(Self {
            store_id,
            acquire,
            complete,
            release,
            unknown,
            renew,
            chores,
            settles,
            reads,
            marks,
            looks,
            notices,
            desk,
            seals,
            instance,
            ears,
            durability: connector.durability().clone(),
            workers,
        })
    }

    /// Tells the other instances that a key was freed, if somebody waits for it there. Nobody waits
    /// for the telling, and nothing is lost with it: they look for themselves as well.
    fn spread<R>(&self, freed: Freed<R>, key: &StoreKey) -> R {
        if freed.waited {
            self.tell_others(key);
        }
        freed.reply
    }

    fn tell_others(&self, key: &StoreKey) {
        let (notices, notice) = (self.notices.clone(), notice::Op::freed(&self.instance, key));
        tokio::spawn(async move {
            if let Err(error) = notices.ask(notice).await {
                metrics::counter!("fencepost_notices_unsent_total").increment(1);
                tracing::debug!(%error, "a notice was not sent");
            }
        });
    }
}

/// Creates or updates the schema up to `version`; for tests of updates.
pub async fn migrate_to(url: &str, version: i64) -> Result<(), OpenError> {
    let mut client = Connector::new(url, false)?.client().await?;
    migrate::migrate(&mut client, version).await
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Store for Postgres {
    fn kind(&self) -> StoreKind {
        StoreKind::Postgres
    }

    fn store_id(&self) -> StoreId {
        self.store_id
    }

    fn desk(&self) -> Option<Arc<dyn Desk>> {
        Some(self.desk.clone())
    }

    fn seals(&self) -> Option<Arc<dyn SealStore>> {
        Some(self.seals.clone())
    }

    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError> {
        let freed = self.acquire.ask(claim_acquire::Op { claim: claim.clone(), calm_ms }).await?;
        Ok(self.spread(freed, &claim.key))
    }

    async fn complete(&self, complete: Complete) -> Result<CompleteReply, StoreError> {
        let key = complete.key.clone();
        Ok(self.spread(self.complete.ask(complete).await?, &key))
    }

    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError> {
        let key = release.key.clone();
        let Some(lease_until) = release.only_lease else {
            return Ok(self.spread(self.release.ask(release).await?, &key));
        };
        let done = self.chores.ask(chore::Op::GiveBack(release, lease_until)).await?;
        done.waited.iter().for_each(|key| self.tell_others(key));
        match done.changed {
            0 => Ok(ReleaseReply::Refused { reason: Refusal::Other }),
            _ => Ok(ReleaseReply::Released),
        }
    }

    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        let key = request.key.clone();
        Ok(self.spread(self.unknown.ask(request).await?, &key))
    }

    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        try_join_all(renewals.into_iter().map(|renewal| self.renew.ask(renewal))).await
    }

    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError> {
        let done = self.chores.ask(chore::Op::Sweep { kind, calm_ms, limit }).await?;
        for key in &done.waited {
            self.ears.tell(Woken::Key(key));
            self.tell_others(key);
        }
        Ok(done.changed)
    }

    async fn sweep_lag(&self) -> Result<u64, StoreError> {
        Ok(self.chores.ask(chore::Op::SweepLag).await?.changed)
    }

    async fn mark_waited(&self, key: &StoreKey) -> Result<Mark, StoreError> {
        match self.ears.hearing() {
            Hearing::Notified => self.marks.ask(key.clone()).await,
            Hearing::Alone | Hearing::Polling(_) => Ok(Mark::Needless),
        }
    }

    fn listen(&self, ear: Ear) {
        self.ears.add(ear);
    }

    fn hearing(&self) -> Hearing {
        self.ears.hearing()
    }

    fn warnings(&self) -> Vec<String> {
        self.durability.warnings()
    }

    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError> {
        match self.reads.ask(entry_read::Op::Show(key.clone(), answer)).await? {
            Read::Entries(entries) => Ok(entries.into_iter().next()),
            Read::Audit(_) => Ok(None),
        }
    }

    async fn look(&self, key: &StoreKey) -> Result<Option<Entry>, StoreError> {
        self.looks.ask(key.clone()).await
    }

    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError> {
        match self.reads.ask(entry_read::Op::List(filter)).await? {
            Read::Entries(entries) => Ok(entries),
            Read::Audit(_) => Ok(Vec::new()),
        }
    }

    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError> {
        match self.reads.ask(entry_read::Op::Audit(key.clone())).await? {
            Read::Audit(lines) => Ok(lines),
            Read::Entries(_) => Ok(Vec::new()),
        }
    }

    async fn settle(&self, order: Settle) -> Result<SettleReply, StoreError> {
        let key = order.key.clone();
        Ok(self.spread(self.settles.ask(order).await?, &key))
    }

    async fn heartbeat(&self) -> Result<Beat, StoreError> {
        let beat = chore::Op::Beat { expected: self.store_id, instance: self.instance.clone() };
        match self.chores.ask(beat).await {
            Ok(done) if done.disturbed => Ok(Beat::Disturbed),
            Ok(_) => Ok(Beat::Calm),
            // Another database behind the address, or none of ours: nothing can be decided here.
            Err(StoreError::Broken(reason)) => Err(StoreError::Unavailable(reason)),
            Err(error) => Err(error),
        }
    }

    async fn leave(&self) {
        if let Err(error) = self.chores.ask(chore::Op::Leave(self.instance.clone())).await {
            tracing::debug!(%error, "the other instances wait a moment for this one");
        }
    }
}

/// What a statement says about each key.
fn by_key(rows: &[tokio_postgres::Row]) -> Result<HashMap<&str, Seen>, RunError> {
    let mut seen = HashMap::with_capacity(rows.len());
    for row in rows {
        seen.insert(row.try_get::<_, &str>("key")?, decode(row)?);
    }
    Ok(seen)
}

/// What each asker is told by the rows of a statement.
fn told_by<O, R>(
    rows: &[tokio_postgres::Row],
    ops: &[Arc<O>],
    key: impl Fn(&O) -> &StoreKey,
    told: impl Fn(&O, &Seen) -> Told<R>,
) -> Result<Answers<R>, RunError> {
    let seen = by_key(rows)?;
    let tell = |op: &Arc<O>| match seen.get(key(op).as_str()) {
        None => (Told::Again, None),
        Some(seen) => (told(op, seen), None),
    };
    Ok(ops.iter().map(tell).collect())
}

/// The answer of a transition that changes nothing; one that would have changed the row was not
/// applied because the row changed meanwhile.
fn unchanged<R>(step: Step<R>) -> Told<R> {
    match step.change {
        Change::Keep => Told::Done(step.reply),
        Change::Put(_) | Change::Drop => Told::Again,
    }
}

/// A name that no other instance has.
fn random_name() -> Result<String, OpenError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| OpenError::Unusable(format!("no random numbers from the system: {error}")))?;
    Ok(hex::encode(bytes))
}

/// Cannot overflow where it is used: the protocol's bounds are below 2^31. Kept total anyway.
fn int4(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn int8(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
