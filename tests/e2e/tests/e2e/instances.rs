//! Two proxies, two instances of the service, one database; and a person who ends what they can't.

use crate::support::{configuration, pay, start_on_postgres};
use fencepost_rig::client::{Answer, Call};
use fencepost_rig::clock::SteppedClock;
use fencepost_rig::envoy::{Envoy, Route, Setup};
use fencepost_rig::postgres::Postgres;
use fencepost_rig::service::{Options, Service, binary};
use fencepost_rig::upstream::{Behaviour, Ending, Gate, Upstream};
use serde_json::{Value, json};
use std::process::Command;

/// One proxy with an instance of the service of its own.
async fn side(url: &str, upstream: &Upstream) -> (Service, Envoy) {
    let service = Service::start(Options::on(url)).await.unwrap();
    let setup = Setup::new(upstream.addr()).guarded(configuration(json!({})), service.addr());
    let envoy = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    (service, envoy)
}

#[tokio::test]
async fn a_waiter_behind_another_instance_gets_the_first_answer() {
    let url = Postgres::shared().await.create_database().await;
    let upstream = Upstream::start().await.unwrap();
    let (one, other) = (side(&url, &upstream).await, side(&url, &upstream).await);
    let gate = Gate::new();
    upstream.script_next("/pay", Behaviour::gated(&gate));
    let (here, there) = (one.1.proxy(), other.1.proxy());
    let first = tokio::spawn(async move { pay("k1").send(here).await });
    gate.wait_arrived(1).await.unwrap();
    let second = tokio::spawn(async move { pay("k1").send(there).await });
    let asked = "cluster.fencepost_store_waiting.upstream_rq_total";
    other.1.wait_stat(asked, |n| n >= 1).await.unwrap();
    gate.open();
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert_eq!((first.json(), first.is_replay()), (json!({"n": 1}), false));
    assert_eq!((second.json(), second.is_replay()), (json!({"n": 1}), true));
    assert_eq!(upstream.executions(), 1);
}

#[tokio::test]
async fn a_claim_that_is_given_back_passes_to_the_waiter_behind_another_instance() {
    let url = Postgres::shared().await.create_database().await;
    let upstream = Upstream::start().await.unwrap();
    let (one, other) = (side(&url, &upstream).await, side(&url, &upstream).await);
    let gate = Gate::new();
    upstream.script_next("/pay", Behaviour::status(429).at(&gate));
    let (here, there) = (one.1.proxy(), other.1.proxy());
    let first = tokio::spawn(async move { pay("k1").send(here).await });
    gate.wait_arrived(1).await.unwrap();
    let second = tokio::spawn(async move { pay("k1").send(there).await });
    other.1.wait_stat("cluster.fencepost_store_waiting.upstream_rq_total", |n| n >= 1).await.unwrap();
    gate.open();
    assert_eq!(first.await.unwrap().unwrap().status, 429);
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.status, second.is_replay()), (201, false));
    assert_eq!(upstream.executions(), 2);
}

