//! Grants as claims: the two framed calls of a route that admits one-time grants.
//!
//! The operation **is** the claim: one record says who may run it and, when it has run, what the
//! answer was. There is no token of an attempt, so a lost reply never becomes an admission by asking
//! again: the second call of the same operation is told its status, and nothing else. Whoever sees
//! anything but [`GrantClaimReply::Admitted`] executes nothing.
//!
//! The calls in between, `may-submit` and `renew`, are the JSON calls of [`crate::grants`]. A call
//! that was not decided is problem+json here as there, and so is a `finish` that did not apply.

use crate::PROTOCOL_VERSION;
use crate::answer::{AnswerDecodeError, StoredAnswer, decode_headers, encode_headers, split_payload};
use crate::grants::{
    AdmitRequest, Caller, Details, GrantName, GrantToken, Operation, OperationId, OperationStatus, codes,
};
use serde::{Deserialize, Serialize};

/// Paths of the calls.
pub mod paths {
    /// [`super::GrantClaimRequest`] -> [`super::GrantClaimReply`], both framed.
    pub const CLAIM: &str = "/v1/grants/claim";
    /// Follows an operation's path: a framed [`super::FinishRequest`] -> JSON
    /// [`crate::grants::RecordReply`], or the problem `operation_not_applied`.
    pub const FINISH: &str = "finish";
}

/// Asks for a grant's single use, or for what became of it. No payload.
///
/// The members are those of [`AdmitRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantClaimRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// The signed grant; either this or `grant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<GrantToken>,
    /// The grant that is kept as a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantName>,
    /// The operation, the same in every retry.
    pub operation_id: OperationId,
    /// As in [`AdmitRequest`].
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

impl From<AdmitRequest> for GrantClaimRequest {
    fn from(request: AdmitRequest) -> Self {
        let AdmitRequest { token, grant, operation_id, operation_mac, caller, tenant, details } = request;
        Self { v: PROTOCOL_VERSION, token, grant, operation_id, operation_mac, caller, tenant, details }
    }
}

impl From<GrantClaimRequest> for AdmitRequest {
    fn from(request: GrantClaimRequest) -> Self {
        let GrantClaimRequest { v: _, token, grant, operation_id, operation_mac, caller, tenant, details } =
            request;
        Self { token, grant, operation_id, operation_mac, caller, tenant, details }
    }
}

/// As much of an [`Operation`] as a route tells its client; a reader that decodes this passes over the
/// rest.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Standing {
    /// Which.
    pub operation_id: OperationId,
    /// Where it stands.
    pub status: OperationStatus,
    /// As in [`Operation`].
    #[serde(default)]
    pub reference: Option<String>,
}

/// What became of it. Comes in a [`crate::claims::Reply`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum GrantClaimReply<O = Operation> {
    /// The grant is spent by this very call, and the caller owns the operation.
    Admitted {
        /// What every later call of this owner names.
        owner_version: i32,
        /// Milliseconds until the ownership ends.
        lease_left_ms: u64,
        /// Milliseconds until nothing may be sent any more for this operation.
        submit_left_ms: u64,
    },
    /// It was spent for this very operation before: same grant, caller with namespace, tenant and
    /// details. Not a right to execute.
    Before {
        /// Where the operation stands.
        operation: Box<O>,
        /// The answer that was stored with its outcome, if one was; the payload is its header block
        /// and its body.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<AnswerHead>,
    },
    /// Not admitted, and nothing is told about anybody's operation.
    Refused {
        /// Which kind of refusal.
        code: GrantRefusal,
        /// A stable word that says more, where the caller may know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Kinds of refusal: the words of [`codes`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum GrantRefusal {
    /// Used, revoked, or in conflict with another operation; which is not said.
    #[serde(rename = "grant_not_available")]
    NotAvailable,
    /// Past its admission deadline.
    #[serde(rename = "grant_expired")]
    Expired,
    /// The grant itself is not acceptable.
    #[serde(rename = "grant_not_valid")]
    NotValid,
    /// The request names another caller, tenant or details than the grant, which is not spent.
    #[serde(rename = "grant_not_covered")]
    NotCovered,
    /// A kind that this version does not know by name: a refusal all the same.
    #[serde(other, rename = "other")]
    Other,
}

