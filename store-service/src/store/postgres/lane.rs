//! Lanes: a few connections that work off queues, each running one batch at a time.
//!
//! Claims have a lane of their own, so that waiting callers never keep back what would free them.
//! A worker owns its connection; nobody else sends on it, so no statement can be left half read by
//! a caller that went away. Reconnecting is throttled; while the last attempt failed and no worker
//! is connected, callers are told at once.

use super::batch::{Kind, Queue};
use super::session::{Connector, Session};
use fencepost_protocol::StoreId;
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Is the session still of use?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Yes.
    Keep,
    /// No: its connection is lost, or may still be busy with a statement that took too long.
    Discard,
}

/// Work for one session.
pub trait Work: Send {
    /// Does it.
    fn run<'a>(self: Box<Self>, session: &'a Session) -> BoxFuture<'a, Verdict>;
}

/// A queue, whatever its kind.
trait Source: Send + Sync {
    fn take(&self) -> Option<Box<dyn Work>>;
    fn waits(&self) -> bool;
    fn fail(&self, reason: &str);
}

impl<K: Kind> Source for Arc<Queue<K>> {
    fn take(&self) -> Option<Box<dyn Work>> {
        Queue::take(self)
    }

    fn waits(&self) -> bool {
        Queue::waits(self)
    }

    fn fail(&self, reason: &str) {
        Queue::fail(self, reason);
    }
}

/// Wakes the workers of a lane, and knows whether there are any.
#[derive(Default)]
pub struct Wake {
    notify: Notify,
    connected: AtomicUsize,
    down: Mutex<Option<String>>,
}

impl Wake {
    /// There is work for one more worker.
    pub fn one(&self) {
        self.notify.notify_one();
    }

    /// Why nobody can work, if so.
    pub fn down(&self) -> Option<String> {
        if self.connected.load(Ordering::SeqCst) > 0 {
            return None;
        }
        self.down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_down(&self, reason: Option<String>) {
        *self.down.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }
}

/// Queues and what their workers share.
pub struct Lane {
    wake: Arc<Wake>,
    sources: Vec<Box<dyn Source>>,
    turn: AtomicUsize,
}

impl Lane {
    /// A lane without queues.
    pub fn new() -> Self {
        Self { wake: Arc::default(), sources: Vec::new(), turn: AtomicUsize::new(0) }
    }

    /// Adds a queue.
    pub fn queue<K: Kind>(&mut self, clock: &super::Clock) -> Arc<Queue<K>> {
        let queue = Queue::new(clock.clone(), self.wake.clone());
        self.sources.push(Box::new(queue.clone()));
        queue
    }

    /// Starts the workers; they end when the returned handles are aborted.
    pub fn start(
        self,
        workers: usize,
        connector: &Connector,
        expected: StoreId,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let lane = Arc::new(self);
        let worker = |_| tokio::spawn(lane.clone().work(connector.clone(), expected));
        (0..workers).map(worker).collect()
    }

    /// The queues take turns, so that none waits behind another for ever.
    fn take(&self) -> Option<Box<dyn Work>> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.sources.len();
        let taken =
            (0..count).find_map(|offset| self.sources.get((first.wrapping_add(offset)) % count)?.take())?;
        // There may be more than one batch; and what gathered in one queue is no longer looked after by
        // the worker that now has another's.
        if self.sources.iter().any(|source| source.waits()) {
            self.wake.one();
        }
        Some(taken)
    }

    async fn work(self: Arc<Self>, connector: Connector, expected: StoreId) {
        let mut backoff = BACKOFF_MIN;
        loop {
            match connector.session(expected).await {
                Ok(session) => {
                    backoff = BACKOFF_MIN;
                    self.wake.connected.fetch_add(1, Ordering::SeqCst);
                    self.wake.set_down(None);
                    self.wake.one();
                    self.serve(&session).await;
                    self.wake.connected.fetch_sub(1, Ordering::SeqCst);
                    session.discard();
                    // What was waiting for this worker may be for another one now.
                    self.wake.one();
                    // A server that takes connections and drops them at once is not hammered.
                    tokio::time::sleep(BACKOFF_MIN / 4).await;
                }
                Err(error) => {
                    if self.wake.connected.load(Ordering::SeqCst) == 0 {
                        tracing::warn!(%error, "no connection to PostgreSQL");
                        let reason = error.to_string();
                        self.wake.set_down(Some(reason.clone()));
                        self.sources.iter().for_each(|source| source.fail(&reason));
                    }
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Works until the session is of no use any more.
    async fn serve(&self, session: &Session) {
        loop {
            let woken = self.wake.notify.notified();
            tokio::pin!(woken);
            // From here on a wake-up is noticed, so none is lost between looking and waiting.
            woken.as_mut().enable();
            if session.ended() {
                return;
            }
            match self.take() {
                Some(work) => {
                    if work.run(session).await == Verdict::Discard {
                        return;
                    }
                }
                None => tokio::select! {
                    () = woken => {}
                    // An idle connection that ended is replaced before somebody needs it.
                    () = tokio::time::sleep(Duration::from_millis(500)) => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::{Thing, ask, begins_now};
    use super::*;
    use crate::store::Clock;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn what_gathered_behind_a_worker_that_takes_other_work_is_for_the_next_one() {
        let mut lane = Lane::new();
        let queues = [lane.queue::<Thing>(&Clock::default()), lane.queue::<Thing>(&Clock::default())];
        let _first = ask(&queues[0], 1).await;
        let running = lane.take().unwrap();
        begins_now(&queues[0]);
        let _second = ask(&queues[0], 2).await;
        let _other = ask(&queues[1], 3).await;
        while lane.wake.notify.notified().now_or_never().is_some() {}
        // The worker is done, and takes from the queue whose turn it is.
        drop(running);
        let _next = lane.take().unwrap();
        assert!(lane.wake.notify.notified().now_or_never().is_some(), "somebody is woken for the rest");
        let _rest = lane.take().unwrap();
        assert!(lane.wake.notify.notified().now_or_never().is_none(), "nothing is left");
    }
}
