//! Golden frames: the bytes of every message, written down once. Filter and service both read
//! them in their own tests, so neither can drift from what the other one sends.
//!
//! `FENCEPOST_WRITE_FIXTURES=1` writes them anew; a change of a line is a change of the protocol.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

use fencepost_protocol::claims::*;
use fencepost_protocol::grant_claims::{
    AnswerHead, FinishOutcome, FinishRequest, GrantClaimReply, GrantClaimRequest, GrantRefusal,
};
use fencepost_protocol::grants::{Caller, GrantName, GrantToken, Operation, OperationId, OperationStatus};
use fencepost_protocol::{
    ClaimToken, Fence, Fingerprint, Scheme, ScopeDigest, StoreId, StoreKey, answer, decode, encode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/frames.txt")
}

fn key() -> StoreKey {
    StoreKey::new("golden", &[0x11; 16]).unwrap()
}

fn token() -> ClaimToken {
    ClaimToken::from_bytes([0x22; 16])
}

fn scheme() -> Scheme {
    Scheme::parse("1-42fa47c6").unwrap()
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_bytes([0x33; 32])
}

fn scope() -> ScopeDigest {
    ScopeDigest::from_bytes([0x44; 16])
}

fn fence() -> Fence {
    Fence::new(1_790_000_000_000_000).unwrap()
}

fn headers() -> Vec<u8> {
    answer::encode_headers(&[
        (b"content-type".to_vec(), b"application/json".to_vec()),
        (b"x-odd".to_vec(), b"caf\xe9".to_vec()),
    ])
}

const BODY: &[u8] = b"{\"n\":1}";

/// Name and bytes of every golden frame; each is read back and must be the same message.
#[derive(Default)]
struct Golden(BTreeMap<String, Vec<u8>>);

impl Golden {
    fn add<T: Serialize + DeserializeOwned + PartialEq + Debug>(
        &mut self,
        name: &str,
        head: T,
        payload: &[&[u8]],
    ) {
        let frame = encode(&head, payload).unwrap();
        let (back, rest) = decode::<T>(&frame).unwrap();
        assert_eq!((back, rest), (head, payload.concat().as_slice()), "{name}");
        self.0.insert(name.to_owned(), frame);
    }

    fn reply<T: Serialize + DeserializeOwned + PartialEq + Debug>(
        &mut self,
        name: &str,
        reply: T,
        payload: &[&[u8]],
    ) {
        self.add(name, Reply::new(StoreId::from_bytes([0x55; 16]), reply), payload);
    }
}

fn golden() -> Golden {
    let mut all = Golden::default();
    let block = headers();
    let (headers_len, body_len) = (block.len() as u32, BODY.len() as u32);
    all.add(
        "request.claim",
        ClaimRequest {
            v: 1,
            key: key(),
            token: token(),
            scheme: scheme(),
            fingerprint: fingerprint(),
            scope: scope(),
            claim_ttl_ms: 30_000,
            max_run_ms: 60_000,
            on_lost: OnLost::Hold,
            unknown_ttl_ms: 86_400_000,
            wait_ms: 0,
            knows_quota: true,
        },
        &[],
    );
    all.add(
        "request.renew",
        RenewRequest {
            v: 1,
            claims: vec![Renewal { key: key(), token: token(), claim_ttl_ms: 30_000, run_ms: 50_000 }],
        },
        &[],
    );
    all.add(
        "request.complete",
        CompleteRequest {
            v: 1,
            key: key(),
            token: token(),
            fence: fence(),
            scheme: scheme(),
            fingerprint: fingerprint(),
            scope: scope(),
            status: 201,
            headers_len,
            body_len,
            ttl_ms: 86_400_000,
        },
        &[&block, BODY],
    );
    all.add(
        "request.release",
        ReleaseRequest {
            v: 1,
            key: key(),
            token: token(),
            scheme: scheme(),
            fingerprint: fingerprint(),
            scope: scope(),
            cause: ReleaseCause::NotRun,
        },
        &[],
    );
    all.add(
        "request.unknown",
        UnknownRequest { v: 1, key: key(), token: token(), cause: UnknownCause::Timeout },
        &[],
    );
    all.reply("reply.claim.claimed", ClaimReply::Claimed { fence: fence(), parked_ms: 7 }, &[]);
    all.reply(
        "reply.claim.completed",
        ClaimReply::Completed { status: 201, headers_len, body_len, age_ms: 5, left_ms: 86_399_995 },
        &[&block, BODY],
    );
    all.reply("reply.claim.in_progress", ClaimReply::InProgress { lease_left_ms: 29_000, parked_ms: 0 }, &[]);
    all.reply("reply.claim.mismatch", ClaimReply::Mismatch, &[]);
    all.reply("reply.claim.unknown", ClaimReply::Unknown { cause: UnknownCause::Reset, left_ms: 9 }, &[]);
    all.reply("reply.claim.other_scheme", ClaimReply::OtherScheme { scheme: scheme() }, &[]);
    all.reply("reply.claim.dead", ClaimReply::Dead, &[]);
    all.reply("reply.claim.over_quota", ClaimReply::OverQuota { retry_after_ms: 1_500 }, &[]);
    all.reply("reply.complete.stored", CompleteReply::Stored, &[]);
    all.reply("reply.complete.refused", CompleteReply::Refused { reason: Refusal::HeldByOther }, &[]);
    all.reply("reply.release.released", ReleaseReply::Released, &[]);
    all.reply("reply.unknown.marked", UnknownReply::Marked, &[]);
    let results = vec![RenewResult::Renewed, RenewResult::Refused { reason: Refusal::Absent }];
    all.reply("reply.renew", RenewReply { results }, &[]);
    grants(&mut all);
    all
}

