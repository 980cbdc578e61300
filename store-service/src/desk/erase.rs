//! Erasing the stored answers of one caller.
//!
//! What is erased is what the application said. What stays is the protection: the key stays used,
//! its retries get a 410 that says why. A claim, an unknown outcome and a released key hold no
//! answer and are left as they are: to end them is another decision, about each.

use fencepost_protocol::answer::encode_headers;
use fencepost_protocol::{ScopeDigest, StoreKey};

/// Most rows that one batch looks at.
pub const BATCH: u32 = 5_000;

/// Status of what stands in place of an erased answer.
pub const STATUS: u16 = 410;

/// Code in its body.
pub const CODE: &str = "answer_erased";

/// One bounded batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EraseOrder {
    /// Digest of the caller's scope.
    pub scope: ScopeDigest,
    /// Only keys with these prefixes; none: all.
    pub prefixes: Option<Vec<String>>,
    /// Only keys behind this one.
    pub after: Option<StoreKey>,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// What a batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Erased {
    /// Answers that were replaced.
    pub answers: u64,
    /// Entries of the caller whose request may be running or may have run: left as they are.
    pub left: u64,
    /// Rows looked at.
    pub looked: u64,
    /// Where to go on; none: this was the end.
    pub next: Option<StoreKey>,
}

/// Header block and body that stand in place of an erased answer.
pub fn marker() -> (Vec<u8>, Vec<u8>) {
    let body = serde_json::json!({
        "type": format!("urn:fencepost:problem:{CODE}"),
        "title": "Gone",
        "status": STATUS,
        "code": CODE,
        "detail": "the request ran once; its answer was erased, and it does not run again",
    });
    let headers = encode_headers(&[(b"content-type".to_vec(), b"application/problem+json".to_vec())]);
    (headers, body.to_string().into_bytes())
}
