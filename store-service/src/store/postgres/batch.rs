//! Batches: operations that arrive while a statement runs go together in the next one.
//!
//! In one batch a key stands once, since a statement can't touch a row twice (SQLSTATE 21000), and
//! sorted, since two batches that lock the same rows in different orders would deadlock. Further
//! callers of a key that is in the batch follow: they are told what the row says when that settles
//! their question, and go into the next batch otherwise. They were all there before the statement
//! was sent, so what it found is true for them as well.
//!
//! While a statement of a kind runs, further operations wait for its end, so that they share the next
//! one: a statement costs the database far more than one more key in it. They stop waiting when they
//! would fill a batch, or when the statement takes longer than usual ([`PATIENCE`]): it may wait for a
//! lock, or the database may be far away. Then another connection takes them.
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

/// How long after the start of a statement further operations wait for its end.
const PATIENCE: Duration = Duration::from_millis(1);

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

/// The operations that these answers tell to ask again.
pub fn unsettled<O, R>(ops: &[Arc<O>], answers: &Answers<R>) -> Vec<Arc<O>> {
    let again = ops.iter().zip(answers).filter(|(_, (told, _))| matches!(told, Told::Again));
    again.map(|(op, _)| op.clone()).collect()
}

/// Puts the answers of another statement in the places of those that tell to ask again.
pub fn settle<R>(answers: &mut Answers<R>, later: Answers<R>) {
    let again = answers.iter_mut().filter(|(told, _)| matches!(told, Told::Again));
    again.zip(later).for_each(|(answer, later)| *answer = later);
}

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

/// What waits, and what runs.
struct State<K: Kind> {
    pending: VecDeque<Pending<K>>,
    /// Statements under way.
    running: usize,
    /// Statements so far.
    begun: u64,
    /// When the last of them began, while it is under way: when it ends its worker looks for what waits,
    /// and an older one that still runs has nobody look for it any more.
    began: Option<Instant>,
}

impl<K: Kind> State<K> {
    /// Is it better to wait for the end of a statement than to begin another one? Its worker comes back
    /// for what waits.
    fn gathers(&self) -> bool {
        self.running > 0
            && self.pending.len() < K::BATCH_MAX
            && self.began.is_some_and(|began| began.elapsed() < PATIENCE)
    }
}

/// Operations of one kind that wait for a statement.
pub struct Queue<K: Kind> {
    state: Mutex<State<K>>,
    clock: Clock,
    wake: Arc<Wake>,
}

struct Batch<K: Kind> {
    queue: Arc<Queue<K>>,
    mains: Vec<(Pending<K>, Vec<Pending<K>>)>,
}

/// A batch that has been taken.
struct Taken<K: Kind> {
    batch: Batch<K>,
    running: Running<K>,
}

/// A statement that is under way, until it is dropped.
struct Running<K: Kind> {
    queue: Arc<Queue<K>>,
    /// Its number.
    number: u64,
}

impl<K: Kind> Drop for Running<K> {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.running = state.running.saturating_sub(1);
        if state.begun == self.number {
            state.began = None;
        }
    }
}

impl<K: Kind> Queue<K> {
    /// An empty queue for the workers behind `wake`.
    pub fn new(clock: Clock, wake: Arc<Wake>) -> Arc<Self> {
        let state = State { pending: VecDeque::new(), running: 0, begun: 0, began: None };
        Arc::new(Self { state: Mutex::new(state), clock, wake })
    }

