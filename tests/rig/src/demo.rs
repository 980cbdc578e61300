//! `fencepost-rig demo`: real requests through Envoy, and what happened to them.
//!
//! Every row says what was promised and what came; a row that differs makes the demo fail.

use anyhow::{Context, Result};
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::envoy::{Envoy, Route, Setup, loopback};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::stack::Stack;
use fencepost_rig::upstream::Upstream;
use fencepost_rig::{grants, policy_file, tools};
use serde_json::json;
use std::process::ExitCode;

/// Longest wait for the request before, in the demo: shorter than usual, so that it is soon over.
const WAIT: &str = "1s";

/// More than the demo's policy keeps of an answer.
const LARGE: usize = 600 * 1024;

/// One line of the table.
struct Row {
    what: &'static str,
    request: String,
    expected: String,
    got: String,
    runs: String,
    ok: bool,
}

/// A promise: what the answer is to be, and how often the upstream is to have run in all.
struct Promise {
    what: &'static str,
    request: &'static str,
    expected: &'static str,
    runs: u64,
}

/// Runs the demo.
pub async fn run() -> Result<ExitCode> {
    eprintln!("Starting the store service (SQLite), a sample upstream and Envoy with the filter ...");
    let stack = start().await?;
    eprintln!("Sending requests to http://{} ...\n", stack.proxy());
    let mut rows = rows(&stack).await?;
    eprintln!("Starting PostgreSQL and two instances of the service for one-time grants ...\n");
    rows.extend(grant_rows().await?);
    print_table(&rows);
    let kept = rows.iter().all(|row| row.ok);
    stack.stop().await?;
    if kept {
        println!("\nEverything is as promised: retries were answered, not repeated.");
        println!("Next: `make up` keeps this stack running for requests of your own.");
        return Ok(ExitCode::SUCCESS);
    }
    println!("\nNOT as promised: see the rows marked NO.");
    Ok(ExitCode::FAILURE)
}

async fn start() -> Result<Stack> {
    let mut file = policy_file::read(&tools::repository().join("envoy/policies/demo.yaml"))?;
    let wait =
        file.configuration.pointer_mut("/policies/demo/wait").context("the demo policy has no wait")?;
    *wait = WAIT.into();
    Stack::builder(file.configuration).route(Route::guarded("/", "demo")).start().await
}

fn payment(user: &str, key: &str, amount: u32) -> Call {
    Call::post("/payments").user(user).key(key).json(&json!({"amount": amount, "currency": "EUR"}))
}

async fn rows(stack: &Stack) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut check = |promise: Promise, answer: &Answer| rows.push(row(stack.upstream(), &promise, answer));
    let promise = |what, request, expected, runs| Promise { what, request, expected, runs };

    let first = stack.send(&payment("alice", "order-1", 100)).await?;
    check(promise("first request", "alice pays 100, key order-1", "201", 1), &first);

    let replay = stack.send(&payment("alice", "order-1", 100)).await?;
    check(promise("the same again (a retry)", "alice pays 100, key order-1", "201 replayed", 1), &replay);

    let spelling = Call::post("/payments").user("alice").key("order-1");
    let spelling = spelling.header("content-type", "application/json");
    let spelling = stack.send(&spelling.body("{ \"currency\":\"EUR\", \"amount\":100 }")).await?;
    check(promise("same JSON, other spelling", "members swapped, key order-1", "201 replayed", 1), &spelling);

    let changed = stack.send(&payment("alice", "order-1", 999)).await?;
    check(promise("changed payload", "alice pays 999, key order-1", "422 key_reused", 1), &changed);

    let other = stack.send(&payment("bob", "order-1", 100)).await?;
    check(promise("other caller, same key", "bob pays 100, key order-1", "201", 2), &other);

    let gate = stack.upstream().gate("demo");
    let slow = payment("alice", "order-2", 100).header("x-test-gate", "demo");
    let (proxy, running) = (stack.proxy(), slow.clone());
    let running = tokio::spawn(async move { running.send(proxy).await });
    gate.wait_arrived(1).await?;
    let busy = stack.send(&slow).await?;
    check(promise("retry while it still runs", "alice pays 100, key order-2", "409 in_progress", 3), &busy);
    gate.open();
    let finished = running.await??;
    check(promise("the running one finishes", "alice pays 100, key order-2", "201", 3), &finished);
    let after = stack.send(&slow).await?;
    check(promise("retry after it has finished", "alice pays 100, key order-2", "201 replayed", 3), &after);

    let missing = Call::post("/payments").user("alice").json(&json!({"amount": 100}));
    let missing = stack.send(&missing).await?;
    check(promise("missing key", "alice pays 100, no key", "400 key_missing", 3), &missing);

    let malformed = stack.send(&payment("alice", "\"order", 100)).await?;
    check(promise("malformed key", "key with an open quote", "400 key_malformed", 3), &malformed);

    let nobody = Call::post("/payments").key("order-3").json(&json!({"amount": 100}));
    let nobody = stack.send(&nobody).await?;
    check(promise("no verified caller", "nobody's token, key order-3", "403 scope_missing", 3), &nobody);

    let large = payment("alice", "order-4", 100).header("x-test-body-size", LARGE.to_string());
    let whole = stack.send(&large).await?;
    check(promise("oversized answer", "answer of 600 KiB, key order-4", "201 614400 bytes", 4), &whole);
    let gone = stack.send(&large).await?;
    check(promise("its retry", "key order-4 again", "410 replayed answer_oversized", 4), &gone);

    let read = stack.send(&Call::get("/payments/1").header("x-test-status", "200")).await?;
    check(promise("reading needs no key", "GET /payments/1", "200", 5), &read);
    Ok(rows)
}

