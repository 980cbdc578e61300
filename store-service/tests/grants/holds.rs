//! Grants after a restored backup, and the program's `hold` and `erase`.

use crate::desk::{Office, said};
use crate::http::{admit_call, told};
use crate::support::*;
use fencepost_rig::client::Call;
use serde_json::json;

/// A grant that was issued so many seconds ago.
fn aged(office: &Office, id: &str, seconds: i64) -> String {
    let mut own = claims(id, 0);
    merge(&mut own, json!({"iat": now() - seconds, "exp": now() + 900}));
    office.served.signer.sign(&own)
}

async fn admit(office: &Office, token: &str) -> (u16, String, String) {
    told(&office.call("admit", admit_call(token, fresh_operation().as_str())).await)
}

/// What was issued before may have been used since; what was issued after was not.
async fn grants_issued_before_a_lost_window_ended_are_held(office: &Office) {
    let spent = fresh_id();
    let operation = fresh_operation();
    let used = aged(office, &spent, 900);
    assert_eq!(office.call("admit", admit_call(&used, operation.as_str())).await.status, 200);
    // The issuer's clock may be 60 s ahead, so 120 s before now is certainly after 200 s ago.
    let since = json!({"reason": "restored", "since_us": (now() - 200) * 1_000_000, "keys_for_ms": 1000});
    let hold = office.call("operator", Call::post("/v1/operator/holds").json(&since)).await;
    assert_eq!(hold.status, 200, "{}", hold.text());
    let id = hold.json()["id"].as_i64().unwrap().to_string();

    let (old, young) = (fresh_id(), fresh_id());
    let held = aged(office, &old, 300);
    assert_eq!(admit(office, &held).await.1, "grant_held");
    assert_eq!(admit(office, &aged(office, &young, 10)).await.0, 200);
    // Within the skew of the end of the window: perhaps from before it.
    assert_eq!(admit(office, &aged(office, &fresh_id(), 170)).await.1, "grant_held");
    // The status of what the backup knows is told as ever.
    let again = office.call("admit", admit_call(&used, operation.as_str())).await;
    assert_eq!(told(&again).1, "already_admitted");
    assert_eq!(admit(office, &used).await.1, "grant_not_available");

    let release =
        ["grants", "release", "--issuer", ISSUER, "--id", &old, "--reason", "provider knows nothing"];
    let (code, text) = said(&office.run("operator", &[&release[..], &["--yes"]].concat()).await);
    assert_eq!((code, text.trim()), (0, "released"));
    assert_eq!(admit(office, &held).await.0, 200);
    assert_eq!(admit(office, &held).await.1, "grant_not_available", "once");

    let other = aged(office, &fresh_id(), 300);
    assert_eq!(admit(office, &other).await.1, "grant_held");
    let lift = ["hold", "lift", &id, "--reason", "looked through", "--yes"];
    let (code, text) = said(&office.run("operator", &lift).await);
    assert!(code == 0 && text.contains("lifted"), "{text}");
    assert_eq!(admit(office, &other).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_issued_before_a_lost_window_ended_are_held__postgres() {
    grants_issued_before_a_lost_window_ended_are_held(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_issued_before_a_lost_window_ended_are_held__sqlite() {
    grants_issued_before_a_lost_window_ended_are_held(&Office::sqlite().await).await;
}

/// Grants that are rows: their time of issue is the row's own.
async fn held_rows(store: &str) {
    let signer = Signer::new(1);
    let settings = config(
        &signer,
        json!({"form": "row", "keys": null, "audience": null, "algorithms": null}),
        json!({}),
    );
    let served = crate::http::serve(store, Some(settings), false).await;
    let to = served.service.addr();
    let issue = async |id: &str| {
        let body = json!({"grant": {"issuer": ISSUER, "grant_id": id}, "subject": AGENT,
                          "details": details(), "expires_at": now() + 900});
        let issued = Call::post("/v1/grants/issue").json(&body).send(to).await.unwrap();
        assert_eq!(issued.status, 200, "{}", issued.text());
    };
    let admit = async |id: &str| {
        let body = json!({"grant": {"issuer": ISSUER, "grant_id": id}, "operation_id": fresh_operation().as_str(),
                          "caller": agent(), "details": details()});
        told(&Call::post("/v1/grants/admit").json(&body).send(to).await.unwrap())
    };
    let (before, after) = (fresh_id(), fresh_id());
    issue(&before).await;
    let hold = Call::post("/v1/operator/holds").json(&json!({"reason": "restored"})).send(to).await.unwrap();
    assert_eq!(hold.status, 200, "{}", hold.text());
    issue(&after).await;
    assert_eq!(admit(&before).await.1, "grant_held");
    assert_eq!(admit(&after).await.0, 200);
    let release = json!({"issuer": ISSUER, "grant_id": before, "reason": "looked"});
    let released = Call::post("/v1/operator/grants/release").json(&release).send(to).await.unwrap();
    assert_eq!(released.status, 200);
    assert_eq!(admit(&before).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_are_rows_are_held_by_their_own_time__postgres() {
    held_rows(&database().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_that_are_rows_are_held_by_their_own_time__sqlite() {
    let folder = tempfile::tempdir().unwrap();
    held_rows(&format!("sqlite:{}", folder.path().join("s.sqlite").display())).await;
}

/// Whatever JSON writes in its own way.
const ODD: &str = "a \"quoted\" \\ ü \u{2028}/";

/// Open grants that admission would refuse are marked, whatever their names are made of.
async fn lists_say_which_grants_a_hold_refuses(office: &Office) {
    let issue = async |id: &str| {
        let issue = json!({"grant": {"issuer": ISSUER, "grant_id": id}, "subject": AGENT,
                           "details": {"amount": "1.00"}, "expires_at": now() + 900});
        assert_eq!(office.call("issue", Call::post("/v1/grants/issue").json(&issue)).await.status, 200);
    };
    let held = async || {
        let list = office.json("operator", &["grants", "list", "--held"]).await;
        let grants = list["grants"].as_array().unwrap().clone();
        assert!(grants.iter().all(|grant| grant["held"] == json!(true)));
        grants.iter().map(|grant| grant["grant_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (odd, plain, revoked) = (ODD, "b", "c");
    for id in [odd, plain, revoked] {
        issue(id).await;
    }
    let revoke = json!({"grant": {"issuer": ISSUER, "grant_id": revoked}, "reason": "r"});
    assert_eq!(office.call("revoke", Call::post("/v1/grants/revoke").json(&revoke)).await.status, 200);
    assert_eq!(held().await, Vec::<String>::new());
    let hold = office.call("operator", Call::post("/v1/operator/holds").json(&json!({"reason": "r"}))).await;
    issue("d").await;
    assert_eq!(held().await, [odd, plain]);
    let release = json!({"issuer": ISSUER, "grant_id": odd, "reason": "looked"});
    let release = Call::post("/v1/operator/grants/release").json(&release);
    assert_eq!(office.call("operator", release).await.status, 200);
    assert_eq!(held().await, [plain]);
    let others = office.call("operator", Call::get("/v1/operator/grants?held=false")).await.json();
    assert_eq!(others["grants"].as_array().unwrap().len(), 3);
    let (code, text) = said(&office.run("operator", &["grants", "list"]).await);
    assert!(code == 0 && text.contains("open      held  "), "{text}");
    let lift = format!("/v1/operator/holds/{}/lift", hold.json()["id"]);
    office.call("operator", Call::post(&lift).json(&json!({"reason": "r"}))).await;
    assert_eq!(held().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_say_which_grants_a_hold_refuses__postgres() {
    lists_say_which_grants_a_hold_refuses(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_say_which_grants_a_hold_refuses__sqlite() {
    lists_say_which_grants_a_hold_refuses(&Office::sqlite().await).await;
}

/// Before the restored store is served: on the database itself.
async fn begun_on_the_database(office: &Office, url: &str) {
    let held = aged(office, &fresh_id(), 300);
    office.served.service.stop().await.unwrap();
    let begin = ["hold", "begin", "--keys-for", "24h", "--reason", "restored", "--store", url];
    let (code, text) = said(&office.run("", &begin).await);
    assert!(code == 2 && text.contains("--yes"), "{text}");
    let (code, text) = said(&office.run("", &[&begin[..], &["--yes"]].concat()).await);
    assert!(code == 0 && text.contains("in force"), "{text}");
    let (code, text) = said(&office.run("", &["hold", "list", "--store", url]).await);
    assert!(code == 0 && text.contains("restored"), "{text}");
    office.served.service.start_again().await.unwrap();
    assert_eq!(admit(office, &held).await.1, "grant_held");
    let list = office.json("operator", &["hold", "list"]).await;
    assert!(list["holds"][0]["began_by"].as_str().unwrap().ends_with("at the database"), "{list}");
    let missing = said(&office.run("operator", &["hold", "begin", "--reason", "r", "--yes"]).await);
    assert!(missing.0 == 2 && missing.1.contains("--keys-for"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_is_begun_before_the_restored_store_is_served__postgres() {
    let office = Office::postgres().await;
    begun_on_the_database(&office, office.url.as_ref().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_is_begun_before_the_restored_store_is_served__sqlite() {
    let office = Office::sqlite().await;
    begun_on_the_database(&office, &office.sqlite_url()).await;
}

/// By the digest that an entry shows, or by who the caller is; neither is in the audit in clear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_caller_are_erased_from_the_command_line() {
    let office = Office::sqlite().await;
    let scope = r#"{"jwt": {"iss": "https://issuer", "sub": "alice"}}"#;
    let erase = ["erase", "--scope", scope, "--reason", "case 12"];
    let (code, text) = said(&office.run("operator", &erase).await);
    assert!(code == 2 && text.contains("--yes"), "{text}");
    let erased = office.json("operator", &[&erase[..], &["--yes"]].concat()).await;
    assert_eq!((&erased["answers"], &erased["next"]), (&json!(0), &json!(null)));
    let wrong = office.run("operator", &["erase", "--scope-digest", "abc", "--reason", "r", "--yes"]).await;
    assert_eq!(said(&wrong).0, 2);
    let (code, text) =
        office.typed("operator", &["erase", "--scope-digest", &"0".repeat(32), "--reason", "r"], "y\n").await;
    assert!(code == 0 && text.contains("0 answers erased, and 0 of operations"), "{text}");
    assert_eq!(
        told(&office.call("admit", Call::post("/v1/operator/erase").json(&json!({}))).await).1,
        "role"
    );
}

/// A release that releases nothing says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_a_grant_that_nothing_holds_is_refused() {
    let office = Office::sqlite().await;
    let id = fresh_id();
    let release = |issuer: &'static str| {
        ["grants", "release", "--issuer", issuer, "--id", &id, "--reason", "r", "--yes"].map(str::to_owned)
    };
    let run = async |issuer| {
        let arguments = release(issuer);
        said(&office.run("operator", &arguments.each_ref().map(String::as_str)).await)
    };
    let (code, text) = run(ISSUER).await;
    assert!(code == 1 && text.contains("nothing_held"), "{text}");
    let keys_only = json!({"reason": "r", "keys_for_ms": 1000, "prefix": "prod"});
    assert_eq!(office.call("operator", Call::post("/v1/operator/holds").json(&keys_only)).await.status, 200);
    let (code, text) = run(ISSUER).await;
    assert!(code == 1 && text.contains("nothing_held"), "{text}");
    let grants = json!({"reason": "r"});
    assert_eq!(office.call("operator", Call::post("/v1/operator/holds").json(&grants)).await.status, 200);
    let (code, text) = run("https://typo.example").await;
    assert!(code == 1 && text.contains("issuer"), "{text}");
    assert_eq!(run(ISSUER).await.0, 0);
}

/// A typing error makes no empty database, and a lift says what it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hold_is_lifted_and_freed_again_from_the_command_line() {
    let office = Office::sqlite().await;
    let missing = format!("{}.typo", office.sqlite_url());
    let begin = ["hold", "begin", "--keys-for", "1h", "--reason", "r", "--yes", "--store", &missing];
    let (code, text) = said(&office.run("", &begin).await);
    assert!(code == 2 && text.contains("no such file"), "{text}");
    assert!(!std::path::Path::new(missing.strip_prefix("sqlite:").unwrap()).exists());

    let begun = json!({"reason": "the backup of 02:00", "keys_for_ms": 3_600_000});
    let begun = office.call("operator", Call::post("/v1/operator/holds").json(&begun)).await;
    let id = begun.json()["id"].to_string();
    let lift = ["hold", "lift", &id, "--reason", "r"];
    let (code, text) = office.typed("operator", &lift, "n\n").await;
    assert!(code == 1 && text.contains("the backup of 02:00"), "{text}");
    let free = Call::post(&format!("/v1/operator/holds/{id}/free")).json(&json!({"reason": "r"}));
    assert_eq!(told(&office.call("operator", free).await).1, "hold_stands");
    assert_eq!(said(&office.run("operator", &[&lift[..], &["--yes"]].concat()).await).0, 0);
    assert_eq!(said(&office.run("operator", &[&lift[..], &["--yes"]].concat()).await).0, 1, "lifted before");
    // What a broken connection may have left undone is done by saying it again.
    let again = office.run("operator", &[&lift[..], &["--free", "--yes"]].concat()).await;
    assert!(
        again.status.success() && String::from_utf8_lossy(&again.stderr).contains("0 keys freed"),
        "{again:?}"
    );
    let url = office.sqlite_url();
    office.served.service.stop().await.unwrap();
    let there = [&lift[..], &["--free", "--yes", "--store", &url]].concat();
    assert_eq!(said(&office.run("", &there).await).0, 0);
    let none = ["hold", "lift", "99", "--reason", "r", "--yes", "--store", &url];
    assert_eq!(said(&office.run("", &none).await).0, 1);
}

/// What no database can compute with or keep is refused with a reason, not as a broken store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_database_can_look_for_is_refused() {
    let office = Office::postgres().await;
    for path in [
        "/v1/operator/operations?older_than_ms=8639999999913600000".to_owned(),
        "/v1/operator/operations?issuer=%00".to_owned(),
        "/v1/operator/grants?issuer=%00".to_owned(),
        "/v1/operator/grants?after=%5B%22a%22%2C%22b%5Cu0000%22%2C%22c%22%5D".to_owned(),
    ] {
        assert_eq!(office.call("operator", Call::get(&path)).await.status, 400, "{path}");
    }
    for since in [-1, i64::MAX, i64::MIN] {
        let order = json!({"reason": "r", "keys_for_ms": 1000, "since_us": since});
        let refused = office.call("operator", Call::post("/v1/operator/holds").json(&order)).await;
        assert_eq!(refused.status, 400, "{since}: {}", refused.text());
    }
    let (cookie, _) = crate::console::log_in(&office).await;
    for path in ["/console/entries?prefix=%00", "/console/operations?older=99999999999d"] {
        let page =
            Call::get(path).header("cookie", &cookie).send(office.served.service.addr()).await.unwrap();
        assert_eq!(page.status, 400, "{path}");
    }
}