impl GrantRefusal {
    /// The word, as in problems.
    pub fn code(self) -> &'static str {
        match self {
            Self::NotAvailable | Self::Other => codes::NOT_AVAILABLE,
            Self::Expired => codes::EXPIRED,
            Self::NotValid => codes::NOT_VALID,
            Self::NotCovered => codes::NOT_COVERED,
        }
    }
}

/// What a head says about the answer in its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AnswerHead {
    /// HTTP status, 200 to 599.
    pub status: u16,
    /// Bytes of the header block at the start of the payload.
    pub headers_len: u32,
    /// Bytes of the body after it, so that a cut payload is noticed.
    pub body_len: u32,
}

impl AnswerHead {
    /// The head of an answer, and its header block; its body follows the block in the payload.
    pub fn of(answer: &StoredAnswer) -> (Self, Vec<u8>) {
        let block = encode_headers(&answer.headers);
        // Past 32 bits the frame is refused for its length anyway.
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let head = Self { status: answer.status, headers_len: len(&block), body_len: len(&answer.body) };
        (head, block)
    }

    /// Splits a payload into header block and body; an error where its length is not the stated one.
    pub fn split(self, payload: &[u8]) -> Result<(&[u8], &[u8]), AnswerDecodeError> {
        let (block, body) = split_payload(payload, self.headers_len as usize)?;
        match body.len().checked_sub(self.body_len as usize) {
            Some(0) => Ok((block, body)),
            Some(more) => Err(AnswerDecodeError::TrailingBytes(more)),
            None => Err(AnswerDecodeError::Truncated),
        }
    }

    /// Reads the answer of a payload.
    pub fn read(self, payload: &[u8]) -> Result<StoredAnswer, AnswerDecodeError> {
        let (block, body) = self.split(payload)?;
        Ok(StoredAnswer { status: self.status, headers: decode_headers(block)?, body: body.to_vec() })
    }
}

/// How an operation of a route ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishOutcome {
    /// The effect exists. Final.
    Succeeded,
    /// It was definitely refused: there is no effect. Final.
    Failed,
    /// Nobody knows.
    Unknown,
}

impl From<FinishOutcome> for OperationStatus {
    fn from(outcome: FinishOutcome) -> Self {
        match outcome {
            FinishOutcome::Succeeded => Self::Succeeded,
            FinishOutcome::Failed => Self::Failed,
            FinishOutcome::Unknown => Self::Unknown,
        }
    }
}

/// Records the outcome of an operation, and its answer with it. The payload is the answer's header
/// block and its body, and empty without one.
///
/// A repeat by the same owner with the same outcome is told so; the answer that was stored first
/// stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FinishRequest {
    /// Writer's protocol version.
    #[serde(default = "first_version")]
    pub v: u16,
    /// The writer's.
    pub owner_version: i32,
    /// Status that the writer expects.
    #[serde(default = "admitted")]
    pub expected_status: OperationStatus,
    /// How it ended.
    pub outcome: FinishOutcome,
    /// The provider's id of the effect, or its code of refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The answer; none where it was too large, or where there is none to give again. Never with the
    /// outcome `unknown`: an answer is stored with the final outcome, and is final itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerHead>,
}

const fn first_version() -> u16 {
    1
}

const fn admitted() -> OperationStatus {
    OperationStatus::Admitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written_and_every_other_length_is_refused() {
        let answer = StoredAnswer {
            status: 201,
            headers: vec![(b"x-odd".to_vec(), b"caf\xe9".to_vec())],
            body: b"done".to_vec(),
        };
        let (head, block) = AnswerHead::of(&answer);
        let payload = [block.as_slice(), answer.body.as_slice()].concat();
        assert_eq!(head.read(&payload).unwrap(), answer);
        for len in 0..payload.len() {
            assert!(head.read(&payload[..len]).is_err(), "{len}");
        }
        assert_eq!(head.read(&[&payload[..], b"!"].concat()), Err(AnswerDecodeError::TrailingBytes(1)));
    }

    #[test]
    fn a_refusal_of_a_later_version_is_a_refusal() {
        let reply: GrantClaimReply =
            serde_json::from_str(r#"{"outcome":"refused","code":"grant_of_tomorrow","more":1}"#).unwrap();
        let GrantClaimReply::Refused { code, reason: None } = reply else { panic!("{reply:?}") };
        assert_eq!((code, code.code()), (GrantRefusal::Other, codes::NOT_AVAILABLE));
    }
}
