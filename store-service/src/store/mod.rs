//! Stores: where entries live and who decides about them.
//!
//! All of them keep the same promises, which the contract suite (`tests/contract`) checks on each:
//! a decision is atomic, made by the store's own clock after it has the row, and every operation
//! may be repeated with the same token.

mod hearing;
pub mod memory;
pub mod postgres;
pub mod sqlite;
mod url;
mod view;
pub(crate) mod words;

pub use hearing::{Ear, Ears, Hearing, Mark, Woken};
pub use url::{StoreKind, StoreUrl, StoreUrlError};
pub use view::{Audit, Entry, Filter, StateName};

use crate::desk::Desk;
use crate::entry::{Claim, ClaimOutcome, Complete, Micros, Release, Settle, SettleReply, SweepKind};
use crate::grant::store::GrantStore;
use crate::grant::timing::ExecutionTimings;
use crate::recovery::store::RecoveryStore;
use crate::seal::{SealFault, SealStore};
use async_trait::async_trait;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{StoreId, StoreKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why a store did not decide. Sorted by what the caller can do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Ask again later. Whether a write was applied is not known; with the same token it is safe
    /// to ask again.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// A defect of this program or of the database's contents: asking again does not help.
    #[error("store broken: {0}")]
    Broken(String),
    /// The answer is there and can't be opened, or could not be sealed. Nothing was decided that a
    /// caller may act on.
    #[error("{0}")]
    Sealed(SealFault),
}

/// Why a store can't be opened. One line names what was found and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server can't be reached now.
    #[error("{0}")]
    Unreachable(String),
    /// What is there can't be used; somebody has to change it.
    #[error("{0}")]
    Unusable(String),
}

/// The clock that a store decides by.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The real one: the database's on PostgreSQL, this machine's otherwise.
    #[default]
    Real,
    /// Set by a test.
    Set(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `now`, for tests.
    pub fn set(now: Micros) -> (Self, Arc<AtomicI64>) {
        let hand = Arc::new(AtomicI64::new(now.0));
        (Self::Set(hand.clone()), hand)
    }

    /// This machine's time, or the time that was set.
    pub fn now(&self) -> Micros {
        self.fixed().unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
        })
    }

    /// The time that was set, if any.
    pub fn fixed(&self) -> Option<Micros> {
        match self {
            Self::Real => None,
            Self::Set(hand) => Some(Micros(hand.load(Ordering::SeqCst))),
        }
    }
}

/// What a heartbeat found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beat {
    /// The store is there.
    Calm,
    /// It is, but another instance was out of its reach a moment ago, with the renewals of its
    /// callers.
    Disturbed,
}

/// The operations on entries.
///
/// `calm_ms` is how long this instance has been hearing renewals without a gap: a lease counts as
/// over for others only once that is at least a lease.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Which store.
    fn kind(&self) -> StoreKind;

    /// Random identity of the database.
    fn store_id(&self) -> StoreId;

    /// Asks for the right to run a request.
    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError>;

    /// Stores an answer.
    async fn complete(&self, complete: Complete) -> Result<CompleteReply, StoreError>;

    /// Gives a claim back.
    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError>;

    /// Records an unknown outcome.
    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError>;

    /// Extends leases; results in the order of the request. No key twice.
    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError>;

    /// One bounded batch of one sweeper duty; how many rows it changed.
    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError>;

    /// For how long the oldest row past its end has been past it, in milliseconds: how far behind the
    /// sweepers are.
    async fn sweep_lag(&self) -> Result<u64, StoreError>;

    /// Callers of this instance wait for the claim on this key: whoever ends it in another instance
    /// shall tell. The caller has begun to listen before it asks.
    async fn mark_waited(&self, key: &StoreKey) -> Result<Mark, StoreError> {
        let _ = key;
        Ok(Mark::Needless)
    }

    /// From now on this ear is told what other instances freed, and what the sweeper did.
    fn listen(&self, ear: Ear) {
        drop(ear);
    }

    /// How this instance learns of what others free.
    fn hearing(&self) -> Hearing {
        Hearing::Alone
    }

    /// What is to be worried about although the store serves, in sentences.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// One live entry as a person sees it; with its answer only where that is asked for.
    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError>;

    /// One live entry without its answer, for a decision that is not a person's: cheap, and many go
    /// together.
    async fn look(&self, key: &StoreKey) -> Result<Option<Entry>, StoreError> {
        self.entry(key, false).await
    }

    /// Live entries in the order of their keys, without their answers.
    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError>;

    /// What people did to one entry, oldest first.
    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError>;

    /// Does what a person decided, and writes it down; both or neither.
    async fn settle(&self, order: Settle) -> Result<SettleReply, StoreError>;

    /// Grants beside the entries, where they share the store's only connection.
    fn grants(&self, timings: ExecutionTimings) -> Option<Arc<dyn GrantStore>> {
        let _ = timings;
        None
    }

    /// What the person on call uses, where the store keeps operations and grants.
    fn desk(&self) -> Option<Arc<dyn Desk>> {
        None
    }

    /// What recovery writes beside the entries, where it shares the store's only connection.
    fn recovery(&self) -> Option<Arc<dyn RecoveryStore>> {
        None
    }

    /// What is kept about seals, where there is something to keep.
    fn seals(&self) -> Option<Arc<dyn SealStore>> {
        None
    }

    /// Is the store there, writable, and still the same one? Tells the other instances as well.
    async fn heartbeat(&self) -> Result<Beat, StoreError>;

    /// This instance stops in order.
    async fn leave(&self) {}
}

/// Random bytes for an identity.
pub(crate) fn random_store_id() -> Result<StoreId, OpenError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| OpenError::Unusable(format!("no random numbers from the system: {error}")))?;
    Ok(StoreId::from_bytes(bytes))
}
