//! Grants in PostgreSQL: any number of instances, decided by the database.
//!
//! One statement admits, in autocommit, on connections that do nothing else; the unique key of the
//! consumption, or the lock of the grant's row, is the decision. `sql/` has one file for each
//! statement, and its head says what it locks and why it is right.

mod bound;
mod params;
pub(crate) mod pool;
pub(crate) mod row;
pub mod statements;

use super::duration::Span;
use super::issuers::{Form, Issuers};
use super::store::{
    Admission, Admitted, Because, Bounded, GrantStore, Issue, Issued, IssuedRow, KeyReport, OperationAnswer,
    OperationRow, OwnerCall, OwnerOutcome, Pin, PinError, Revocation, Revoked, owner_refusal, report,
};
use super::timing::ExecutionTimings;
use super::token::GrantKey;
use crate::recovery::OperationEvent;
use crate::store::{OpenError, StoreError};
use async_trait::async_trait;
use fencepost_protocol::StoreId;
use fencepost_protocol::grants::{OperationId, OperationRefusal};
use params::{admit_params, admit_row_params, key_params, own_params};
use pool::{Failure, Params, Plans, Pool};
use row::{answer, event, get, micros, one, operation_row, owned, owned_or_none, system_time};
use std::sync::Arc;
use std::time::SystemTime;

/// Names of the constraints whose violation is a refusal; that of any other is a defect.
const REFUSING: [&str; 2] = ["operations_pkey", "operations_grant_key"];

/// How often a statement that saw neither its write nor the other's is run again.
const AGAIN_MAX: usize = 5;

/// Settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The store's address.
    pub url: String,
    /// Address of the connections that admit, where it is another one.
    pub admission_url: Option<String>,
    /// Unnamed statements, for transaction-mode poolers.
    pub unnamed_statements: bool,
    /// Connections that admit, and as many for the rest.
    pub connections: usize,
}

/// Grants in PostgreSQL.
pub struct PostgresGrants {
    admissions: Arc<Pool>,
    rest: Arc<Pool>,
    timings: ExecutionTimings,
}

impl PostgresGrants {
    /// On a database whose schema is there already.
    pub fn open(options: &Options, store_id: StoreId, timings: ExecutionTimings) -> Result<Self, OpenError> {
        let timeout = timings.store_call_timeout.duration();
        let pool = |url: &str, bound: Option<Span>| {
            let size = options.connections.max(1);
            Pool::new(url, options.unnamed_statements, store_id, timeout, Plans::Once, bound, size)
        };
        let admission_url = options.admission_url.as_deref().unwrap_or(&options.url);
        Ok(Self {
            admissions: pool(admission_url, Some(timings.admission_bound))?,
            rest: pool(&options.url, None)?,
            timings,
        })
    }

    async fn key_report(&self, key: &GrantKey) -> Result<KeyReport, StoreError> {
        let rows = self.rest.run(&statements::GRANT_REPORT, key_params(key)).await;
        let rows = rows.map_err(Failure::unexpected)?;
        let row = one(&rows)?;
        let operation: Option<&str> = get(row, "operation_id")?;
        Ok(KeyReport {
            issued: get(row, "issued")?,
            revoked: get(row, "revoked")?,
            used: get(row, "used")?,
            operation: if operation.is_some() { Some(operation_row(row)?) } else { None },
        })
    }

    async fn pin_one(&self, pin: &Pin) -> Result<(), PinError> {
        for _ in 0..AGAIN_MAX {
            let params: Params = vec![
                Box::new(pin.issuer.clone()),
                Box::new(pin.version.clone()),
                Box::new(pin.form.name()),
                Box::new(pin.key_by_tenant),
                Box::new(pin.leeway_ms),
                Box::new(pin.lifetime_ms_max),
                Box::new(pin.iat_skew_ms),
            ];
            let rows = self.rest.run(&statements::GRANT_PIN, params).await.map_err(Failure::unexpected)?;
            if let Some(row) = rows.first() {
                let form: &str = get(row, "form")?;
                let pinned = Pin {
                    form: if form == "row" { Form::Row } else { Form::Token },
                    key_by_tenant: get(row, "key_by_tenant")?,
                    leeway_ms: get(row, "leeway_ms")?,
                    lifetime_ms_max: get(row, "lifetime_ms_max")?,
                    iat_skew_ms: get(row, "iat_skew_ms")?,
                    ..pin.clone()
                };
                return pin.check(&pinned);
            }
        }
        Err(StoreError::Unavailable("the policies of grants change all the time".into()).into())
    }
}

#[async_trait]
impl GrantStore for PostgresGrants {
    async fn pin(&self, issuers: &Issuers) -> Result<(), PinError> {
        for pin in Pin::all(issuers) {
            self.pin_one(&pin).await?;
        }
        Ok(())
    }

    async fn admit(&self, admission: Admission) -> Result<Admitted, StoreError> {
        let (sql, params) = match admission.form {
            Form::Token => (&statements::GRANT_ADMIT, admit_params(&admission)),
            Form::Row => (&statements::GRANT_ADMIT_ROW, admit_row_params(&admission)),
        };
        let rows = match self.admissions.run(sql, params).await {
            Ok(rows) => rows,
            Err(Failure::Unique(constraint)) if REFUSING.contains(&constraint.as_str()) => {
                return Ok(Admitted::Refused(Because::Conflict));
            }
            Err(failure) => return Err(failure.unexpected()),
        };
        let row = one(&rows)?;
        if let Some(owned) = owned_or_none(row)? {
            return Ok(Admitted::Now(owned));
        }
        let (late, held) = (get(row, "late")?, get(row, "held")?);
        Ok(report(&admission, late, held, self.key_report(&admission.key).await?))
    }

