//! Batches: operations that arrive while a statement runs go together in the next one.
//!
//! In one batch a key stands once, since a statement can't touch a row twice (SQLSTATE 21000), and
//! sorted, since two batches that lock the same rows in different orders would deadlock. Further
//! callers of a key that is in the batch follow: they are told what the row says when that settles
//! their question, and go into the next batch otherwise. They were all there before the statement
//! was sent, so what it found is true for them as well.
//!
//! A lost connection leaves open whether the statement was applied. Every operation is safe to
//! repeat with its token, so it is asked once more; the second time the caller has to decide.

use super::fault::Fault;
use super::lane::{Verdict, Wake, Work};
use super::row::{BadRow, Seen};
use super::session::Session;
use super::{Clock, StoreError};
use crate::trace;
use fencepost_protocol::StoreKey;
use futures_util::future::BoxFuture;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::Instrument;

/// How long a statement may run. Longer than any lock is held by the service's own statements;
/// shorter than a lease.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an operation may take with everything: queueing, a lost connection, asking again.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(6);

/// How often an operation is run again because others changed its row between look and write.
const AGAIN_MAX: u8 = 20;

/// Most operations that wait in one queue: more are refused at once.
const QUEUE_MAX: usize = 32_768;

/// Most followers in one batch.
const FOLLOWERS_MAX: usize = 2_048;

/// Bytes of payload after which a batch is full.
const WEIGHT_MAX: usize = 4 * 1024 * 1024;

/// Why a statement gave no decisions.
pub enum RunError {
    /// From the server or the connection.
    Server(tokio_postgres::Error),
    /// A row that can't be understood.
    Row(BadRow),
}

impl From<tokio_postgres::Error> for RunError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl From<BadRow> for RunError {
    fn from(error: BadRow) -> Self {
        Self::Row(error)
    }
}

/// What a statement says to one operation.
pub enum Told<R> {
    /// Its result.
    Done(R),
    /// The row changed between look and write: run again.
    Again,
    /// The result is too large for a batch: run again alone.
    Alone,
}

/// What a statement says to each operation, with the row for those who follow.
pub type Answers<R> = Vec<(Told<R>, Option<Seen>)>;

/// A kind of operation.
pub trait Kind: Send + Sync + 'static {
    /// The operation.
    type Op: Send + Sync + 'static;
    /// Its result.
    type Reply: Send + 'static;
    /// Name in metrics and logs: that of the statement.
    const NAME: &'static str;
    /// Most operations in one statement.
    const BATCH_MAX: usize;
    /// Is an operation whose caller gave up before it was sent dropped?
    const DROP_GONE: bool;

    /// The row it is about. `None`: it runs alone.
    fn key(op: &Self::Op) -> Option<&StoreKey>;

    /// Bytes that it adds to a statement.
    fn weight(op: &Self::Op) -> usize {
        let _ = op;
        0
    }

    /// Runs operations, sorted by key and none twice. Results in the same order.
    fn run(
        session: &Session,
        clock: &Clock,
        ops: &[Arc<Self::Op>],
    ) -> impl Future<Output = Result<Answers<Self::Reply>, RunError>> + Send;

    /// What the row that another operation of this key was told says to this one, if it settles it.
    fn follow(op: &Self::Op, seen: &Seen) -> Option<Self::Reply> {
        let _ = (op, seen);
        None
    }
}

struct Pending<K: Kind> {
    op: Arc<K::Op>,
    reply: oneshot::Sender<Result<K::Reply, StoreError>>,
    again: u8,
    lost: bool,
    alone: bool,
    /// The caller's, for traces.
    span: tracing::Span,
}

/// Operations of one kind that wait for a statement.
pub struct Queue<K: Kind> {
    pending: Mutex<VecDeque<Pending<K>>>,
    clock: Clock,
    wake: Arc<Wake>,
}

struct Batch<K: Kind> {
    queue: Arc<Queue<K>>,
    mains: Vec<(Pending<K>, Vec<Pending<K>>)>,
}

