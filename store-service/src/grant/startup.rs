//! Settings of grants, and what happens at the start.
//!
//! A start is refused where a guarantee could not hold: timings that don't fit, a leeway that was
//! changed under grants in flight, a store that can't decide.

use super::cleanup;
use super::issuers::{Issuers, IssuersError};
use super::postgres::{Options, PostgresGrants};
use super::service::Grants;
use super::spans::Spanned;
use super::store::{GrantStore, PinError};
use crate::seal::Seal;
use crate::store::{OpenError, Store, StoreUrl};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often records of use are looked at.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(30);

/// Settings of grants.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// Issuers of grants and the timings of operations, YAML or JSON. Without it there are no grants.
    #[arg(long, env = "FENCEPOST_ISSUERS", value_name = "FILE")]
    issuers: Option<PathBuf>,

    /// Where admissions go: the store's database with a role or a way of its own, so that the server
    /// can bound their transactions.
    #[arg(long, env = "FENCEPOST_ADMISSION_STORE", value_name = "URL")]
    admission_store: Option<StoreUrl>,

    /// PostgreSQL connections for admissions, and as many for other calls on grants.
    #[arg(long, env = "FENCEPOST_GRANT_CONNECTIONS", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    grant_connections: u16,
}

/// Why a start with grants is refused.
#[derive(Debug, thiserror::Error)]
pub enum GrantStartError {
    /// The file of the issuers.
    #[error(transparent)]
    Issuers(#[from] IssuersError),
    /// A store without grants.
    #[error("--issuers: the store {0} keeps no grants; expected PostgreSQL or SQLite")]
    NoGrants(StoreUrl),
    /// An address for admissions that can't be one.
    #[error(
        "--admission-store {0}: expected postgres://USER@HOST/DATABASE, and --store on PostgreSQL as well"
    )]
    AdmissionStore(StoreUrl),
    /// The addresses.
    #[error("grants: {0}")]
    Open(#[from] OpenError),
    /// What grants were issued under.
    #[error("--issuers: {0}")]
    Pin(#[from] PinError),
}

impl GrantArgs {
    /// Opens the grants on the store, and starts the cleanup; none without `--issuers`.
    pub async fn open(
        &self,
        url: &StoreUrl,
        unnamed_statements: bool,
        store: &dyn Store,
        seal: &Arc<Seal>,
    ) -> Result<Option<Arc<Grants>>, GrantStartError> {
        let Some(path) = &self.issuers else { return Ok(None) };
        let issuers = Issuers::read(path)?;
        let admission_url = match (&self.admission_store, url) {
            (None, _) => None,
            (Some(StoreUrl::Postgres(admission)), StoreUrl::Postgres(_)) => Some(admission.clone()),
            (Some(other), _) => return Err(GrantStartError::AdmissionStore(other.clone())),
        };
        let grant_store: Arc<dyn GrantStore> = match url {
            StoreUrl::Postgres(url) => {
                let options = Options {
                    url: url.clone(),
                    admission_url,
                    unnamed_statements,
                    connections: self.grant_connections.into(),
                };
                let opened = PostgresGrants::open(&options, store.store_id(), issuers.timings)?;
                seal.grants(Arc::new(opened))
            }
            _ => store.grants(issuers.timings).ok_or_else(|| GrantStartError::NoGrants(url.clone()))?,
        };
        let grant_store = Arc::new(Spanned::around(grant_store, store.kind().name()));
        grant_store.pin(&issuers).await?;
        let grants = Grants::new(issuers, grant_store);
        tokio::spawn(cleanup::run(grants.clone(), CLEANUP_INTERVAL));
        Ok(Some(grants))
    }
}
