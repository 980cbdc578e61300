//! The way to the desk: for operators whose tokens are bound to no key prefixes, because operations
//! and grants have none.

use super::auth::Shown;
use super::{Api, Problem, Role};
use crate::desk::Desk;
use axum::http::StatusCode;
use std::sync::Arc;

/// The desk, and who is at it.
pub struct AtDesk {
    /// The desk.
    pub desk: Arc<dyn Desk>,
    /// Name of the person's token.
    pub who: String,
}

impl Api {
    /// The desk, for the holder of what this request shows.
    pub(super) fn desk<'a>(&self, shown: impl Into<Shown<'a>>) -> Result<AtDesk, Problem> {
        let caller = self.tokens.caller(shown, Role::Operator)?;
        if caller.bound_to().is_some() {
            let detail = "operations and grants have no key prefix, and the token is bound to some";
            return Err(Problem::new(StatusCode::FORBIDDEN, "key_prefix", detail));
        }
        Ok(AtDesk { desk: self.any_desk()?, who: caller.name() })
    }

    /// The desk, for somebody who has been looked at already.
    pub(super) fn any_desk(&self) -> Result<Arc<dyn Desk>, Problem> {
        self.service.store().desk().ok_or_else(|| {
            Problem::new(StatusCode::NOT_FOUND, "no_desk", "this store keeps no operations and no grants")
        })
    }
}
