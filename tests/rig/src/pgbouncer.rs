//! A real PgBouncer in front of a PostgreSQL server, in transaction mode.
//!
//! It refuses to run as root, so root starts it as `nobody`.

use crate::postgres::{NOBODY, Postgres, free_port, is_root};
use crate::process::{Process, Start};
use crate::scratch::Scratch;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// Longest wait for it to serve.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A pooler. Dropping it kills it.
pub struct PgBouncer {
    // Declared before the folder: the process ends before its files go.
    process: Process,
    port: u16,
    #[expect(dead_code, reason = "holds the folder")]
    scratch: Scratch,
}

impl PgBouncer {
    /// Starts one in front of this server, with at most `pool` server connections per database.
    pub async fn start(server: &Postgres, pool: u32) -> Result<Self> {
        let binary = tools::pgbouncer()?;
        let scratch = Scratch::new("pgbouncer")?;
        if is_root() {
            chown(scratch.path(), Some(NOBODY), Some(NOBODY)).context("give the folder to nobody")?;
        }
        // Another process may take the free port before it does: try again with another.
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port()?;
            let settings = scratch.path().join("pgbouncer.ini");
            std::fs::write(&settings, ini(server.port(), port, pool)).context("write settings")?;
            let mut command = Command::new(&binary);
            command.arg(&settings).env_clear().env("LC_ALL", "C").current_dir("/");
            if is_root() {
                command.uid(NOBODY).gid(NOBODY);
            }
            let log = scratch.path().join("pgbouncer.log");
            let start = Start { command, log, read_stdout: false, death_signal: libc::SIGKILL };
            let process = Process::start(start)?.0;
            match wait_ready(&process, port).await {
                Ok(()) => return Ok(Self { process, port, scratch }),
                Err(_) if attempts < 5 && process.exited().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// URL of a database through it, made of the database's own URL.
    pub fn url(&self, direct: &str) -> String {
        let database = direct.rsplit('/').next().unwrap_or_default();
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

fn ini(server_port: u16, port: u16, pool: u32) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server_port} user=postgres\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = {pool}\n\
         max_client_conn = 1000\n"
    )
}

async fn wait_ready(process: &Process, port: u16) -> Result<()> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(status) = process.exited() {
            bail!("PgBouncer ended: {status}\n{}", process.log_tail());
        }
        match tokio_postgres::connect(&url, NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                if client.simple_query("SELECT 1").await.is_ok() && process.exited().is_none() {
                    return Ok(());
                }
            }
            Err(error) if Instant::now() > deadline => {
                bail!("PgBouncer accepts nothing: {error}\n{}", process.log_tail());
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
