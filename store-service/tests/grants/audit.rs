//! One view over every audit.

use crate::console::{answered, key};
use crate::desk::{Office, said};
use crate::http::told;
use crate::support::*;
use fencepost_protocol::grants::OperationId;
use fencepost_rig::client::Call;
use serde_json::{Value, json};

/// The scope of the callers of [`answered`].
const SCOPE: &str = "07070707070707070707070707070707";

async fn post(office: &Office, token: &str, path: &str, body: &Value) -> Value {
    let done = office.call(token, Call::post(path).json(body)).await;
    assert_eq!(done.status, 200, "{path}: {}", done.text());
    done.json()
}

/// One line of every kind, oldest first; the operation, the grant and the hold that they are about.
async fn written(office: &Office) -> (OperationId, String, String) {
    answered(office, 1, b"secret").await;
    answered(office, 2, b"secret").await;
    let entry = format!("/v1/entries/{}", key(1));
    let shown = office.call("operator", Call::get(&format!("{entry}?answer=true"))).await.json();
    let order = json!({"version": shown["version"], "reason": "looked at it"});
    post(office, "operator", &format!("{entry}/release"), &order).await;

    let operation = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let path = format!("/v1/operator/operations/{operation}");
    let shown = office.call("operator", Call::get(&path)).await.json();
    let order = json!({"version": shown["version"], "reason": "case 7", "outcome": "succeeded"});
    post(office, "operator", &format!("{path}/settle"), &order).await;

    let grant = fresh_id();
    let issue = json!({"grant": {"issuer": ISSUER, "grant_id": grant}, "subject": AGENT,
                       "details": {"amount": "1.00"}, "expires_at": now() + 900});
    post(office, "issue", "/v1/grants/issue", &issue).await;
    let revoke = json!({"grant": {"issuer": ISSUER, "grant_id": grant}, "reason": "went astray"});
    post(office, "revoke", "/v1/grants/revoke", &revoke).await;

    let hold = post(office, "operator", "/v1/operator/holds", &json!({"reason": "restored"})).await;
    let hold = hold["id"].to_string();
    let release = json!({"issuer": ISSUER, "grant_id": grant, "reason": "provider knows nothing"});
    post(office, "operator", "/v1/operator/grants/release", &release).await;
    let path = format!("/v1/operator/holds/{hold}/lift");
    post(office, "operator", &path, &json!({"reason": "looked through"})).await;
    post(office, "operator", "/v1/operator/erase", &json!({"scope": SCOPE, "reason": "request 12"})).await;
    (operation, grant, hold)
}

/// All that was written, the newest first.
const LINES: [(&str, &str); 9] = [
    ("scope", "erase"),
    ("hold", "hold_lift"),
    ("grant", "release_grant"),
    ("hold", "hold_begin"),
    ("grant", "revoke"),
    ("grant", "issue"),
    ("operation", "settle_succeeded"),
    ("entry", "release"),
    ("entry", "look_at_answer"),
];

async fn listed(office: &Office, arguments: &[&str]) -> Vec<Value> {
    let list = office.json("operator", &[&["audit", "list"], arguments].concat()).await;
    list["lines"].as_array().unwrap().clone()
}

fn told_by(lines: &[Value]) -> Vec<(&str, &str)> {
    lines.iter().map(|line| (line["kind"].as_str().unwrap(), line["action"].as_str().unwrap())).collect()
}

/// Whatever table a line is in, it stands in its place in time; pages miss none and repeat none.
async fn every_line_of_every_audit_is_in_one_list(office: &Office) {
    let (operation, grant, hold) = written(office).await;
    let all = listed(office, &[]).await;
    assert_eq!(told_by(&all), LINES);
    assert!(all.is_sorted_by(|newer, older| newer["at_us"].as_i64() >= older["at_us"].as_i64()));
    let settled = &all[6];
    assert_eq!((&settled["subject"], &settled["reason"]), (&json!(operation.as_str()), &json!("case 7")));
    assert_eq!(
        (&settled["state_before"], &settled["state_after"]),
        (&json!("needs_reconciliation"), &json!("succeeded"))
    );
    let erased = &all[0];
    assert_eq!((&erased["subject"], &erased["state_after"]), (&json!(SCOPE), &json!("1 answers erased")));

    let (mut paged, mut after): (Vec<Value>, Option<String>) = (Vec::new(), None);
    loop {
        let mut arguments = vec!["audit", "list", "--limit", "2"];
        arguments.extend(after.iter().flat_map(|after| ["--after", after]));
        let page = office.json("operator", &arguments).await;
        paged.extend(page["lines"].as_array().unwrap().iter().cloned());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);

    let name = format!("[\"{ISSUER}\", \"\", \"{grant}\"]");
    let who = all[5]["who"].as_str().unwrap();
    for (arguments, expected) in [
        (["--kind", "hold"], vec![1, 3]),
        (["--kind", "scope"], vec![0]),
        (["--action", "release"], vec![7]),
        (["--who", who], vec![5]),
        (["--subject", key(1).as_str()], vec![7, 8]),
        (["--subject", operation.as_str()], vec![6]),
        (["--subject", &name], vec![2, 4, 5]),
        (["--subject", &hold], vec![1, 3]),
        (["--subject", SCOPE], vec![0]),
        (["--subject", "nobody"], vec![]),
    ] {
        let expected: Vec<Value> = expected.into_iter().map(|place: usize| all[place].clone()).collect();
        assert_eq!(listed(office, &arguments).await, expected, "{arguments:?}");
    }
    let since = |us: &Value| format!("/v1/operator/audit?since_us={us}");
    let until = |us: &Value| format!("/v1/operator/audit?until_us={us}&kind=hold&kind=grant");
    let at = &all[3]["at_us"];
    let found = office.call("operator", Call::get(&since(at))).await.json();
    assert_eq!(found["lines"].as_array().unwrap()[..], all[..4]);
    let found = office.call("operator", Call::get(&until(at))).await.json();
    assert_eq!(found["lines"].as_array().unwrap()[..], all[4..6]);

    let (code, text) = said(&office.run("operator", &["audit", "list"]).await);
    assert!(code == 0 && text.contains("went astray") && text.contains("in_force -> lifted"), "{text}");
    // Who is bound to prefixes sees what is about their keys.
    let bound = office.json("bound", &["audit", "list"]).await;
    assert_eq!(bound["lines"].as_array().unwrap()[..], all[7..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_every_audit_is_in_one_list__postgres() {
    every_line_of_every_audit_is_in_one_list(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_every_audit_is_in_one_list__sqlite() {
    every_line_of_every_audit_is_in_one_list(&Office::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_is_for_operators_and_says_what_it_can_look_for() {
    let office = Office::sqlite().await;
    for token in ["admit", "issue", "revoke", "filter"] {
        assert_eq!(told(&office.call(token, Call::get("/v1/operator/audit")).await).1, "role");
    }
    for wrong in
        ["kind=x", "limit=0", "after=1.2", "since_us=x", "until_us=-1", "until_us=9999999999999999999", "x=1"]
    {
        let path = format!("/v1/operator/audit?{wrong}");
        assert_eq!(office.call("operator", Call::get(&path)).await.status, 400, "{wrong}");
    }
}
