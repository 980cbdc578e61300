//! Grants in the SQLite file, beside the entries and on their only connection.
//!
//! Different from PostgreSQL, and safe: each decision reads and writes inside the file's write lock,
//! and **the clock is read there**, not when the call began. A call that waits for the lock can so
//! be refused though it was sent before the deadline; it is never admitted after it. An admission
//! holds the lock to its commit and the cleanup takes the same lock, so there is no delayed
//! admission that a cleanup could overtake, and no bound is needed. What is the same: one record of
//! use for each grant, the operation in the same transaction, refusals that reveal nothing.

pub mod statements;
pub(crate) mod tables;

use super::duration::Span;
use super::issuers::{Form, Issuers};
use super::store::{
    Admission, Admitted, Because, Bounded, FIRST_OWNER, GrantStore, Issue, Issued, IssuedRow, KeyReport,
    OperationAnswer, OperationRow, Owned, OwnerCall, OwnerOutcome, Pin, PinError, Revocation, Revoked,
    owner_refusal, report,
};
use super::timing::ExecutionTimings;
use super::token::GrantKey;
use crate::entry::Micros;
use crate::recovery::OperationEvent;
use crate::store::StoreError;
use crate::store::sqlite::Beside;
use async_trait::async_trait;
use fencepost_protocol::grants::OperationId;
use rusqlite::{Result, Transaction};
use tables::{IssuedSeen, Stored};

/// Grants in the file of a store.
pub struct SqliteGrants {
    beside: Beside,
    timings: ExecutionTimings,
}

impl SqliteGrants {
    /// On the store's connection.
    pub fn new(beside: Beside, timings: ExecutionTimings) -> Self {
        Self { beside, timings }
    }
}

#[async_trait]
impl GrantStore for SqliteGrants {
    async fn pin(&self, issuers: &Issuers) -> std::result::Result<(), PinError> {
        for pin in Pin::all(issuers) {
            let asked = pin.clone();
            let pinned = self.beside.run(move |tx, now| tables::pin(tx, &asked, now)).await?;
            pin.check(&pinned)?;
        }
        Ok(())
    }

    async fn admit(&self, admission: Admission) -> std::result::Result<Admitted, StoreError> {
        self.beside.run(move |tx, now| admit(tx, now, &admission)).await
    }

    async fn own(
        &self,
        id: OperationId,
        version: i32,
        call: OwnerCall,
    ) -> std::result::Result<OwnerOutcome, StoreError> {
        self.beside.run(move |tx, now| own(tx, now, &id, version, call)).await
    }

    async fn operation(&self, id: OperationId) -> std::result::Result<Option<OperationRow>, StoreError> {
        let read =
            move |tx: &Transaction<'_>, now| Ok(tables::operation(tx, &id)?.map(|stored| stored.row(now)));
        self.beside.run(read).await
    }

    async fn history(&self, id: OperationId) -> std::result::Result<Vec<OperationEvent>, StoreError> {
        self.beside.run(move |tx, _| tables::history(tx, &id)).await
    }

    async fn answer(&self, id: OperationId) -> std::result::Result<Option<OperationAnswer>, StoreError> {
        self.beside.run(move |tx, _| tables::answer(tx, &id)).await
    }

    async fn issue(&self, issue: Issue) -> std::result::Result<Issued, StoreError> {
        self.beside.run(move |tx, now| issue_one(tx, now, &issue)).await
    }

    async fn issued(&self, key: GrantKey) -> std::result::Result<Option<IssuedRow>, StoreError> {
        self.beside.run(move |tx, _| Ok(tables::issued(tx, &key)?.map(|seen| seen.row))).await
    }

    async fn revoke(&self, revocation: Revocation) -> std::result::Result<Revoked, StoreError> {
        self.beside.run(move |tx, now| revoke(tx, now, &revocation)).await
    }

    async fn check_bound(&self) -> std::result::Result<Bounded, StoreError> {
        Ok(Bounded::Verified)
    }

