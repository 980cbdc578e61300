//! One-time grants and operations: JSON messages of the calls that an application makes.
//!
//! One rule for whoever reads replies: **200 means that it was done, everything else means that it
//! was not, or that nobody knows.** A caller that looks at nothing but the status never executes
//! without an admission. What is refused comes as problem+json with a stable `code`, and where there
//! is more to say with the members [`PROBLEM_REASON`] and [`PROBLEM_OPERATION`].

use core::fmt;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Paths of the calls.
pub mod paths {
    /// [`super::AdmitRequest`] -> [`super::AdmitReply`].
    pub const ADMIT: &str = "/v1/grants/admit";
    /// [`super::IssueRequest`] -> [`super::IssueReply`].
    pub const ISSUE: &str = "/v1/grants/issue";
    /// [`super::RevokeRequest`] -> [`super::RevokeReply`].
    pub const REVOKE: &str = "/v1/grants/revoke";
    /// Operations; followed by an id and one of `may-submit`, `record`, `renew`, `take-over`.
    pub const OPERATIONS: &str = "/v1/operations";
}

/// Longest issuer, grant id, tenant, caller and detail's name, in bytes; longest reference and reason of a
/// revocation, in characters.
pub const TEXT_MAX: usize = 255;

/// Longest token, in bytes.
pub const TOKEN_MAX: usize = 16 * 1024;

/// Most details of one operation.
pub const DETAILS_MAX: usize = 64;

/// Longest value of a detail, in bytes.
pub const DETAIL_MAX: usize = 4_096;

/// Request headers of the status call: who asks, as the application has authenticated them.
pub mod headers {
    /// Namespace of the caller's id.
    pub const CALLER_NAMESPACE: &str = "x-fencepost-caller-namespace";
    /// The caller's id in it.
    pub const CALLER: &str = "x-fencepost-caller";
    /// The caller's tenant, where operations have one.
    pub const TENANT: &str = "x-fencepost-tenant";
}

/// Member of a problem: a stable word that says why.
pub const PROBLEM_REASON: &str = "reason";

/// Member of a problem: the [`Operation`] that the grant was admitted for.
pub const PROBLEM_OPERATION: &str = "operation";

/// Stable codes of problems that an executor acts on.
pub mod codes {
    /// The grant was admitted for this very operation before; the problem carries it. Not a right
    /// to execute.
    pub const ALREADY_ADMITTED: &str = "already_admitted";
    /// Not admitted: used, revoked, or in conflict with another operation; which is not said.
    pub const NOT_AVAILABLE: &str = "grant_not_available";
    /// Not admitted: issued before the store was restored from a backup, so perhaps used since.
    pub const HELD: &str = "grant_held";
    /// Not admitted: past its admission deadline.
    pub const EXPIRED: &str = "grant_expired";
    /// Not admitted: the grant itself is not acceptable.
    pub const NOT_VALID: &str = "grant_not_valid";
    /// Not admitted: the request names another caller, tenant or details than the grant.
    pub const NOT_COVERED: &str = "grant_not_covered";
    /// The call on an operation did not apply; `reason` is an [`super::OperationRefusal`].
    pub const NOT_APPLIED: &str = "operation_not_applied";
    /// No such operation, or not this caller's.
    pub const NO_OPERATION: &str = "operation_not_found";
    /// The revocation changed nothing: the grant was used before.
    pub const ALREADY_USED: &str = "grant_already_used";
}

/// Why a text is not an operation id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("operation id: expected a UUID of version 4 or 7, such as 018f2b1c-7e52-7cc3-98c4-dc0c0c07398f")]
pub struct OperationIdError;

/// The id of one intended operation: a UUID of version 4 or 7 (RFC 9562), lower-case.
///
/// Not a credential, and not authority: whoever knows it learns nothing by it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OperationId(String);

