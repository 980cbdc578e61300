//! The commands of docs/runbook.md, run as they stand there, in the order of a bad day: two instances
//! on a PostgreSQL server that goes away, comes back, and is restored from a dump.
//!
//! What the document names in capitals is filled in. A command that is not run here, or that is not
//! in its section any more, fails the test.

use crate::console::{answered, claim, frame, token};
use crate::desk::Office;
use crate::http::{admit_call, told};
use crate::support::*;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{ClaimRequest, UnknownCause, UnknownRequest};
use fencepost_rig::client::Call;
use fencepost_rig::postgres::{Options, Postgres};
use serde_json::json;
use std::path::{Path, PathBuf};
use tokio::process::Command;

const RUNBOOK: &str = include_str!("../../../docs/runbook.md");

/// Commands of the document that have not been run yet, by section.
struct Book {
    left: Vec<(String, String)>,
    path: String,
    url: String,
}

impl Book {
    fn read(office: &Office) -> Self {
        let mut left = Vec::new();
        let (mut section, mut fenced) = (String::new(), false);
        for line in RUNBOOK.lines() {
            let text = line.trim();
            if text.starts_with("```") {
                fenced = !fenced;
            } else if fenced {
                left.push((section.clone(), text.to_owned()));
            } else if let Some(title) = text.strip_prefix("## ") {
                section = title.to_owned();
            } else {
                let spans = text.split('`').skip(1).step_by(2);
                let commands = spans.filter(|span| {
                    ["fencepost-store ", "curl ", "SELECT "].iter().any(|p| span.starts_with(p))
                });
                left.extend(commands.map(|command| (section.clone(), command.to_owned())));
            }
        }
        let program = Path::new(env!("CARGO_BIN_EXE_fencepost-store")).parent().unwrap().display();
        let path = format!("{program}:{}", std::env::var("PATH").unwrap());
        Self { left, path, url: format!("http://{}", office.served.service.addr()) }
    }

    /// The first command of a section that has these words, with what stands in capitals filled in.
    fn take(&mut self, section: &str, words: &str, values: &[(&str, &str)]) -> String {
        let found = self.left.iter().position(|(of, command)| of == section && command.contains(words));
        let at = found.unwrap_or_else(|| panic!("no {words:?} in {section:?} any more: {:?}", self.left));
        let (_, command) = self.left.remove(at);
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        let mut filled = String::new();
        let mut rest = command.as_str();
        while let Some(start) = rest.find(is_name) {
            let (before, from) = rest.split_at(start);
            let (name, after) = from.split_at(from.find(|c| !is_name(c)).unwrap_or(from.len()));
            let value = values.iter().find(|(of, _)| *of == name).map_or(name, |(_, value)| value);
            filled.push_str(before);
            filled.push_str(value);
            rest = after;
        }
        filled + rest
    }

