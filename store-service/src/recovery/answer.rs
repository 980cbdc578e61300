//! What a provider's endpoint says: JSON, about the very thing that was asked for.
//!
//! ```json
//! {"operation_id": "018f2b1c-...", "outcome": "succeeded", "reference": "cr_8812"}
//! {"key": "prod:...", "fence": 1790000000000000, "outcome": "succeeded",
//!  "answer": {"status": 201, "headers": [["content-type", "application/json"]], "body": "{}"}}
//! ```
//!
//! `outcome` is `succeeded`, `refused`, `in_progress` or `not_found`; status 200, and for `not_found`
//! 404 as well. Everything else is unclear, or no answer: a 404 without the body may come from a
//! misplaced route, an answer about something else from a cache. 429 and 5xx are no answer.

use super::held_plan::HeldAnswer;
use super::plan::Answer;
use crate::entry::{Ruling, Version};
use crate::grant::operation::OperationAnswer;
use crate::operator::model::SettleWith;
use crate::operator::ruling::ruling;
use fencepost_filter_core::capture::is_never_kept;
use fencepost_protocol::StoreKey;
use fencepost_protocol::grants::{OperationId, TEXT_MAX};
use serde::Deserialize;

/// Longest answer, in bytes: the one that is to be stored is in it.
pub const ANSWER_MAX: usize = 4 * 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Succeeded,
    Refused,
    InProgress,
    NotFound,
}

#[derive(Deserialize)]
struct Said {
    outcome: Outcome,
    operation_id: Option<String>,
    reference: Option<String>,
    reason: Option<String>,
    answer: Option<Stored>,
}

#[derive(Deserialize)]
struct SaidOfKey {
    outcome: Outcome,
    key: Option<String>,
    fence: Option<i64>,
    answer: Option<Stored>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    status: u16,
    #[serde(default)]
    headers: Vec<(String, crate::operator::model::Octets)>,
    #[serde(default)]
    body: crate::operator::model::Octets,
    ttl_ms: Option<u64>,
}

impl Stored {
    fn ruling(self) -> Result<Ruling, String> {
        let Self { status, mut headers, body, ttl_ms } = self;
        // A provider that passes on what it once answered has `date`, `content-length` and the like in
        // it: no answer is kept with them, here as in the filter.
        headers.retain(|(name, _)| !is_never_kept(name.to_ascii_lowercase().as_bytes()));
        ruling(SettleWith::Answer { status, headers, body, ttl_ms })
    }

    /// An operation's answer is kept with the operation, so its lifetime counts for nothing.
    fn of_operation(self) -> Result<Option<OperationAnswer>, String> {
        Ok(match self.ruling()? {
            Ruling::Answer { status, headers, body, .. } => Some(OperationAnswer { status, headers, body }),
            // Cannot happen: an answer makes no other ruling.
            Ruling::Free(_) => None,
        })
    }
}

/// A reply as it came.
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Body.
    pub body: bytes::Bytes,
}

impl Reply {
    /// Does this status say that the question was not answered?
    pub fn is_no_answer(status: u16) -> bool {
        matches!(status, 408 | 425 | 429 | 500..=599)
    }

    fn no_answer(&self) -> Option<String> {
        Self::is_no_answer(self.status).then(|| format!("status {}", self.status))
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, outcome: impl Fn(&T) -> Outcome) -> Result<T, String> {
        if !matches!(self.status, 200 | 404) {
            return Err(format!("status {}; expected 200, or 404 with not_found", self.status));
        }
        // What was said is not repeated: it may hold anything.
        let said: T = serde_json::from_slice(&self.body)
            .map_err(|_| format!("status {} without the body that an answer has", self.status))?;
        match (self.status, outcome(&said)) {
            (200, _) | (404, Outcome::NotFound) => Ok(said),
            _ => Err("status 404 and another outcome than not_found".into()),
        }
    }
}

fn text(what: &str, text: Option<String>) -> Result<Option<String>, String> {
    match text {
        Some(text) if text.chars().count() > TEXT_MAX || text.contains('\0') => {
            Err(format!("{what}: expected at most {TEXT_MAX} characters"))
        }
        text => Ok(text.filter(|text| !text.is_empty())),
    }
}

