//! The framed calls of routes: the operation is the claim and keeps the answer.

use crate::http::{Served, serve, status_call, told};
use crate::support::*;
use fencepost_protocol::answer::{StoredAnswer, encode_headers};
use fencepost_protocol::claims::Reply;
use fencepost_protocol::frame::PAYLOAD_LEN_MAX;
use fencepost_protocol::grant_claims::{
    AnswerHead, FinishOutcome, FinishRequest, GrantClaimReply, GrantClaimRequest, GrantRefusal, paths,
};
use fencepost_protocol::grants::{GrantToken, OperationId, OperationStatus};
use fencepost_protocol::{FRAME_MEDIA_TYPE, decode, encode};
use fencepost_rig::client::{Answer, Call};
use serde_json::{Value, json};
use std::future::Future;

/// A store to serve from, and what has to live as long.
pub struct Place {
    pub url: String,
    _folder: Option<tempfile::TempDir>,
}

/// One test for each store.
macro_rules! on_every_store {
    ($($name:ident)*) => {$(
        pastey::paste! {
            #[tokio::test]
            async fn [<$name __postgres>]() {
                bodies::$name(Place { url: database().await, _folder: None }).await;
            }
            #[tokio::test]
            async fn [<$name __sqlite>]() {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", folder.path().join("s.sqlite").display());
                bodies::$name(Place { url, _folder: Some(folder) }).await;
            }
        }
    )*};
}

on_every_store! {
    a_retry_gets_the_stored_answer_byte_for_byte_and_no_admission
    somebody_elses_operation_is_refused_and_nothing_of_it_is_told
    a_final_outcome_and_its_answer_are_never_overwritten
    an_outcome_without_an_answer_is_told_as_status
    a_finish_of_an_old_owner_is_refused_with_the_reason
    frames_that_are_none_are_a_clear_400_and_change_nothing
    of_many_claims_at_once_one_is_admitted_and_the_others_are_told_its_status
}

async fn served(place: &Place) -> Served {
    serve(&place.url, None, false).await
}

pub fn frame(path: &str, head: &impl serde::Serialize, payload: &[&[u8]]) -> Call {
    Call::post(path).header("content-type", FRAME_MEDIA_TYPE).body(encode(head, payload).unwrap())
}

pub fn request(token: &str, operation: &OperationId) -> GrantClaimRequest {
    crate::support::request(token, operation.clone()).into()
}

async fn claim_as(served: &Served, request: &GrantClaimRequest) -> (GrantClaimReply, Vec<u8>) {
    let answer = frame(paths::CLAIM, request, &[]).send(served.service.addr()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some(FRAME_MEDIA_TYPE));
    let (reply, payload) = decode::<Reply<GrantClaimReply>>(&answer.body).unwrap();
    assert_eq!(answer.header("x-fencepost-store-id"), Some(reply.store_id.to_hex().as_str()));
    (reply.reply, payload.to_vec())
}

async fn claim(served: &Served, token: &str, operation: &OperationId) -> (GrantClaimReply, Vec<u8>) {
    claim_as(served, &request(token, operation)).await
}