impl OperationId {
    /// Parses the text form with hyphens; upper case is made lower.
    pub fn parse(text: &str) -> Result<Self, OperationIdError> {
        let bytes = text.as_bytes();
        let hyphen = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let shaped = bytes.len() == 36
            && bytes.iter().enumerate().all(|(at, b)| match b {
                b'-' => hyphen(at),
                b => b.is_ascii_hexdigit() && !hyphen(at),
            });
        // The nil id has version 0 and is refused with it.
        let version = bytes.get(14).is_some_and(|b| matches!(b, b'4' | b'7'));
        let variant = bytes.get(19).is_some_and(|b| matches!(b, b'8' | b'9' | b'a' | b'b' | b'A' | b'B'));
        if shaped && version && variant { Ok(Self(text.to_ascii_lowercase())) } else { Err(OperationIdError) }
    }

    /// A version 4 id of these random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = hex::encode(bytes);
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        Self(format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)))
    }

    /// Lower-case text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for OperationId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for OperationId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// A signed grant as it was presented. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantToken(String);

impl GrantToken {
    /// Takes the text as it is; the service verifies it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for GrantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantToken(..)")
    }
}

/// Names a grant that is kept as a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantName {
    /// Who issued it.
    pub issuer: String,
    /// Its id.
    pub grant_id: String,
    /// Tenant, where the issuer's ids are unique in a tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// Who wants the operation, as the application has authenticated them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// In which set of ids: an authentication issuer, a directory.
    pub namespace: String,
    /// The id.
    pub id: String,
}

/// What an operation is about: names and values, all of them text, so that `250.00` stays what it
/// is. A name twice is refused.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Details(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Details {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Details;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of text values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Details, A::Error> {
                let mut details = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if details.contains_key(&name) {
                        return Err(A::Error::custom("a detail stands twice"));
                    }
                    details.insert(name, value);
                }
                Ok(Details(details))
            }
        }
        d.deserialize_map(Members)
    }
}

impl<N: Into<String>, V: Into<String>, const COUNT: usize> From<[(N, V); COUNT]> for Details {
    fn from(pairs: [(N, V); COUNT]) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Asks for the single use of a grant, and records the operation in the same statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdmitRequest {
    /// The signed grant; either this or `grant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<GrantToken>,
    /// The grant that is kept as a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantName>,
    /// The operation, the same in every retry.
    pub operation_id: OperationId,
    /// HMAC that binds the operation id to the grant, where the issuer is configured to need it:
    /// 64 lower-case hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_mac: Option<String>,
    /// Who wants it.
    pub caller: Caller,
    /// The caller's tenant, where the issuer's grants name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it is about; has to cover what the grant binds.
    #[serde(default)]
    pub details: Details,
}

/// The grant is spent, the operation is recorded, and the caller owns it. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AdmitReply {
    /// The operation.
    pub operation_id: OperationId,
    /// What every later call of this owner names.
    pub owner_version: i32,
    /// Milliseconds until the ownership ends.
    pub lease_left_ms: u64,
    /// Milliseconds until nothing may be sent any more for this operation.
    pub submit_left_ms: u64,
}

/// Where an operation stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationStatus {
    /// Its grant is spent; whether anything was sent is not recorded yet.
    Admitted,
    /// The effect exists. Final.
    Succeeded,
    /// It was definitely refused: there is no effect. Final.
    Failed,
    /// Nobody knows; recovery finds out.
    Unknown,
    /// A person, or the provider, has to find out.
    NeedsReconciliation,
}

/// An operation as its caller may see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// Which.
    pub operation_id: OperationId,
    /// Where it stands.
    pub status: OperationStatus,
    /// Counts its owners.
    pub owner_version: i32,
    /// Milliseconds until the present ownership ends; 0 when it has.
    pub lease_left_ms: u64,
    /// Milliseconds until nothing may be sent any more; 0 when nothing may.
    pub submit_left_ms: u64,
    /// What was recorded with the outcome: the provider's id of the effect, or its code of refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What it is about.
    pub details: Details,
}

/// May the owner send its request to the provider now?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaySubmitRequest {
    /// The asker's.
    pub owner_version: i32,
    /// Status that the asker expects.
    #[serde(default = "admitted")]
    pub expected_status: OperationStatus,
}

