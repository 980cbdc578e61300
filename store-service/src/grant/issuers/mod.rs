//! Who may issue grants, and how their grants are read: the file of `--issuers` (YAML or JSON).
//!
//! Everything that decides about a token comes from here: keys, algorithms, audience, the names of
//! its claims. A value that can't be right ends the start with its path in the message.

mod file;

use super::duration::Span;
use super::key_source::KeySource;
use super::keys::Algorithm;
use super::timing::ExecutionTimings;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where an issuer's grants live.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Signed tokens; only their use is recorded here.
    #[default]
    Token,
    /// Rows that were written when the grants were issued.
    Row,
}

impl Form {
    /// The column's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Row => "row",
        }
    }
}

/// How a bound claim is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundKind {
    /// Byte for byte.
    Text,
    /// As an exact number: 250, 250.00 and "250.0" are equal.
    Decimal,
}

/// Names of the claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Claims {
    /// The grant's id.
    pub id: String,
    /// Who may use it.
    pub subject: String,
    /// The tenant; none where grants name none.
    pub tenant: Option<String>,
    /// The version of the leeway.
    pub leeway_version: String,
}

impl Default for Claims {
    fn default() -> Self {
        Self { id: "jti".into(), subject: "sub".into(), tenant: None, leeway_version: "lwv".into() }
    }
}

/// One issuer.
pub struct Issuer {
    /// Its name in tokens.
    pub name: String,
    /// Where its grants live.
    pub form: Form,
    /// One of these must be in the token's audience.
    pub audience: Vec<String>,
    /// Its algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Its keys; none for grants that are rows.
    pub keys: Option<KeySource>,
    /// Leeway of grants that name no version.
    leeway: Span,
    /// Leeway of the versions that grants may name.
    leeways: BTreeMap<String, Span>,
    /// Longest time from issue to expiry.
    pub max_lifetime: Span,
    /// How far ahead of our clock a grant may be issued.
    pub iat_skew: Span,
    /// Names of claims.
    pub claims: Claims,
    /// Are ids unique in a tenant only?
    pub key_by_tenant: bool,
    /// Which set of ids the subject is of.
    pub caller_namespace: String,
    /// Claims that every operation's details must repeat.
    pub bound: BTreeMap<String, BoundKind>,
    /// Key of the MAC that binds operation ids to grants, where one is needed.
    pub operation_mac_key: Option<Vec<u8>>,
    /// Most admissions of its grants that are asked for in a minute, in one instance.
    pub admissions_per_minute: Option<u32>,
}

impl Issuer {
    /// The leeway of a grant; `None` for a version that is not configured.
    pub fn leeway(&self, version: Option<&str>) -> Option<Span> {
        match version {
            None => Some(self.leeway),
            Some(version) => self.leeways.get(version).copied(),
        }
    }

    /// Every version with its leeway; the one that grants do not name is empty.
    pub fn leeways(&self) -> impl Iterator<Item = (&str, Span)> {
        let named = self.leeways.iter().map(|(version, leeway)| (version.as_str(), *leeway));
        std::iter::once(("", self.leeway)).chain(named)
    }

    /// The longest leeway that a grant may have.
    pub fn longest_leeway(&self) -> Span {
        self.leeways().map(|(_, leeway)| leeway).max().unwrap_or_default()
    }

    /// How long a revocation is kept when nobody knows the grant's expiry.
    pub fn retention_without_expiry(&self) -> Span {
        self.max_lifetime.plus(self.iat_skew).plus(self.longest_leeway())
    }
}

/// All of the file.
pub struct Issuers {
    /// Durations.
    pub timings: ExecutionTimings,
    /// Most revocations in a minute, for each token of a caller.
    pub revocations_per_minute: u32,
    /// Most admissions that each token of a caller asks for in a minute, in one instance.
    pub admissions_per_minute: Option<u32>,
    /// How long after their deadline rows are archived; none: they are kept as they are.
    pub archive_rows_after: Option<Span>,
    issuers: BTreeMap<String, Issuer>,
}

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
#[error("--issuers {}: {reason}", .path.display())]
pub struct IssuersError {
    /// The file.
    pub path: PathBuf,
    /// What was found, and what would be right.
    pub reason: String,
}

impl Issuers {
    /// Reads the file and what it names. Keys behind a URL are read at their first use.
    pub fn read(path: &Path) -> Result<Self, IssuersError> {
        let failed = |reason: String| IssuersError { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path)
            .map_err(|error| failed(format!("{error}; expected a readable file")))?;
        let base = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, base).map_err(failed)
    }

    /// The issuer of this name.
    pub fn get(&self, name: &str) -> Option<&Issuer> {
        self.issuers.get(name)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Issuer> {
        self.issuers.values()
    }
}