impl<K: Kind> Queue<K> {
    /// An empty queue for the workers behind `wake`.
    pub fn new(clock: Clock, wake: Arc<Wake>) -> Arc<Self> {
        Arc::new(Self { pending: Mutex::default(), clock, wake })
    }

    /// Queues an operation and waits for its result. Dropping the future cancels nothing that has
    /// been sent.
    pub async fn ask(&self, op: K::Op) -> Result<K::Reply, StoreError> {
        if let Some(reason) = self.wake.down() {
            return Err(StoreError::Unavailable(reason));
        }
        let (reply, result) = oneshot::channel();
        {
            let mut pending = self.lock();
            if pending.len() >= QUEUE_MAX {
                return Err(StoreError::Unavailable("too many operations wait for PostgreSQL".into()));
            }
            let span = tracing::Span::current();
            pending.push_back(Pending { op: Arc::new(op), reply, again: 0, lost: false, alone: false, span });
        }
        self.wake.one();
        match tokio::time::timeout(OPERATION_TIMEOUT, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Unavailable("the service is stopping".into())),
            Err(_) => Err(StoreError::Unavailable("PostgreSQL did not answer in time".into())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Pending<K>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, pending: Pending<K>) {
        self.lock().push_front(pending);
        self.wake.one();
    }

    /// The next batch.
    pub fn take(self: &Arc<Self>) -> Option<Box<dyn Work>> {
        let mut queue = self.lock();
        let mut places: HashMap<StoreKey, usize> = HashMap::new();
        let mut mains: Vec<(Pending<K>, Vec<Pending<K>>)> = Vec::new();
        let mut left = VecDeque::new();
        let (mut weight, mut followers) = (0, 0);
        while let Some(next) = queue.pop_front() {
            if K::DROP_GONE && next.reply.is_closed() {
                continue;
            }
            let key = K::key(&next.op);
            let main = key.and_then(|key| places.get(key)).and_then(|place| mains.get_mut(*place));
            if let Some((_, behind)) = main {
                if followers < FOLLOWERS_MAX {
                    followers += 1;
                    behind.push(next);
                } else {
                    left.push_back(next);
                }
                continue;
            }
            let alone = next.alone || key.is_none();
            let full = mains.len() >= K::BATCH_MAX || weight > WEIGHT_MAX;
            let last_alone = mains.last().is_some_and(|(main, _)| main.alone || K::key(&main.op).is_none());
            if !mains.is_empty() && (full || alone || last_alone) {
                left.push_back(next);
                // A batch that is full takes followers only from what stands right behind it.
                if left.len() > FOLLOWERS_MAX {
                    break;
                }
                continue;
            }
            weight += K::weight(&next.op);
            if let Some(key) = key {
                places.insert(key.clone(), mains.len());
            }
            mains.push((next, Vec::new()));
        }
        while let Some(next) = left.pop_back() {
            queue.push_front(next);
        }
        let more = !queue.is_empty();
        drop(queue);
        if more {
            self.wake.one();
        }
        if mains.is_empty() {
            return None;
        }
        mains.sort_by(|(a, _), (b, _)| K::key(&a.op).cmp(&K::key(&b.op)));
        Some(Box::new(Batch { queue: self.clone(), mains }))
    }

    /// Tells everybody who waits that the server is not there.
    pub fn fail(&self, reason: &str) {
        let pending = std::mem::take(&mut *self.lock());
        for one in pending {
            let _ = one.reply.send(Err(StoreError::Unavailable(reason.to_owned())));
        }
    }
}

impl<K: Kind> Work for Batch<K> {
    fn run<'a>(self: Box<Self>, session: &'a Session) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let ops: Vec<_> = self.mains.iter().map(|(main, _)| main.op.clone()).collect();
            let started = Instant::now();
            let run = K::run(session, &self.queue.clock, &ops);
            let span = trace::statement(K::NAME, self.mains.iter().map(|(main, _)| &main.span));
            let result = tokio::time::timeout(STATEMENT_TIMEOUT, run).instrument(span).await;
            metrics::histogram!("fencepost_statement_seconds", "statement" => K::NAME)
                .record(started.elapsed());
            metrics::histogram!("fencepost_batch_size", "statement" => K::NAME).record(ops.len() as f64);
            match result {
                Ok(Ok(told)) => {
                    self.tell(told);
                    Verdict::Keep
                }
                Ok(Err(RunError::Row(BadRow(reason)))) => {
                    self.fail(&StoreError::Broken(format!("{}: {reason}", K::NAME)));
                    Verdict::Keep
                }
                Ok(Err(RunError::Server(error))) => self.failed(Fault::of(&error)),
                Err(_) => {
                    self.fail(&StoreError::Unavailable(format!("{} took too long", K::NAME)));
                    Verdict::Discard
                }
            }
        })
    }
}