async fn admitted(served: &Served) -> (String, OperationId) {
    let (token, operation) = (served.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
    let (reply, payload) = claim(served, &token, &operation).await;
    match reply {
        GrantClaimReply::Admitted { owner_version: 1, lease_left_ms, submit_left_ms } => {
            assert!(lease_left_ms > 50_000 && submit_left_ms > lease_left_ms && payload.is_empty());
        }
        other => panic!("{other:?}"),
    }
    (token, operation)
}

pub fn finish(outcome: FinishOutcome, answer: Option<AnswerHead>) -> FinishRequest {
    FinishRequest {
        v: 1,
        owner_version: 1,
        expected_status: OperationStatus::Admitted,
        outcome,
        reference: None,
        answer,
    }
}

async fn finish_as(
    served: &Served,
    operation: &OperationId,
    head: &FinishRequest,
    payload: &[&[u8]],
) -> Answer {
    let path = format!("/v1/operations/{operation}/{}", paths::FINISH);
    frame(&path, head, payload).send(served.service.addr()).await.unwrap()
}

/// Records an outcome with this answer.
async fn finished(
    served: &Served,
    operation: &OperationId,
    outcome: FinishOutcome,
    answer: &StoredAnswer,
) -> Answer {
    let (head, block) = AnswerHead::of(answer);
    finish_as(served, operation, &finish(outcome, Some(head)), &[&block, &answer.body]).await
}

pub fn odd_answer() -> StoredAnswer {
    StoredAnswer {
        status: 201,
        headers: vec![
            (b"content-type".to_vec(), b"application/octet-stream".to_vec()),
            (b"x-odd".to_vec(), b"caf\xe9 \xff".to_vec()),
            (b"x-empty".to_vec(), Vec::new()),
            (b"x-odd".to_vec(), b"second".to_vec()),
        ],
        body: (0..=255).collect(),
    }
}

pub fn stored(reply: (GrantClaimReply, Vec<u8>)) -> (OperationStatus, Option<StoredAnswer>) {
    match reply.0 {
        GrantClaimReply::Before { operation, answer } => {
            (operation.status, answer.map(|head| head.read(&reply.1).unwrap()))
        }
        other => panic!("{other:?}"),
    }
}

pub fn refused(code: GrantRefusal, reason: Option<&str>) -> (GrantClaimReply, Vec<u8>) {
    (GrantClaimReply::Refused { code, reason: reason.map(str::to_owned) }, Vec::new())
}

mod bodies {
    use super::*;

    pub async fn a_retry_gets_the_stored_answer_byte_for_byte_and_no_admission(place: Place) {
        let served = served(&place).await;
        let (token, operation) = admitted(&served).await;
        assert_eq!(stored(claim(&served, &token, &operation).await), (OperationStatus::Admitted, None));
        let answer = odd_answer();
        let done = finished(&served, &operation, FinishOutcome::Succeeded, &answer).await;
        assert_eq!((done.status, done.json()), (200, json!({"before": false})));
        let succeeded = (OperationStatus::Succeeded, Some(answer));
        assert_eq!(stored(claim(&served, &token, &operation).await), succeeded);
        // A restart forgets nothing.
        served.service.kill().await.unwrap();
        served.service.start_again().await.unwrap();
        assert_eq!(stored(claim(&served, &token, &operation).await), succeeded);
        // The answer is not part of the status, which shows no bodies.
        let status = status_call(operation.as_str()).send(served.service.addr()).await.unwrap();
        assert_eq!((status.status, status.json().get("answer")), (200, None));
    }

    pub async fn somebody_elses_operation_is_refused_and_nothing_of_it_is_told(place: Place) {
        let served = served(&place).await;
        let (token, operation) = admitted(&served).await;
        finished(&served, &operation, FinishOutcome::Succeeded, &odd_answer()).await;
        let good = request(&token, &operation);

        let mut other = good.clone();
        other.caller.id = "agent-8".into();
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotCovered, Some("caller")));
        let mut other = good.clone();
        other.caller.namespace = "https://elsewhere.example".into();
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotCovered, Some("caller")));
        let mut other = good.clone();
        other.tenant = Some("acme".into());
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotCovered, Some("tenant")));
        let mut other = good.clone();
        other.details.0.insert("memo".into(), "changed".into());
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotAvailable, None));
        let mut other = good.clone();
        other.operation_id = fresh_operation();
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotAvailable, None));
        // The same caller with another good grant: the id of the operation opens nothing.
        let mut other = good.clone();
        other.token = Some(GrantToken::new(served.signer.sign(&claims(&fresh_id(), 900))));
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotAvailable, None));
        let forged = Signer::new(2).sign(&claims(&fresh_id(), 900));
        let mut other = good.clone();
        other.token = Some(GrantToken::new(forged));
        assert_eq!(claim_as(&served, &other).await, refused(GrantRefusal::NotValid, Some("token_key")));

        assert_eq!(stored(claim_as(&served, &good).await).0, OperationStatus::Succeeded);
    }

    pub async fn a_final_outcome_and_its_answer_are_never_overwritten(place: Place) {
        let served = served(&place).await;
        for end in [FinishOutcome::Succeeded, FinishOutcome::Failed] {
            let (token, operation) = admitted(&served).await;
            let first = odd_answer();
            finished(&served, &operation, end, &first).await;
            // The same outcome again, with another answer: told as before, and the first one stays.
            let second = StoredAnswer { status: 500, body: b"second".to_vec(), ..StoredAnswer::default() };
            let again = finished(&served, &operation, end, &second).await;
            assert_eq!((again.status, again.json()), (200, json!({"before": true})));
            for other in [FinishOutcome::Succeeded, FinishOutcome::Failed, FinishOutcome::Unknown] {
                for expected_status in [OperationStatus::Admitted, OperationStatus::Unknown, end.into()] {
                    if other == end {
                        continue;
                    }
                    let head = FinishRequest { expected_status, ..finish(other, None) };
                    let answer = finish_as(&served, &operation, &head, &[]).await;
                    assert_eq!(told(&answer), (409, "operation_not_applied".into(), "other_status".into()));
                }
            }
            let record = json!({"owner_version": 1, "outcome": "unknown"});
            let path = format!("/v1/operations/{operation}/record");
            let answer = Call::post(&path).json(&record).send(served.service.addr()).await.unwrap();
            assert_eq!(answer.status, 409);
            assert_eq!(stored(claim(&served, &token, &operation).await), (end.into(), Some(first)));
        }
    }

    pub async fn an_outcome_without_an_answer_is_told_as_status(place: Place) {
        let served = served(&place).await;
        for outcome in [FinishOutcome::Succeeded, FinishOutcome::Failed, FinishOutcome::Unknown] {
            let (token, operation) = admitted(&served).await;
            let head = FinishRequest { reference: Some("r-1".into()), ..finish(outcome, None) };
            for before in [false, true] {
                let answer = finish_as(&served, &operation, &head, &[]).await;
                assert_eq!((answer.status, answer.json()), (200, json!({"before": before})));
            }
            let (reply, payload) = claim(&served, &token, &operation).await;
            let GrantClaimReply::Before { operation: told, answer: None } = reply else {
                panic!("{reply:?}")
            };
            assert_eq!((told.status, told.reference.as_deref()), (outcome.into(), Some("r-1")));
            assert!(payload.is_empty());
            if outcome == FinishOutcome::Unknown {
                // Settled later by the same owner, now with its answer.
                let answer = odd_answer();
                let (head, block) = AnswerHead::of(&answer);
                let head = FinishRequest {
                    expected_status: OperationStatus::Unknown,
                    ..finish(FinishOutcome::Succeeded, Some(head))
                };
                let done = finish_as(&served, &operation, &head, &[&block, &answer.body]).await;
                assert_eq!(done.json(), json!({"before": false}));
                let succeeded = (OperationStatus::Succeeded, Some(answer));
                assert_eq!(stored(claim(&served, &token, &operation).await), succeeded);
            }
        }
    }

    pub async fn a_finish_of_an_old_owner_is_refused_with_the_reason(place: Place) {
        let mut settings = config(&Signer::new(1), json!({}), json!({}));
        settings["timings"] = json!({
            "effect_timeout": "10ms", "store_call_timeout": "2s", "lease_margin": "1ms",
            "execution_lease": "4100ms", "recovery_lease": "60s",
        });
        let served = serve(&place.url, Some(settings), false).await;
        let (token, operation) = (served.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
        let (reply, _) = claim(&served, &token, &operation).await;
        assert!(matches!(reply, GrantClaimReply::Admitted { .. }), "{reply:?}");
        let path = format!("/v1/operations/{operation}/take-over");
        until("the lease is over", async || {
            let call = Call::post(&path).json(&json!({"owner_version": 1}));
            call.send(served.service.addr()).await.unwrap().status == 200
        })
        .await;
        let late = finished(&served, &operation, FinishOutcome::Succeeded, &odd_answer()).await;
        assert_eq!(told(&late), (409, "operation_not_applied".into(), "other_owner".into()));
        assert_eq!(stored(claim(&served, &token, &operation).await), (OperationStatus::Admitted, None));
        let answer = odd_answer();
        let (head, block) = AnswerHead::of(&answer);
        let head = FinishRequest { owner_version: 2, ..finish(FinishOutcome::Failed, Some(head)) };
        let done = finish_as(&served, &operation, &head, &[&block, &answer.body]).await;
        assert_eq!(done.status, 200, "{}", done.text());
        let nobody = finish_as(&served, &fresh_operation(), &finish(FinishOutcome::Failed, None), &[]).await;
        assert_eq!(told(&nobody).0, 404);
    }

    pub async fn frames_that_are_none_are_a_clear_400_and_change_nothing(place: Place) {
        let served = served(&place).await;
        let to = served.service.addr();
        let (token, operation) = admitted(&served).await;
        let fresh = served.signer.sign(&claims(&fresh_id(), 900));
        let good = encode(&request(&fresh, &fresh_operation()), &[]).unwrap();
        let raw =
            |path: &str, body: Vec<u8>| Call::post(path).header("content-type", FRAME_MEDIA_TYPE).body(body);
        let text = |head: &Value| encode(head, &[]).unwrap();
        let secret = text(&json!({"token": 7, "caller": fresh, "operation_id": fresh_operation()}));
        let twice = format!(r#"{{"v":1,"v":1,"token":"{fresh}"}}"#);
        let twice = [&(twice.len() as u32).to_be_bytes()[..], twice.as_bytes()].concat();
        for (body, code) in [
            (Vec::new(), "frame"),
            (good[..good.len() - 1].to_vec(), "frame"),
            (vec![0xff; 64], "frame"),
            (text(&json!({})), "frame"),
            (text(&json!({"token": fresh, "operation_id": "7", "caller": agent()})), "frame"),
            (secret, "frame"),
            (twice, "frame"),
            ([good.clone(), b"payload".to_vec()].concat(), "payload_length"),
            (
                text(&json!({"v": 9, "token": fresh, "operation_id": fresh_operation(), "caller": agent()})),
                "protocol_version",
            ),
            (text(&json!({"operation_id": fresh_operation(), "caller": agent()})), "malformed"),
        ] {
            let answer = raw(paths::CLAIM, body).send(to).await.unwrap();
            assert_eq!((answer.status, answer.problem_code().as_str()), (400, code), "{}", answer.text());
            assert!(!answer.text().contains(&fresh), "a problem shows the token");
        }
        let json_call = Call::post(paths::CLAIM).json(&json!({"token": fresh}));
        assert_eq!(json_call.send(to).await.unwrap().status, 415);

        let path = format!("/v1/operations/{operation}/{}", paths::FINISH);
        let answer = odd_answer();
        let (head, block) = AnswerHead::of(&answer);
        let whole = encode(&finish(FinishOutcome::Succeeded, Some(head)), &[&block, &answer.body]).unwrap();
        let status = AnswerHead { status: 199, ..head };
        let block_len = AnswerHead { headers_len: head.headers_len - 1, body_len: head.body_len + 1, ..head };
        let with = |outcome, head| encode(&finish(outcome, head), &[&block, &answer.body]).unwrap();
        let huge = AnswerHead { headers_len: u32::MAX, body_len: u32::MAX, ..head };
        let two_lines = encode_headers(&[(b"x-a".to_vec(), b"1\r\nset-cookie: a=b".to_vec())]);
        let split = AnswerHead { headers_len: two_lines.len().try_into().unwrap(), ..head };
        let split = finish(FinishOutcome::Succeeded, Some(split));
        let split = encode(&split, &[&two_lines, &answer.body]).unwrap();
        let long = FinishRequest { reference: Some("r".repeat(256)), ..finish(FinishOutcome::Failed, None) };
        for (body, code) in [
            (whole[..whole.len() - 1].to_vec(), "payload_length"),
            ([whole.clone(), b"!".to_vec()].concat(), "payload_length"),
            (with(FinishOutcome::Succeeded, None), "payload_length"),
            (with(FinishOutcome::Succeeded, Some(huge)), "payload_length"),
            (with(FinishOutcome::Succeeded, Some(status)), "out_of_range"),
            (with(FinishOutcome::Succeeded, Some(block_len)), "header_block"),
            (split, "header_block"),
            (with(FinishOutcome::Unknown, Some(head)), "malformed"),
            (encode(&long, &[]).unwrap(), "malformed"),
            (text(&json!({"owner_version": 1, "outcome": "admitted"})), "frame"),
            (text(&json!({"owner_version": 1, "outcome": "needs_reconciliation"})), "frame"),
        ] {
            let answer = raw(&path, body).send(to).await.unwrap();
            assert_eq!((answer.status, answer.problem_code().as_str()), (400, code), "{}", answer.text());
        }
        let too_long = vec![0; 5 + 256 * 1024 + PAYLOAD_LEN_MAX];
        assert_eq!(raw(&path, too_long).send(to).await.unwrap().status, 413);
        assert_eq!(stored(claim(&served, &token, &operation).await), (OperationStatus::Admitted, None));
        let admitted = raw(paths::CLAIM, good).send(to).await.unwrap();
        let (reply, _) = decode::<Reply<GrantClaimReply>>(&admitted.body).unwrap();
        assert!(matches!(reply.reply, GrantClaimReply::Admitted { .. }), "the grant was spent: {reply:?}");
    }

    pub async fn of_many_claims_at_once_one_is_admitted_and_the_others_are_told_its_status(place: Place) {
        let served = served(&place).await;
        let (token, operation) = (served.signer.sign(&claims(&fresh_id(), 900)), fresh_operation());
        let all = (0..16).map(|_| claim(&served, &token, &operation));
        let mut admitted = 0;
        for (reply, _) in join_all(all).await {
            match reply {
                GrantClaimReply::Admitted { .. } => admitted += 1,
                GrantClaimReply::Before { operation, answer: None } => {
                    assert_eq!(operation.status, OperationStatus::Admitted);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(admitted, 1);
    }
}

async fn join_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    futures_util::future::join_all(all).await
}