fn grants(all: &mut Golden) {
    let operation_id = OperationId::parse("018f2b1c-7e52-7cc3-98c4-dc0c0c07398f").unwrap();
    let block = headers();
    let answer =
        Some(AnswerHead { status: 201, headers_len: block.len() as u32, body_len: BODY.len() as u32 });
    let claim = GrantClaimRequest {
        v: 1,
        token: Some(GrantToken::new("e30.e30.AA")),
        grant: None,
        operation_id: operation_id.clone(),
        operation_mac: Some("66".repeat(32)),
        caller: Caller { namespace: "https://login.example".into(), id: "agent-7".into() },
        tenant: Some("acme".into()),
        details: [("account", "A-1187"), ("amount", "250.00")].into(),
    };
    all.add("request.grant_claim", claim.clone(), &[]);
    let name = GrantName { issuer: "https://rows.example".into(), grant_id: "g-1".into(), tenant: None };
    let row =
        GrantClaimRequest { token: None, grant: Some(name), operation_mac: None, tenant: None, ..claim };
    all.add("request.grant_claim.row", row, &[]);
    let finish = FinishRequest {
        v: 1,
        owner_version: 1,
        expected_status: OperationStatus::Admitted,
        outcome: FinishOutcome::Succeeded,
        reference: Some("ch_123".into()),
        answer,
    };
    all.add("request.finish", finish.clone(), &[&block, BODY]);
    let unknown = FinishRequest { outcome: FinishOutcome::Unknown, reference: None, answer: None, ..finish };
    all.add("request.finish.unknown", unknown, &[]);
    all.reply(
        "reply.grant_claim.admitted",
        GrantClaimReply::<Operation>::Admitted {
            owner_version: 1,
            lease_left_ms: 60_000,
            submit_left_ms: 79_200_000,
        },
        &[],
    );
    let operation = Operation {
        operation_id,
        status: OperationStatus::Succeeded,
        owner_version: 1,
        lease_left_ms: 0,
        submit_left_ms: 79_000_000,
        reference: Some("ch_123".into()),
        details: [("account", "A-1187"), ("amount", "250.00")].into(),
    };
    let before = |answer| GrantClaimReply::Before { operation: Box::new(operation.clone()), answer };
    all.reply("reply.grant_claim.before", before(answer), &[&block, BODY]);
    all.reply("reply.grant_claim.before_without_answer", before(None), &[]);
    all.reply(
        "reply.grant_claim.refused",
        GrantClaimReply::<Operation>::Refused {
            code: GrantRefusal::NotCovered,
            reason: Some("details".into()),
        },
        &[],
    );
}

#[test]
fn the_bytes_of_every_message_stay_what_they_are() {
    let text: String =
        golden().0.iter().map(|(name, frame)| format!("{name} {}\n", hex::encode(frame))).collect();
    if std::env::var_os("FENCEPOST_WRITE_FIXTURES").is_some() {
        std::fs::write(file(), &text).unwrap();
    }
    let written = std::fs::read_to_string(file()).unwrap();
    for (is, was) in text.lines().zip(written.lines()) {
        assert_eq!(is, was);
    }
    assert_eq!(text.lines().count(), written.lines().count());
}

#[test]
fn members_of_another_version_are_ignored_and_missing_ones_have_a_default() {
    let newer = r#"{"v":2,"store_id":"55555555555555555555555555555555","outcome":"claimed","fence":5,"parked_ms":1,"later":{"a":[1]}}"#;
    let reply: Reply<ClaimReply> = serde_json::from_str(newer).unwrap();
    assert_eq!(reply.reply, ClaimReply::Claimed { fence: Fence::new(5).unwrap(), parked_ms: 1 });
    let older = r#"{"store_id":"55555555555555555555555555555555","outcome":"claimed","fence":5}"#;
    let reply: Reply<ClaimReply> = serde_json::from_str(older).unwrap();
    assert_eq!(
        (reply.v, reply.reply),
        (1, ClaimReply::Claimed { fence: Fence::new(5).unwrap(), parked_ms: 0 })
    );
    let cause: UnknownCause = serde_json::from_str(r#""of_a_later_version""#).unwrap();
    assert_eq!(cause, UnknownCause::Other);
}
