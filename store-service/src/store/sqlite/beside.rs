//! Work beside the entries on the store's only connection: what else lives in the file.

use super::writer::{self, Job};
use super::{Sqlite, stopped};
use crate::entry::Micros;
use crate::store::StoreError;
use rusqlite::{Result, Transaction};
use tokio::sync::{mpsc, oneshot};

/// A way into the file's write lock.
#[derive(Clone)]
pub struct Beside(mpsc::Sender<Job>);

impl Sqlite {
    /// A way into the write lock for what else lives in the file.
    pub fn beside(&self) -> Beside {
        Beside(self.jobs.clone())
    }
}

impl Beside {
    /// Runs inside the write lock, by the clock as it is there; answers after the commit. Work that
    /// fails leaves nothing behind.
    pub async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, Micros) -> Result<R> + Send + 'static,
    ) -> std::result::Result<R, StoreError> {
        let (answer, result) = oneshot::channel();
        let job = Job::Beside(Box::new(move |tx, now| writer::deliver(whole(tx, now, work), answer)));
        self.0.try_send(job).map_err(|_| {
            StoreError::Unavailable("the SQLite writer has stopped, or too much waits for it".into())
        })?;
        result.await.map_err(|_| stopped())?
    }
}

/// All of the work, or nothing: others share the transaction.
fn whole<R>(
    tx: &Transaction<'_>,
    now: Micros,
    work: impl FnOnce(&Transaction<'_>, Micros) -> Result<R>,
) -> Result<R> {
    tx.execute_batch("SAVEPOINT beside")?;
    let result = work(tx, now);
    tx.execute_batch(if result.is_ok() { "RELEASE beside" } else { "ROLLBACK TO beside; RELEASE beside" })?;
    result
}