impl<K: Kind> Batch<K> {
    fn tell(self, told: Answers<K::Reply>) {
        for ((mut main, followers), (told, seen)) in self.mains.into_iter().zip(told) {
            // Put back from the last to the first: each goes to the front of the queue.
            for follower in followers.into_iter().rev() {
                match seen.as_ref().and_then(|seen| K::follow(&follower.op, seen)) {
                    Some(reply) => drop(follower.reply.send(Ok(reply))),
                    None => self.queue.put_back(follower),
                }
            }
            match told {
                Told::Done(reply) => drop(main.reply.send(Ok(reply))),
                Told::Alone => {
                    main.alone = true;
                    self.queue.put_back(main);
                }
                Told::Again if main.again < AGAIN_MAX => {
                    main.again += 1;
                    metrics::counter!("fencepost_again_total", "statement" => K::NAME).increment(1);
                    self.queue.put_back(main);
                }
                Told::Again => {
                    let error = StoreError::Unavailable("the key changes too often".into());
                    let _ = main.reply.send(Err(error));
                }
            }
        }
    }

    fn fail(self, error: &StoreError) {
        for (main, followers) in self.mains {
            for one in followers.into_iter().chain([main]) {
                let _ = one.reply.send(Err(error.clone()));
            }
        }
    }

    fn failed(self, fault: Fault) -> Verdict {
        tracing::warn!(?fault, statement = K::NAME, operations = self.mains.len(), "statement failed");
        metrics::counter!("fencepost_statement_failures_total", "statement" => K::NAME).increment(1);
        let single = self.mains.len() == 1;
        match fault {
            Fault::Lost(reason) => {
                self.once_more(&reason);
                Verdict::Discard
            }
            Fault::Clash(reason) | Fault::Unavailable(reason) | Fault::Broken(reason) if !single => {
                let _ = reason;
                self.singly();
                Verdict::Keep
            }
            Fault::Clash(_) => {
                let again = self.mains.into_iter().map(|(main, rest)| ((main, rest), (Told::Again, None)));
                let (mains, told) = again.unzip();
                Batch { queue: self.queue, mains }.tell(told);
                Verdict::Keep
            }
            Fault::Unavailable(reason) => {
                self.fail(&StoreError::Unavailable(reason));
                Verdict::Keep
            }
            Fault::Broken(reason) => {
                self.fail(&StoreError::Broken(format!("{}: {reason}", K::NAME)));
                Verdict::Keep
            }
        }
    }

    /// One of the operations may be what failed: each runs alone.
    fn singly(self) {
        for (mut main, followers) in self.mains.into_iter().rev() {
            for follower in followers.into_iter().rev() {
                self.queue.put_back(follower);
            }
            main.alone = true;
            self.queue.put_back(main);
        }
    }

    /// The connection is gone: ask again with the same tokens, once.
    fn once_more(self, reason: &str) {
        for (main, followers) in self.mains.into_iter().rev() {
            for mut one in followers.into_iter().rev().chain([main]) {
                if one.lost {
                    let _ = one.reply.send(Err(StoreError::Unavailable(reason.to_owned())));
                } else {
                    one.lost = true;
                    self.queue.put_back(one);
                }
            }
        }
    }
}
