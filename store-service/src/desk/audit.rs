//! One view over every audit: what people, recovery and the service itself wrote down about entries,
//! operations, grants, holds and callers. The tables only grow; this reads them in one order.

use super::note::grant_subject;
use crate::entry::Micros;
use crate::grant::token::GrantKey;
use fencepost_protocol::grants::OperationId;
use std::fmt;
use std::str::FromStr;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum AuditKind {
    /// A stored key.
    Entry,
    /// An operation: its recovery, and what people said about it.
    Operation,
    /// A grant: issued, revoked, released from a hold.
    Grant,
    /// A hold: begun, lifted, what it held freed.
    Hold,
    /// All that is stored of one scope: erased.
    Scope,
    /// All operations of one caller: their answers erased.
    Caller,
    /// The rows of one issuer: archived.
    Issuer,
}

impl AuditKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Entry, Self::Operation, Self::Grant, Self::Hold, Self::Scope, Self::Caller, Self::Issuer];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Operation => "operation",
            Self::Grant => "grant",
            Self::Hold => "hold",
            Self::Scope => "scope",
            Self::Caller => "caller",
            Self::Issuer => "issuer",
        }
    }

    /// Reads it back.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Which lines; every member that is set has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// About one of these.
    pub kinds: Option<Vec<AuditKind>>,
    /// With this action.
    pub action: Option<String>,
    /// By this person, or part of the service.
    pub who: Option<String>,
    /// Not before this time.
    pub since: Option<Micros>,
    /// Before this time.
    pub until: Option<Micros>,
    /// About this key, operation, grant, hold, scope, caller or issuer, as a line names it.
    pub subject: Option<String>,
    /// Only lines about entries with these prefixes.
    pub prefixes: Option<Vec<String>>,
    /// Only lines behind this one.
    pub after: Option<AuditPlace>,
    /// At most so many.
    pub limit: u32,
}

impl AuditFilter {
    /// The subject as an operation's id.
    pub fn operation(&self) -> Option<OperationId> {
        OperationId::parse(self.subject.as_deref()?).ok()
    }

    /// The subject as a grant's name.
    pub fn grant(&self) -> Option<GrantKey> {
        let (issuer, key_tenant, grant_id) = serde_json::from_str(self.subject.as_deref()?).ok()?;
        Some(GrantKey { issuer, key_tenant, grant_id })
    }

    /// The subject as lines about it have it: a grant's name in the one way of writing it.
    pub fn written(&self) -> Option<String> {
        let subject = self.subject.clone()?;
        Some(self.grant().map_or(subject, |key| subject_of_grant(&key)))
    }
}

/// A line's place in the order: its time, then its table and number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditPlace {
    /// When.
    pub at: Micros,
    /// The table.
    pub source: i32,
    /// The number in it.
    pub id: i64,
}

impl fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.0, self.source, self.id)
    }
}

/// A text that is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected what `next` of the last page said")]
pub struct AuditPlaceError;

/// Times that databases can compare: until the end of the year 9999, in microseconds since 1970.
const AT_US_MAX: i64 = 253_402_300_799_999_999;

impl FromStr for AuditPlace {
    type Err = AuditPlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('.');
        let mut number = || parts.next()?.parse::<i64>().ok();
        let place = (|| Some((number()?, number()?, number()?)))();
        let (at, source, id) = place.ok_or(AuditPlaceError)?;
        let source = i32::try_from(source).map_err(|_| AuditPlaceError)?;
        if parts.next().is_some() || !(0..=AT_US_MAX).contains(&at) {
            return Err(AuditPlaceError);
        }
        Ok(Self { at: Micros(at), source, id })
    }
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditSeen {
    /// Where it stands.
    pub place: AuditPlace,
    /// A person's token, an instance of recovery, or the service.
    pub who: String,
    /// About what, by its word.
    pub kind: String,
    /// About which.
    pub subject: String,
    /// What was done.
    pub action: String,
    /// To which version, or empty.
    pub version: String,
    /// The state before it, or empty.
    pub state_before: String,
    /// The state since.
    pub state_after: String,
    /// Was it done although the request may have been running?
    pub forced: bool,
    /// Why.
    pub reason: String,
}

/// The name of a grant as lines have it.
pub fn subject_of_grant(key: &GrantKey) -> String {
    let subject = grant_subject(key);
    subject.strip_prefix("grant ").map(str::to_owned).unwrap_or(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_the_audit_is_read_back_and_anything_else_is_refused() {
        let place = AuditPlace { at: Micros(1_790_000_000_000_000), source: 5, id: 17 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in
            ["", "1", "1.2", "1.2.3.4", "x.2.3", "-1.2.3", "9999999999999999999.1.1", "1.9999999999.1"]
        {
            assert_eq!(text.parse::<AuditPlace>(), Err(AuditPlaceError), "{text}");
        }
    }

    #[test]
    fn a_grant_is_found_by_its_name_however_it_is_spaced() {
        let filter = AuditFilter { subject: Some("[\"i\",  \"\", \"g\"]".into()), ..AuditFilter::default() };
        assert_eq!(filter.written().as_deref(), Some("[\"i\",\"\",\"g\"]"));
        let filter = AuditFilter { subject: Some("test:ab".into()), ..AuditFilter::default() };
        assert_eq!((filter.written().as_deref(), filter.grant()), (Some("test:ab"), None));
    }
}
