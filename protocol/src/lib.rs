//! Wire types between the filter and the store service: one definition for both sides.
//!
//! A call is an HTTP `POST` of one [`frame`]; its reply is a frame as well when the status is
//! 200, and problem+json (RFC 9457) otherwise. The head of a frame is JSON, its payload is raw
//! bytes, so that an answer's headers and body travel without any text encoding.
//!
//! Compatibility: a reader ignores head members that it does not know, and a writer never
//! changes the meaning of a member. Version N and N-1 work together in both orders; what a
//! version added is absent in the other's messages and has a default here.

pub mod answer;
pub mod claims;
pub mod frame;
pub mod grant_claims;
pub mod grants;
pub mod ids;

pub use answer::{AnswerDecodeError, StoredAnswer};
pub use frame::{FrameError, decode, encode};
pub use ids::{ClaimToken, Fence, Fingerprint, IdError, Scheme, ScopeDigest, StoreId, StoreKey};

/// The protocol version that this code speaks; every message carries its writer's version.
pub const PROTOCOL_VERSION: u16 = 1;

/// The oldest version whose messages this code still understands.
pub const PROTOCOL_VERSION_MIN: u16 = 1;

/// Media type of a frame.
pub const FRAME_MEDIA_TYPE: &str = "application/vnd.fencepost.frame";

/// Response header that repeats the store's identity on every reply, errors included.
pub const STORE_ID_HEADER: &str = "x-fencepost-store-id";

/// Response header that repeats the service's protocol version on every reply.
pub const PROTOCOL_HEADER: &str = "x-fencepost-protocol";

/// Paths of the service's calls.
pub mod paths {
    /// Ask for a claim: [`crate::claims::ClaimRequest`] -> [`crate::claims::ClaimReply`].
    pub const CLAIMS: &str = "/v1/claims";
    /// Store the answer: [`crate::claims::CompleteRequest`] -> [`crate::claims::CompleteReply`].
    pub const COMPLETE: &str = "/v1/complete";
    /// Give a claim back: [`crate::claims::ReleaseRequest`] -> [`crate::claims::ReleaseReply`].
    pub const RELEASE: &str = "/v1/release";
    /// Record an unknown outcome: [`crate::claims::UnknownRequest`] -> [`crate::claims::UnknownReply`].
    pub const UNKNOWN: &str = "/v1/unknown";
    /// Extend leases: [`crate::claims::RenewRequest`] -> [`crate::claims::RenewReply`].
    pub const RENEW: &str = "/v1/renew";
}
