//! The shipped dashboard and alerts ask for metrics that are really there, and are good rules.

use crate::support::*;
use fencepost_rig::client::Call;
use fencepost_rig::debian::PROMTOOL;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::stack::{Stack, Store};
use fencepost_rig::tools::repository;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

fn folder() -> PathBuf {
    repository().join("envoy/dashboards")
}

fn dashboard() -> Value {
    serde_json::from_slice(&std::fs::read(folder().join("fencepost.json")).unwrap()).unwrap()
}

/// Panel title and query of everything that the dashboard asks.
fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    queries.collect()
}

fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder().join("alerts.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap().clone();
    let both =
        |rule: Value| (rule["alert"].as_str().unwrap().to_owned(), rule["expr"].as_str().unwrap().to_owned());
    rules.into_iter().map(both).collect()
}

/// A metric in a query with the labels that it is asked by.
fn asked(query: &str) -> Vec<(String, BTreeSet<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |len| start + len);
        let (name, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        if !name.starts_with("fencepost_") && !name.starts_with("envoy_") && name != "up" {
            // Text inside quotes could look like a metric; it is skipped with its quotes.
            continue;
        }
        let mut labels = BTreeSet::new();
        if let Some(inside) = after.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').unwrap();
            for matcher in inside.split(',') {
                labels.insert(matcher.split(['=', '!']).next().unwrap().trim().to_owned());
            }
            rest = after;
        } else if name == "envoy_cluster_name" {
            continue;
        }
        found.push((name.to_owned(), labels));
    }
    found
}

/// Metrics of a scrape with the labels that they have.
fn exported(scrape: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in scrape.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = metrics.entry(name.to_owned()).or_default();
        let inside =
            line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
        labels.extend(
            inside
                .split("\",")
                .filter_map(|label| label.split_once('='))
                .map(|(name, _)| name.trim().to_owned()),
        );
    }
    metrics
}

async fn scrape(stack: &Stack) -> BTreeMap<String, BTreeSet<String>> {
    let service = Call::get("/metrics").send(stack.service.addr()).await.unwrap().text();
    let envoy = stack.envoy.admin_call("GET", "/stats/prometheus").await.unwrap().text();
    let mut metrics = exported(&service);
    metrics.extend(exported(&envoy));
    metrics
}

#[tokio::test]
async fn every_metric_that_dashboard_and_alerts_ask_for_is_exported() {
    let stack = start_on_postgres(json!({})).await;
    stack.send(&pay("k1")).await.unwrap();
    stack.send(&pay("k1")).await.unwrap();
    let mut metrics = scrape(&stack).await;
    metrics.insert("up".into(), ["job".into()].into());
    // Those of grants and of recovery are there where these are configured: they are looked for in
    // the program.
    let source = service_source();
    let mut looked_at = 0;
    for (place, query) in queries().into_iter().chain(alerts()) {
        for (name, labels) in asked(&query) {
            looked_at += 1;
            if name.starts_with("fencepost_grant_") || name.starts_with("fencepost_recovery_") {
                assert!(source.contains(&format!("\"{name}\"")), "{place}: {name} is not counted");
                continue;
            }
            let there = metrics.get(&name).unwrap_or_else(|| panic!("{place}: {name} is not exported"));
            assert!(labels.is_subset(there), "{place}: {name} has {there:?}, asked by {labels:?}");
        }
    }
    assert!(looked_at > 50, "only {looked_at}");
}

#[tokio::test]
async fn executed_and_replayed_work_are_counted_apart() {
    let stack = start(json!({})).await;
    for (key, times) in [("k1", 3), ("k2", 1)] {
        for _ in 0..times {
            assert_eq!(stack.send(&pay(key)).await.unwrap().status, 201);
        }
    }
    assert_eq!(stack.upstream().executions(), 2);
    let text = stack.envoy.admin_call("GET", "/stats/prometheus").await.unwrap().text();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((value("fencepost_executed"), value("fencepost_replayed")), (2, 2));
    let service = Call::get("/metrics").send(stack.service.addr()).await.unwrap().text();
    for line in
        ["fencepost_claims_total{outcome=\"claimed\"} 2", "fencepost_claims_total{outcome=\"completed\"} 2"]
    {
        assert!(service.contains(line), "{service}");
    }
}

#[test]
fn alerts_are_good_rules_and_fire_when_they_should() {
    let promtool = PROMTOOL.find().unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(&promtool).args(arguments).current_dir(folder()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&text));
    };
    run(&["check", "rules", "alerts.yaml"]);
    run(&["test", "rules", "alerts_test.yaml"]);
    // The dashboard's queries, as rules.
    let rules: Vec<Value> = queries()
        .into_iter()
        .enumerate()
        .map(|(number, (_, query))| {
            let query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
            assert!(!query.contains('$'), "{query}");
            json!({"record": format!("query:{number}"), "expr": query})
        })
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("queries.yaml");
    std::fs::write(&file, json!({"groups": [{"name": "queries", "rules": rules}]}).to_string()).unwrap();
    run(&["check", "rules", file.to_str().unwrap()]);
}

#[test]
fn every_metric_of_the_service_is_in_its_document() {
    let documents: String = ["service.md", "recovery.md", "grants.md"]
        .map(|name| std::fs::read_to_string(repository().join("docs").join(name)).unwrap())
        .concat();
    let source = service_source();
    let names: BTreeSet<&str> = source
        .split('"')
        .skip(1)
        .filter(|text| text.starts_with("fencepost_"))
        // A log target, and the console's cookie.
        .filter(|text| !["fencepost_trace", "fencepost_console"].contains(text))
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .collect();
    assert!(names.len() > 25, "{names:?}");
    let described = std::fs::read_to_string(repository().join("store-service/src/metric.rs")).unwrap();
    for name in names {
        assert!(documents.contains(name), "{name} is in no document");
        assert!(described.contains(name), "{name} is not described in metric.rs");
    }
}

/// All sources of the service.
fn service_source() -> String {
    let (mut text, mut folders) = (String::new(), vec![repository().join("store-service/src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
    text
}

#[tokio::test]
async fn the_sweepers_lag_is_told_while_a_row_stays_and_is_over_when_it_went() {
    let server = Postgres::shared().await;
    let url = server.create_database().await;
    let database = url.rsplit('/').next().unwrap();
    let builder = stack(json!({"response": {"ttl": "1s"}})).store(Store::Url(url.clone()));
    let stack = builder.service_arguments(&["--sweep-interval", "1"]).start().await.unwrap();
    let keep = "CREATE FUNCTION fencepost.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                CREATE TRIGGER keep BEFORE DELETE ON fencepost.entries \
                FOR EACH ROW EXECUTE FUNCTION fencepost.keep()";
    server.ask(database, keep).await.unwrap();
    assert_eq!(stack.send(&pay("k1")).await.unwrap().status, 201);
    let lag_becomes = async |what: &str, is: fn(f64) -> bool| {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let text = Call::get("/metrics").send(stack.service.addr()).await.unwrap().text();
            let line = text.lines().find(|line| line.starts_with("fencepost_sweep_lag_seconds "));
            let lag = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            if lag.is_some_and(is) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {line:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    lag_becomes("the row stays", |lag| lag > 2.0).await;
    server.ask(database, "DROP TRIGGER keep ON fencepost.entries").await.unwrap();
    lag_becomes("the row went", |lag| lag == 0.0).await;
}
