//! Grants in PostgreSQL: any number of instances, decided by the database.
//!
//! One statement admits, in autocommit, on connections that do nothing else; the unique key of the
//! consumption, or the lock of the grant's row, is the decision. `sql/` has one file for each
//! statement, and its head says what it locks and why it is right.

mod pool;
pub mod statements;

use super::duration::Span;
use super::issuers::{Form, Issuers};
use super::store::{
    Admission, Admitted, Because, Bounded, FIRST_OWNER, GrantStore, Issue, Issued, IssuedRow, KeyReport,
    OperationRow, Owned, OwnerCall, OwnerOutcome, Pin, PinError, Revocation, Revoked, owner_refusal,
    read_status, report, status_word,
};
use super::timing::ExecutionTimings;
use super::token::GrantKey;
use crate::entry::Micros;
use crate::recovery::OperationEvent;
use crate::store::{OpenError, StoreError};
use async_trait::async_trait;
use fencepost_protocol::StoreId;
use fencepost_protocol::grants::{OperationId, OperationRefusal};
use pool::{BOUND_VERSION, Failure, Params, Pool};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::Row;

/// Names of the constraints whose violation is a refusal; that of any other is a defect.
const REFUSING: [&str; 2] = ["operations_pkey", "operations_grant_key"];

/// How much later than its bound a cut statement may be noticed.
const BOUND_SLACK: Duration = Duration::from_secs(5);

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
            Pool::new(url, options.unnamed_statements, store_id, timeout, bound, options.connections.max(1))
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
        let late = get(row, "late")?;
        Ok(report(&admission, late, self.key_report(&admission.key).await?))
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
        }))
    }

    async fn revoke(&self, revocation: Revocation) -> Result<Revoked, StoreError> {
        let mut params = key_params(&revocation.key);
        let sql = match revocation.form {
            Form::Token => {
                params.extend::<Params>(vec![
                    Box::new(revocation.expires_at.map(system_time)),
                    Box::new(revocation.leeway.as_i64()),
                    Box::new(revocation.retention.as_i64()),
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

    async fn cleanup(&self, limit: u32) -> Result<u64, StoreError> {
        if self.admissions.unbounded() {
            return Err(StoreError::Unavailable(
                "a connection that admits was seen without transaction_timeout".into(),
            ));
        }
        let params: Params = vec![Box::new(self.timings.cleanup_margin.as_i64()), Box::new(i64::from(limit))];
        let rows = self.rest.run(&statements::GRANT_CLEANUP, params).await.map_err(Failure::unexpected)?;
        let changed: i64 = get(one(&rows)?, "changed")?;
        Ok(u64::try_from(changed).unwrap_or(0))
    }
}

impl PostgresGrants {
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

fn key_params(key: &GrantKey) -> Params {
    vec![Box::new(key.issuer.clone()), Box::new(key.key_tenant.clone()), Box::new(key.grant_id.clone())]
}

fn admit_params(admission: &Admission) -> Params {
    let mut params = key_params(&admission.key);
    params.extend::<Params>(vec![
        Box::new(admission.operation.as_str().to_owned()),
        Box::new(system_time(admission.expires_at)),
        Box::new(admission.leeway.as_i64()),
    ]);
    params.extend(operation_params(admission));
    params
}

fn admit_row_params(admission: &Admission) -> Params {
    let mut params = key_params(&admission.key);
    params.push(Box::new(admission.operation.as_str().to_owned()));
    params.extend(operation_params(admission));
    params
}

fn operation_params(admission: &Admission) -> Params {
    vec![
        Box::new(admission.caller_namespace.clone()),
        Box::new(admission.caller_id.clone()),
        Box::new(admission.tenant.clone()),
        Box::new(admission.details_digest.to_vec()),
        Box::new(admission.details.clone()),
        Box::new(admission.lease.as_i64()),
        Box::new(admission.submission.as_i64()),
        Box::new(FIRST_OWNER),
    ]
}

fn own_params(id: &OperationId, version: i32, call: &OwnerCall) -> (&'static statements::Sql, Params) {
    let mut params: Params = vec![Box::new(id.as_str().to_owned()), Box::new(version)];
    let sql = match call {
        OwnerCall::MaySubmit { expected } => {
            params.push(Box::new(status_word(*expected)));
            &statements::OPERATION_MAY_SUBMIT
        }
        OwnerCall::Record { expected, outcome, reference } => {
            params.push(Box::new(status_word(*expected)));
            params.push(Box::new(status_word(*outcome)));
            params.push(Box::new(reference.clone()));
            &statements::OPERATION_RECORD
        }
        OwnerCall::Renew { lease } => {
            params.push(Box::new(lease.as_i64()));
            &statements::OPERATION_RENEW
        }
        OwnerCall::TakeOver { lease } => {
            params.push(Box::new(lease.as_i64()));
            &statements::OPERATION_TAKE_OVER
        }
    };
    (sql, params)
}

fn one(rows: &[Row]) -> Result<&Row, StoreError> {
    rows.first().ok_or_else(|| StoreError::Broken("a statement that gives one row gave none".into()))
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| StoreError::Broken(format!("column {name}: {error}")))
}

fn left(row: &Row, name: &str) -> Result<u64, StoreError> {
    Ok(u64::try_from(get::<i64>(row, name)?).unwrap_or(0))
}

fn owned(row: &Row) -> Result<Owned, StoreError> {
    Ok(Owned {
        owner_version: get(row, "owner_version")?,
        lease_left_ms: left(row, "lease_left_ms")?,
        submit_left_ms: left(row, "submit_left_ms")?,
    })
}

fn owned_or_none(row: &Row) -> Result<Option<Owned>, StoreError> {
    match get::<Option<i32>>(row, "owner_version")? {
        Some(_) => owned(row).map(Some),
        None => Ok(None),
    }
}

fn operation_row(row: &Row) -> Result<OperationRow, StoreError> {
    let bad = |what: &str| StoreError::Broken(format!("an operation has a bad {what}"));
    let digest: &[u8] = get(row, "details_digest")?;
    Ok(OperationRow {
        operation: OperationId::parse(get(row, "operation_id")?).map_err(|_| bad("operation id"))?,
        key: GrantKey {
            issuer: get(row, "issuer")?,
            key_tenant: get(row, "key_tenant")?,
            grant_id: get(row, "grant_id")?,
        },
        caller_namespace: get(row, "caller_namespace")?,
        caller_id: get(row, "caller_id")?,
        tenant: get(row, "tenant")?,
        details_digest: digest.try_into().map_err(|_| bad("digest"))?,
        details: get(row, "details")?,
        status: read_status(get(row, "status")?).ok_or_else(|| bad("status"))?,
        reference: get(row, "reference")?,
        owned: owned(row)?,
    })
}

fn event(row: &Row) -> Result<OperationEvent, StoreError> {
    let bad = || StoreError::Broken("an event has a bad status".into());
    Ok(OperationEvent {
        at: micros(get(row, "at")?),
        owner_version: get(row, "owner_version")?,
        actor: get(row, "actor")?,
        step: get(row, "step")?,
        result: get(row, "result")?,
        status: read_status(get(row, "status")?).ok_or_else(bad)?,
        detail: get(row, "detail")?,
    })
}

fn system_time(at: Micros) -> SystemTime {
    let us = u64::try_from(at.0).unwrap_or(0);
    UNIX_EPOCH + Duration::from_micros(us)
}

fn micros(at: SystemTime) -> Micros {
    let us = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Micros(i64::try_from(us).unwrap_or(i64::MAX))
}
