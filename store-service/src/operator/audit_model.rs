//! What operators and the service say to each other about the audit: JSON, for `/v1/operator/audit`.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditView {
    /// When, in microseconds since 1970.
    pub at_us: i64,
    /// About what: `entry`, `operation`, `grant`, `hold`, `scope`, `caller` or `issuer`.
    pub kind: String,
    /// About which.
    pub subject: String,
    /// What was done.
    pub action: String,
    /// A person's token, `recovery/INSTANCE`, or `service`.
    pub who: String,
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

/// Lines, the newest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditReply {
    /// The lines.
    pub lines: Vec<AuditView>,
    /// Where to go on, if there may be more: the `after` of the next call.
    pub next: Option<String>,
}
