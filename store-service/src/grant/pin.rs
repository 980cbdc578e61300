//! What must not change while grants can be admitted, as it is pinned in the store.
//!
//! A changed leeway or form could let a grant outlive the record of its use, so a start with other
//! values than the pinned ones is refused.

use super::duration::Span;
use super::issuers::{Form, Issuers};
use crate::store::StoreError;

/// Why a start with these issuers is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The store can't be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A value differs from the one that grants were issued under.
    #[error("{0}")]
    Changed(String),
}

/// The pinned values of one leeway version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Which issuer.
    pub issuer: String,
    /// Which version; empty for grants that name none.
    pub version: String,
    /// Where its grants live.
    pub form: Form,
    /// Are ids unique in a tenant only?
    pub key_by_tenant: bool,
    /// The leeway.
    pub leeway_ms: i64,
    /// The longest lifetime.
    pub lifetime_ms_max: i64,
    /// The issue-time skew.
    pub iat_skew_ms: i64,
}

impl Pin {
    /// All that a file asks for.
    pub fn all(issuers: &Issuers) -> Vec<Self> {
        let of_issuer = |issuer: &super::issuers::Issuer| {
            let pin = |(version, leeway): (&str, Span)| Self {
                issuer: issuer.name.clone(),
                version: version.to_owned(),
                form: issuer.form,
                key_by_tenant: issuer.key_by_tenant,
                leeway_ms: leeway.as_i64(),
                lifetime_ms_max: issuer.max_lifetime.as_i64(),
                iat_skew_ms: issuer.iat_skew.as_i64(),
            };
            issuer.leeways().map(pin).collect::<Vec<_>>()
        };
        issuers.all().flat_map(of_issuer).collect()
    }

    /// Compares with what was pinned before.
    pub fn check(&self, pinned: &Self) -> Result<(), PinError> {
        let span = |ms: i64| Span::ms(u64::try_from(ms).unwrap_or(0)).to_string();
        let differences = [
            ("form", self.form.name().to_owned(), pinned.form.name().to_owned()),
            ("key_by_tenant", self.key_by_tenant.to_string(), pinned.key_by_tenant.to_string()),
            ("leeway", span(self.leeway_ms), span(pinned.leeway_ms)),
            ("max_lifetime", span(self.lifetime_ms_max), span(pinned.lifetime_ms_max)),
            ("iat_skew", span(self.iat_skew_ms), span(pinned.iat_skew_ms)),
        ];
        match differences.into_iter().find(|(_, found, kept)| found != kept) {
            None => Ok(()),
            Some((name, found, kept)) => Err(PinError::Changed(format!(
                "issuer {:?}, leeway version {:?}: found {name} = {found}, but grants may have been issued under \
                 {name} = {kept}; expected the old value, a new leeway version beside it, or, once every grant issued \
                 under it has aged out, the row in grant_policies deleted by hand",
                self.issuer, self.version
            ))),
        }
    }
}
