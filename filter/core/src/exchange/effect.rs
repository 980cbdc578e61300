//! What an exchange wants done: values, carried out by the adapter in order.

use super::{Outcome, Pair, detached, payloads};
use crate::error_template::ErrorTemplate;
use crate::problem::Problem;
use std::borrow::Cow;
use std::rc::Rc;

/// A call that an exchange waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `/v1/claims`, or `/v1/grants/claim`.
    Claim,
    /// The duty that ends the exchange: `/v1/complete`, `/v1/release` or `/v1/unknown`, or an
    /// operation's `finish`.
    Duty,
    /// An operation's `may-submit`.
    MaySubmit,
    /// An operation's `renew`.
    RenewOperation,
    /// `/v1/unknown` while the request may still be answered.
    EarlyUnknown,
}

/// Which of the two clusters a call goes to, so that parked claims never starve what frees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// Calls that never park.
    Decide,
    /// Claims that may park.
    Claim,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Call the store service.
    CallStore {
        /// Which call; comes back with the reply.
        call: Call,
        /// Where to.
        cluster: Cluster,
        /// Path of the call.
        path: Cow<'static, str>,
        /// Media type of the body: that of a frame, or JSON.
        media: &'static str,
        /// Request body.
        frame: Rc<Vec<u8>>,
        /// Timeout for the host.
        timeout_ms: u32,
    },
    /// Call the upstream, detached from the stream.
    CallUpstream(detached::UpstreamCall),
    /// Answer the client in place of the upstream.
    LocalReply(LocalReply),
    /// Let the held request go on, with these changes to its headers.
    ForwardRequest {
        /// Names to take out.
        remove: Vec<String>,
        /// Headers to set, in place of any of the same name.
        set: Vec<(String, String)>,
    },
    /// Take headers out of the response that is on its way.
    StripResponse {
        /// Names to take out.
        remove: Vec<Vec<u8>>,
    },
    /// Put another body and headers in place of a held response that the proxy made.
    RewriteResponse {
        /// Headers to set.
        set: Vec<(String, String)>,
        /// New body.
        body: Vec<u8>,
    },
    /// Mark a response whose headers are still held.
    MarkResponse {
        /// Header name.
        name: &'static str,
        /// Header value.
        value: &'static str,
    },
    /// Set a header of the response that is on its way.
    SetResponse {
        /// Header name.
        name: &'static str,
        /// Header value.
        value: Vec<u8>,
    },
    /// Let the held end of the response go on.
    ResumeResponse,
    /// Record how the exchange ended: a counter, and the access log's result.
    Result(Outcome),
    /// Look the payload up among those seen lately, and count it where it came under a new key.
    NotePayload(payloads::Note),
    /// Write a log line.
    Warn(String),
}

/// A local reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalReply {
    /// HTTP status.
    pub status: u16,
    /// Header pairs.
    pub headers: Vec<Pair>,
    /// Body.
    pub body: Rc<Vec<u8>>,
    /// Response code details for the access log.
    pub details: &'static str,
}

impl LocalReply {
    /// Tells of a problem, in a policy's own words if it has any.
    pub fn problem(problem: &Problem, template: Option<&ErrorTemplate>) -> Self {
        Self {
            status: problem.status(),
            headers: problem.headers(template),
            body: Rc::new(problem.body(template)),
            details: problem.kind.details(),
        }
    }
}