    /// Queues an operation and waits for its result. Dropping the future cancels nothing that has
    /// been sent.
    pub async fn ask(&self, op: K::Op) -> Result<K::Reply, StoreError> {
        if let Some(reason) = self.wake.down() {
            return Err(StoreError::Unavailable(reason));
        }
        let (reply, result) = oneshot::channel();
        let gathers = {
            let mut state = self.lock();
            if state.pending.len() >= QUEUE_MAX {
                return Err(StoreError::Unavailable("too many operations wait for PostgreSQL".into()));
            }
            let span = tracing::Span::current();
            let op = Arc::new(op);
            state.pending.push_back(Pending { op, reply, again: 0, lost: false, alone: false, span });
            state.gathers()
        };
        if !gathers {
            self.wake.one();
        }
        match tokio::time::timeout(OPERATION_TIMEOUT, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Unavailable("the service is stopping".into())),
            Err(_) => Err(StoreError::Unavailable("PostgreSQL did not answer in time".into())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, pending: Pending<K>) {
        self.lock().pending.push_front(pending);
        self.wake.one();
    }

    /// Is there something for a worker?
    pub fn waits(&self) -> bool {
        let state = self.lock();
        !state.pending.is_empty() && !state.gathers()
    }

    /// The next batch.
    pub fn take(self: &Arc<Self>) -> Option<Box<dyn Work>> {
        let mut state = self.lock();
        if state.gathers() {
            return None;
        }
        let queue = &mut state.pending;
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
        if mains.is_empty() {
            return None;
        }
        state.running += 1;
        state.begun += 1;
        state.began = Some(Instant::now());
        let number = state.begun;
        drop(state);
        let running = Running { queue: self.clone(), number };
        mains.sort_by(|(a, _), (b, _)| K::key(&a.op).cmp(&K::key(&b.op)));
        Some(Box::new(Taken { batch: Batch { queue: self.clone(), mains }, running }))
    }

    /// Tells everybody who waits that the server is not there.
    pub fn fail(&self, reason: &str) {
        let pending = std::mem::take(&mut self.lock().pending);
        for one in pending {
            let _ = one.reply.send(Err(StoreError::Unavailable(reason.to_owned())));
        }
    }
}

impl<K: Kind> Work for Taken<K> {
    fn run<'a>(self: Box<Self>, session: &'a Session) -> BoxFuture<'a, Verdict> {
        let Self { batch, running } = *self;
        Box::pin(async move {
            let ops: Vec<_> = batch.mains.iter().map(|(main, _)| main.op.clone()).collect();
            let started = Instant::now();
            let result = {
                let run = K::run(session, &batch.queue.clock, &ops);
                let span = trace::statement(K::NAME, batch.mains.iter().map(|(main, _)| &main.span));
                let run = tokio::time::timeout(STATEMENT_TIMEOUT, run).instrument(span);
                tokio::pin!(run);
                match tokio::time::timeout(PATIENCE, &mut run).await {
                    Ok(result) => result,
                    Err(_) => {
                        // Who waits for its end waits no longer.
                        batch.queue.wake.one();
                        run.await
                    }
                }
            };
            drop(running);
            metrics::histogram!("fencepost_statement_seconds", "statement" => K::NAME)
                .record(started.elapsed());
            metrics::histogram!("fencepost_batch_size", "statement" => K::NAME).record(ops.len() as f64);
            match result {
                Ok(Ok(told)) => {
                    batch.tell(told);
                    Verdict::Keep
                }
                Ok(Err(RunError::Row(BadRow(reason)))) => {
                    batch.fail(&StoreError::Broken(format!("{}: {reason}", K::NAME)));
                    Verdict::Keep
                }
                Ok(Err(RunError::Server(error))) => batch.failed(Fault::of(&error)),
                Err(_) => {
                    batch.fail(&StoreError::Unavailable(format!("{} took too long", K::NAME)));
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A kind whose batches are full with three.
    pub struct Thing;

    impl Kind for Thing {
        type Op = Option<StoreKey>;
        type Reply = ();
        const NAME: &'static str = "thing";
        const BATCH_MAX: usize = 3;
        const DROP_GONE: bool = true;

        fn key(op: &Self::Op) -> Option<&StoreKey> {
            op.as_ref()
        }

        async fn run(_: &Session, _: &Clock, ops: &[Arc<Self::Op>]) -> Result<Answers<()>, RunError> {
            Ok(ops.iter().map(|_| (Told::Done(()), None)).collect())
        }
    }

    fn queue() -> Arc<Queue<Thing>> {
        Queue::new(Clock::default(), Arc::default())
    }

    /// Somebody asks for a key of its own, and waits.
    pub async fn ask(queue: &Arc<Queue<Thing>>, number: u8) -> tokio::task::JoinHandle<()> {
        let (asking, before) = (queue.clone(), queue.lock().pending.len());
        let key = StoreKey::new("test", &[number; 16]).unwrap();
        let task = tokio::spawn(async move { drop(asking.ask(Some(key)).await) });
        while queue.lock().pending.len() == before {
            tokio::task::yield_now().await;
        }
        task
    }

    /// The clock of a statement that has just begun, however slow the machine is.
    pub fn begins_now(queue: &Queue<Thing>) {
        queue.lock().began = Some(Instant::now() + Duration::from_secs(3600));
    }

    #[tokio::test]
    async fn what_comes_while_a_statement_runs_waits_for_its_end() {
        let queue = queue();
        let _first = ask(&queue, 1).await;
        let running = queue.take().unwrap();
        begins_now(&queue);
        let _second = ask(&queue, 2).await;
        assert!(queue.take().is_none(), "gathers");
        drop(running);
        assert!(queue.take().is_some(), "its turn");
        assert!(queue.lock().pending.is_empty());
    }

    #[tokio::test]
    async fn a_full_batch_does_not_wait_for_a_statement() {
        let queue = queue();
        let _first = ask(&queue, 1).await;
        let _running = queue.take().unwrap();
        begins_now(&queue);
        let _others = [ask(&queue, 2).await, ask(&queue, 3).await];
        assert!(queue.take().is_none(), "not full");
        let _last = ask(&queue, 4).await;
        assert!(queue.take().is_some(), "full");
    }

    #[tokio::test]
    async fn nothing_waits_long_for_a_statement_that_takes_its_time() {
        let queue = queue();
        let _first = ask(&queue, 1).await;
        let _running = queue.take().unwrap();
        queue.lock().began = Instant::now().checked_sub(PATIENCE);
        let _second = ask(&queue, 2).await;
        assert!(queue.take().is_some());
    }

    #[tokio::test]
    async fn what_gathers_behind_the_last_statement_does_not_wait_for_an_older_one() {
        let queue = queue();
        let _first = ask(&queue, 1).await;
        let _older = queue.take().unwrap();
        queue.lock().began = Instant::now().checked_sub(PATIENCE);
        let _second = ask(&queue, 2).await;
        let last = queue.take().unwrap();
        begins_now(&queue);
        let _third = ask(&queue, 3).await;
        assert!(queue.take().is_none(), "gathers");
        // Its worker comes back. The older one has called for help already, and does not call again.
        drop(last);
        assert!(queue.take().is_some(), "left to nobody");
    }

    #[tokio::test]
    async fn an_older_statement_that_ends_leaves_gathering_to_the_last_one() {
        let queue = queue();
        let _first = ask(&queue, 1).await;
        let older = queue.take().unwrap();
        queue.lock().began = Instant::now().checked_sub(PATIENCE);
        let _second = ask(&queue, 2).await;
        let _last = queue.take().unwrap();
        begins_now(&queue);
        let _third = ask(&queue, 3).await;
        drop(older);
        assert!(queue.take().is_none(), "the last one looks for it");
    }

    #[tokio::test]
    async fn nothing_waits_where_nothing_runs() {
        let queue = queue();
        let first = ask(&queue, 1).await;
        first.abort();
        drop(first.await);
        assert!(queue.take().is_none(), "its caller has gone");
        let _second = ask(&queue, 2).await;
        assert!(queue.take().is_some());
    }
}
