//! Is the life of an admission bounded on this server? Seen, not believed.
//!
//! A record of use may go only once no admission that began before its deadline can still be
//! waiting; so the bound is looked at in the settings, and then a statement is held past it.

use super::PostgresGrants;
use super::pool::{self, BOUND_VERSION, Params};
use super::statements;
use crate::grant::duration::Span;
use crate::grant::store::Bounded;
use crate::store::{OpenError, StoreError};
use std::time::{Duration, Instant};

/// How much later than its bound a cut statement may be noticed.
const BOUND_SLACK: Duration = Duration::from_secs(5);

impl PostgresGrants {
    /// An error once a connection that admits was seen without the bound.
    pub(super) fn bounded(&self) -> Result<(), StoreError> {
        if self.admissions.unbounded() {
            return Err(StoreError::Unavailable(
                "a connection that admits was seen without transaction_timeout".into(),
            ));
        }
        Ok(())
    }

    /// Looks at the settings, then provokes the bound.
    pub(super) async fn see_bound(&self) -> Result<Bounded, StoreError> {
        let unreachable = |error: OpenError| StoreError::Unavailable(error.to_string());
        let told = |error: &tokio_postgres::Error| {
            StoreError::Unavailable(crate::store::postgres::session::told(error))
        };
        let mut connection = self.admissions.connect().await.map_err(unreachable)?;
        let settings = connection.settings().await.map_err(|error| told(&error))?;
        let bound = self.timings.admission_bound;
        if settings.version_num < BOUND_VERSION {
            return Ok(Bounded::No(format!(
                "found PostgreSQL {}, which has no transaction_timeout; expected 17 or later",
                settings.version_num / 10_000
            )));
        }
        if !settings.within(bound) {
            let found = settings.timeout_ms.map_or_else(|| "none".into(), |ms| format!("{ms}ms"));
            return Ok(Bounded::No(format!(
                "found transaction_timeout = {found} on the connections that admit; expected 1ms to {bound} \
                 (timings.admission_bound): set it on the role of --admission-store"
            )));
        }
        if self.admissions.unbounded() {
            return Ok(Bounded::No(
                "a connection that admits was seen without transaction_timeout since the start; set it, then restart"
                    .into(),
            ));
        }
        if settings.replicated && self.timings.replication_wait == Span::default() {
            return Ok(Bounded::No(
                "commits wait for synchronous standbys and timings.replication_wait is not stated; expected the \
                 longest such wait, which no timeout of the server cuts"
                    .into(),
            ));
        }
        self.provoke(connection).await
    }

    /// Holds a statement past the bound, and sees whether the server cuts it in time.
    async fn provoke(&self, mut connection: pool::Connection) -> Result<Bounded, StoreError> {
        let bound = self.timings.admission_bound.duration();
        let start = Instant::now();
        let seconds: Params = vec![Box::new((bound + BOUND_SLACK * 2).as_secs_f64())];
        let held = connection.query(&statements::BOUND_PROVOKE, &seconds, true);
        let found = match tokio::time::timeout(bound + BOUND_SLACK, held).await {
            Ok(Err(error)) if error.code().is_some_and(|code| code.code() == "25P04") => {
                tracing::info!(elapsed = ?start.elapsed(), "the server ends admissions within the bound");
                return Ok(Bounded::Verified);
            }
            Ok(Err(error)) => {
                let reason = crate::store::postgres::session::told(&error);
                return Err(StoreError::Unavailable(reason));
            }
            Ok(Ok(_)) | Err(_) => format!("a statement lived for {:?}", start.elapsed()),
        };
        Ok(Bounded::No(format!(
            "{found} although transaction_timeout is at most {}; expected the server to end it",
            self.timings.admission_bound
        )))
    }
}