/// `fencepost-store entries ...` against a running service; its JSON.
fn entries(service: &Service, arguments: &[&str]) -> Value {
    let mut command = Command::new(binary().unwrap());
    command.arg("entries").args(arguments).args(["--url", &format!("http://{}", service.addr())]);
    let output = command.args(["--output", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_person_ends_an_unknown_outcome_and_retries_get_what_the_person_said() {
    let stack = start_on_postgres(json!({})).await;
    stack.upstream().script("/pay", Behaviour::default().ending(Ending::CloseBeforeHead));
    for key in ["paid", "unpaid"] {
        assert_eq!(stack.send(&pay(key)).await.unwrap().status, 504);
        assert_eq!(stack.send(&pay(key)).await.unwrap().problem_code(), "outcome_unknown");
    }
    // The fence that the application got is what finds its entry.
    let seen = stack.upstream().seen();
    let fence = |n: usize| seen[n].header("x-fencepost-fence").unwrap().parse::<i64>().unwrap();
    let all = entries(&stack.service, &["list", "--state", "unknown"]);
    let listed =
        all.as_array().or_else(|| all["entries"].as_array()).unwrap_or_else(|| panic!("{all}")).clone();
    let entry = |n: usize| {
        let one = listed.iter().find(|one| one["fence"] == fence(n)).unwrap_or_else(|| panic!("{all}"));
        (one["key"].as_str().unwrap().to_owned(), one["version"].as_str().unwrap().to_owned())
    };
    let ((paid, version), (unpaid, other_version)) = (entry(0), entry(1));
    let folder = fencepost_rig::scratch::Scratch::new("answer").unwrap();
    let body = folder.path().join("answer.json");
    std::fs::write(&body, r#"{"n":1}"#).unwrap();
    let said = ["--reason", "looked", "--yes", "--version"];
    let answer = ["--status", "201", "--header", "content-type: application/json", "--body-file"];
    let settle = [&["settle", &paid], &said[..], &[&version], &answer, &[body.to_str().unwrap()]].concat();
    entries(&stack.service, &settle);
    entries(&stack.service, &[&["settle", &unpaid, "--not-run"], &said[..], &[&other_version]].concat());
    stack.upstream().script("/pay", Behaviour::default());
    let retry = stack.send(&pay("paid")).await.unwrap();
    assert_eq!((retry.status, retry.json(), retry.is_replay()), (201, json!({"n": 1}), true));
    let again = stack.send(&pay("unpaid")).await.unwrap();
    assert_eq!((again.status, again.is_replay()), (201, false));
    assert_eq!(stack.upstream().executions(), 3);
}

/// Hour of the day in an answer's `Date`.
fn hour(answer: &Answer) -> String {
    answer.header("date").unwrap().split([' ', ':']).nth(4).unwrap().to_owned()
}

#[tokio::test]
async fn clocks_of_instances_decide_nothing() {
    let url = Postgres::shared().await.create_database().await;
    let upstream = Upstream::start().await.unwrap();
    let one = side(&url, &upstream).await;
    let clock = SteppedClock::new().unwrap();
    clock.step(3_600).unwrap();
    let options = Options { environment: clock.environment(), ..Options::on(&url) };
    let service = Service::start(options).await.unwrap();
    let short = configuration(json!({"wait": "300ms", "response": {"ttl": "10m"}}));
    let setup = Setup::new(upstream.addr()).guarded(short, service.addr());
    let envoy = Envoy::start(&setup.route(Route::guarded("/pay", "pay"))).await.unwrap();
    let (here, there) = (one.1.proxy(), envoy.proxy());
    let health = |to| async move { Call::get("/healthz").send(to).await.unwrap() };
    let (right, fast) = (health(one.0.addr()).await, health(service.addr()).await);
    assert_ne!(hour(&right), hour(&fast), "the instance has the clock");

    for step in [3_600, -3_600] {
        clock.step(step).unwrap();
        // A live claim of the other side is live, whatever the time is here.
        let (key, gate) = (format!("live{step}"), Gate::new());
        upstream.script_next("/pay", Behaviour::gated(&gate));
        let call = pay(&key);
        let first = tokio::spawn(async move { call.send(here).await });
        gate.wait_arrived(1).await.unwrap();
        let second = pay(&key).send(there).await.unwrap();
        assert_eq!((second.status, second.problem_code().as_str()), (409, "in_progress"), "{step}");
        gate.open();
        first.await.unwrap().unwrap();
        // An answer that lives for ten minutes is not over because it is an hour later here.
        let retry = pay(&key).send(there).await.unwrap();
        assert_eq!((retry.status, retry.is_replay()), (201, true), "{step}");

        // The clock is stepped while a request runs on this side, past its lease and back.
        let (key, gate) = (format!("running{step}"), Gate::new());
        upstream.script_next("/pay", Behaviour::gated(&gate));
        let call = pay(&key);
        let first = tokio::spawn(async move { call.send(there).await });
        gate.wait_arrived(1).await.unwrap();
        clock.step(-step).unwrap();
        let second = pay(&key).send(there).await.unwrap();
        assert_eq!((second.status, second.problem_code().as_str()), (409, "in_progress"), "{step}");
        gate.open();
        let first = first.await.unwrap().unwrap();
        assert_eq!((first.status, first.header("x-fencepost-result")), (201, None), "{step}: it is stored");
        let retry = pay(&key).send(here).await.unwrap();
        assert_eq!((retry.status, retry.is_replay()), (201, true), "{step}");
    }
    assert_eq!(upstream.executions(), 4);
}