/// Reads an answer about an operation.
pub fn of_operation(reply: &Reply, id: &OperationId) -> Answer {
    if let Some(why) = reply.no_answer() {
        return Answer::Unreachable(why);
    }
    let read = || {
        let said: Said = reply.read(|said: &Said| said.outcome)?;
        let about = said.operation_id.as_deref();
        if !about.is_some_and(|about| about.eq_ignore_ascii_case(id.as_str())) {
            return Err("it is about another operation, or does not say about which".into());
        }
        let answer = said.answer.map(Stored::of_operation).transpose()?.flatten();
        Ok(match said.outcome {
            Outcome::Succeeded => Answer::Succeeded { reference: text("reference", said.reference)?, answer },
            Outcome::Refused => Answer::Refused { reason: text("reason", said.reason)?, answer },
            Outcome::InProgress => Answer::InProgress,
            Outcome::NotFound => Answer::NotFound,
        })
    };
    read().unwrap_or_else(Answer::Unclear)
}

/// Reads an answer about a held key.
pub fn of_key(reply: &Reply, key: &StoreKey, version: Version) -> HeldAnswer {
    if let Some(why) = reply.no_answer() {
        return HeldAnswer::Unreachable(why);
    }
    let read = || -> Result<HeldAnswer, String> {
        let said: SaidOfKey = reply.read(|said: &SaidOfKey| said.outcome)?;
        if said.key.as_deref() != Some(key.as_str()) || said.fence != Some(version.fence) {
            return Err("it is about another key or fence, or does not say about which".into());
        }
        Ok(match (said.outcome, said.answer) {
            (Outcome::Succeeded | Outcome::Refused, Some(answer)) => HeldAnswer::Found(answer.ruling()?),
            (Outcome::Succeeded | Outcome::Refused, None) => HeldAnswer::NoAnswer,
            (Outcome::InProgress, _) => HeldAnswer::InProgress,
            (Outcome::NotFound, _) => HeldAnswer::NotFound,
        })
    };
    read().unwrap_or_else(HeldAnswer::Unclear)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn reply(status: u16, body: &str) -> Reply {
        Reply { status, body: Bytes::from(body.to_owned()) }
    }

    const ID: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";

    #[test]
    fn only_plain_words_about_this_very_operation_are_an_answer() {
        let id = OperationId::parse(ID).unwrap();
        let ask = |status, body: &str| of_operation(&reply(status, &body.replace("ID", ID)), &id);
        let word = |status, body: &str| ask(status, body).word();
        assert_eq!(
            ask(200, r#"{"operation_id": "ID", "outcome": "succeeded", "reference": "cr_1", "more": 1}"#),
            Answer::Succeeded { reference: Some("cr_1".into()), answer: None }
        );
        assert_eq!(
            ask(200, r#"{"operation_id": "ID", "outcome": "refused", "reason": "closed"}"#),
            Answer::Refused { reason: Some("closed".into()), answer: None }
        );
        let with =
            r#"{"operation_id": "ID", "outcome": "succeeded", "answer": {"status": 201, "body": "x"}}"#;
        let Answer::Succeeded { answer: Some(answer), .. } = ask(200, with) else { panic!() };
        assert_eq!((answer.status, &answer.body[..]), (201, &b"x"[..]));
        assert_eq!(word(200, r#"{"operation_id": "ID", "outcome": "in_progress"}"#), "in_progress");
        let upper = format!(r#"{{"operation_id": "{}", "outcome": "in_progress"}}"#, ID.to_uppercase());
        assert_eq!(word(200, &upper), "in_progress");
        assert_eq!(word(200, r#"{"operation_id": "ID", "outcome": "not_found"}"#), "not_found");
        assert_eq!(word(404, r#"{"operation_id": "ID", "outcome": "not_found"}"#), "not_found");
        for (status, body) in [
            (404, ""),
            (404, "<html>"),
            (404, r#"{"operation_id": "ID", "outcome": "succeeded"}"#),
            (404, r#"{"operation_id": "ID", "outcome": "refused"}"#),
            (400, r#"{"operation_id": "ID", "outcome": "refused"}"#),
            (402, r#"{"operation_id": "ID", "outcome": "refused"}"#),
            (201, r#"{"operation_id": "ID", "outcome": "succeeded"}"#),
            (302, ""),
            (200, r#"{"outcome": "succeeded"}"#),
            (200, r#"{"operation_id": "018f2b1c-7e52-7cc3-98c4-dc0c0c073980", "outcome": "succeeded"}"#),
            (200, r#"{"operation_id": "ID", "outcome": "failed"}"#),
            (200, r#"{"operation_id": "ID"}"#),
            (200, r#"{"operation_id": "ID", "outcome": "succeeded""#),
            (200, r#"{"operation_id": "ID", "outcome": "succeeded", "outcome": "refused"}"#),
            (200, "null"),
            (200, r#"{"operation_id": "ID", "outcome": "succeeded", "answer": {"status": 99}}"#),
            (200, r#"{"operation_id": "ID", "outcome": "refused", "answer": {"status": 402, "x": 1}}"#),
        ] {
            assert_eq!(word(status, body), "unclear", "{status} {body}");
        }
        let long = format!(
            r#"{{"operation_id": "ID", "outcome": "succeeded", "reference": "{}"}}"#,
            "x".repeat(256)
        );
        assert_eq!(word(200, &long), "unclear");
        for status in [408, 425, 429, 500, 503, 599] {
            let body = r#"{"operation_id": "ID", "outcome": "succeeded"}"#;
            assert_eq!(word(status, body), "unreachable", "{status}");
        }
    }

    #[test]
    fn an_answer_for_a_key_names_key_and_fence_and_is_one_that_can_be_replayed() {
        let text = format!("prod:{}", "ab".repeat(16));
        let key = StoreKey::parse(&text).unwrap();
        let version = Version { fence: 7, updated_at: crate::entry::Micros(9) };
        let ask = |body: &str| of_key(&reply(200, &body.replace("KEY", &text)), &key, version);
        let found = ask(r#"{"key": "KEY", "fence": 7, "outcome": "succeeded",
                "answer": {"status": 201, "headers": [["Content-Type", "text/plain"]], "body": "x"}}"#);
        assert!(matches!(found, HeldAnswer::Found(Ruling::Answer { status: 201, .. })), "{found:?}");
        let usual = r#"{"key": "KEY", "fence": 7, "outcome": "succeeded", "answer": {"status": 201,
            "headers": [["Date", "x"], ["Content-Length", "9"], ["set-cookie", "a=b"], ["x-mine", "1"]]}}"#;
        let HeldAnswer::Found(Ruling::Answer { headers, .. }) = ask(usual) else { panic!("{usual}") };
        let kept = fencepost_protocol::answer::encode_headers(&[(b"x-mine".to_vec(), b"1".to_vec())]);
        assert_eq!(headers[..], kept[..], "as the filter keeps them");
        let refused = r#"{"key": "KEY", "fence": 7, "outcome": "refused", "answer": {"status": 402}}"#;
        assert_eq!(ask(refused).word(), "found");
        assert_eq!(ask(r#"{"key": "KEY", "fence": 7, "outcome": "succeeded"}"#).word(), "no_answer");
        assert_eq!(ask(r#"{"key": "KEY", "fence": 7, "outcome": "not_found"}"#).word(), "not_found");
        for body in [
            r#"{"key": "KEY", "fence": 8, "outcome": "succeeded", "answer": {"status": 201}}"#,
            r#"{"key": "KEY", "outcome": "succeeded", "answer": {"status": 201}}"#,
            r#"{"fence": 7, "outcome": "succeeded", "answer": {"status": 201}}"#,
            r#"{"key": "KEY", "fence": 7, "outcome": "succeeded", "answer": {"status": 99}}"#,
            r#"{"key": "KEY", "fence": 7, "outcome": "succeeded",
                "answer": {"status": 200, "headers": [["x-idempotent-replayed", "true"]]}}"#,
            r#"{"key": "KEY", "fence": 7, "outcome": "succeeded", "answer": {"status": 204, "body": "x"}}"#,
            r#"{"key": "KEY", "fence": 7, "outcome": "not_run"}"#,
        ] {
            assert_eq!(ask(body).word(), "unclear", "{body}");
        }
    }
}
