//! The store service as a process of its own.

use crate::process::{Process, Start, guard};
use crate::scratch::Scratch;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest wait for the `ready` line; migrations of an empty database included.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Patience with a service that was asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How a service is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// URL of its store.
    pub store: String,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// Further environment.
    pub environment: Vec<(String, String)>,
}

impl Options {
    /// A service on a store.
    pub fn on(store: &str) -> Self {
        Self { store: store.to_owned(), ..Self::default() }
    }

    /// Adds arguments of `serve`.
    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }
}

/// A service. Dropping it kills it.
pub struct Service {
    process: Mutex<Option<Process>>,
    ready: Mutex<Ready>,
    options: Options,
    scratch: Scratch,
}

/// What the service says when it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Identity of its database.
    pub store_id: String,
    /// Kind of its store, as the service names it.
    pub store: String,
}

impl Service {
    /// Starts it and waits until it serves.
    pub async fn start(options: Options) -> Result<Self> {
        let scratch = Scratch::new("store")?;
        let (process, ready) = launch(&options, options.port, &scratch).await?;
        Ok(Self { process: Mutex::new(Some(process)), ready: Mutex::new(ready), options, scratch })
    }

    /// Where it listens; the same after a restart.
    pub fn addr(&self) -> SocketAddr {
        guard(&self.ready).listen
    }

    /// What it said last when it was ready.
    pub fn ready(&self) -> Ready {
        guard(&self.ready).clone()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        crate::process::log_tail(&self.log_path())
    }

    /// File with its log.
    pub fn log_path(&self) -> PathBuf {
        self.scratch.path().join("store.log")
    }

    /// Asks it to stop (SIGTERM) and waits.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.end(libc::SIGTERM).await
    }

    /// Kills it.
    pub async fn kill(&self) -> Result<ExitStatus> {
        self.end(libc::SIGKILL).await
    }

    /// Starts it again after its end: same port, same store.
    pub async fn start_again(&self) -> Result<()> {
        if guard(&self.process).is_some() {
            bail!("the service was not stopped");
        }
        let (process, ready) = launch(&self.options, self.addr().port(), &self.scratch).await?;
        *guard(&self.process) = Some(process);
        *guard(&self.ready) = ready;
        Ok(())
    }

    /// Freezes it (SIGSTOP): peers see silence, not an error.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets a frozen service go on.
    pub fn thaw(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Sends it any signal.
    pub fn signal(&self, signal: i32) {
        if let Some(process) = guard(&self.process).as_ref() {
            process.signal(signal);
        }
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Result<ExitStatus> {
        let ended = guard(&self.process).as_ref().map(Process::ended);
        let mut ended = ended.ok_or_else(|| anyhow!("the service was stopped before"))?;
        let status = *ended.wait_for(Option::is_some).await.context("reaper is gone")?;
        status.context("no exit status")
    }

    async fn end(&self, signal: i32) -> Result<ExitStatus> {
        let process = guard(&self.process).take().ok_or_else(|| anyhow!("the service was stopped before"))?;
        process.stop(signal, STOP_WITHIN).await
    }
}

/// The service's binary: beside the running test or tool, or where `FENCEPOST_STORE_BIN` says.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FENCEPOST_STORE_BIN") {
        return Ok(PathBuf::from(path));
    }
    let this = std::env::current_exe().context("own path")?;
    let beside = this.ancestors().skip(1).take(2).map(|dir| dir.join("fencepost-store"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.with_context(|| {
        format!("no fencepost-store near {}: build it first (make test does)", this.display())
    })
}

async fn launch(options: &Options, port: u16, scratch: &Scratch) -> Result<(Process, Ready)> {
    let mut command = Command::new(binary()?);
    command.arg("serve").arg("--listen").arg(format!("127.0.0.1:{port}")).arg("--store").arg(&options.store);
    command.args(&options.arguments).envs(options.environment.iter().cloned());
    let log = scratch.path().join("store.log");
    let start = Start { command, log: log.clone(), read_stdout: true, death_signal: libc::SIGKILL };
    let (process, stdout) = Process::start(start)?;
    let stdout = stdout.context("no standard output")?;
    let (tell, told) = oneshot::channel();
    let mut log = std::fs::OpenOptions::new().append(true).open(&log)?;
    std::thread::Builder::new().name("store-output".into()).spawn(move || {
        let mut tell = Some(tell);
        // Read to its end: a full pipe would stop the service.
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = writeln!(log, "{line}");
            if line.starts_with("ready ")
                && let Some(tell) = tell.take()
            {
                let _ = tell.send(line);
            }
        }
    })?;
    match tokio::time::timeout(READY_WITHIN, told).await {
        Ok(Ok(line)) => Ok((process, parse_ready(&line)?)),
        // Its output ended without the line: it has ended, or is about to.
        Ok(Err(_)) => {
            let status = process.stop(libc::SIGTERM, Duration::from_secs(5)).await?;
            bail!("the service ended: {status}\n{}", process.log_tail())
        }
        Err(_) => bail!("the service is not ready after {READY_WITHIN:?}\n{}", process.log_tail()),
    }
}

fn parse_ready(line: &str) -> Result<Ready> {
    let field = |name: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let missing = || format!("no such field in: {line}");
    let listen = field("listen").with_context(missing)?;
    let listen = listen.strip_prefix("http://").unwrap_or(&listen).parse().with_context(missing)?;
    Ok(Ready {
        listen,
        store_id: field("store_id").unwrap_or_default(),
        store: field("store").unwrap_or_default(),
    })
}
