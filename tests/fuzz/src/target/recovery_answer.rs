//! What a provider's endpoint says about an operation and about a held key. The first byte of the input
//! chooses the status, the rest is the body.
//!
//! Promised: an end comes only from a 200 that names the very thing that was asked for and has that
//! outcome in its own words; an answer that is to be kept can be read and sent again.

use bytes::Bytes;
use fencepost_filter_core::capture::is_never_kept;
use fencepost_protocol::StoreKey;
use fencepost_protocol::answer::decode_headers;
use fencepost_protocol::grants::OperationId;
use fencepost_store::entry::{Micros, Ruling, Version};
use fencepost_store::recovery::answer::{Reply, of_key, of_operation};
use fencepost_store::recovery::held_plan::HeldAnswer;
use fencepost_store::recovery::plan::Answer;
use serde_json::Value;

const ID: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";

const KEY: &str = "test:01010101010101010101010101010101";

const FENCE: i64 = 1_790_000_000_000_000;

pub fn run(data: &[u8]) {
    let (how, body) = data.split_first().unwrap_or((&b'2', b""));
    let status = match how {
        b'2' => 200,
        b'4' => 404,
        b'5' => 503,
        other => 100 + u16::from(*other) * 2,
    };
    // The corpus names what was asked for by these words, so that mutations are about it.
    let text = String::from_utf8_lossy(body).replace("THE_ID", ID).replace("THE_KEY", KEY);
    let text = text.replace("THE_FENCE", &FENCE.to_string());
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let reply = Reply { status, body: Bytes::from(text) };
    operation(&reply, &said);
    key(&reply, &said);
}

fn operation(reply: &Reply, said: &Value) {
    let (word, stored) = match of_operation(reply, &OperationId::parse(ID).unwrap()) {
        Answer::Succeeded { answer, .. } => ("succeeded", answer),
        Answer::Refused { answer, .. } => ("refused", answer),
        Answer::InProgress => ("in_progress", None),
        Answer::NotFound => ("not_found", None),
        Answer::Unclear(_) | Answer::Unreachable(_) => return,
    };
    is_said(reply, said, word);
    assert!(said["operation_id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(ID)), "{said}");
    if let Some(answer) = stored {
        can_be_kept(answer.status, &answer.headers);
    }
}

fn key(reply: &Reply, said: &Value) {
    let version = Version { fence: FENCE, updated_at: Micros(FENCE) };
    match of_key(reply, &StoreKey::parse(KEY).unwrap(), version) {
        HeldAnswer::Found(Ruling::Answer { status, headers, ttl_ms, .. }) => {
            assert!(matches!(said["outcome"].as_str(), Some("succeeded" | "refused")), "{said}");
            can_be_kept(status, &headers);
            assert!(ttl_ms > 0);
        }
        HeldAnswer::Found(Ruling::Free(_)) => panic!("a machine frees a held key: {said}"),
        HeldAnswer::NoAnswer => assert!(said["answer"].is_null(), "{said}"),
        HeldAnswer::InProgress => is_said(reply, said, "in_progress"),
        HeldAnswer::NotFound => is_said(reply, said, "not_found"),
        HeldAnswer::Unclear(_) | HeldAnswer::Unreachable(_) | HeldAnswer::NotAsked => return,
    }
    assert_eq!((said["key"].as_str(), said["fence"].as_i64()), (Some(KEY), Some(FENCE)), "{said}");
}

fn is_said(reply: &Reply, said: &Value, word: &str) {
    assert_eq!(said["outcome"], word);
    assert!(reply.status == 200 || (reply.status == 404 && word == "not_found"), "{} {word}", reply.status);
}

fn can_be_kept(status: u16, block: &[u8]) {
    assert!((200..=599).contains(&status));
    for (name, value) in decode_headers(block).expect("a header block") {
        assert!(!is_never_kept(&name) && !name.starts_with(b":") && !name.is_empty(), "{name:?}");
        assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')), "{value:?}");
    }
}
