//! Grants as they are issued and withdrawn.
//!
//! An id is issued once and never again. A withdrawal contends with admissions for the same key, so
//! the store orders the two.

use super::duration::Span;
use super::issuers::Form;
use super::token::GrantKey;
use crate::entry::Micros;
use fencepost_protocol::grants::Details;

/// A grant to be recorded as issued.
#[derive(Clone, Debug)]
pub struct Issue {
    /// Its name.
    pub key: GrantKey,
    /// A row that is the grant, or a proof that a token was issued.
    pub form: Form,
    /// The tenant that it is for, or empty.
    pub tenant: String,
    /// Who may use it.
    pub subject: String,
    /// What it binds, as JSON.
    pub bound: String,
    /// Its expiry.
    pub expires_at: Option<Micros>,
    /// Its leeway.
    pub leeway: Span,
    /// Longest lifetime.
    pub lifetime_max: Span,
    /// Who issues, for the audit.
    pub actor: String,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issued {
    /// Recorded now.
    Now,
    /// Recorded before, with the same contents.
    Before,
    /// The id is taken by another grant.
    Taken,
    /// The expiry is past, or further away than a grant may live, by the store's clock.
    BadExpiry,
}

/// An issued grant as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedRow {
    /// A row that is the grant, or a proof that a token was issued.
    pub form: Form,
    /// The tenant that it is for, or empty.
    pub tenant: String,
    /// Who may use it.
    pub subject: String,
    /// What it binds, as JSON.
    pub bound: String,
    /// Its expiry.
    pub expires_at: Option<Micros>,
    /// Its leeway.
    pub leeway: Span,
    /// Is it a tombstone by now, which admits nothing and has forgotten what it bound?
    pub archived: bool,
}

impl IssuedRow {
    /// The bound details.
    pub fn details(&self) -> Details {
        super::details::from_text(&self.bound)
    }
}

/// A withdrawal.
#[derive(Clone, Debug)]
pub struct Revocation {
    /// The grant.
    pub key: GrantKey,
    /// Where it lives.
    pub form: Form,
    /// Its expiry, or the one that was noted at its issue, if one was.
    pub expires_at: Option<Micros>,
    /// Its leeway; where the token was not seen, the longest that this instance knows.
    pub leeway: Span,
    /// How long the record is kept at least where the token was not seen: then neither its expiry
    /// nor its leeway is certain. None: it was seen.
    pub retention: Option<Span>,
    /// Who revokes, for the audit.
    pub actor: String,
    /// Why, for the audit.
    pub reason: String,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// Now.
    Now,
    /// Before.
    Before,
    /// Nothing changed: the grant was used.
    Used,
    /// Nothing changed: there is no such row.
    NoRow,
}
