//! From a raw token to a grant that is proven: issuer, signature, audience, identity, lifetime.
//!
//! Whether it has expired is **not** decided here. The statement that claims the grant compares its
//! deadline with the database's clock, with the same leeway; a check before it, by this machine's
//! clock, could be stricter, and never decides anything.

use super::decimal::Decimal;
use super::duration::Span;
use super::issuers::{BoundKind, Form, Issuer, Issuers};
use super::jws::{self, Members, Unacceptable};
use super::key_source::NoKeys;
use crate::entry::Micros;
use fencepost_protocol::grants::TEXT_MAX;
use std::collections::BTreeMap;

/// Seconds beyond which a time in a token is nonsense: the year 9999.
const SECONDS_MAX: i64 = 253_402_300_799;

/// A value that a grant binds, ready to be compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bound {
    /// Compared byte for byte.
    Text(String),
    /// Compared as a number.
    Decimal(Decimal),
}

impl Bound {
    /// Reads a value that somebody wrote; `None` when it is no such value.
    pub fn read(kind: BoundKind, text: &str) -> Option<Self> {
        match kind {
            BoundKind::Text => Some(Self::Text(text.to_owned())),
            BoundKind::Decimal => Decimal::parse(text).map(Self::Decimal),
        }
    }

    /// One text for equal values.
    pub fn canonical(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Decimal(decimal) => decimal.canonical(),
        }
    }
}

/// The name of a grant: what is claimed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GrantKey {
    /// Who issued it.
    pub issuer: String,
    /// The tenant where ids are unique in one only, else empty.
    pub key_tenant: String,
    /// Its id.
    pub grant_id: String,
}

/// A grant that was issued: proven by a signature, or by its row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its name.
    pub key: GrantKey,
    /// Who may use it.
    pub subject: String,
    /// The tenant that it is for; empty where grants name none.
    pub tenant: String,
    /// What it binds.
    pub bound: BTreeMap<String, Bound>,
    /// Further text claims that a detail of the same name must equal; `None` for one that is not
    /// text and so equals nothing.
    pub other: BTreeMap<String, Option<String>>,
    /// Earliest time at which it can have been issued: its issuer's clock may be ahead.
    pub issued_from: Micros,
    /// When it expires, without leeway.
    pub expires_at: Micros,
    /// Its leeway.
    pub leeway: Span,
}

/// Why there is no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    /// The token is not acceptable; asking again does not help.
    Unacceptable(Unacceptable),
    /// The issuer's keys can't be had now.
    NoKeys,
}

impl From<Unacceptable> for TokenRefusal {
    fn from(reason: Unacceptable) -> Self {
        Self::Unacceptable(reason)
    }
}

impl From<NoKeys> for TokenRefusal {
    fn from(_: NoKeys) -> Self {
        Self::NoKeys
    }
}

/// Verifies a token. `now` is this machine's clock, for issue times only.
pub async fn verify(issuers: &Issuers, token: &str, now: Micros) -> Result<Grant, TokenRefusal> {
    let parts = jws::split(token)?;
    let claims = Members::parse(&parts.payload).ok_or(Unacceptable::Malformed)?;
    // Only to find the keys; it counts once the signature fits them.
    let name: String = claims.get("iss").ok_or(Unacceptable::Issuer)?;
    let issuer = issuers.get(&name).filter(|issuer| issuer.form == Form::Token);
    let issuer = issuer.ok_or(Unacceptable::Issuer)?;
    let source = issuer.keys.as_ref().ok_or(Unacceptable::Issuer)?;
    let keys = source.keys().await?;
    match parts.verify(&keys, &issuer.algorithms) {
        Err(Unacceptable::Key) => {
            let other = source.other_keys(&keys).await.ok_or(Unacceptable::Key)?;
            parts.verify(&other, &issuer.algorithms)?;
        }
        result => result?,
    }
    Ok(read_claims(issuer, claims, now)?)
}

