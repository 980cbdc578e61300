//! What can happen to an exchange.

use super::detached;
use super::evidence::Evidence;
use super::store_reply::CallReply;
use super::{Call, Pair};
use fencepost_protocol::claims::RenewResult;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// More of the request's body; `end` on the last piece.
    RequestBody {
        /// The new bytes only.
        chunk: Vec<u8>,
        /// Whether the body is whole now.
        end: bool,
    },
    /// Trailers came: the request's body is whole.
    RequestTrailers,
    /// The host could not hand over all of the request's body.
    RequestUnreadable,
    /// A call to the store has come back.
    StoreReply {
        /// Which call.
        call: Call,
        /// With what.
        reply: CallReply,
    },
    /// A response that is not our own has begun: the upstream's, or one that the proxy made.
    ResponseHead(ResponseHead),
    /// More of the response's body; `end` on the last piece.
    ResponseBody {
        /// The new bytes only.
        chunk: Vec<u8>,
        /// Whether the body is whole now.
        end: bool,
    },
    /// Trailers came: the response's body is whole.
    ResponseTrailers,
    /// The host could not hand over all of the response's body.
    ResponseUnreadable {
        /// Whether the body is whole now.
        end: bool,
    },
    /// The stream is gone: finished, reset by either side, or timed out.
    StreamGone(Evidence),
    /// The detached call to the upstream has come back.
    UpstreamReply(detached::UpstreamReply),
    /// A renewal of this exchange's claim has come back.
    Renewed(RenewResult),
    /// A renewal failed on its way.
    RenewFailed,
    /// Time has passed.
    Tick {
        /// Where the body is of a request whose headers are held.
        body: HeldBody,
    },
}

/// Where the body is of a request whose headers are held. With the host option off the host keeps
/// it to itself for as long as the headers are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBody {
    /// It has not come, or is handed over as it comes: the client takes its time.
    Coming,
    /// The host has got some of it, and this VM has never been given any.
    Withheld,
    /// The host does not say what it has got, and this VM has never been given any.
    Unsaid,
}

/// Start of a response.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    /// HTTP status.
    pub status: u16,
    /// Header pairs in order, pseudo headers included.
    pub headers: Vec<Pair>,
    /// Who made it.
    pub evidence: Evidence,
    /// Whether the head is all there is.
    pub end: bool,
}
