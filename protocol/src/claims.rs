//! Claims: messages of the five calls on idempotency entries.
//!
//! Every request is safe to send again: it names the claim by its token, so the second copy finds
//! what the first one did.

use crate::{ClaimToken, Fence, Fingerprint, PROTOCOL_VERSION, Scheme, ScopeDigest, StoreId, StoreKey};
use serde::{Deserialize, Serialize};

/// Longest wait that one claim call may park for, in milliseconds.
pub const PARK_MS_MAX: u32 = 2_000;

/// Shortest and longest lease, in milliseconds.
pub const CLAIM_TTL_MS: core::ops::RangeInclusive<u32> = 1_000..=3_600_000;

/// Longest lifetime of an answer or an unknown outcome, in milliseconds: 400 days.
pub const TTL_MS_MAX: u64 = 400 * 24 * 3_600 * 1_000;

/// Most claims in one renewal.
pub const RENEW_MAX: usize = 512;

/// What happens to a key whose answer was lost: its outcome is unknown, or its lease ran out
/// while its holder said nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum OnLost {
    /// The key stays closed until a person, a late answer or its lifetime ends it.
    Hold,
    /// An equal request may run again once the lost one has certainly stopped.
    Rerun,
}

/// Why nobody knows whether the upstream did the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCause {
    /// The lease ran out and its holder said nothing.
    LeaseExpired,
    /// The upstream did not answer within `max_run`.
    Timeout,
    /// The connection to the upstream broke after the request may have been sent.
    Reset,
    /// The client went away and the proxy cancelled its upstream request.
    ClientGone,
    /// The answer came but could not be kept.
    AnswerLost,
    /// The upstream said that its answer is not the final one.
    NotFinal,
    /// The proxy made an answer of its own and can't prove that the request was never sent.
    ProxyReply,
    /// The store was restored from a backup, and nothing says that the request did not run since
    /// the backup.
    Held,
    /// A cause that this version does not know by name.
    #[serde(other)]
    Other,
}

/// Why a claim was given back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseCause {
    /// The request certainly never reached the upstream.
    NotRun,
    /// The upstream answered with a status that is not stored.
    StatusNotStored,
    /// The client left before the request was forwarded.
    ClientGone,
    /// The claim was granted too late to be used.
    TooLate,
    /// The claim call failed: whether it was granted is not known to the caller.
    CallFailed,
    /// A cause that this version does not know by name.
    #[serde(other)]
    Other,
}

/// Asks for the right to run a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// Entry to claim.
    pub key: StoreKey,
    /// Chosen by the caller; the same in a resend.
    pub token: ClaimToken,
    /// How the fingerprint was made.
    pub scheme: Scheme,
    /// What makes two requests the same.
    pub fingerprint: Fingerprint,
    /// Digest of the caller's scope.
    pub scope: ScopeDigest,
    /// Length of the lease.
    pub claim_ttl_ms: u32,
    /// How long the upstream may run once the request was forwarded.
    pub max_run_ms: u32,
    /// What to do when the answer is lost.
    pub on_lost: OnLost,
    /// Lifetime of an unknown outcome that comes from this claim.
    pub unknown_ttl_ms: u64,
    /// How long the call may park while another claim is live; at most [`PARK_MS_MAX`].
    #[serde(default)]
    pub wait_ms: u32,
    /// Whether the caller understands [`ClaimReply::OverQuota`]; one that does not is told
    /// [`ClaimReply::Dead`] in its place.
    #[serde(default)]
    pub knows_quota: bool,
}

/// What became of a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ClaimReply {
    /// The caller holds the key. A resend of a live claim says so again, with the same fence.
    Claimed {
        /// Fencing number of this claim.
        fence: Fence,
        /// How long the call was parked before the claim was made.
        #[serde(default)]
        parked_ms: u32,
    },
    /// There is an answer; the payload is its header block and its body.
    Completed {
        /// The upstream's status.
        status: u16,
        /// Bytes of the header block at the start of the payload.
        headers_len: u32,
        /// Bytes of the body after it, so that a cut payload is noticed.
        body_len: u32,
        /// Milliseconds since the answer was stored.
        age_ms: u64,
        /// Milliseconds until it expires.
        left_ms: u64,
    },
    /// Another claim is live.
    InProgress {
        /// Milliseconds until its lease ends, unless it is renewed.
        lease_left_ms: u64,
        /// How long the call was parked.
        #[serde(default)]
        parked_ms: u32,
    },
    /// The key belongs to a request with another fingerprint.
    Mismatch,
    /// The request ran, or may have; its answer is lost.
    Unknown {
        /// Why.
        cause: UnknownCause,
        /// Milliseconds until the entry expires.
        left_ms: u64,
    },
    /// The entry's fingerprint was made by another scheme and can't be compared.
    OtherScheme {
        /// The entry's scheme.
        scheme: Scheme,
    },
    /// This token was given back before; it claims nothing any more.
    Dead,
    /// The claim would have been made, and the caller has as many as it may have: nothing was
    /// written.
    OverQuota {
        /// After how long there may be room for it, in milliseconds.
        retry_after_ms: u64,
    },
}

