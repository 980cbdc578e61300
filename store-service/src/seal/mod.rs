//! Sealed answers: what an application said lies in the database encrypted, where the service has keys.
//!
//! One boundary: [`Sealed`] stands before the store and everything that is reached through it, and
//! [`Seal::grants`] and [`Seal::recovery`] stand before what has connections of its own. Behind it
//! an answer is [an envelope](envelope), before it the answer itself. A row is its owner's: what is
//! sealed for one key, operation or status opens nowhere else.
//!
//! An answer that can't be opened is an error of the store and never a free key: nothing runs. The log,
//! a counter and `/readyz` tell of it.
//! Without keys nothing is sealed, and nothing is copied; only the first byte is looked at.
//!
//! Not hidden: that a key was used, when, its status, and how long its answer is. Not prevented:
//! whoever may write to the database can put an answer there that is not sealed at all.

mod envelope;
mod fault;
mod grants;
mod keeper;
mod key_file;
pub mod postgres;
mod recovery;
mod renewal;
pub mod sqlite;
mod startup;
mod store;
mod subject;

pub use envelope::{PREFIX_LEN, headers_len, sealed_with};
pub use fault::SealFault;
pub use keeper::{SealRow, SealStore, Seen, Stored, Table};
pub use key_file::{KeyFileError, KeyId, KeyRing};
pub use renewal::{Counts, Progress, Renewal, count, renew};
pub use startup::{SealArgs, SealStartError};
pub use store::Sealed;
pub use subject::Subject;

use crate::grant::store::GrantStore;
use crate::recovery::store::RecoveryStore;
use crate::store::{Store, StoreError};
use bytes::Bytes;
use fault::Faults;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Seals and opens answers with the keys that there are.
pub struct Seal {
    ring: Option<KeyRing>,
    faults: Faults,
    /// Ids of keys that were missing at the start.
    missing: OnceLock<String>,
}

impl Seal {
    /// With these keys; without any, nothing is sealed and nothing sealed is opened.
    pub fn new(ring: Option<KeyRing>) -> Arc<Self> {
        Arc::new(Self { ring, faults: Faults::default(), missing: OnceLock::new() })
    }

    /// The keys.
    pub fn ring(&self) -> Option<&KeyRing> {
        self.ring.as_ref()
    }

    /// What operators should know, in sentences: keys that are missing, and answers that did not open.
    pub fn warnings(&self) -> Vec<String> {
        let missing = self.missing.get().map(|missing| {
            format!(
                "answers may be sealed with {missing}, which --seal-keys has not got: their retries get 503; give \
                 this instance the file with these keys"
            )
        });
        missing.into_iter().chain(self.faults.warning(Instant::now())).collect()
    }

    /// The boundary before a store.
    pub fn store(self: &Arc<Self>, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Sealed::new(self.clone(), inner))
    }

    /// The boundary before grants with connections of their own.
    pub fn grants(self: &Arc<Self>, inner: Arc<dyn GrantStore>) -> Arc<dyn GrantStore> {
        Arc::new(grants::SealedGrants { seal: self.clone(), inner })
    }

    /// The boundary before recovery with connections of its own.
    pub fn recovery(self: &Arc<Self>, inner: Arc<dyn RecoveryStore>) -> Arc<dyn RecoveryStore> {
        Arc::new(recovery::SealedRecovery { seal: self.clone(), inner })
    }

    /// Seals an answer in place, where there are keys.
    pub fn close(
        &self,
        subject: Subject<'_>,
        headers: &mut Bytes,
        body: &mut Bytes,
    ) -> Result<(), StoreError> {
        let Some(ring) = &self.ring else { return Ok(()) };
        let sealed = envelope::seal(ring, subject, headers, body);
        (*headers, *body) = sealed.map_err(|fault| self.faults.told(fault))?;
        Ok(())
    }

    /// Opens an answer in place, where it is sealed.
    pub fn open(
        &self,
        subject: Subject<'_>,
        headers: &mut Bytes,
        body: &mut Bytes,
    ) -> Result<(), StoreError> {
        if envelope::is_open(headers) {
            return Ok(());
        }
        let opened = envelope::open(self.ring.as_ref(), subject, headers, body);
        (*headers, *body) = opened.map_err(|fault| self.faults.told(fault))?;
        Ok(())
    }
}