    async fn archive(&self, after: Span, limit: u32) -> std::result::Result<u64, StoreError> {
        let after = after.as_i64() * 1_000;
        self.beside.run(move |tx, now| tables::archive(tx, Micros(now.0 - after), limit, now)).await
    }

    async fn cleanup(&self, limit: u32) -> std::result::Result<u64, StoreError> {
        // The margin still covers steps of this machine's clock.
        let margin = self.timings.cleanup_margin.as_i64() * 1_000;
        self.beside.run(move |tx, now| tables::cleanup(tx, Micros(now.0 - margin), limit)).await
    }
}

fn after(at: Micros, span: Span) -> Micros {
    at.plus_ms(span.as_ms())
}

fn admit(tx: &Transaction<'_>, now: Micros, admission: &Admission) -> Result<Admitted> {
    let issued = tables::issued(tx, &admission.key)?;
    let consumed = tables::consumption(tx, &admission.key)?;
    let (free, deadline) = match (admission.form, &issued) {
        (Form::Token, _) => (consumed.is_none(), after(admission.expires_at, admission.leeway)),
        (Form::Row, Some(IssuedSeen { row, revoked: false, consumed_by: None })) => {
            (row.form == Form::Row && !row.archived, after(row.expires_at.unwrap_or(Micros(0)), row.leeway))
        }
        (Form::Row, Some(seen)) => (false, after(seen.row.expires_at.unwrap_or(Micros(0)), seen.row.leeway)),
        (Form::Row, None) => (false, Micros(i64::MAX)),
    };
    let late = deadline.0 <= now.0;
    let held = tables::held(tx, admission)?;
    if late || held || !free {
        let operation = consumed.clone().flatten().or_else(|| issued.as_ref()?.consumed_by.clone());
        let seen = KeyReport {
            issued: issued.is_some(),
            revoked: issued.is_some_and(|seen| seen.revoked) || consumed == Some(None),
            used: operation.is_some(),
            operation: match operation {
                Some(id) => tables::operation(tx, &id)?.map(|stored| stored.row(now)),
                None => None,
            },
        };
        return Ok(report(admission, late, held, seen));
    }
    // Looked at before anything is written: where PostgreSQL undoes the claim, nothing was claimed.
    if tables::clash(tx, admission)? {
        return Ok(Admitted::Refused(Because::Conflict));
    }
    match admission.form {
        Form::Token => tables::consume(tx, &admission.key, Some(&admission.operation), now, deadline)?,
        Form::Row => tables::consume_issued(tx, &admission.key, &admission.operation, now)?,
    }
    let (lease_until, submit_by) = (after(now, admission.lease), after(now, admission.submission));
    tables::add_operation(tx, admission, lease_until, submit_by, now)?;
    Ok(Admitted::Now(Owned {
        owner_version: FIRST_OWNER,
        lease_left_ms: admission.lease.as_ms(),
        submit_left_ms: admission.submission.as_ms(),
    }))
}

fn own(
    tx: &Transaction<'_>,
    now: Micros,
    id: &OperationId,
    version: i32,
    call: OwnerCall,
) -> Result<OwnerOutcome> {
    let stored = tables::operation(tx, id)?;
    let row = stored.as_ref().map(|stored| stored.row(now));
    if let Some(outcome) = owner_refusal(&call, version, row.as_ref()) {
        return Ok(outcome);
    }
    let Some(mut stored) = stored else {
        // Cannot happen: an absent row was refused above.
        return Ok(OwnerOutcome::Refused(fencepost_protocol::grants::OperationRefusal::Absent));
    };
    let mut finished = None;
    match call {
        OwnerCall::MaySubmit { .. } => return Ok(OwnerOutcome::Done(stored.row(now).owned)),
        OwnerCall::Record { outcome, reference, .. } => {
            stored.row.status = outcome;
            stored.row.reference = reference;
        }
        OwnerCall::Finish { outcome, reference, answer, .. } => {
            stored.row.status = outcome;
            stored.row.reference = reference;
            finished = answer;
        }
        OwnerCall::Renew { lease } => {
            stored.lease_until = Micros(stored.lease_until.0.max(after(now, lease).0));
        }
        OwnerCall::TakeOver { lease } => {
            stored.row.owned.owner_version += 1;
            stored.lease_until = after(now, lease);
        }
    }
    tables::write_operation(tx, &stored, now)?;
    if let Some(answer) = finished {
        tables::add_answer(tx, id, &answer)?;
    }
    Ok(OwnerOutcome::Done(stored.row(now).owned))
}

