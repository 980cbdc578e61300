//! The PostgreSQL store.

use super::{Clock, OpenError, Store, StoreError, StoreKind};
use crate::entry::{Claim, ClaimOutcome, Complete, Release, SweepKind};
use async_trait::async_trait;
use fencepost_protocol::StoreId;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use std::sync::Arc;

/// Settings.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections for claims.
    pub claim_connections: usize,
    /// Connections for everything else.
    pub finish_connections: usize,
    /// Unnamed statements.
    pub unnamed_statements: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { claim_connections: 4, finish_connections: 3, unnamed_statements: false }
    }
}

/// Entries in PostgreSQL.
pub struct Postgres {
    store_id: StoreId,
}

impl Postgres {
    /// Opens.
    pub async fn open(_: &str, _: Clock, _: bool, _: Options) -> Result<Self, OpenError> {
        Err(OpenError::Unusable("PostgreSQL is not there yet".into()))
    }
}

#[async_trait]
impl Store for Postgres {
    fn kind(&self) -> StoreKind {
        StoreKind::Postgres
    }
    fn store_id(&self) -> StoreId {
        self.store_id
    }
    async fn claim(&self, _: Arc<Claim>, _: u64) -> Result<ClaimOutcome, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn complete(&self, _: Complete) -> Result<CompleteReply, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn release(&self, _: Release) -> Result<ReleaseReply, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn unknown(&self, _: UnknownRequest) -> Result<UnknownReply, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn renew(&self, _: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn sweep(&self, _: SweepKind, _: u64, _: u32) -> Result<u64, StoreError> {
        Err(StoreError::Broken(String::new()))
    }
    async fn heartbeat(&self) -> Result<(), StoreError> {
        Err(StoreError::Broken(String::new()))
    }
}
