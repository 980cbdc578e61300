//! Settings of recovery on the command line, and its start.

use super::postgres::PostgresRecovery;
use super::settings::{Settings, SettingsError};
use super::store::RecoveryStore;
use super::worker::Desk;
use crate::grant::issuers::Issuers;
use crate::grant::timing::ExecutionTimings;
use crate::seal::Seal;
use crate::service::Service;
use crate::store::{OpenError, StoreUrl};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of recovery.
#[derive(Debug, Args)]
pub struct RecoveryArgs {
    /// Whom recovery asks about operations and held keys, YAML or JSON. Without it nothing is looked
    /// up.
    #[arg(long, env = "FENCEPOST_RECOVERY", value_name = "FILE")]
    recovery: Option<PathBuf>,
}

/// Why a start with recovery is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryStartError {
    /// The file.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A store that is lost with the process.
    #[error("--recovery: the store {0} is lost with the process; expected PostgreSQL or SQLite")]
    NoStore(StoreUrl),
    /// The address.
    #[error("recovery: {0}")]
    Open(#[from] OpenError),
    /// Durations that don't fit.
    #[error("--issuers: {0}")]
    Timings(String),
    /// No name for this instance.
    #[error("recovery: no random numbers from the system")]
    NoName,
}

impl RecoveryArgs {
    /// Opens what recovery writes to; none where there is nothing to write to.
    pub fn store(
        url: &StoreUrl,
        unnamed_statements: bool,
        timings: &ExecutionTimings,
        service: &Service,
        seal: &Arc<Seal>,
    ) -> Result<Option<Arc<dyn RecoveryStore>>, OpenError> {
        let store = service.store();
        Ok(match url {
            StoreUrl::Postgres(url) => {
                let timeout = timings.store_call_timeout.duration();
                let opened = PostgresRecovery::open(url, unnamed_statements, store.store_id(), timeout)?;
                Some(seal.recovery(Arc::new(opened)))
            }
            _ => store.recovery(),
        })
    }

    /// Reads the settings; none without `--recovery`.
    pub fn desk(
        &self,
        url: &StoreUrl,
        timings: ExecutionTimings,
        store: Option<Arc<dyn RecoveryStore>>,
        service: &Arc<Service>,
        issuers: Option<&Issuers>,
    ) -> Result<Option<Desk>, RecoveryStartError> {
        let Some(path) = &self.recovery else { return Ok(None) };
        timings.check().map_err(RecoveryStartError::Timings)?;
        let settings = Settings::read(path, &timings)?;
        let store = store.ok_or_else(|| RecoveryStartError::NoStore(url.clone()))?;
        settings
            .check_issuers(|name| issuers.is_some_and(|issuers| issuers.get(name).is_some()))
            .map_err(|reason| SettingsError { path: path.clone(), reason })?;
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(|_| RecoveryStartError::NoName)?;
        Ok(Some(Desk::new(settings, timings, store, service.clone(), &hex::encode(name))))
    }
}