fn issue_one(tx: &Transaction<'_>, now: Micros, issue: &Issue) -> Result<Issued> {
    let good_expiry =
        issue.expires_at.is_none_or(|at| at.0 > now.0 && at.0 <= after(now, issue.lifetime_max).0);
    if !good_expiry {
        return Ok(Issued::BadExpiry);
    }
    if let Some(IssuedSeen { row, .. }) = tables::issued(tx, &issue.key)? {
        let same = row.form == issue.form
            && row.tenant == issue.tenant
            && row.subject == issue.subject
            && row.bound == issue.bound
            && row.expires_at == issue.expires_at;
        return Ok(if same { Issued::Before } else { Issued::Taken });
    }
    tables::add_issued(tx, issue, now)?;
    tables::audit(tx, now, &issue.actor, "issue", "issued", &issue.key, "")?;
    Ok(Issued::Now)
}

/// Until when a token could still be admitted. Where it was not seen, an expiry that was noted at
/// its issue is only a hint, and any version of the leeway may be its own: by what is pinned as well.
fn kept_until(tx: &Transaction<'_>, now: Micros, revocation: &Revocation) -> Result<Micros> {
    let (expires_at, leeway) = (revocation.expires_at, revocation.leeway);
    let Some(retention) = revocation.retention else {
        return Ok(after(expires_at.unwrap_or(now), leeway));
    };
    let (pinned_leeway, pinned_lifetime) = tables::longest_pinned(tx, &revocation.key.issuer)?;
    let longest = after(now, retention.max(pinned_lifetime.plus(pinned_leeway)));
    let noted = expires_at.map(|at| after(at, leeway.max(pinned_leeway)));
    Ok(noted.map_or(longest, |noted| Micros(noted.0.max(longest.0))))
}

fn revoke(tx: &Transaction<'_>, now: Micros, revocation: &Revocation) -> Result<Revoked> {
    let key = &revocation.key;
    let revoked = match revocation.form {
        Form::Token => match tables::consumption(tx, key)? {
            Some(None) => Revoked::Before,
            Some(Some(_)) => Revoked::Used,
            None => {
                tables::consume(tx, key, None, now, kept_until(tx, now, revocation)?)?;
                Revoked::Now
            }
        },
        Form::Row => match tables::issued(tx, key)? {
            None => Revoked::NoRow,
            Some(IssuedSeen { consumed_by: Some(_), .. }) => Revoked::Used,
            Some(IssuedSeen { revoked: true, .. }) => Revoked::Before,
            Some(_) => {
                tables::revoke_issued(tx, key, now)?;
                Revoked::Now
            }
        },
    };
    let outcome = if revoked == Revoked::Now { "revoked" } else { "nothing_changed" };
    tables::audit(tx, now, &revocation.actor, "revoke", outcome, key, &revocation.reason)?;
    Ok(revoked)
}

impl Stored {
    /// The operation with what is left of its times.
    pub(crate) fn row(&self, now: Micros) -> OperationRow {
        let left = |until: Micros| u64::try_from((until.0 - now.0) / 1_000).unwrap_or(0);
        let mut row = self.row.clone();
        row.owned.lease_left_ms = left(self.lease_until);
        row.owned.submit_left_ms = left(self.submit_by);
        row
    }
}