fn read_claims(issuer: &Issuer, claims: Members, now: Micros) -> Result<Grant, Unacceptable> {
    if !for_us(issuer, &claims) {
        return Err(Unacceptable::Audience);
    }
    let text =
        |name: &str| claims.get::<String>(name).filter(|text| is_name(text)).ok_or(Unacceptable::Claims);
    let grant_id = text(&issuer.claims.id)?;
    let subject = text(&issuer.claims.subject)?;
    let tenant = issuer.claims.tenant.as_deref().map(text).transpose()?.unwrap_or_default();
    let version = leeway_version(&claims, &issuer.claims.leeway_version)?;
    let leeway = issuer.leeway(version.as_deref()).ok_or(Unacceptable::Leeway)?;
    let (issued_from, expires_at) = times(issuer, &claims, leeway, now)?;
    let mut bound = BTreeMap::new();
    for (name, kind) in &issuer.bound {
        bound.insert(name.clone(), bound_claim(&claims, name, *kind).ok_or(Unacceptable::Claims)?);
    }
    let other = claims.0.iter().filter(|(name, _)| !bound.contains_key(*name));
    let other = other.map(|(name, raw)| (name.clone(), serde_json::from_str(raw.get()).ok())).collect();
    let key_tenant = if issuer.key_by_tenant { tenant.clone() } else { String::new() };
    let key = GrantKey { issuer: issuer.name.clone(), key_tenant, grant_id };
    Ok(Grant { key, subject, tenant, bound, other, issued_from, expires_at, leeway })
}

/// Text of 1 to 255 bytes without control characters.
pub fn is_name(text: &str) -> bool {
    (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn for_us(issuer: &Issuer, claims: &Members) -> bool {
    let one = claims.get::<String>("aud").map(|audience| vec![audience]);
    let all = one.or_else(|| claims.get::<Vec<String>>("aud")).unwrap_or_default();
    all.iter().any(|audience| issuer.audience.contains(audience))
}

fn leeway_version(claims: &Members, name: &str) -> Result<Option<String>, Unacceptable> {
    if !claims.0.contains_key(name) {
        return Ok(None);
    }
    let number = || claims.get::<u32>(name).map(|number| number.to_string());
    claims.get::<String>(name).or_else(number).map(Some).ok_or(Unacceptable::Claims)
}

/// Checks the times but for the expiry itself; says the earliest time of issue, and the expiry.
fn times(
    issuer: &Issuer,
    claims: &Members,
    leeway: Span,
    now: Micros,
) -> Result<(Micros, Micros), Unacceptable> {
    let seconds = |name: &str| claims.get::<i64>(name).filter(|at| (0..=SECONDS_MAX).contains(at));
    let expires = seconds("exp").ok_or(Unacceptable::Claims)?;
    let issued = seconds("iat").ok_or(Unacceptable::Claims)?;
    let lifetime_ms = (expires - issued).saturating_mul(1_000);
    if lifetime_ms <= 0 || lifetime_ms > issuer.max_lifetime.as_i64() {
        return Err(Unacceptable::Lifetime);
    }
    if issued.saturating_mul(1_000_000) > now.0.saturating_add(issuer.iat_skew.as_i64() * 1_000) {
        return Err(Unacceptable::NotYet);
    }
    if claims.0.contains_key("nbf") {
        let not_before = seconds("nbf").ok_or(Unacceptable::Claims)?;
        if not_before.saturating_mul(1_000_000) > now.0.saturating_add(leeway.as_i64() * 1_000) {
            return Err(Unacceptable::NotYet);
        }
    }
    let skew = issuer.iat_skew.as_i64().saturating_mul(1_000);
    let issued_from = issued.saturating_mul(1_000_000).saturating_sub(skew);
    Ok((Micros(issued_from), Micros(expires.saturating_mul(1_000_000))))
}

/// A decimal may be written as a number or as text; its digits are read as they stand.
fn bound_claim(claims: &Members, name: &str, kind: BoundKind) -> Option<Bound> {
    match claims.get::<String>(name) {
        Some(text) => Bound::read(kind, &text),
        None if kind == BoundKind::Decimal => Bound::read(kind, claims.0.get(name)?.get().trim()),
        None => None,
    }
}
