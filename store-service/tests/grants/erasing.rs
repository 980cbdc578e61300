//! Erasing the stored answers of operations.

use crate::claims::{finish, frame, odd_answer, refused, request, stored};
use crate::desk::{Office, said};
use crate::http::{status_call, told};
use crate::support::*;
use fencepost_protocol::answer::StoredAnswer;
use fencepost_protocol::claims::Reply;
use fencepost_protocol::decode;
use fencepost_protocol::grant_claims::{
    AnswerHead, FinishOutcome, GrantClaimReply, GrantClaimRequest, GrantRefusal, paths,
};
use fencepost_protocol::grants::{OperationId, OperationStatus};
use fencepost_rig::client::{Answer, Call};
use serde_json::{Value, json};

/// Whom the digests of scopes stand for.
const ALICE: &str = "07070707070707070707070707070707";
const BOB: &str = "08080808080808080808080808080808";

async fn claim(office: &Office, asked: &GrantClaimRequest) -> (GrantClaimReply, Vec<u8>) {
    let answer = office.call("admit", frame(paths::CLAIM, asked, &[])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (reply, payload) = decode::<Reply<GrantClaimReply>>(&answer.body).unwrap();
    (reply.reply, payload.to_vec())
}

/// An operation that a route admitted for a caller with this scope; none: that no route did.
async fn admitted(office: &Office, scope: Option<&str>) -> GrantClaimRequest {
    let token = office.served.signer.sign(&claims(&fresh_id(), 900));
    let mut asked = request(&token, &fresh_operation());
    if let Some(scope) = scope {
        asked.details.0.insert("fencepost.scope".into(), scope.into());
    }
    assert!(matches!(claim(office, &asked).await.0, GrantClaimReply::Admitted { .. }));
    asked
}

async fn ended(
    office: &Office,
    operation: &OperationId,
    end: FinishOutcome,
    answer: &StoredAnswer,
) -> Answer {
    let (head, block) = AnswerHead::of(answer);
    let path = format!("/v1/operations/{operation}/{}", paths::FINISH);
    let call = frame(&path, &finish(end, Some(head)), &[&block, &answer.body]);
    office.call("admit", call).await
}

async fn answered(office: &Office, scope: Option<&str>, end: FinishOutcome) -> GrantClaimRequest {
    let asked = admitted(office, scope).await;
    assert_eq!(ended(office, &asked.operation_id, end, &odd_answer()).await.status, 200);
    asked
}

/// The status of an operation, and the code where the answer is gone.
async fn kept(office: &Office, asked: &GrantClaimRequest) -> (OperationStatus, Option<String>) {
    let (status, answer) = stored(claim(office, asked).await);
    let answer = answer.unwrap();
    if answer == odd_answer() {
        return (status, None);
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &body["status"]), (410, &json!(410)));
    assert!(!body.to_string().contains("odd"));
    (status, Some(body["code"].as_str().unwrap().to_owned()))
}

async fn erase(office: &Office, arguments: &[&str]) -> Value {
    let always = ["--reason", "request 12", "--yes"];
    office.json("operator", &[&["erase"], arguments, &always].concat()).await
}

