//! Erasing the stored answers of one caller: of entries, and of operations that a grant admitted.
//!
//! What is erased is what the application said. What stays is the protection: the key stays used and
//! the grant spent, the operation keeps its status; retries get a 410 that says why. A claim, an
//! unknown outcome, a released key and an operation without an end hold no answer and are left as
//! they are: to end them is another decision, about each.
//!
//! Entries know their caller by the digest of its scope. So do operations that a route admitted: the
//! filter binds the digest to them as a detail. Others are found by their caller's name alone.

use fencepost_protocol::answer::encode_headers;
use fencepost_protocol::grants::{Caller, OperationId};
use fencepost_protocol::{ScopeDigest, StoreKey};
use std::fmt;
use std::str::FromStr;

/// Most rows that one batch looks at.
pub const BATCH: u32 = 5_000;

/// Status of what stands in place of an erased answer.
pub const STATUS: u16 = 410;

/// Code in its body.
pub const CODE: &str = "answer_erased";

/// Its step in the history of an operation.
pub const STEP: &str = "erase_answer";

/// Whose answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// Of the caller with this digest of its scope: entries, and operations of routes.
    Scope(ScopeDigest),
    /// Of the caller with this name: operations alone.
    Caller(Caller),
}

impl Whose {
    /// As the text of an operation's details says it, where they name the scope. No other text can
    /// hold it: quotes inside a JSON string are escaped.
    pub fn as_detail(&self) -> Option<String> {
        match self {
            Self::Scope(scope) => Some(format!("\"fencepost.scope\":\"{}\"", scope.to_hex())),
            Self::Caller(_) => None,
        }
    }

    /// Namespace and id, where the caller is named.
    pub fn names(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Scope(_) => (None, None),
            Self::Caller(caller) => (Some(&caller.namespace), Some(&caller.id)),
        }
    }
}

/// How far erasing has come: entries first, then operations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EraseCursor {
    /// Behind this key.
    Entry(StoreKey),
    /// Through the entries; operations from the start.
    Operations,
    /// Behind this operation.
    Operation(OperationId),
}

impl fmt::Display for EraseCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(key) => write!(f, "{key}"),
            Self::Operations => f.write_str("operations"),
            Self::Operation(id) => write!(f, "{id}"),
        }
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected what `next` of the last batch said")]
pub struct EraseCursorError;

impl FromStr for EraseCursor {
    type Err = EraseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "operations" {
            return Ok(Self::Operations);
        }
        // A stored key has a colon, an operation's id has none.
        if text.contains(':') {
            return StoreKey::parse(text).map(Self::Entry).map_err(|_| EraseCursorError);
        }
        OperationId::parse(text).map(Self::Operation).map_err(|_| EraseCursorError)
    }
}

/// One bounded batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EraseOrder {
    /// Whose.
    pub whose: Whose,
    /// Only keys with these prefixes, and no operations, which have none; none: all of both.
    pub prefixes: Option<Vec<String>>,
    /// Only what comes behind this.
    pub after: Option<EraseCursor>,
    /// Name of the person's token.
    pub who: String,
    /// Why.
    pub reason: String,
}

impl EraseOrder {
    /// Where this batch begins: among the entries behind a key, or among the operations behind an id.
    pub fn place(&self) -> Place<'_> {
        match (&self.after, &self.whose) {
            (Some(EraseCursor::Entry(key)), Whose::Scope(scope)) => Place::Entries(scope, Some(key)),
            (None, Whose::Scope(scope)) => Place::Entries(scope, None),
            (Some(EraseCursor::Operation(id)), _) => Place::Operations(Some(id)),
            (Some(EraseCursor::Operations | EraseCursor::Entry(_)) | None, _) => Place::Operations(None),
        }
    }

    /// Where to go on behind the last entry.
    pub fn behind_entries(&self) -> Option<EraseCursor> {
        self.prefixes.is_none().then_some(EraseCursor::Operations)
    }
}

/// Where a batch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place<'a> {
    /// Entries of this scope, behind this key.
    Entries(&'a ScopeDigest, Option<&'a StoreKey>),
    /// Operations behind this one.
    Operations(Option<&'a OperationId>),
}

/// What a batch did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Erased {
    /// Answers of entries that were replaced.
    pub answers: u64,
    /// Answers of operations that were replaced.
    pub operations: u64,
    /// Entries and operations of the caller whose request may be running or may have run: left as
    /// they are.
    pub left: u64,
    /// Rows looked at.
    pub looked: u64,
    /// Where to go on; none: this was the end.
    pub next: Option<EraseCursor>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_and_anything_else_is_refused() {
        let key = StoreKey::new("operations", &[1; 16]).unwrap_or_else(|_| panic!());
        for cursor in [
            EraseCursor::Entry(key),
            EraseCursor::Operations,
            EraseCursor::Operation(OperationId::from_random([7; 16])),
        ] {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for text in ["", "x", "operations:", "operations:1", "1"] {
            assert_eq!(text.parse::<EraseCursor>(), Err(EraseCursorError), "{text}");
        }
    }

    /// The text by which operations are found is the one that details are written as, and no other
    /// detail can be made to look like it.
    #[test]
    fn the_scope_of_an_operation_is_found_in_its_details_and_nowhere_else() {
        let scope = ScopeDigest::from_bytes([7; 16]);
        let found = Whose::Scope(scope).as_detail().unwrap_or_default();
        let text = |name: &str, value: &str| {
            serde_json::to_string(
                &[("amount", "1"), (name, value)].into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            )
            .unwrap_or_default()
        };
        assert!(text("fencepost.scope", &scope.to_hex()).contains(&found));
        for (name, value) in [("note", &found[..]), (&found[..], ""), (&found[1..], "x"), ("x", &found[1..])]
        {
            assert!(!text(name, value).contains(&found), "{name} {value}");
        }
    }
}
