//! What operators do to operations and grants: the program's `operations` and `grants`, and
//! `/v1/operator` behind it.

use crate::http::{Served, admit_call, serve, told};
use crate::support::*;
use fencepost_protocol::grants::OperationId;
use fencepost_rig::client::{Answer, Call};
use serde_json::{Value, json};
use std::process::{Output, Stdio};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// A service with tokens, on a store of its own.
pub struct Office {
    pub served: Served,
    /// Of the database, on PostgreSQL.
    pub url: Option<String>,
    folder: tempfile::TempDir,
}

impl Office {
    pub async fn postgres() -> Self {
        Self::on(&database().await).await
    }

    /// On this database, which has a schema.
    pub async fn on(url: &str) -> Self {
        let served = serve(url, None, true).await;
        Self { served, url: Some(url.to_owned()), folder: tempfile::tempdir().unwrap() }
    }

    pub async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("s.sqlite").display());
        Self { served: serve(&url, None, true).await, url: None, folder }
    }

    pub fn sqlite_url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("s.sqlite").display())
    }

    pub async fn call(&self, token: &str, call: Call) -> Answer {
        let call = call.header("authorization", format!("Bearer {token}"));
        call.send(self.served.service.addr()).await.unwrap()
    }

    /// An operation whose owner has just got it.
    pub async fn admitted(&self) -> OperationId {
        self.admitted_by(&fresh_id()).await
    }

    pub async fn admitted_by(&self, grant_id: &str) -> OperationId {
        let operation = fresh_operation();
        let token = self.served.signer.sign(&claims(grant_id, 900));
        let admitted = self.call("admit", admit_call(&token, operation.as_str())).await;
        assert_eq!(admitted.status, 200, "{}", admitted.text());
        operation
    }

    pub async fn record(&self, operation: &OperationId, expected: &str, outcome: &str) -> Answer {
        let body = json!({"owner_version": 1, "expected_status": expected, "outcome": outcome});
        self.call("admit", Call::post(&format!("/v1/operations/{operation}/record")).json(&body)).await
    }

    /// The program's arguments, as the holder of this token.
    fn arguments(&self, token: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost-store"));
        command
            .args(arguments)
            .args(["--url", &format!("http://{}", self.served.service.addr())])
            .env("FENCEPOST_TOKEN", token);
        command
    }

    /// Runs the program with nobody at its standard input.
    pub async fn run(&self, token: &str, arguments: &[&str]) -> Output {
        self.arguments(token, arguments).stdin(Stdio::null()).output().await.unwrap()
    }

    pub async fn json(&self, token: &str, arguments: &[&str]) -> Value {
        let output = self.run(token, &[arguments, &["--output", "json"]].concat()).await;
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs it in a terminal, where a person types this.
    pub async fn typed(&self, token: &str, arguments: &[&str], typed: &str) -> (i32, String) {
        let quoted: Vec<String> = std::iter::once(env!("CARGO_BIN_EXE_fencepost-store"))
            .chain(arguments.iter().copied())
            .map(|word| format!("'{word}'"))
            .collect();
        let line = format!("{} --url 'http://{}'", quoted.join(" "), self.served.service.addr());
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("FENCEPOST_TOKEN", token)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of util-linux, gives the program a terminal");
        let mut input = child.stdin.take().unwrap();
        input.write_all(typed.as_bytes()).await.unwrap();
        // What was typed stays in the terminal until the program reads it; the input stays open, as a
        // person's does.
        let output = child.wait_with_output().await.unwrap();
        drop(input);
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

pub fn said(output: &Output) -> (i32, String) {
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    (output.status.code().unwrap(), String::from_utf8_lossy(text).into_owned())
}

/// From the list to the end, and what is refused on the way.
async fn operator_settles_an_operation_that_waits_for_a_person(office: &Office) {
    let operation = office.admitted().await;
    let other = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let waiting = office.json("operator", &["operations", "list", "--needs-reconciliation"]).await;
    assert_eq!(waiting["operations"].as_array().unwrap().len(), 1);
    assert_eq!(waiting["operations"][0]["operation_id"], operation.as_str());
    assert_eq!(waiting["operations"][0]["details"]["amount"], "250.00");
    let (code, list) = said(&office.run("operator", &["operations", "list"]).await);
    assert!(code == 0 && list.contains(other.as_str()) && list.contains(operation.as_str()), "{list}");
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    let version = shown["version"].as_str().unwrap();
    let settle =
        ["operations", "settle", operation.as_str(), "--outcome", "succeeded", "--reference", "cr_9"];
    let by = ["--reason", "the bank has it", "--yes", "--version"];
    let settled = office.json("operator", &[&settle[..], &by, &[version]].concat()).await;
    assert_eq!((&settled["status"], &settled["reference"]), (&json!("succeeded"), &json!("cr_9")));
    let line = &settled["history"][0];
    assert!(line["who"].as_str().unwrap().starts_with("token "), "{line}");
    assert_eq!((&line["step"], &line["detail"]), (&json!("settle_succeeded"), &json!("the bank has it")));
    assert_eq!((&line["result"], &line["status"]), (&json!("needs_reconciliation"), &json!("succeeded")));
    // The version is used up, and so is the right to say otherwise.
    let (code, text) = said(&office.run("operator", &[&settle[..], &by, &[version]].concat()).await);
    assert!(code == 1 && text.contains("version_changed"), "{text}");
    let version = settled["version"].as_str().unwrap();
    let (code, text) = said(&office.run("operator", &[&settle[..], &by, &[version]].concat()).await);
    assert!(code == 1 && text.contains("already_so"), "{text}");
    // Its owner, late.
    let late = office.record(&operation, "admitted", "unknown").await;
    assert_eq!(told(&late).1, "operation_not_applied");
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    assert_eq!(shown["status"], "succeeded");
    assert_eq!(shown["history"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_settles_an_operation_that_waits_for_a_person__postgres() {
    operator_settles_an_operation_that_waits_for_a_person(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_settles_an_operation_that_waits_for_a_person__sqlite() {
    operator_settles_an_operation_that_waits_for_a_person(&Office::sqlite().await).await;
}

/// Characters are counted, whatever they take in bytes; a person is asked nothing that can be refused at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_refused_is_refused_before_a_person_is_asked() {
    let office = Office::sqlite().await;
    let open = office.admitted().await;
    let operation = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let (settle, hex) = (["operations", "settle"], "07".repeat(16));
    let entry = format!("test:{hex}");
    let long = "ü".repeat(256);
    for (arguments, code, text) in [
        (&["operations", "settle", "no-id", "--outcome", "failed", "--reason", "r"][..], 2, "a UUID"),
        (&["operations", "show", "7"], 2, "a UUID"),
        (
            &[settle[0], settle[1], operation.as_str(), "--outcome", "failed", "--reason", " "],
            2,
            "1 to 1000 characters",
        ),
        (
            &[
                settle[0],
                settle[1],
                operation.as_str(),
                "--outcome",
                "failed",
                "--reason",
                "r",
                "--version",
                "7",
            ],
            2,
            "--version",
        ),
        (
            &[
                settle[0],
                settle[1],
                operation.as_str(),
                "--outcome",
                "failed",
                "--reason",
                "r",
                "--reference",
                &long,
            ],
            2,
            "1 to 255 characters",
        ),
        (
            &[
                settle[0],
                settle[1],
                operation.as_str(),
                "--outcome",
                "look-again",
                "--reason",
                "r",
                "--reference",
                "x",
            ],
            2,
            "--reference",
        ),
        (&[settle[0], settle[1], open.as_str(), "--outcome", "failed", "--reason", "r"], 1, "may_be_running"),
        (&[settle[0], settle[1], open.as_str(), "--outcome", "look-again", "--reason", "r"], 1, "already_so"),
        (&["grants", "release", "--issuer", ISSUER, "--id", "g", "--reason", "r"], 1, "nothing_held"),
        (&["grants", "revoke", "--issuer", ISSUER, "--id", "g", "--reason", &long], 2, "1 to 255 characters"),
        (&["grants", "show", "--issuer", ISSUER, "--id", ""], 2, "1 to 255 bytes"),
        (&["hold", "begin", "--no-keys", "--prefix", "a:b", "--reason", "r"], 1, "prefix"),
        (&["hold", "begin", "--keys-for", "401d", "--reason", "r"], 1, "400 days"),
        (&["hold", "lift", "1", "--reason", "r"], 1, "no_hold"),
        (&["erase", "--scope-digest", "07", "--reason", "r"], 2, "--scope-digest"),
        (&["entries", "release", "no-key", "--reason", "r"], 2, "STORED_KEY"),
        (&["entries", "release", &entry, "--reason", "r"], 1, "no_entry"),
        (&["entries", "settle", &entry, "--status", "204", "--body", "x", "--reason", "r"], 2, "body"),
    ] {
        // Nobody can be asked here, which would be said instead.
        let (found, told) = said(&office.run("operator", arguments).await);
        assert!(
            found == code && told.contains(text) && !told.contains("nobody to ask"),
            "{arguments:?}: {told}"
        );
    }
    let reference = "ü".repeat(255);
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    let version = shown["version"].as_str().unwrap();
    let order =
        ["--outcome", "succeeded", "--reason", "r", "--reference", &reference, "--yes", "--version", version];
    let done =
        office.json("operator", &[&[settle[0], settle[1], operation.as_str()], &order[..]].concat()).await;
    assert_eq!(done["reference"], reference.as_str());
}

/// An owner between may-submit and its call could make a liar of whoever says that there is nothing.
async fn nobody_says_failed_while_an_owner_may_be_sending(office: &Office) {
    let settle = async |operation: &OperationId, outcome: &str| {
        let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
        let version = shown["version"].as_str().unwrap().to_owned();
        let order = json!({"version": version, "reason": "r", "outcome": outcome});
        let path = format!("/v1/operator/operations/{operation}/settle");
        told(&office.call("operator", Call::post(&path).json(&order)).await)
    };
    let operation = office.admitted().await;
    for outcome in ["failed", "succeeded"] {
        assert_eq!(settle(&operation, outcome).await.1, "may_be_running");
    }
    // A person reads how long.
    let version =
        office.json("operator", &["operations", "show", operation.as_str()]).await["version"].clone();
    let order = json!({"version": version, "reason": "r", "outcome": "failed"});
    let path = format!("/v1/operator/operations/{operation}/settle");
    let detail = office.call("operator", Call::post(&path).json(&order)).await.json()["detail"].clone();
    let detail = detail.as_str().unwrap();
    assert!(
        detail.starts_with("its owner may still send something, for ") && detail.ends_with(" s more"),
        "{detail}"
    );
    assert_eq!(office.record(&operation, "admitted", "unknown").await.status, 200);
    assert_eq!(settle(&operation, "failed").await.1, "may_be_running");
    assert_eq!(settle(&operation, "succeeded").await.0, 200);
    let nobody = fresh_operation();
    let path = format!("/v1/operator/operations/{nobody}/settle");
    let order = json!({"version": "1.1", "reason": "r", "outcome": "failed"});
    assert_eq!(told(&office.call("operator", Call::post(&path).json(&order)).await).1, "no_operation");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_says_failed_while_an_owner_may_be_sending__postgres() {
    let office = Office::postgres().await;
    nobody_says_failed_while_an_owner_may_be_sending(&office).await;
    // Admitted, and its owner is gone: then a person may, though something might have been sent for hours.
    let operation = office.admitted().await;
    let client = connect(office.url.as_ref().unwrap()).await;
    let past = "UPDATE fencepost.operations SET lease_until = now()";
    client.execute(past, &[]).await.unwrap();
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    let by =
        ["--outcome", "failed", "--reason", "r", "--yes", "--version", shown["version"].as_str().unwrap()];
    let done =
        office.json("operator", &[&["operations", "settle", operation.as_str()], &by[..]].concat()).await;
    assert_eq!(done["status"], "failed");
    // Its owner comes back, within the time to send: it may neither renew nor send.
    let path = |call: &str| format!("/v1/operations/{operation}/{call}");
    let renew = Call::post(&path("renew")).json(&json!({"owner_version": 1}));
    assert_eq!(told(&office.call("admit", renew).await).1, "operation_not_applied");
    let send = json!({"owner_version": 1, "expected_status": "admitted"});
    let send = Call::post(&path("may-submit")).json(&send);
    assert_eq!(told(&office.call("admit", send).await).1, "operation_not_applied");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_says_failed_while_an_owner_may_be_sending__sqlite() {
    nobody_says_failed_while_an_owner_may_be_sending(&Office::sqlite().await).await;
}

/// The owner records while the order waits for the row: the order is about what is no more, whether
/// or not a person could end what it has become.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_meets_the_owners_record_does_nothing() {
    let office = Office::postgres().await;
    let url = office.url.clone().unwrap();
    let (owner, watcher) = (connect(&url).await, connect(&url).await);
    for status in ["failed", "needs_reconciliation"] {
        let operation = office.admitted().await;
        assert_eq!(office.record(&operation, "admitted", "unknown").await.status, 200);
        let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
        owner
            .batch_execute(&format!(
                "BEGIN; UPDATE fencepost.operations SET status = '{status}', reference = 'declined',
                               updated_at = clock_timestamp() WHERE operation_id = '{operation}'"
            ))
            .await
            .unwrap();
        let order = json!({"version": shown["version"], "reason": "r", "outcome": "succeeded"});
        let call = Call::post(&format!("/v1/operator/operations/{operation}/settle")).json(&order);
        let ordered = office.call("operator", call);
        let gate = async {
            until("the order waits for the row", async || {
                let waiting = "SELECT count(*) FROM pg_stat_activity
                               WHERE wait_event_type = 'Lock' AND query LIKE '-- operation_settle%'
                                 AND datname = current_database()";
                count(&watcher, waiting).await == 1
            })
            .await;
            owner.batch_execute("COMMIT").await.unwrap();
        };
        let (answer, ()) = tokio::join!(ordered, gate);
        assert_eq!(told(&answer).1, "version_changed");
        let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
        assert_eq!((&shown["status"], &shown["reference"]), (&json!(status), &json!("declined")));
        assert_eq!(shown["history"], json!([]));
    }
}

/// The list finds what it is asked for and pages through the rest.
async fn operations_are_listed_by_what_is_asked(office: &Office) {
    for _ in 0..5 {
        office.admitted().await;
    }
    let count = async |arguments: &[&str]| {
        let list = office.json("operator", &[&["operations", "list"], arguments].concat()).await;
        list["operations"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--issuer", ISSUER, "--caller", AGENT, "--caller-namespace", NAMESPACE]).await, 5);
    for other in [
        ["--issuer", "https://other"],
        ["--caller", "agent-8"],
        ["--tenant", "acme"],
        ["--older-than", "1h"],
        ["--status", "succeeded"],
        ["--cause", "owner"],
    ] {
        assert_eq!(count(&other).await, 0, "{other:?}");
    }
    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut arguments = vec!["operations", "list", "--all", "--limit", "2"];
        if let Some(after) = &after {
            arguments.extend(["--after", after]);
        }
        let page = office.json("operator", &arguments).await;
        seen.extend(page["operations"].as_array().unwrap().iter().map(|one| one["operation_id"].to_string()));
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((seen.len(), &seen), (5, &sorted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_listed_by_what_is_asked__postgres() {
    operations_are_listed_by_what_is_asked(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_listed_by_what_is_asked__sqlite() {
    operations_are_listed_by_what_is_asked(&Office::sqlite().await).await;
}

/// Grants that were recorded, used and withdrawn, each as what it is; a revocation has its own role.
async fn operator_sees_grants_and_a_revoker_withdraws_them(office: &Office) {
    let (open, used) = (fresh_id(), fresh_id());
    let operation = office.admitted_by(&used).await;
    let issue = json!({"grant": {"issuer": ISSUER, "grant_id": open}, "subject": AGENT,
                       "details": {"amount": "1.00"}, "expires_at": now() + 900});
    assert_eq!(office.call("issue", Call::post("/v1/grants/issue").json(&issue)).await.status, 200);
    let name = |id| ["--issuer", ISSUER, "--id", id];
    let shown = office.json("operator", &[&["grants", "show"], &name(&used)[..]].concat()).await;
    assert_eq!((&shown["state"], &shown["operation_id"]), (&json!("used"), &json!(operation.as_str())));
    let shown = office.json("operator", &[&["grants", "show"], &name(&open)[..]].concat()).await;
    assert_eq!((&shown["state"], &shown["details"]["amount"]), (&json!("open"), &json!("1.00")));
    let revoke = [&["grants", "revoke"], &name(&open)[..], &["--reason", "sent to the wrong agent"]].concat();
    let (code, text) = said(&office.run("revoke", &revoke).await);
    assert!(code == 2 && text.contains("--yes"), "{text}");
    let (code, text) = said(&office.run("operator", &[&revoke[..], &["--yes"]].concat()).await);
    assert!(code == 1 && text.contains("role"), "{text}");
    let (code, text) = said(&office.run("revoke", &[&revoke[..], &["--yes"]].concat()).await);
    assert_eq!((code, text.trim()), (0, "revoked"));
    let (code, text) = said(&office.run("revoke", &[&revoke[..], &["--yes"]].concat()).await);
    assert_eq!((code, text.trim()), (0, "revoked before"));
    let listed = office.json("operator", &["grants", "list", "--state", "revoked", "--issuer", ISSUER]).await;
    assert_eq!(listed["grants"][0]["grant_id"], json!(open));
    assert_eq!(listed["grants"].as_array().unwrap().len(), 1);
    let first = office.json("operator", &["grants", "list", "--limit", "1"]).await;
    let next = first["next"].as_str().unwrap();
    let second = office.json("operator", &["grants", "list", "--limit", "1", "--after", next]).await;
    assert_ne!(first["grants"][0]["grant_id"], second["grants"][0]["grant_id"]);
    let (code, text) =
        said(&office.run("operator", &[&["grants", "show"], &name("nobody")[..]].concat()).await);
    assert!(code == 1 && text.contains("no_grant"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_grants_and_a_revoker_withdraws_them__postgres() {
    operator_sees_grants_and_a_revoker_withdraws_them(&Office::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_sees_grants_and_a_revoker_withdraws_them__sqlite() {
    operator_sees_grants_and_a_revoker_withdraws_them(&Office::sqlite().await).await;
}

/// A person sees the operation and is asked; only yes is yes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_shown_the_operation_and_asked() {
    let office = Office::sqlite().await;
    let operation = office.admitted().await;
    assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
    let settle =
        ["operations", "settle", operation.as_str(), "--outcome", "failed", "--reason", "never arrived"];
    for no in ["n\n", "\n", "yess\n"] {
        let (code, text) = office.typed("operator", &settle, no).await;
        assert!(code == 1 && text.contains("[y/N]") && text.contains("nothing was done"), "{text}");
        assert!(text.contains("amount = 250.00"), "the person sees what it is about: {text}");
    }
    let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
    assert_eq!((&shown["status"], &shown["history"]), (&json!("needs_reconciliation"), &json!([])));
    let (code, text) = office.typed("operator", &settle, "y\n").await;
    assert!(code == 0 && text.contains("failed"), "{text}");
    let other = office.admitted().await;
    assert_eq!(office.record(&other, "admitted", "needs_reconciliation").await.status, 200);
    let settle = ["operations", "settle", other.as_str(), "--outcome", "failed", "--reason", "r"];
    let piped = said(&office.run("operator", &settle).await);
    assert!(piped.0 == 2 && piped.1.contains("nobody to ask"), "{piped:?}");
}

/// Applications and filters see nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_desk_is_for_operators_alone() {
    let office = Office::sqlite().await;
    let operation = office.admitted().await;
    for token in ["admit", "issue", "revoke"] {
        for path in [
            "/v1/operator/operations".to_owned(),
            format!("/v1/operator/operations/{operation}"),
            "/v1/operator/grants".into(),
        ] {
            assert_eq!(told(&office.call(token, Call::get(&path)).await).1, "role");
        }
        let settle = Call::post(&format!("/v1/operator/operations/{operation}/settle"))
            .json(&json!({"version": "1.1", "reason": "r", "outcome": "failed"}));
        assert_eq!(told(&office.call(token, settle).await).1, "role");
    }
    for wrong in ["?status=done", "?limit=0", "?what=1", "?older_than_ms=x", "?after=1"] {
        let path = format!("/v1/operator/operations{wrong}");
        assert_eq!(office.call("operator", Call::get(&path)).await.status, 400, "{wrong}");
    }
}
