//! What the database keeps about seals, and the rows that are sealed anew.
//!
//! The list of key ids has every id that an answer may be sealed with: an instance adds its current
//! one before it serves, and a renewal takes out those that no row has any more. It is short, so a
//! start need not read the answers to know which keys are needed.

use super::Subject;
use crate::entry::Micros;
use crate::store::StoreError;
use async_trait::async_trait;
use bytes::Bytes;
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::{Fingerprint, Scheme, StoreKey};

/// Where answers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Answers of entries.
    Entries,
    /// Answers of operations.
    Operations,
}

impl Table {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Entries, Self::Operations];

    /// Its name for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Entries => "entries",
            Self::Operations => "operations",
        }
    }
}

/// A stored answer with what it is bound to.
#[derive(Clone, Debug)]
pub enum SealRow {
    /// Of an entry.
    Entry {
        /// Its key.
        key: StoreKey,
        /// Its scheme.
        scheme: Scheme,
        /// Its fingerprint.
        fingerprint: Fingerprint,
        /// The answer as it is stored.
        answer: Stored,
    },
    /// Of an operation.
    Operation {
        /// Its id.
        id: OperationId,
        /// The answer as it is stored.
        answer: Stored,
    },
}

/// An answer as it is stored, sealed or not.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// Status.
    pub status: u16,
    /// First column.
    pub headers: Bytes,
    /// Second column.
    pub body: Bytes,
    /// Fence of the entry, or the owner's version of the operation.
    pub version: i64,
    /// When the row last changed.
    pub updated_at: Micros,
}

impl core::fmt::Debug for Stored {
    /// Sizes only.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Stored({}, {} + {} bytes)", self.status, self.headers.len(), self.body.len())
    }
}

impl SealRow {
    /// The answer.
    pub fn answer(&self) -> &Stored {
        match self {
            Self::Entry { answer, .. } | Self::Operation { answer, .. } => answer,
        }
    }

    /// What it is bound to.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Entry { key, scheme, fingerprint, answer } => {
                Subject::Entry { key, scheme, fingerprint, status: answer.status }
            }
            Self::Operation { id, answer } => Subject::Operation { id, status: answer.status },
        }
    }
}

/// The name of a row and the beginning of its first column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Stored key, or operation id.
    pub name: String,
    /// The first bytes of the header block as it is stored; `None`: it has no answer.
    pub head: Option<Vec<u8>>,
}

/// A store's list of key ids, and its answers one by one.
#[async_trait]
pub trait SealStore: Send + Sync + 'static {
    /// Every id that an answer may be sealed with, in order.
    async fn keys(&self) -> Result<Vec<String>, StoreError>;

    /// Adds an id; one that is there stays.
    async fn add_key(&self, id: &str) -> Result<(), StoreError>;

    /// Takes an id out.
    async fn drop_key(&self, id: &str) -> Result<(), StoreError>;

    /// The next rows behind `after`, in the order of their names, with or without an answer.
    async fn page(&self, table: Table, after: &str, limit: u32) -> Result<Vec<Seen>, StoreError>;

    /// A row, if it has an answer.
    async fn row(&self, table: Table, name: &str) -> Result<Option<SealRow>, StoreError>;

    /// Puts the same answer in another form in its row, if the answer there is still the one that
    /// was read. Nothing else of the row changes, and whoever looks at it sees no change.
    async fn replace(&self, old: &SealRow, headers: Bytes, body: Bytes) -> Result<bool, StoreError>;
}