/// It may, at the instant of asking. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MaySubmitReply {
    /// Milliseconds until it may not any more.
    pub left_ms: u64,
}

/// Records how it went.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordRequest {
    /// The writer's.
    pub owner_version: i32,
    /// Status that the writer expects.
    #[serde(default = "admitted")]
    pub expected_status: OperationStatus,
    /// How it went; not `admitted`.
    pub outcome: OperationStatus,
    /// The provider's id of the effect, or its code of refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// It is recorded. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordReply {
    /// It was recorded before, by the same owner: a repeated call.
    pub before: bool,
}

/// Which lease an owner has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseKind {
    /// That of the executor.
    #[default]
    Execution,
    /// That of recovery.
    Recovery,
}

/// Extends the ownership.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewOperationRequest {
    /// The owner's.
    pub owner_version: i32,
    /// Length of the new lease.
    #[serde(default)]
    pub lease: LeaseKind,
}

/// Takes over an operation whose owner's lease has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeOverRequest {
    /// The version that was seen.
    pub owner_version: i32,
}

/// The caller owns the operation. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnedReply {
    /// What every later call of this owner names.
    pub owner_version: i32,
    /// Milliseconds until the ownership ends.
    pub lease_left_ms: u64,
}

/// Why a call on an operation did not apply: what the row was right after.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationRefusal {
    /// There is no such operation.
    Absent,
    /// Somebody else owns it.
    OtherOwner,
    /// Its status is not the expected one.
    OtherStatus,
    /// The lease has ended.
    LeaseOver,
    /// The lease is live: nothing to take over.
    LeaseLive,
    /// Too late to send anything.
    SubmitOver,
    /// A reason that this version does not know by name, or a change in between.
    #[serde(other)]
    Other,
}

/// Records that a grant was issued.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssueRequest {
    /// Which grant.
    pub grant: GrantName,
    /// Who may use it; needed where the grant is the row.
    #[serde(default)]
    pub subject: String,
    /// The tenant that it is for, where grants name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What it allows.
    #[serde(default)]
    pub details: Details,
    /// When it expires, in seconds since 1970; optional only where the grant is a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

/// It is recorded. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IssueReply {
    /// It was recorded before, with the same contents: a repeated call.
    pub before: bool,
}

/// Withdraws a grant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// The signed grant, as proof that it was issued; either this or `grant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<GrantToken>,
    /// A grant with a row that proves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantName>,
    /// Why; for the audit.
    pub reason: String,
}

/// The grant can't be admitted any more. Only with status 200.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokeReply {
    /// It was revoked before.
    pub before: bool,
}

const fn admitted() -> OperationStatus {
    OperationStatus::Admitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_ids_are_normalised_and_nothing_else_is_accepted() {
        let id = OperationId::parse("018F2B1C-7E52-7CC3-98C4-DC0C0C07398F").unwrap();
        assert_eq!(id.as_str(), "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f");
        for text in [
            "00000000-0000-0000-0000-000000000000",
            "018f2b1c-7e52-1cc3-98c4-dc0c0c07398f",
            "018f2b1c-7e52-7cc3-c8c4-dc0c0c07398f",
            "018f2b1c7e527cc398c4dc0c0c07398f",
            "{018f2b1c-7e52-7cc3-98c4-dc0c0c07398f}",
            "018f2b1c-7e52-7cc3-98c4-dc0c0c07398g",
            "",
        ] {
            assert_eq!(OperationId::parse(text), Err(OperationIdError), "{text}");
        }
        assert!(OperationId::parse(OperationId::from_random([0xff; 16]).as_str()).is_ok());
    }

    #[test]
    fn a_detail_twice_or_not_text_is_refused() {
        assert!(serde_json::from_str::<Details>(r#"{"a":"1","a":"2"}"#).is_err());
        assert!(serde_json::from_str::<Details>(r#"{"a":1}"#).is_err());
        assert_eq!(serde_json::from_str::<Details>(r#"{"a":"1"}"#).unwrap(), [("a", "1")].into());
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", GrantToken::new("secret")), "GrantToken(..)");
    }
}