/// Stores the upstream's answer; the payload is its header block and its body.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CompleteRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// Fence of the claim.
    pub fence: Fence,
    /// As in the claim.
    pub scheme: Scheme,
    /// As in the claim.
    pub fingerprint: Fingerprint,
    /// As in the claim.
    pub scope: ScopeDigest,
    /// The upstream's status.
    pub status: u16,
    /// Bytes of the header block at the start of the payload.
    pub headers_len: u32,
    /// Bytes of the body after it.
    pub body_len: u32,
    /// Lifetime of the answer, from now.
    pub ttl_ms: u64,
}

/// What became of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum CompleteReply {
    /// Stored now.
    Stored,
    /// Stored before, by the same token.
    AlreadyStored,
    /// Not stored.
    Refused {
        /// Why.
        reason: Refusal,
    },
}

/// Gives a claim back: the request did not run, or its answer is not to be kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// As in the claim.
    pub scheme: Scheme,
    /// As in the claim.
    pub fingerprint: Fingerprint,
    /// As in the claim.
    pub scope: ScopeDigest,
    /// Why it is given back.
    pub cause: ReleaseCause,
}

/// What became of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReleaseReply {
    /// The token holds nothing now, and a claim with it that arrives later gets nothing.
    Released,
    /// It was released before.
    AlreadyReleased,
    /// Nothing changed, except that a token that holds nothing is remembered as dead where
    /// another token holds the key.
    Refused {
        /// Why.
        reason: Refusal,
    },
}

/// Records that nobody knows whether the upstream did the work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnknownRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// Why nobody knows.
    pub cause: UnknownCause,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum UnknownReply {
    /// The entry is unknown now, or stays a claim until its upstream has certainly stopped where
    /// the claim said `rerun`.
    Marked,
    /// It was unknown before, from the same token.
    AlreadyMarked,
    /// Nothing changed.
    Refused {
        /// Why.
        reason: Refusal,
    },
}

/// One claim to keep alive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewal {
    /// Entry.
    pub key: StoreKey,
    /// Token of the claim.
    pub token: ClaimToken,
    /// New length of the lease, from now.
    pub claim_ttl_ms: u32,
    /// How long the upstream may still run, from now.
    pub run_ms: u32,
}

/// Extends leases, many at a time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RenewRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// At most [`RENEW_MAX`]; no key twice.
    pub claims: Vec<Renewal>,
}

/// Results, in the order of the request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RenewReply {
    /// One for each claim.
    pub results: Vec<RenewResult>,
}

/// What became of one renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum RenewResult {
    /// The lease runs anew.
    Renewed,
    /// Nothing changed.
    Refused {
        /// Why.
        reason: Refusal,
    },
}

/// Why a write by a token did not apply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// There is no live entry.
    Absent,
    /// Another token holds the claim.
    HeldByOther,
    /// The entry is completed: by this token where the call was not a completion, else by another.
    Completed,
    /// The entry is unknown: under another token, or the call does not apply to an unknown entry.
    Unknown,
    /// The claim was released.
    Released,
    /// The entry has another fingerprint, or one of another scheme.
    Mismatch,
    /// A reason that this version does not know by name.
    #[serde(other)]
    Other,
}

/// A reply's head: who answered, and what.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply<T> {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// Identity of the database that decided.
    pub store_id: StoreId,
    /// The decision.
    #[serde(flatten)]
    pub reply: T,
}

/// What every reply's head says, whatever was decided. A reader that decodes this and the decision one
/// after the other needs no code of its own for each kind of [`Reply`], which the filter is small by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Envelope {
    /// As in [`Reply`].
    #[serde(default = "first_version")]
    pub v: u16,
    /// As in [`Reply`].
    pub store_id: StoreId,
}

impl<T> Reply<T> {
    /// Wraps a decision.
    pub fn new(store_id: StoreId, reply: T) -> Self {
        Self { v: PROTOCOL_VERSION, store_id, reply }
    }
}

const fn first_version() -> u16 {
    1
}