/// A grant before two proxies, each with an instance of the service of its own, on one PostgreSQL.
async fn grant_rows() -> Result<Vec<Row>> {
    const FIRST: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c07398f";
    const OTHER: &str = "018f2b1c-7e52-7cc3-98c4-dc0c0c073990";
    let (url, upstream) = (Postgres::shared().await.try_create_database().await?, Upstream::start().await?);
    let (_folder, issuers) = grants::issuers(&serde_json::Value::Null)?;
    let mut sides = Vec::new();
    for _ in 0..2 {
        let options = Options::on(&url).arguments(&["--issuers", &issuers]);
        let service = Service::start(options).await.context("start an instance")?;
        let configuration = grants::configuration(&grants::policy());
        let setup = Setup::new(upstream.addr()).guarded(configuration, service.addr());
        let envoy = Envoy::start(&setup.route(grants::route()).change(loopback::add)).await?;
        sides.push((envoy, service));
    }
    let token = grants::credit("demo-grant", "250.00", 600);
    let mut rows = Vec::new();
    for (side, what, request, operation, expected) in [
        (0, "a grant, spent once", "instance 1: credits 250.00, operation A", FIRST, "201"),
        (1, "the grant again", "instance 2: operation B", OTHER, "403 grant_not_available"),
        (1, "retry of the first", "instance 2: operation A again", FIRST, "201 replayed"),
    ] {
        let (envoy, _) = sides.get(side).context("no such side")?;
        let call = Call::post(grants::CREDITS).user("alice").header("x-grant", &token);
        let call = call.header("x-operation-id", operation).header("content-type", "application/json");
        let answer = call.body(r#"{"amount":250.00,"currency":"USD"}"#).send(envoy.proxy()).await?;
        let promise = Promise { what, request, expected, runs: 1 };
        rows.push(row(&upstream, &promise, &answer));
    }
    for (envoy, service) in sides {
        envoy.stop().await?;
        service.stop().await?;
    }
    upstream.close().await;
    Ok(rows)
}

fn row(upstream: &Upstream, promise: &Promise, answer: &Answer) -> Row {
    let runs = upstream.executions();
    let got = seen(answer);
    Row {
        what: promise.what,
        request: promise.request.to_owned(),
        expected: promise.expected.to_owned(),
        ok: got == promise.expected && runs == promise.runs,
        got,
        runs: if runs == promise.runs { runs.to_string() } else { format!("{runs}, not {}", promise.runs) },
    }
}

/// An answer in the words of the table.
fn seen(answer: &Answer) -> String {
    let mut words = vec![answer.status.to_string()];
    if answer.is_replay() {
        words.push("replayed".to_owned());
    }
    if !answer.problem_code().is_empty() {
        words.push(answer.problem_code());
    } else if answer.body.len() >= LARGE {
        words.push(format!("{} bytes", answer.body.len()));
    }
    words.join(" ")
}

fn print_table(rows: &[Row]) {
    let head = ["what", "request", "expected", "got", "upstream runs", "ok"].map(str::to_owned);
    let cells = |row: &Row| {
        let ok = if row.ok { "yes" } else { "NO" };
        [
            row.what.to_owned(),
            row.request.clone(),
            row.expected.clone(),
            row.got.clone(),
            row.runs.clone(),
            ok.into(),
        ]
    };
    let lines = std::iter::once(head).chain(rows.iter().map(cells)).collect::<Vec<_>>();
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
    let widths = (0..6).map(|column| width(column).unwrap_or(0)).collect::<Vec<_>>();
    for (number, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        if number == 0 {
            println!("{}", widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>().join("  "));
        }
    }
    println!(
        "\n`upstream runs` counts what the upstream has really run so far; that of the grants has a count of its own."
    );
}
