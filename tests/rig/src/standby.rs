//! A standby of a PostgreSQL server, by a base backup and streaming replication.
//!
//! It connects to its primary through an address of the caller's choice, which may be a link that is
//! cut. Whether the primary waits for it is the primary's setting ([`Postgres::wait_for_standbys`]).

use crate::postgres::{Options, Postgres, command};
use crate::process::{Process, Start, log_tail};
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a standby calls itself to its primary.
pub const NAME: &str = "standby";

/// Longest wait for a standby to stream, and for a setting to be in force.
const HAPPENS_WITHIN: Duration = Duration::from_secs(60);

impl Postgres {
    /// Makes a standby of this server, whose address to it is `via`, and waits until it streams.
    pub async fn standby(&self, via: SocketAddr, options: Options) -> Result<Self> {
        let scratch = Scratch::new("standby")?;
        crate::postgres::give_to_server(scratch.path())?;
        let data = scratch.path().join("data");
        let mut backup = command(self.bin().join("pg_basebackup"));
        backup.arg("-D").arg(&data).args([
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "--checkpoint=fast",
            "--no-sync",
        ]);
        backup.args(["-p", &self.port().to_string()]);
        let log = scratch.path().join("backup.log");
        let start =
            Start { command: backup, log: log.clone(), read_stdout: false, death_signal: libc::SIGKILL };
        let status = Process::start(start)?.0.wait().await?;
        if !status.success() {
            bail!("pg_basebackup: {status}\n{}", log_tail(&log));
        }
        // What the primary was told by ALTER SYSTEM is the primary's: promoted, this server waits for
        // nobody until it is told to.
        std::fs::write(data.join("postgresql.auto.conf"), "").context("forget the primary's settings")?;
        std::fs::write(data.join("standby.signal"), "").context("make it a standby")?;
        crate::postgres::give_to_server(&data.join("standby.signal"))?;
        let mut options = options;
        let source = format!(
            "host={} port={} user=postgres application_name={NAME} connect_timeout=3",
            via.ip(),
            via.port()
        );
        options.settings.push(("primary_conninfo".into(), source));
        options.settings.push(("wal_retrieve_retry_interval".into(), "200ms".into()));
        let standby = Self::on(self.bin().to_owned(), scratch, options).await?;
        self.wait_streaming().await.with_context(|| log_tail(&standby.log_path()))?;
        Ok(standby)
    }

    /// Waits until a standby streams from this server.
    pub async fn wait_streaming(&self) -> Result<()> {
        let streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        self.wait_told(streams, |count| count != "0").await.context("no standby streams")
    }

    /// Sets whether commits wait until a standby has them, and waits until that is in force.
    pub async fn wait_for_standbys(&self, wait: bool) -> Result<()> {
        let names = if wait { NAME } else { "" };
        self.ask("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await?;
        self.ask("postgres", "SELECT pg_reload_conf()").await?;
        if wait {
            let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            return self.wait_told(synchronous, |count| count == "1").await.context("no synchronous standby");
        }
        self.wait_told("SHOW synchronous_standby_names", str::is_empty).await
    }

    /// Waits until a question has an answer like this.
    pub async fn wait_told(&self, sql: &str, is_right: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = Instant::now() + HAPPENS_WITHIN;
        loop {
            let told = self.ask("postgres", sql).await;
            match &told {
                Ok(Some(text)) if is_right(text) => return Ok(()),
                _ if Instant::now() > deadline => bail!("{sql}: {told:?}"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}