    async fn own(&self, id: OperationId, version: i32, call: OwnerCall) -> Result<OwnerOutcome, StoreError> {
        for _ in 0..AGAIN_MAX {
            let (sql, params) = own_params(&id, version, &call);
            let rows = self.rest.run(sql, params).await.map_err(Failure::unexpected)?;
            if let Some(row) = rows.first() {
                return Ok(OwnerOutcome::Done(owned(row)?));
            }
            let seen = self.operation(id.clone()).await?;
            if let Some(outcome) = owner_refusal(&call, version, seen.as_ref()) {
                return Ok(outcome);
            }
            // What stood against it is gone already: ask again.
        }
        Ok(OwnerOutcome::Refused(OperationRefusal::Other))
    }

    async fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, StoreError> {
        let params: Params = vec![Box::new(id.as_str().to_owned())];
        let rows = self.rest.run(&statements::OPERATION_STATUS, params).await.map_err(Failure::unexpected)?;
        rows.first().map(operation_row).transpose()
    }

    async fn answer(&self, id: OperationId) -> Result<Option<OperationAnswer>, StoreError> {
        let params: Params = vec![Box::new(id.as_str().to_owned())];
        let rows = self.rest.run(&statements::OPERATION_ANSWER, params).await.map_err(Failure::unexpected)?;
        rows.first().map(answer).transpose()
    }

    async fn history(&self, id: OperationId) -> Result<Vec<OperationEvent>, StoreError> {
        let params: Params = vec![Box::new(id.as_str().to_owned())];
        let rows =
            self.rest.run(&statements::OPERATION_HISTORY, params).await.map_err(Failure::unexpected)?;
        rows.iter().map(event).collect()
    }

    async fn issue(&self, issue: Issue) -> Result<Issued, StoreError> {
        let mut params = key_params(&issue.key);
        params.extend::<Params>(vec![
            Box::new(if issue.form == Form::Row { "row" } else { "log" }),
            Box::new(issue.tenant.clone()),
            Box::new(issue.subject.clone()),
            Box::new(issue.bound.clone()),
            Box::new(issue.expires_at.map(system_time)),
            Box::new(issue.leeway.as_i64()),
            Box::new(issue.lifetime_max.as_i64()),
            Box::new(issue.actor.clone()),
        ]);
        let rows = self.rest.run(&statements::GRANT_ISSUE, params).await.map_err(Failure::unexpected)?;
        let row = one(&rows)?;
        if get(row, "issued")? {
            return Ok(Issued::Now);
        }
        if !get::<bool>(row, "good_expiry")? {
            return Ok(Issued::BadExpiry);
        }
        let same = |row: IssuedRow| {
            row.form == issue.form
                && row.tenant == issue.tenant
                && row.subject == issue.subject
                && row.bound == issue.bound
                && row.expires_at == issue.expires_at
        };
        let row = self.issued(issue.key.clone()).await?;
        Ok(if row.is_some_and(same) { Issued::Before } else { Issued::Taken })
    }

    async fn issued(&self, key: GrantKey) -> Result<Option<IssuedRow>, StoreError> {
        let rows = self.rest.run(&statements::GRANT_ISSUED, key_params(&key)).await;
        let rows = rows.map_err(Failure::unexpected)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let form: &str = get(row, "form")?;
        let expires_at: Option<SystemTime> = get(row, "expires_at")?;
        Ok(Some(IssuedRow {
            form: if form == "row" { Form::Row } else { Form::Token },
            tenant: get(row, "tenant")?,
            subject: get(row, "subject")?,
            bound: get(row, "bound")?,
            expires_at: expires_at.map(micros),
            leeway: Span::ms(u64::try_from(get::<i64>(row, "leeway_ms")?).unwrap_or(0)),
            archived: get(row, "archived")?,
        }))
    }

    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError> {
        let mut params = key_params(&revocation.key);
        let sql = match revocation.form {
            Form::Token => {
                params.extend::<Params>(vec![
                    Box::new(revocation.expires_at.map(system_time)),
                    Box::new(revocation.leeway.as_i64()),
                    Box::new(revocation.retention.map(Span::as_i64)),
                ]);
                &statements::GRANT_REVOKE
            }
            Form::Row => &statements::GRANT_REVOKE_ROW,
        };
        params.push(Box::new(revocation.actor));
        params.push(Box::new(revocation.reason));
        let rows = self.admissions.run(sql, params).await.map_err(Failure::unexpected)?;
        if get(one(&rows)?, "revoked")? {
            return Ok(Revoked::Now);
        }
        let seen = self.key_report(&revocation.key).await?;
        Ok(match (seen.revoked, seen.used, seen.issued || revocation.form == Form::Token) {
            (true, ..) => Revoked::Before,
            (_, false, false) => Revoked::NoRow,
            _ => Revoked::Used,
        })
    }

    async fn check_bound(&self) -> Result<Bounded, StoreError> {
        self.see_bound().await
    }

    async fn archive(&self, after: Span, limit: u32) -> Result<u64, StoreError> {
        self.bounded()?;
        let params: Params = vec![Box::new(after.as_i64()), Box::new(i64::from(limit))];
        let rows = self.rest.run(&statements::GRANT_ARCHIVE, params).await.map_err(Failure::unexpected)?;
        let changed: i64 = get(one(&rows)?, "changed")?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }

    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError> {
        self.bounded()?;
        let params: Params = vec![Box::new(self.timings.cleanup_margin.as_i64()), Box::new(i64::from(limit))];
        let rows = self.rest.run(&statements::GRANT_CLEANUP, params).await.map_err(Failure::unexpected)?;
        let changed: i64 = get(one(&rows)?, "changed")?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }
}