/// What the application said goes; status, reference and the spent grant stay.
async fn erased_answer_of_an_operation_is_gone_and_its_grant_stays_spent(office: &Office) {
    let gone = Some("answer_erased".to_owned());
    let paid = answered(office, Some(ALICE), FinishOutcome::Succeeded).await;
    let declined = answered(office, Some(ALICE), FinishOutcome::Failed).await;
    let open = admitted(office, Some(ALICE)).await;
    let without = admitted(office, Some(ALICE)).await;
    assert_eq!(office.record(&without.operation_id, "admitted", "succeeded").await.status, 200);
    let bobs = answered(office, Some(BOB), FinishOutcome::Succeeded).await;
    let direct = answered(office, None, FinishOutcome::Succeeded).await;

    let erased = erase(office, &["--scope-digest", ALICE]).await;
    assert_eq!((&erased["answers"], &erased["operation_answers"]), (&json!(0), &json!(2)));
    assert_eq!((&erased["left"], &erased["looked"]), (&json!(1), &json!(6)));
    let all = json!({"key_prefixes": null, "entries": true, "operations": true});
    assert_eq!((&erased["covered"], &erased["next"]), (&all, &Value::Null));

    assert_eq!(kept(office, &paid).await, (OperationStatus::Succeeded, gone.clone()));
    assert_eq!(kept(office, &declined).await, (OperationStatus::Failed, gone.clone()));
    assert_eq!(kept(office, &bobs).await, (OperationStatus::Succeeded, None));
    assert_eq!(kept(office, &direct).await, (OperationStatus::Succeeded, None));
    assert_eq!(stored(claim(office, &open).await), (OperationStatus::Admitted, None));
    assert_eq!(stored(claim(office, &without).await), (OperationStatus::Succeeded, None));
    // The grant stays spent, the end an end, and no late owner puts an answer back.
    let other = GrantClaimRequest { operation_id: fresh_operation(), ..paid.clone() };
    assert_eq!(claim(office, &other).await, refused(GrantRefusal::NotAvailable, None));
    let status = office.call("admit", status_call(paid.operation_id.as_str())).await;
    assert_eq!(status.json()["status"], "succeeded");
    let late = ended(office, &paid.operation_id, FinishOutcome::Succeeded, &odd_answer()).await;
    assert_eq!(late.json(), json!({"before": true}));
    assert_eq!(kept(office, &paid).await.1, gone);

    // Written down once, with who and why, and nothing to do a second time.
    assert_eq!(erase(office, &["--scope-digest", ALICE]).await["operation_answers"], json!(0));
    let shown = office.json("operator", &["operations", "show", paid.operation_id.as_str()]).await;
    let history = shown["history"].as_array().unwrap();
    let [line] = &history[..] else { panic!("{history:?}") };
    assert!(line["who"].as_str().unwrap().starts_with("token "), "{line}");
    assert_eq!((&line["step"], &line["detail"]), (&json!("erase_answer"), &json!("request 12")));
    assert_eq!((&line["result"], &line["status"]), (&json!("succeeded"), &json!("succeeded")));

    // By the caller's name, with or without a route.
    let nobody = erase(office, &["--caller", "agent-8", "--caller-namespace", NAMESPACE]).await;
    assert_eq!(nobody["operation_answers"], json!(0));
    let named = erase(office, &["--caller", AGENT, "--caller-namespace", NAMESPACE]).await;
    let operations = json!({"key_prefixes": null, "entries": false, "operations": true});
    assert_eq!((&named["operation_answers"], &named["covered"]), (&json!(2), &operations));
    for asked in [&bobs, &direct] {
        assert_eq!(kept(office, asked).await, (OperationStatus::Succeeded, gone.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_answer_of_an_operation_is_gone_and_its_grant_stays_spent__postgres() {
    erased_answer_of_an_operation_is_gone_and_its_grant_stays_spent(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erased_answer_of_an_operation_is_gone_and_its_grant_stays_spent__sqlite() {
    erased_answer_of_an_operation_is_gone_and_its_grant_stays_spent(&Office::sqlite().await).await;
}

/// Who may see no operations erases none, and is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasing_says_what_a_bound_token_has_covered() {
    let office = Office::sqlite().await;
    let asked = answered(&office, Some(ALICE), FinishOutcome::Succeeded).await;
    let order = json!({"scope": ALICE, "reason": "r"});
    let erased = office.call("bound", Call::post("/v1/operator/erase").json(&order)).await.json();
    let covered = json!({"key_prefixes": ["test"], "entries": true, "operations": false});
    assert_eq!((&erased["covered"], &erased["next"]), (&covered, &Value::Null));
    let of_caller = json!({"namespace": NAMESPACE, "id": AGENT});
    for order in [
        json!({"scope": ALICE, "reason": "r", "after": "operations"}),
        json!({"scope": ALICE, "reason": "r", "after": fresh_operation().as_str()}),
        json!({"caller": of_caller, "reason": "r"}),
    ] {
        let refused = office.call("bound", Call::post("/v1/operator/erase").json(&order)).await;
        assert_eq!((refused.status, &told(&refused).1[..]), (403, "key_prefix"), "{order}");
    }
    assert_eq!(kept(&office, &asked).await, (OperationStatus::Succeeded, None));
    for order in [
        json!({"reason": "r"}),
        json!({"scope": ALICE, "caller": of_caller, "reason": "r"}),
        json!({"caller": {"namespace": "", "id": "x"}, "reason": "r"}),
        json!({"scope": ALICE, "reason": "r", "after": "x"}),
        json!({"caller": of_caller, "reason": "r", "after": format!("test:{ALICE}")}),
    ] {
        let refused = office.call("operator", Call::post("/v1/operator/erase").json(&order)).await;
        assert_eq!((refused.status, &told(&refused).1[..]), (400, "order"), "{order}");
    }
    let (code, text) =
        said(&office.run("bound", &["erase", "--scope-digest", ALICE, "--reason", "r", "--yes"]).await);
    assert!(code == 0 && text.contains("only keys with these prefixes, and no operations: test"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn erasing_of_operations_works_in_bounded_batches__postgres() {
    let office = Office::postgres().await;
    let client = connect(office.url.as_ref().unwrap()).await;
    let filled = "INSERT INTO fencepost.operations
                      (operation_id, issuer, key_tenant, grant_id, caller_namespace, caller_id, tenant, details_digest,
                       details, status, owner_version, lease_until, submit_by, created_at, updated_at, answer_status,
                       answer_headers, answer_body)
                  SELECT gen_random_uuid(), 'i', '', 'g' || n, 'n', CASE WHEN n % 3 = 0 THEN 'c' ELSE 'd' END, '',
                         decode(repeat('ab', 32), 'hex'), '{}', 'succeeded', 1, now(), now(), now(), now(), 200, '',
                         'secret'
                  FROM generate_series(1, 12000) AS n";
    client.batch_execute(filled).await.unwrap();
    let (mut erased, mut batches, mut after) = (0, 0, None);
    loop {
        let caller = json!({"namespace": "n", "id": "c"});
        let order = json!({"caller": caller, "reason": "r", "after": after});
        let done = office.call("operator", Call::post("/v1/operator/erase").json(&order)).await.json();
        assert!(done["looked"].as_u64().unwrap() <= 5_000);
        erased += done["operation_answers"].as_u64().unwrap();
        batches += 1;
        after = done["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!((erased, batches), (4_000, 3));
    let left = "SELECT count(*) FROM fencepost.operations WHERE answer_body = 'secret'";
    assert_eq!(count(&client, left).await, 8_000);
    assert_eq!(count(&client, "SELECT count(*) FROM fencepost.operation_events").await, 4_000);
}
