//! Admission inside the caller's own PostgreSQL transaction, where the effect is a write to the same
//! database: an alternative to "admitted durably before the effect", not a case of it.
//!
//! The caller proves the grant first (signature, audience, subject, details; the service does this
//! for [`crate::Client::admit`]) and then admits right before its own writes. Roll the transaction
//! back and the grant is unspent and the effect undone. **Nothing outside the database may happen in
//! it**: an HTTP call can't be rolled back.

use crate::{Caller, Details, OperationId};
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

const ADMIT: &str = include_str!("sql/admit_in_transaction.sql");
const BOUND: &str = include_str!("sql/bound_in_transaction.sql");
const BEFORE: &str = include_str!("sql/admitted_before.sql");

/// A grant that the caller has proven, from its verified payload and never from a request.
#[derive(Debug, Clone)]
pub struct ProvenGrant {
    /// Who issued it.
    pub issuer: String,
    /// The tenant where the issuer's ids are unique in one only, else empty.
    pub key_tenant: String,
    /// Its id.
    pub grant_id: String,
    /// When it was issued, as its claim `iat` says.
    pub issued_at: SystemTime,
    /// Its expiry.
    pub expires_at: SystemTime,
    /// The version of the leeway that it names, or empty.
    pub leeway_version: String,
}

/// What it is used for.
#[derive(Debug, Clone)]
pub struct Intent {
    /// The operation, the same in every retry.
    pub operation_id: OperationId,
    /// Who wants it.
    pub caller: Caller,
    /// The caller's tenant, or empty.
    pub tenant: String,
    /// What it is about, as the grant has it.
    pub details: Details,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InTransaction {
    /// Claimed: write the effect and commit.
    Admitted,
    /// The grant was spent for this very operation, whose effect is committed: write nothing.
    Before,
    /// Past its admission deadline.
    Late,
    /// Issued before a backup was restored, as far as the issuer's clock may be off, and so perhaps
    /// used since: until a person releases it, or lifts the hold. It is not spent.
    Held,
    /// Used, revoked, or in conflict with another operation.
    Refused,
}

/// Why nothing was decided. Roll back.
#[derive(Debug, thiserror::Error)]
pub enum InTransactionError {
    /// The database said so.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// The transaction is not one that this works in.
    #[error("found isolation level {0:?}; expected read committed")]
    Isolation(String),
    /// The server can't bound transactions.
    #[error("found a server without transaction_timeout; expected PostgreSQL 17 or later")]
    Unbounded,
    /// The service has never served this issuer with this version of the leeway.
    #[error("found no policy for the issuer and its leeway version; expected the service to have pinned one")]
    NoPolicy,
}

/// Claims the single use of a grant in the caller's transaction. `bound` is the service's
/// `timings.admission_bound` or less: the server ends the transaction that much later, so that the
/// service's cleanup of records can't overtake it.
pub async fn admit(
    transaction: &mut Transaction<'_>,
    grant: &ProvenGrant,
    intent: &Intent,
    bound: Duration,
) -> Result<InTransaction, InTransactionError> {
    let bound_ms = i64::try_from(bound.as_millis()).unwrap_or(i64::MAX);
    let settings = transaction.query_typed(BOUND, &[(&bound_ms, Type::INT8)]).await?;
    let settings = settings.first().ok_or(InTransactionError::Unbounded)?;
    let isolation: &str = settings.try_get("isolation")?;
    if isolation != "read committed" {
        return Err(InTransactionError::Isolation(isolation.to_owned()));
    }
    let digest = digest(&intent.details);
    // Cannot fail: text keys and values.
    let details = serde_json::to_string(&intent.details).unwrap_or_default();
    let id = intent.operation_id.as_str();
    let subject = subject(grant);
    let row = {
        // A conflict must not end the caller's transaction.
        let savepoint = transaction.savepoint("fencepost_admit").await?;
        let rows = savepoint
            .query_typed(
                ADMIT,
                &[
                    text(&grant.issuer),
                    text(&grant.key_tenant),
                    text(&grant.grant_id),
                    (&id, Type::TEXT),
                    (&grant.expires_at, Type::TIMESTAMPTZ),
                    text(&grant.leeway_version),
                    text(&intent.caller.namespace),
                    text(&intent.caller.id),
                    text(&intent.tenant),
                    (&&digest[..], Type::BYTEA),
                    text(&details),
                    (&grant.issued_at, Type::TIMESTAMPTZ),
                    text(&subject),
                ],
            )
            .await;
        match rows {
            Ok(rows) => {
                savepoint.commit().await?;
                rows
            }
            Err(error) if refuses(&error) => {
                savepoint.rollback().await?;
                return Ok(InTransaction::Refused);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let said = |name: &str| row.first().map_or(Ok(false), |row: &Row| row.try_get::<_, bool>(name));
    if said("admitted")? {
        return Ok(InTransaction::Admitted);
    }
    if !said("known")? {
        return Err(InTransactionError::NoPolicy);
    }
    if said("late")? {
        return Ok(InTransaction::Late);
    }
    let rows = transaction
        .query_typed(
            BEFORE,
            &[
                text(&grant.issuer),
                text(&grant.key_tenant),
                text(&grant.grant_id),
                (&id, Type::TEXT),
                text(&intent.caller.namespace),
                text(&intent.caller.id),
                text(&intent.tenant),
                (&&digest[..], Type::BYTEA),
            ],
        )
        .await?;
    let seen = |name: &str| rows.first().map_or(Ok(false), |row| row.try_get::<_, bool>(name));
    Ok(match (seen("before")?, seen("spent")?) {
        (true, _) => InTransaction::Before,
        (false, false) if said("held")? => InTransaction::Held,
        _ => InTransaction::Refused,
    })
}

/// The subject of a person's release, as the service writes it.
fn subject(grant: &ProvenGrant) -> String {
    format!("grant {}", serde_json::json!([grant.issuer, grant.key_tenant, grant.grant_id]))
}

fn text(value: &String) -> (&(dyn ToSql + Sync), Type) {
    (value, Type::TEXT)
}

/// Two constraints refuse; the violation of any other is a defect.
fn refuses(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::UNIQUE_VIOLATION
            && matches!(db.constraint(), Some("operations_pkey" | "operations_grant_key"))
    })
}

fn digest(details: &Details) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"fencepost-details-1");
    for (name, value) in &details.0 {
        for part in [name, value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().into()
}
