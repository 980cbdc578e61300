//! How a request under a policy ended, for counters and access logs.

use crate::problem::ProblemKind;

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)*) => {
        /// How a request under a policy ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Outcome { $($(#[$doc])* $name,)* }

        impl Outcome {
            /// Every outcome, so that counters can be defined beforehand.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Name in counters and access logs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

outcomes! {
    /// The upstream ran it, and what the policy keeps of its answer is stored.
    Executed: "executed",
    /// The stored answer was sent again.
    Replayed: "replayed",
    /// The stored answer was sent again to a request that had waited for it.
    Waited: "waited",
    /// Another request with the key is running.
    Conflict: "conflict",
    /// The key belongs to another request.
    Mismatch: "mismatch",
    /// Nobody knows whether the request ran.
    Unknown: "unknown",
    /// The key's outcome is unknown since an earlier request; this one was told so.
    ToldUnknown: "told_unknown",
    /// The claim was given back: the request did not run.
    ReleasedNotRun: "released_not_run",
    /// The claim was given back: the answer's status is not stored.
    ReleasedNotStored: "released_not_stored",
    /// The answer could not be stored in time; it is tried on in the background.
    Unstored: "unstored",
    /// The claim had passed to somebody else before its answer came.
    Lost: "lost",
    /// The upstream itself said that its answer is not to be kept.
    ReleasedByOrigin: "released_by_origin",
    /// The answer was too large; its marker is stored.
    Oversized: "oversized",
    /// The client left before its request was forwarded.
    Cancelled: "cancelled",
    /// The store could not decide; nothing was forwarded.
    StoreUnavailable: "store_unavailable",
    /// The caller has as many requests as it may have; nothing was forwarded.
    OverQuota: "over_quota",
    /// The request was refused before any claim.
    Refused: "refused",
    /// The same payload of the same caller came under another key a short time ago.
    SamePayloadNewKey: "same_payload_new_key",
    /// The grant was admitted, the upstream ran it, and it succeeded; its answer is stored.
    GrantSucceeded: "grant_succeeded",
    /// The grant was admitted, and the upstream refused for good; its answer is stored.
    GrantFailed: "grant_failed",
    /// The grant is spent, and the request was not run.
    GrantNotSubmitted: "grant_not_submitted",
    /// The grant was not admitted.
    GrantRefused: "grant_refused",
    /// The same operation again: it is final, and there is no stored answer.
    GrantReported: "grant_reported",
    /// The same operation again: it is not final yet.
    GrantPending: "grant_pending",
    /// Observed: the first with its key.
    WouldExecute: "would_execute",
    /// Observed: a repeat that would have got the stored answer.
    WouldReplay: "would_replay",
    /// Observed: another request with the key was running; this one would have waited, or 409.
    WouldConflict: "would_conflict",
    /// Observed: the key belongs to another request.
    WouldMismatch: "would_mismatch",
    /// Observed: the outcome of the request with this key is not known.
    WouldUnknown: "would_unknown",
    /// Observed: the store did not decide.
    WouldStoreUnavailable: "would_store_unavailable",
    /// Observed: the caller had as many requests as it may have.
    WouldOverQuota: "would_over_quota",
    /// Observed: no key where one is required.
    WouldRefuseKeyMissing: "would_refuse_key_missing",
    /// Observed: a malformed key.
    WouldRefuseKeyMalformed: "would_refuse_key_malformed",
    /// Observed: a key that is too long.
    WouldRefuseKeyTooLong: "would_refuse_key_too_long",
    /// Observed: no identity, or an unusable one.
    WouldRefuseScope: "would_refuse_scope",
    /// Observed: a body over the limit.
    WouldRefuseBodyTooLarge: "would_refuse_body_too_large",
    /// Observed: a body that can be read in more than one way.
    WouldRefuseBodyAmbiguous: "would_refuse_body_ambiguous",
    /// Observed: a method or protocol that can't be guarded.
    WouldRefuseUnguardable: "would_refuse_unguardable",
    /// Observed: a filter that must run first did not, or the proxy hid something.
    WouldRefuseUnreadable: "would_refuse_unreadable",
}

impl Outcome {
    /// What a refusal before the claim is counted as while the policy only observes.
    pub fn would_refuse(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::KeyMissing => Self::WouldRefuseKeyMissing,
            ProblemKind::KeyMalformed => Self::WouldRefuseKeyMalformed,
            ProblemKind::KeyTooLong => Self::WouldRefuseKeyTooLong,
            ProblemKind::ScopeMissing | ProblemKind::ScopeUnusable => Self::WouldRefuseScope,
            ProblemKind::BodyTooLarge => Self::WouldRefuseBodyTooLarge,
            ProblemKind::BodyAmbiguous => Self::WouldRefuseBodyAmbiguous,
            ProblemKind::Unguardable => Self::WouldRefuseUnguardable,
            ProblemKind::PolicyUnreadable
            | ProblemKind::MetadataMissing
            | ProblemKind::HostOption
            | ProblemKind::Stalled => Self::WouldRefuseUnreadable,
            ProblemKind::InProgress => Self::WouldConflict,
            ProblemKind::OutcomeUnknown | ProblemKind::UpstreamLost => Self::WouldUnknown,
            ProblemKind::OtherScheme | ProblemKind::KeyReused => Self::WouldMismatch,
            ProblemKind::StoreUnavailable
            | ProblemKind::ClaimTooLate
            | ProblemKind::TooBusy
            | ProblemKind::UpstreamUnreached => Self::WouldStoreUnavailable,
            ProblemKind::QuotaExceeded => Self::WouldOverQuota,
            ProblemKind::Oversized | ProblemKind::NotKept => Self::WouldReplay,
            // Routes that admit grants are never observed.
            ProblemKind::GrantMissing
            | ProblemKind::OperationIdInvalid
            | ProblemKind::GrantDetailMissing
            | ProblemKind::GrantNotAvailable
            | ProblemKind::GrantExpired
            | ProblemKind::GrantNotValid
            | ProblemKind::GrantNotCovered
            | ProblemKind::GrantNotSubmitted
            | ProblemKind::OperationFailed => Self::WouldRefuseUnguardable,
        }
    }
}
