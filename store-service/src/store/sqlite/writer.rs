//! The writer thread: takes what has queued up, decides it in one transaction, answers after the
//! commit.
//!
//! A commit that fails leaves nothing behind, so every caller of that transaction is told that the
//! store is unavailable and may ask again with the same token.

use super::super::{Audit, Clock, Entry, Filter, StoreError, words};
use super::{people, row, statements};
use crate::entry::{
    self, Change, Claim, ClaimOutcome, Complete, Hold, Micros, Release, Row, Settle, SettleReply, Step,
    SweepKind,
};
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{
    CompleteReply, OnLost, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Most operations in one transaction: the first caller waits for the last one's work.
const BATCH_MAX: usize = 256;

/// Where an answer goes.
pub type Answer<R> = oneshot::Sender<Result<R, StoreError>>;

/// One operation with the place for its answer.
pub enum Job {
    /// Claim, with the time that the instance has been calm for.
    Claim(Arc<Claim>, u64, Answer<ClaimOutcome>),
    /// Answer.
    Complete(Complete, Answer<CompleteReply>),
    /// Release.
    Release(Release, Answer<ReleaseReply>),
    /// Unknown outcome.
    Unknown(UnknownRequest, Answer<UnknownReply>),
    /// Renewals.
    Renew(Vec<Renewal>, Answer<Vec<RenewResult>>),
    /// One batch of a sweeper duty: what, calm time, limit.
    Sweep(SweepKind, u64, u32, Answer<u64>),
    /// One entry, with or without its answer.
    Show(StoreKey, bool, Answer<Option<Entry>>),
    /// Several entries.
    List(Filter, Answer<Vec<Entry>>),
    /// What people did to an entry.
    Audit(StoreKey, Answer<Vec<Audit>>),
    /// What a person decided.
    Settle(Settle, Answer<SettleReply>),
    /// Something else that lives in the file.
    Beside(Work),
    /// Is the file there?
    Heartbeat(Answer<()>),
}

/// Work inside the write lock, by the clock as it is there.
pub type Work = Box<dyn FnOnce(&Transaction<'_>, Micros) -> Deliver + Send>;

/// Sends the answer once the commit's result is known.
pub type Deliver = Box<dyn FnOnce(Result<(), StoreError>)>;

/// Runs until every sender is gone; what was sent before that is still done.
pub fn run(mut connection: Connection, clock: &Clock, mut queue: mpsc::Receiver<Job>) {
    while let Some(first) = queue.blocking_recv() {
        let mut jobs = vec![first];
        while jobs.len() < BATCH_MAX {
            match queue.try_recv() {
                Ok(job) => jobs.push(job),
                Err(_) => break,
            }
        }
        batch(&mut connection, clock, jobs);
    }
}

fn batch(connection: &mut Connection, clock: &Clock, jobs: Vec<Job>) {
    let mut delivers = Vec::with_capacity(jobs.len());
    let committed = transact(connection, clock, jobs, &mut delivers).map_err(|error| unavailable(&error));
    if let Err(error) = &committed {
        tracing::error!(%error, "SQLite transaction failed");
    }
    for deliver in delivers {
        deliver(committed.clone());
    }
}

fn transact(
    connection: &mut Connection,
    clock: &Clock,
    jobs: Vec<Job>,
    delivers: &mut Vec<Deliver>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for job in jobs {
        delivers.push(decide(&transaction, clock, job));
    }
    transaction.commit()
}

fn decide(tx: &Transaction<'_>, clock: &Clock, job: Job) -> Deliver {
    match job {
        Job::Claim(claim, calm_ms, answer) => {
            let claimed = held(tx, &claim.key).and_then(|hold| {
                apply(tx, clock, &claim.key, |row, now| match hold {
                    None => entry::claim(row, &claim, now, calm_ms),
                    Some(hold) => entry::claim_held(row, &claim, now, calm_ms, hold),
                })
            });
            deliver(claimed, answer)
        }
        Job::Complete(complete, answer) => {
            let step = |row: Option<&Row>, now| entry::complete(row, &complete, now);
            deliver(apply(tx, clock, &complete.key, step), answer)
        }
        Job::Release(release, answer) => {
            let step = |row: Option<&Row>, now| entry::release(row, &release, now);
            deliver(apply(tx, clock, &release.key, step), answer)
        }
        Job::Unknown(request, answer) => {
            let step = |row: Option<&Row>, now| entry::unknown(row, &request, now);
            deliver(apply(tx, clock, &request.key, step), answer)
        }
        Job::Renew(renewals, answer) => {
            let one = |renewal: &Renewal| {
                apply(tx, clock, &renewal.key, |row, now| entry::renew(row, renewal, now))
            };
            deliver(renewals.iter().map(one).collect(), answer)
        }
        Job::Sweep(kind, calm_ms, limit, answer) => deliver(sweep(tx, clock, kind, calm_ms, limit), answer),
        Job::Show(key, with_answer, answer) => deliver(people::show(tx, clock, key, with_answer), answer),
        Job::List(filter, answer) => deliver(people::list(tx, clock, &filter), answer),
        Job::Audit(key, answer) => deliver(people::audit(tx, &key), answer),
        Job::Settle(order, answer) => deliver(people::settle(tx, clock, &order), answer),
        Job::Beside(work) => work(tx, clock.now()),
        Job::Heartbeat(answer) => {
            let read = tx.prepare_cached(statements::STORE_ID);
            let read = read.and_then(|mut s| s.query_row([], |row| row.get::<_, Vec<u8>>(0)));
            deliver(read.map(|_| ()), answer)
        }
    }
}

/// Answers once the commit's result is known.
pub fn deliver<R: 'static>(result: rusqlite::Result<R>, answer: Answer<R>) -> Deliver {
    Box::new(move |committed| {
        let result = match (result, committed) {
            (Err(error), _) => Err(unavailable(&error)),
            (_, Err(error)) => Err(error),
            (Ok(reply), Ok(())) => Ok(reply),
        };
        let _ = answer.send(result);
    })
}

fn apply<R>(
    tx: &Transaction<'_>,
    clock: &Clock,
    key: &StoreKey,
    decide: impl FnOnce(Option<&Row>, Micros) -> Step<R>,
) -> rusqlite::Result<R> {
    let old = row::read(&mut tx.prepare_cached(statements::ENTRY_READ)?, key)?;
    let step = decide(old.as_ref(), clock.now());
    change(tx, key, step.change)?;
    Ok(step.reply)
}

/// What the holds that stand say about a key.
fn held(tx: &Transaction<'_>, key: &StoreKey) -> rusqlite::Result<Option<Hold>> {
    let mut statement = tx.prepare_cached(statements::HOLD_OVER)?;
    statement.query_row([key.as_str(), key.prefix()], |row| {
        let since: Option<i64> = row.get("since")?;
        let keys_until: Option<i64> = row.get("keys_until")?;
        Ok(since.map(|since| Hold { since: Micros(since), keys_until: keys_until.map(Micros) }))
    })
}

/// Does what a transition decided.
pub fn change(tx: &Transaction<'_>, key: &StoreKey, change: Change) -> rusqlite::Result<()> {
    match change {
        Change::Keep => Ok(()),
        Change::Put(new) => row::write(&mut tx.prepare_cached(statements::ENTRY_WRITE)?, key, &new),
        Change::Drop => tx.prepare_cached(statements::ENTRY_DROP)?.execute([key.as_str()]).map(|_| ()),
    }
}

fn sweep(
    tx: &Transaction<'_>,
    clock: &Clock,
    kind: SweepKind,
    calm_ms: u64,
    limit: u32,
) -> rusqlite::Result<u64> {
    let now = clock.now();
    let calm = i64::try_from(calm_ms).unwrap_or(i64::MAX);
    let claims = |on_lost| {
        let mut statement = tx.prepare_cached(statements::SWEEP_CLAIMS)?;
        let keys = statement.query_map((now.0, words::on_lost(on_lost), calm, limit), |row| row.get(0))?;
        keys.collect::<rusqlite::Result<Vec<String>>>()
    };
    let keys = match kind {
        SweepKind::MarkLost => claims(OnLost::Hold)?,
        SweepKind::DropAbandoned => claims(OnLost::Rerun)?,
        SweepKind::DropEnded => {
            let mut statement = tx.prepare_cached(statements::SWEEP_ENDED)?;
            let keys = statement.query_map((now.0, limit), |row| row.get(0))?;
            keys.collect::<rusqlite::Result<Vec<String>>>()?
        }
    };
    let mut changed = 0;
    for key in keys {
        let Ok(key) = StoreKey::parse(&key) else { continue };
        let old = row::read(&mut tx.prepare_cached(statements::ENTRY_READ)?, &key)?;
        let Some(old) = old else { continue };
        let what = entry::sweep(&old, kind, now, calm_ms);
        changed += u64::from(what != Change::Keep);
        change(tx, &key, what)?;
    }
    Ok(changed)
}

fn unavailable(error: &rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(_, _) => StoreError::Unavailable(format!("SQLite: {error}")),
        _ => StoreError::Broken(format!("SQLite: {error}")),
    }
}
