//! Admissions of grants over HTTP, against the same statement in pgbench.
//!
//! Each admission is a statement and a commit of its own, on both sides and over as many connections:
//! what the service adds is HTTP, the check of the token, and the way to the connection.

use crate::bed;
use crate::claims::Effort;
use crate::http::{Protocol, clients};
use crate::load;
use crate::samples::median;
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use fencepost_rig::postgres::Postgres;
use fencepost_rig::{grants, token, tools};
use serde_json::{Value, json};

const PATH: &str = "/v1/grants/admit";

/// Connections of the service that admit, and clients of pgbench.
const CONNECTIONS: &str = "16";

/// Callers, each of which sends its next request when the last was answered.
const CALLERS: [usize; 3] = [16, 64, 256];

/// At least this share of what pgbench reaches with the same statement.
const SHARE_MIN: f64 = 0.8;

/// Measures everything.
pub async fn run(summary: &mut Summary, server: &Postgres, effort: Effort) -> Result<()> {
    let url = server.try_create_database().await?;
    let (_folder, issuers) = grants::issuers(&Value::Null)?;
    let service = bed::service(&url, &["--issuers", &issuers, "--grant-connections", CONNECTIONS]).await?;
    let pid = *bed::children("fencepost-store")?.last().context("no service")?;
    let script = script()?;
    let mut number = 0;
    let (mut theirs, mut cpu) = (Vec::new(), Vec::new());
    let mut ours: Vec<(usize, Vec<f64>, Vec<f64>)> =
        CALLERS.map(|callers| (callers, Vec::new(), Vec::new())).to_vec();
    for round in 0..=effort.rounds {
        let pgbench = bed::pgbench_script(server, &url, &script, effort.seconds).await?;
        if round > 0 {
            theirs.push(pgbench);
        }
        for (callers, rates, ratios) in &mut ours {
            let mut workers = clients(service.addr(), Protocol::H2c, *callers, 2).await?;
            let count = 2_000 * u64::from(effort.seconds);
            let bodies: Vec<Bytes> = (number..number + count).map(admission).collect();
            number += count;
            let before = bed::cpu_us(pid)?;
            let load = load::posts(&mut workers, PATH, "application/json", bodies).await?;
            if round > 0 {
                cpu.push((bed::cpu_us(pid)? - before) / load.samples.len() as f64);
                rates.push(load.rate());
                ratios.push(load.rate() / pgbench);
            }
        }
    }
    let admitted = bed::number(&bed::connect(&url).await?, OPERATIONS).await?;
    if admitted < number as f64 {
        bail!("{number} admissions were asked for; {admitted} operations are there");
    }
    summary.add("admissions/pgbench_16", median(&theirs), "/s", None, Goal::None);
    summary.add("admissions/service_cpu", median(&cpu), "us", None, Goal::None);
    let best = ours.iter().map(|(_, _, ratios)| median(ratios)).fold(0.0, f64::max);
    for (callers, rates, ratios) in &ours {
        let ratio = median(ratios);
        let goal = if ratio >= best { Goal::RatioAtLeast(SHARE_MIN) } else { Goal::None };
        let name = format!("admissions/service_{callers}_callers");
        let with = "the same statement in pgbench, 16 clients";
        summary.add_ratio(&name, median(rates), "/s", with, Some(ratio), goal);
    }
    Ok(())
}

const OPERATIONS: &str = "SELECT count(*) FROM fencepost.operations WHERE caller_id = 'alice'";

/// An admission of a grant of its own, for an operation of its own.
fn admission(number: u64) -> Bytes {
    let body = json!({
        "token": grants::credit(&format!("bench-{number}"), "250.00", 3_000),
        "operation_id": format!("018f2b1c-7e52-7cc3-98c4-{number:012x}"),
        "caller": {"namespace": token::ISSUER, "id": "alice"},
        "details": {"account": "A-1187", "amount": "250.00", "currency": "USD"},
    });
    body.to_string().into()
}

/// The service's own statement, with a grant and an operation that are new each time.
fn script() -> Result<String> {
    let path = tools::repository().join("store-service/src/grant/postgres/sql/grant_admit.sql");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut sql: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"))
        .fold(String::new(), |sql, line| sql + line + "\n");
    let issuer = format!("'{}'", grants::ISSUER);
    let details = r#"'{"account":"A-1187","amount":"250.00","currency":"USD"}'"#;
    let values = [
        issuer.as_str(),
        "''",
        "('bench-' || :n::text)",
        "md5(:n::text)",
        "(now() + interval '50 minutes')",
        "1000",
        "'https://login.example'",
        "'pgbench'",
        "''",
        "decode(repeat('05', 32), 'hex')",
        details,
        "30000",
        "20000",
        "1",
        "now()",
        "('grant bench-' || :n::text)",
    ];
    // From the last on, so that $1 does not meet $12.
    for (place, value) in values.iter().enumerate().rev() {
        sql = sql.replace(&format!("${}", place + 1), value);
    }
    Ok(format!("\\set n random(1, 900000000000000)\n{};\n", sql.trim_end()))
}
