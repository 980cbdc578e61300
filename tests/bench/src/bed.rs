//! The database and the service that are measured.

use anyhow::{Context, Result};
use fencepost_rig::postgres::{Options, Postgres};
use fencepost_rig::process::children_of;
use fencepost_rig::service::{self, Service};
use std::process::Command;
use tokio_postgres::{Client, NoTls};

/// A PostgreSQL whose commits wait for the disk. Its settings are the server's own, except for
/// memory: the rig's are for tests.
pub async fn postgres() -> Result<Postgres> {
    let settings = [("shared_buffers", "256MB"), ("max_wal_size", "4GB")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Postgres::start(Options { settings: settings.to_vec(), ..Options::default() }).await
}

/// A service on a store.
pub async fn service(store: &str, arguments: &[&str]) -> Result<Service> {
    let mut options = service::Options::on(store).arguments(arguments);
    options.environment.push(("FENCEPOST_LOG".into(), "warn".into()));
    Service::start(options).await
}

/// A connection to a database.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Vacuums the entries: each command alone, since some refuse to share a transaction.
pub async fn tidy(client: &Client) -> Result<()> {
    for command in ["VACUUM ANALYZE fencepost.entries", "CHECKPOINT"] {
        client.batch_execute(command).await.context(command)?;
    }
    Ok(())
}

/// A single number from a database.
pub async fn number(client: &Client, sql: &str) -> Result<f64> {
    let row = client.query_one(sql, &[]).await.with_context(|| sql.to_owned())?;
    Ok(row.try_get::<_, i64>(0)? as f64)
}

/// The article's table.
pub const ARTICLE_TABLE: &str = "CREATE TABLE idempotency_entries (
    key text PRIMARY KEY, fingerprint text NOT NULL, state text NOT NULL, claim_token text,
    claimed_at timestamptz NOT NULL, completed_at timestamptz, expires_at timestamptz NOT NULL,
    status_code int, headers_json text, response_body bytea)";

/// The article's way to claim: an update that changes nothing makes the row come back.
const ARTICLE_CLAIM: &str = "INSERT INTO idempotency_entries AS e \
    (key, fingerprint, state, claim_token, claimed_at, expires_at) VALUES \
    ('bench:' || lpad(:k::text, 32, '0'), '0505050505050505050505050505050505050505050505050505050505050505', \
     'claimed', '00000000000000000000' || :t, now(), now() + interval '30 s') \
    ON CONFLICT (key) DO UPDATE SET key = e.key \
    RETURNING e.key, e.fingerprint, e.state, e.claimed_at, e.completed_at, e.expires_at, e.status_code, \
    e.headers_json, e.response_body, (xmax = 0) AS is_inserted;";

/// Runs the article's statement, prepared, from 16 clients, over so many keys from `first` on.
/// Transactions per second.
pub async fn pgbench(server: &Postgres, url: &str, first: u64, keys: u64, seconds: u32) -> Result<f64> {
    let range = format!("\\set k random({first}, {})", first + keys - 1);
    let script = format!("{range}\n\\set t random(1, 900000000000)\n{ARTICLE_CLAIM}\n");
    pgbench_script(server, url, &script, seconds).await
}

/// Runs a script, prepared, from 16 clients. Transactions per second.
pub async fn pgbench_script(server: &Postgres, url: &str, script: &str, seconds: u32) -> Result<f64> {
    let folder = fencepost_rig::scratch::Scratch::new("pgbench")?;
    let file = folder.path().join("script.sql");
    std::fs::write(&file, script)?;
    let mut command = Command::new(server.bin().join("pgbench"));
    command.args(["-n", "-M", "prepared", "-c", "16", "-j", "2", "-T"]).arg(seconds.to_string());
    command.arg("-f").arg(&file).arg(url).env("LC_ALL", "C");
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("run pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    rate.with_context(|| format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Children of this process whose program has this name, in the order of their start.
pub fn children(program: &str) -> Result<Vec<i32>> {
    let own = i32::try_from(std::process::id())?;
    let named =
        |pid: &i32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path.ends_with(program));
    let mut pids: Vec<_> = children_of(own).into_iter().filter(named).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Memory in use by a child of this process whose program has this name, in bytes; of the last
/// started, where there are several.
pub fn resident(program: &str) -> Result<f64> {
    resident_of(*children(program)?.last().context("no such child")?)
}

/// Memory in use by a process, in bytes.
pub fn resident_of(pid: i32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? * 1024.0)
}

/// Size in bytes of the largest linear memory of a wasm module in a child of this process: what a
/// module has grown to lies before the rest of the 8 GiB that V8 reserves for it.
pub fn linear_memory(program: &str) -> Result<f64> {
    const RESERVED_MIN: u64 = 4 << 30;
    let pid = *children(program)?.last().context("no such child")?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let at = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((at(start)?, at(end)?, rest.get(..4)?.to_owned()))
    };
    let all: Vec<_> = maps.lines().filter_map(mapping).collect();
    let grown =
        all.iter().zip(all.iter().skip(1)).filter(|((_, end, used), (start, reserved_end, reserved))| {
            used == "rw-p" && reserved == "---p" && end == start && reserved_end - start > RESERVED_MIN
        });
    let most = grown.map(|((start, end, _), _)| end - start).max();
    most.map(|bytes| bytes as f64).context("no linear memory is mapped")
}

/// Time that all threads of a process have spent on a core, in microseconds. Unlike the time that
/// passes, it hardly depends on what else the machine does.
pub fn cpu_us(pid: i32) -> Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // A thread may end between the listing and the look.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        sum += text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(sum / 1e3)
}