    /// Runs a line of the shell; what it printed.
    async fn sh(&self, line: &str, as_whom: &str) -> String {
        let output = Command::new("sh")
            .args(["-c", line])
            .env("PATH", &self.path)
            .env("FENCEPOST_URL", &self.url)
            .env("FENCEPOST_TOKEN", as_whom)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn run(&mut self, section: &str, words: &str, values: &[(&str, &str)]) -> String {
        let line = self.take(section, words, values);
        self.sh(&line, "operator").await
    }

    /// An order, as a script gives it.
    async fn order(
        &mut self,
        section: &str,
        words: &str,
        values: &[(&str, &str)],
        whom: &str,
        more: &str,
    ) -> String {
        let line = self.take(section, words, values);
        self.sh(&format!("{line} --yes {more}"), whom).await
    }
}

async fn held(office: &Office, ask: &ClaimRequest, cause: UnknownCause) {
    assert_eq!(frame(office, "/v1/claims", ask, b"").await["outcome"], "claimed");
    let unknown = UnknownRequest { v: 1, key: ask.key.clone(), token: ask.token, cause };
    frame(office, "/v1/unknown", &unknown, b"").await;
}

fn tool(postgres: &Postgres, name: &str) -> PathBuf {
    postgres.bin().join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_runbook_does_what_it_says() {
    let postgres = Postgres::start(Options::default()).await.unwrap();
    let url = postgres.create_database().await;
    fencepost_store::store::postgres::migrate_to(&url, fencepost_store::store::postgres::SCHEMA_VERSION)
        .await
        .unwrap();
    let (office, other) = (Office::on(&url).await, Office::on(&url).await);
    let mut book = Book::read(&office);

    // The database goes away and comes back.
    let section = "Guarded requests get 503";
    let address = office.served.service.addr().to_string();
    let ready = book.take(section, "curl", &[("SERVICE", &address)]);
    assert!(book.sh(&ready, "").await.contains("\"ready\":true"));
    postgres.stop().await.unwrap();
    until("the reason is said", async || book.sh(&ready, "").await.contains("\"ready\":false")).await;
    let said = book.sh(&ready, "").await;
    assert!(said.contains("\"reasons\":[\""), "{said}");
    postgres.start_again().await.unwrap();
    until("it serves again by itself", async || book.sh(&ready, "").await.contains("\"ready\":true")).await;

    // A key whose outcome nobody knows, found by what the client sent.
    let section = "A key is stuck";
    let who = [("ISSUER", ISSUER), ("CALLER", "alice"), ("KEY", "order-1")];
    let show = book.take(section, "entries show", &who).replace("--prefix prod", "--prefix test");
    let stored = book.sh(&show.replace("entries show", "key"), "").await;
    let ask = ClaimRequest { key: StoreKey::parse(stored.trim()).unwrap(), ..claim(1, 1) };
    held(&office, &ask, UnknownCause::Timeout).await;
    assert!(book.run(section, "entries list", &[]).await.contains(stored.trim()));
    assert!(book.sh(&show, "operator").await.contains("timeout"));
    let client = connect(&url).await;
    client
        .batch_execute(
            "INSERT INTO fencepost.held_keys (key, version_fence, version_updated_at, turn, attempts, next_at, result,
                                              for_person, marked_at, taken_by)
             SELECT key, fence, updated_at, 1, 8, now(), 'not_found', 'the provider knows nothing', now(), 'i1'
             FROM fencepost.entries",
        )
        .await
        .unwrap();
    drop(client);
    assert!(book.run(section, "for-person", &[]).await.contains("the provider knows nothing"));
    let shown = office.json("operator", &["entries", "show", stored.trim()]).await;
    let more = format!("--version {}", shown["version"].as_str().unwrap());
    let key = [("STORED_KEY", stored.trim()), ("TEXT", "'it is back'")];
    let again = book.order(section, "look-again", &key, "operator", &more).await;
    assert!(again.contains(stored.trim()), "{again}");
    let seen = book.sh(&show, "operator").await;
    assert!(seen.contains("Sent back to recovery, to look again"), "{seen}");

    // Operations that wait for a person.
    let section = "An operation is to be reconciled";
    let mut settled = String::new();
    for (outcome, status) in [("succeeded", "succeeded"), ("failed", "failed")] {
        let operation = office.admitted().await;
        assert_eq!(office.record(&operation, "admitted", "needs_reconciliation").await.status, 200);
        let id = [("OPERATION_ID", operation.as_str()), ("PROVIDERS_ID", "cr_77")];
        if outcome == "succeeded" {
            let list = book.run(section, "--needs-reconciliation", &id).await;
            assert!(list.contains(operation.as_str()), "{list}");
            assert!(book.run(section, "operations show", &id).await.contains("needs_reconciliation"));
        }
        let shown = office.json("operator", &["operations", "show", operation.as_str()]).await;
        let more = format!("--version {}", shown["version"].as_str().unwrap());
        let done = book.order(section, &format!("--outcome {outcome}"), &id, "operator", &more).await;
        assert!(done.contains(status), "{done}");
        settled = operation.to_string();
    }
    assert_eq!(book.run(section, "--older-than", &[]).await.trim(), "no operations");

    // A grant that went astray.
    let section = "Keys and tokens are rotated";
    let astray = fresh_id();
    let signed = office.served.signer.sign(&claims(&astray, 900));
    let record = json!({"grant": {"issuer": ISSUER, "grant_id": astray}, "subject": AGENT,
                        "details": details(), "expires_at": now() + 900});
    let issued = office.call("issue", Call::post("/v1/grants/issue").json(&record)).await;
    assert_eq!(issued.status, 200, "{}", issued.text());
    let name = [("ISSUER", ISSUER), ("ID", &astray), ("TEXT", "astray")];
    assert!(book.run(section, "grants list", &name).await.contains(&astray));
    assert_eq!(book.order(section, "grants revoke", &name, "revoke", "").await.trim(), "revoked");
    let refused = told(&office.call("admit", admit_call(&signed, fresh_operation().as_str())).await);
    assert_eq!(refused.1, "grant_not_available", "{refused:?}");

    // With which keys stored answers are sealed: here none is.
    let section = "Stored answers do not open";
    let sealed = book.run(section, "seal status", &[("URL", &url[..])]).await;
    assert!(sealed.contains("(not sealed)"), "{sealed}");

    let section = "The disk is full";
    let slots = book.take(section, "pg_replication_slots", &[]);
    let select = book.take(section, "pg_size_pretty", &[]);
    let client = connect(&url).await;
    assert!(client.query(&slots, &[]).await.unwrap().is_empty(), "nobody replicates here");
    assert!(client.query_one(&select, &[]).await.unwrap().get::<_, String>(0).contains("kB"));
    drop(client);

    // One caller's answers; those of the test have the scope that the document names.
    let section = "Somebody's answers are to be erased";
    answered(&office, 2, b"alice's balance").await;
    assert!(book.order(section, "--scope '", &who, "operator", "").await.contains("0 answers erased"));
    assert!(book.order(section, "--scope-digest", &[], "operator", "").await.contains("1 answers erased"));
    let retry = frame(&office, "/v1/claims", &claim(2, 9), b"").await;
    assert_eq!((&retry["outcome"], &retry["status"]), (&json!("completed"), &json!(410)));

    // A backup, a lost window in which a key and a grant are used, and the way back.
    let section = "A backup is restored";
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump.sql").display().to_string();
    book.sh(&format!("{} --file {dump} '{url}'", tool(&postgres, "pg_dump").display()), "").await;
    answered(&office, 3, b"paid").await;
    let lost = fresh_id();
    let lost_token = office.served.signer.sign(&claims(&lost, 900));
    let used = office.call("admit", admit_call(&lost_token, fresh_operation().as_str())).await;
    assert_eq!(used.status, 200, "{}", used.text());
    for instance in [&office, &other] {
        instance.served.service.stop().await.unwrap();
    }
    let (server, database) = url.rsplit_once('/').unwrap();
    let psql = tool(&postgres, "psql").display().to_string();
    let restore = format!(
        "{psql} -q -v ON_ERROR_STOP=1 -c 'DROP DATABASE {database}' -c 'CREATE DATABASE {database}' {server}/postgres \
         && {psql} -q -v ON_ERROR_STOP=1 -f {dump} {url}"
    );
    book.sh(&restore, "").await;
    let at = [("URL", &url[..]), ("ISSUER", ISSUER), ("TEXT", "'looked it up'")];
    assert!(book.run(section, "migrate", &at).await.starts_with("migrated"));
    let begun = book.order(section, "hold begin", &at, "", "").await;
    assert!(begun.contains("restored the backup"), "{begun}");
    for instance in [&office, &other] {
        instance.served.service.start_again().await.unwrap();
    }
    assert!(book.run(section, "hold list", &at).await.contains("in force"));
    // Neither the key nor the grant of the lost window runs again by itself.
    let again = frame(&other, "/v1/claims", &claim(3, 9), b"").await;
    assert_eq!(again["outcome"], "unknown", "{again}");
    let grant = told(&other.call("admit", admit_call(&lost_token, fresh_operation().as_str())).await);
    assert_eq!(grant.1, "grant_held", "{grant:?}");
    assert!(book.run(section, "entries list --held", &at).await.contains(claim(3, 9).key.as_str()));
    // That grant was not recorded before its use, so that it is not in the list.
    assert!(!book.run(section, "grants list --held", &at).await.contains(&lost));
    let id = [&at[..], &[("ID", &lost)]].concat();
    assert_eq!(book.order(section, "grants release", &id, "operator", "").await.trim(), "released");
    let grant = other.call("admit", admit_call(&lost_token, fresh_operation().as_str())).await;
    assert_eq!(grant.status, 200, "{}", grant.text());
    let id = [&at[..], &[("ID", "1")]].concat();
    assert!(book.order(section, "hold lift", &id, "operator", "").await.contains("lifted"));
    let ask = ClaimRequest { token: token(8), ..claim(4, 8) };
    assert_eq!(frame(&other, "/v1/claims", &ask, b"").await["outcome"], "claimed");

    // Who did what; what was done before the backup is in it.
    let section = "Who did what";
    let id = [("OPERATION_ID", &settled[..])];
    assert!(book.run(section, "--since", &id).await.contains("restored the backup of 02:00"));
    assert!(book.run(section, "--kind hold", &id).await.contains("restored the backup of 02:00"));
    assert!(book.run(section, "--subject", &id).await.contains("case 4711"));

    assert_eq!(book.left, [], "commands of the runbook that nobody runs");
}
