//! Grants as the person on call sees them: what was recorded at issue, and what became of it.

use crate::entry::Micros;
use crate::grant::token::GrantKey;

/// What is known about one grant. A grant that is a token and that nobody used, revoked or recorded
/// is not known at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrantSeen {
    /// Its name.
    pub key: GrantKey,
    /// `row`, `log`, or none where its issue was not recorded.
    pub form: Option<String>,
    /// The tenant that it is for, or empty.
    pub tenant: Option<String>,
    /// Who may use it.
    pub subject: Option<String>,
    /// What it binds, as JSON.
    pub bound: Option<String>,
    /// When it was recorded.
    pub issued_at: Option<Micros>,
    /// Its expiry.
    pub expires_at: Option<Micros>,
    /// When it was used.
    pub used_at: Option<Micros>,
    /// When it was revoked.
    pub revoked_at: Option<Micros>,
    /// What it was used for.
    pub operation: Option<String>,
    /// Does a hold that stands refuse it? By the time that was recorded; a token's own time decides.
    pub held: bool,
    /// The store's clock when it was read.
    pub now: Micros,
}

impl GrantSeen {
    /// Where it stands.
    pub fn state(&self) -> GrantState {
        match (self.used_at, self.revoked_at, self.expires_at) {
            (Some(_), ..) => GrantState::Used,
            (_, Some(_), _) => GrantState::Revoked,
            (_, _, Some(expires)) if expires <= self.now => GrantState::Expired,
            _ => GrantState::Open,
        }
    }
}

/// Where a grant stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum GrantState {
    /// Not used, and not expired as far as is known.
    Open,
    /// Used for an operation.
    Used,
    /// Withdrawn.
    Revoked,
    /// Past its expiry, unused. Its leeway may not be over.
    Expired,
}

impl GrantState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Used, Self::Revoked, Self::Expired];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Used => "used",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// Which grants; every member that is set has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantFilter {
    /// In this state.
    pub state: Option<GrantState>,
    /// Of this issuer.
    pub issuer: Option<String>,
    /// For this tenant.
    pub tenant: Option<String>,
    /// For this subject.
    pub subject: Option<String>,
    /// Only held by a hold that stands, or only not.
    pub held: Option<bool>,
    /// Only this one.
    pub only: Option<GrantKey>,
    /// Only names behind this one.
    pub after: Option<GrantKey>,
    /// At most so many.
    pub limit: u32,
}
