//! What operators and the service say to each other about operations and grants: JSON, for
//! `/v1/operator`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationView {
    /// Which.
    pub operation_id: String,
    /// Where it stands.
    pub status: String,
    /// What an order about it names.
    pub version: String,
    /// Who issued its grant.
    pub issuer: String,
    /// Id of its grant.
    pub grant_id: String,
    /// Its tenant, or empty.
    pub tenant: String,
    /// Namespace of its caller's id.
    pub caller_namespace: String,
    /// Its caller.
    pub caller: String,
    /// What it is about.
    pub details: BTreeMap<String, String>,
    /// Recorded with the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Why it has no end, where anything was concluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Recovery rests between two look-ups until then, and has sent nothing: nobody works on it.
    #[serde(default)]
    pub resting: bool,
    /// Milliseconds until the present ownership ends; 0 when it has.
    pub lease_left_ms: u64,
    /// Milliseconds until nothing may be sent any more; 0 when nothing may.
    pub submit_left_ms: u64,
    /// When it was admitted, in microseconds since 1970.
    pub created_at_us: i64,
    /// When it last changed.
    pub updated_at_us: i64,
    /// The store's clock when it was read.
    pub now_us: i64,
    /// What happened to it since its admission, oldest first, where one operation is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<EventView>>,
}

/// One event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EventView {
    /// When, in microseconds since 1970.
    pub at_us: i64,
    /// Who: a person's token, or `recovery/INSTANCE`.
    pub who: String,
    /// What: a step of recovery, or `settle_succeeded` or `settle_failed` by a person.
    pub step: String,
    /// The owner's version with which it was done.
    pub owner_version: i32,
    /// What was known before it: the result of a look-up, or the status that a person ended.
    pub result: String,
    /// The status after it.
    pub status: String,
    /// A provider, or a reason.
    pub detail: String,
}

/// Operations, in the order of their ids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationsReply {
    /// The operations.
    pub operations: Vec<OperationView>,
    /// Where to go on, if there may be more: the `after` of the next call.
    pub next: Option<String>,
}

impl OperationView {
    /// Is its end recorded?
    pub fn has_ended(&self) -> bool {
        matches!(&self.status[..], "succeeded" | "failed")
    }
}

/// How an operation ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationSettleOrder {
    /// The version that was seen.
    pub version: String,
    /// Why.
    pub reason: String,
    /// How it ended.
    pub outcome: EndingWord,
    /// The provider's id of the effect, or its code of refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum EndingWord {
    /// The effect exists.
    Succeeded,
    /// There is no effect, and none can come.
    Failed,
    /// None yet: recovery looks it up again.
    LookAgain,
}

/// One grant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantView {
    /// Who issued it.
    pub issuer: String,
    /// Its id.
    pub grant_id: String,
    /// The tenant in which its id is unique, or empty.
    pub key_tenant: String,
    /// `open`, `used`, `revoked` or `expired`.
    pub state: String,
    /// `row`, or `log` where a token's issue was recorded; missing where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// The tenant that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Who may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<BTreeMap<String, String>>,
    /// When it was recorded, in microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at_us: Option<i64>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_us: Option<i64>,
    /// When it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at_us: Option<i64>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at_us: Option<i64>,
    /// What it was used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// Is it open, and does a hold that stands refuse it, by the time that was recorded?
    #[serde(default)]
    pub held: bool,
}

/// Grants, in the order of their names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantsReply {
    /// The grants.
    pub grants: Vec<GrantView>,
    /// Where to go on, if there may be more: the `after` of the next call.
    pub next: Option<String>,
}

/// A revocation was done, or had been.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RevokedReply {
    /// It had been revoked before.
    pub before: bool,
}

/// Begins a hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldOrder {
    /// Why.
    pub reason: String,
    /// Up to when work may have been forgotten, in microseconds since 1970; now, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<i64>,
    /// For how long keys without an answer are held; not, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_for_ms: Option<u64>,
    /// Only keys with this prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Hold grants? They are, if nothing is said and there is no prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<bool>,
}

/// Ends a hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiftOrder {
    /// Why.
    pub reason: String,
}

/// Frees what a lifted hold has held, in one bounded batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeOrder {
    /// Why.
    pub reason: String,
    /// Only keys behind this one: what `next` of the last batch said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What a batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FreeReply {
    /// Keys that may run again.
    pub freed: u64,
    /// Keys that stay held: by another hold, or because they changed meanwhile.
    pub kept: u64,
    /// Where to go on; null: this was the end.
    pub next: Option<String>,
}

/// A hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldView {
    /// Its number.
    pub id: i64,
    /// Only keys with this prefix; null: all.
    pub prefix: Option<String>,
    /// Work up to then may have been forgotten, in microseconds since 1970.
    pub since_us: i64,
    /// Milliseconds until keys without an answer are free; 0 when they are; null: they were not held.
    pub keys_left_ms: Option<u64>,
    /// Are grants held?
    pub grants: bool,
    /// When it began.
    pub began_at_us: i64,
    /// Who began it.
    pub began_by: String,
    /// Why.
    pub reason: String,
    /// When it was lifted.
    pub lifted_at_us: Option<i64>,
}

/// Holds, the newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldsReply {
    /// The holds.
    pub holds: Vec<HoldView>,
}

/// Lets one held grant be admitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantReleaseOrder {
    /// Who issued it.
    pub issuer: String,
    /// Its id.
    pub grant_id: String,
    /// The tenant in which its id is unique, or empty.
    #[serde(default)]
    pub key_tenant: String,
    /// Why.
    pub reason: String,
}

/// Erases answers, in one bounded batch. Exactly one of `scope` and `caller` is given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EraseOrder {
    /// Digest of the caller's scope, as entries show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The caller of operations, by name; entries do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<CallerName>,
    /// Why.
    pub reason: String,
    /// Only what comes behind this: what `next` of the last batch said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A caller of operations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerName {
    /// Namespace of its id.
    pub namespace: String,
    /// Its id.
    pub id: String,
}

/// What a batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EraseReply {
    /// Answers of entries that were replaced.
    pub answers: u64,
    /// Answers of operations that were replaced.
    pub operation_answers: u64,
    /// Claims, unknown outcomes and operations without an end of the caller: left as they are.
    pub left: u64,
    /// Rows looked at.
    pub looked: u64,
    /// Where to go on; null: this was the end.
    pub next: Option<String>,
    /// Within what bounds the order was carried out.
    pub covered: Covered,
}

/// The bounds of an order that erases.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Covered {
    /// Only keys with these prefixes, to which the token is bound; null: all keys.
    pub key_prefixes: Option<Vec<String>>,
    /// Are entries looked through?
    pub entries: bool,
    /// Are operations looked through, of all issuers? A token bound to key prefixes reaches none.
    pub operations: bool,
}
