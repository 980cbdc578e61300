//! Settings of sealing on the command line, and what is checked before the service listens.

use super::{KeyFileError, KeyRing, Seal};
use crate::store::{Store, StoreError};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of sealing.
#[derive(Debug, Args)]
pub struct SealArgs {
    /// Keys that stored answers are sealed with: lines `ID BASE64_OF_32_BYTES`, the current one first. Only
    /// its owner may read the file.
    #[arg(long, env = "FENCEPOST_SEAL_KEYS", value_name = "FILE")]
    seal_keys: Option<PathBuf>,

    /// Start although keys that answers may be sealed with are missing: their retries get 503.
    #[arg(long, env = "FENCEPOST_SEAL_KEYS_INCOMPLETE")]
    seal_keys_incomplete: bool,
}

/// Why a start with sealed answers is refused.
#[derive(Debug, thiserror::Error)]
pub enum SealStartError {
    /// The file.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The list of key ids.
    #[error("--seal-keys: the list of keys in use can't be read or written: {0}")]
    List(#[from] StoreError),
    /// Keys are missing.
    #[error(
        "--seal-keys: answers may be sealed with {missing}, and {found}; expected a file that has these keys, a \
         renewal with them first (`fencepost-store reseal`), or --seal-keys-incomplete to answer their retries with \
         503"
    )]
    Missing {
        /// Ids.
        missing: String,
        /// What there is.
        found: &'static str,
    },
}

impl SealArgs {
    /// Reads the keys.
    pub fn open(&self) -> Result<Arc<Seal>, SealStartError> {
        Ok(Seal::new(self.seal_keys.as_deref().map(KeyRing::read).transpose()?))
    }

    /// Whether all keys are there that answers may be sealed with; then writes the current one down.
    pub async fn check(&self, seal: &Seal, store: &dyn Store) -> Result<(), SealStartError> {
        let Some(keeper) = store.seals() else { return Ok(()) };
        let ring = seal.ring();
        let known = |id: &String| ring.is_some_and(|ring| ring.ids().any(|known| known.as_str() == id));
        let missing: Vec<String> = keeper.keys().await?.into_iter().filter(|id| !known(id)).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            if !self.seal_keys_incomplete {
                let found = if ring.is_some() { "the file has not got them" } else { "there is no file" };
                return Err(SealStartError::Missing { missing, found });
            }
            tracing::warn!(missing, "retries of answers that are sealed with these keys get 503");
            // Set once: this is looked at once, before the service listens.
            let _ = seal.missing.set(missing);
        }
        if let Some(ring) = ring {
            keeper.add_key(ring.current().0.as_str()).await?;
        }
        Ok(())
    }
}
