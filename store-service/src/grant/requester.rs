//! Who calls, as far as grants care: a name for limits and the audit, and the issuers it is bound to.

use super::service::Refusal;
use std::borrow::Cow;

/// A caller of the service, known by its token.
#[derive(Clone, Debug)]
pub struct Requester<'a> {
    name: Cow<'a, str>,
    issuers: Option<&'a [String]>,
}

impl<'a> Requester<'a> {
    /// With this name; bound to these issuers, or to none in particular.
    pub fn new(name: impl Into<Cow<'a, str>>, issuers: Option<&'a [String]>) -> Self {
        Self { name: name.into(), issuers }
    }

    /// Its name in the audit and in limits.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Is it bound to some issuers?
    pub fn is_bound(&self) -> bool {
        self.issuers.is_some()
    }

    /// May it act on this issuer's grants and operations?
    pub fn may_use(&self, issuer: &str) -> Result<(), Refusal> {
        match self.issuers {
            Some(issuers) if !issuers.iter().any(|name| name == issuer) => Err(Refusal::OtherIssuer),
            _ => Ok(()),
        }
    }
}

impl<'a> From<&'a str> for Requester<'a> {
    /// Bound to no issuer.
    fn from(name: &'a str) -> Self {
        Self::new(name, None)
    }
}
