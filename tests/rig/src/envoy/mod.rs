//! A real Envoy with the built filter.
//!
//! Hot restart is off: killed Envoys would leave shared memory behind.

mod bootstrap;
pub mod loopback;
mod route;

pub use bootstrap::{STORE, STORE_WAITING, Setup, UPSTREAM, cluster, connection_manager, typed};
pub use route::Route;

use crate::client::{Answer, Call};
use crate::process::{Process, Start, guard};
use crate::scratch::Scratch;
use crate::tools;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for Envoy to serve; compiling the filter included.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Patience with an Envoy that was asked to stop.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Longest wait for a line of the log or a statistic.
const HAPPENS_WITHIN: Duration = Duration::from_secs(20);

/// Between two looks at a file or an address.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An Envoy. Dropping it kills it.
pub struct Envoy {
    process: Process,
    proxy: SocketAddr,
    admin: SocketAddr,
    scratch: Scratch,
    listeners: Mutex<Value>,
}

/// File that dynamic listeners are read from.
const LISTENERS: &str = "listeners.json";

/// Writes the file as Envoy wants it: complete, and moved into place.
fn write_listeners(folder: &Path, listeners: &Value) -> Result<()> {
    let listeners = listeners.as_array().context("no listeners")?;
    let resources: Vec<Value> = listeners
        .iter()
        .map(|listener| {
            let mut resource = json!({"@type": "type.googleapis.com/envoy.config.listener.v3.Listener"});
            for (name, value) in listener.as_object().into_iter().flatten() {
                resource[name.as_str()] = value.clone();
            }
            resource
        })
        .collect();
    static VERSIONS: AtomicU64 = AtomicU64::new(1);
    let version = VERSIONS.fetch_add(1, Ordering::Relaxed).to_string();
    let discovery = json!({"version_info": version, "resources": resources});
    let draft = folder.join("listeners.draft");
    std::fs::write(&draft, serde_json::to_vec_pretty(&discovery)?)?;
    std::fs::rename(draft, folder.join(LISTENERS))?;
    Ok(())
}

/// The built filter: `FENCEPOST_WASM`, or where `make wasm` puts it.
pub fn filter_binary() -> PathBuf {
    let built = || {
        // A relative folder counts from where cargo was called, which is not known here; the
        // Makefile gives the whole path.
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        tools::repository().join(target).join("wasm32-wasip1/wasm/fencepost_filter.wasm")
    };
    std::env::var_os("FENCEPOST_WASM").map_or_else(built, PathBuf::from)
}

/// The filter that a request header `x-test-trap` ends, as a bug would: built beside the other.
pub fn trapping_filter_binary() -> PathBuf {
    filter_binary().with_file_name("fencepost_filter_trap.wasm")
}

impl Envoy {
    /// Starts it and waits until it serves.
    pub async fn start(setup: &Setup) -> Result<Self> {
        let wasm = setup.wasm.clone().unwrap_or_else(filter_binary);
        if setup.filter.is_some() && !wasm.is_file() {
            bail!("{} is not there: run `make wasm` first", wasm.display());
        }
        let scratch = Scratch::new("envoy")?;
        let mut setup = setup.clone();
        if setup.dynamic_listeners && setup.port == 0 {
            // An update is to find the listener where it was.
            setup.port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        }
        let mut bootstrap = setup.bootstrap(&wasm, &scratch.path().join("access.log"));
        let listeners = bootstrap.pointer("/static_resources/listeners").cloned().unwrap_or_default();
        if setup.dynamic_listeners {
            write_listeners(scratch.path(), &listeners)?;
            bootstrap["static_resources"]["listeners"] = json!([]);
            bootstrap["dynamic_resources"] = json!({"lds_config": {
                "path_config_source": {"path": scratch.path().join(LISTENERS)},
            }});
        }
        let config = scratch.path().join("bootstrap.json");
        std::fs::write(&config, serde_json::to_vec_pretty(&bootstrap)?)?;
        let admin_file = scratch.path().join("admin");
        let mut command = Command::new(tools::envoy()?);
        command.arg("-c").arg(&config).arg("--admin-address-path").arg(&admin_file);
        command.arg("--concurrency").arg(setup.concurrency.to_string());
        command.args([
            "--disable-hot-restart",
            "--log-level",
            "warning",
            "--component-log-level",
            "wasm:info",
        ]);
        command.args(["--file-flush-interval-msec", "20"]);
        command.arg("--drain-time-s").arg(setup.drain_seconds.to_string());
        command.arg("--parent-shutdown-time-s").arg((setup.drain_seconds + 1).to_string());
        let log = scratch.path().join("envoy.log");
        let start = Start { command, log, read_stdout: false, death_signal: libc::SIGKILL };
        let process = Process::start(start)?.0;
        let (admin, proxy) = ready(&process, &admin_file).await?;
        Ok(Self { process, proxy, admin, scratch, listeners: Mutex::new(listeners) })
    }

    /// Changes the listeners of an Envoy that was set up with dynamic ones. Envoy takes them over,
    /// or refuses them, a moment later.
    pub fn update_listeners(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut listeners = guard(&self.listeners);
        change(&mut listeners);
        write_listeners(self.scratch.path(), &listeners)
    }

    /// Where the proxy listens.
    pub fn proxy(&self) -> SocketAddr {
        self.proxy
    }

    /// Where its admin interface listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// File with its log.
    pub fn log_path(&self) -> &std::path::Path {
        self.process.log_path()
    }

    /// All it has logged.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.process.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for a text in its log.
    pub async fn wait_log(&self, text: &str) -> Result<()> {
        let found = poll(|| async { self.log().contains(text) }).await;
        if !found {
            bail!("{text:?} is not in the log\n{}", self.process.log_tail());
        }
        Ok(())
    }

    /// Lines of the access log so far: `method`, `path`, `status`, `details`, `flags`, `attempts`
    /// and the filter's `result`.
    pub fn access_log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.scratch.path().join("access.log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the access log has `n` lines.
    pub async fn wait_access_log(&self, n: usize) -> Result<Vec<Value>> {
        if !poll(|| async { self.access_log().len() >= n }).await {
            bail!("the access log has {} of {n} lines", self.access_log().len());
        }
        Ok(self.access_log())
    }

    /// Asks the admin interface.
    pub async fn admin_call(&self, method: &str, target: &str) -> Result<Answer> {
        admin_call(self.admin, method, target).await
    }

    /// Counters and gauges whose name contains a text.
    pub async fn stats(&self, containing: &str) -> Result<BTreeMap<String, u64>> {
        let text = self.admin_call("GET", "/stats?usedonly").await?.text();
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        let named = pairs.filter(|(name, _)| name.contains(containing));
        Ok(named.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// One counter or gauge; 0 where it was never used.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.stats(name).await?.get(name).copied().unwrap_or(0))
    }

    /// Waits until a counter or gauge fulfils a condition.
    pub async fn wait_stat(&self, name: &str, condition: impl Fn(u64) -> bool) -> Result<()> {
        let reached = poll(|| async { self.stat(name).await.is_ok_and(&condition) }).await;
        if !reached {
            bail!("{name} is {}", self.stat(name).await?);
        }
        Ok(())
    }

    /// The running configuration.
    pub async fn config_dump(&self) -> Result<Value> {
        Ok(self.admin_call("GET", "/config_dump").await?.json())
    }

    /// Lets the listeners drain.
    pub async fn drain(&self) -> Result<()> {
        let answer = self.admin_call("POST", "/drain_listeners?graceful").await?;
        if answer.status != 200 {
            bail!("drain: {} {}", answer.status, answer.text());
        }
        Ok(())
    }

    /// Freezes it (SIGSTOP).
    pub fn freeze(&self) {
        self.process.signal(libc::SIGSTOP);
    }

    /// Lets a frozen Envoy go on.
    pub fn thaw(&self) {
        self.process.signal(libc::SIGCONT);
    }

    /// Asks it to stop (SIGTERM) and waits.
    pub async fn stop(self) -> Result<ExitStatus> {
        self.process.stop(libc::SIGTERM, STOP_WITHIN).await
    }

    /// Kills it.
    pub async fn kill(self) -> Result<ExitStatus> {
        self.process.stop(libc::SIGKILL, STOP_WITHIN).await
    }

    /// Waits for its end.
    pub async fn wait(&self) -> Result<ExitStatus> {
        self.process.wait().await
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}

async fn poll<F: Future<Output = bool>>(mut look: impl FnMut() -> F) -> bool {
    let deadline = Instant::now() + HAPPENS_WITHIN;
    loop {
        if look().await {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn admin_call(admin: SocketAddr, method: &str, target: &str) -> Result<Answer> {
    Call::new(method, target).within(Duration::from_secs(10)).send(admin).await
}

/// Waits for the admin address, for all listeners, then reads the proxy's address.
async fn ready(process: &Process, admin_file: &std::path::Path) -> Result<(SocketAddr, SocketAddr)> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(status) = process.exited() {
            bail!("Envoy ended: {status}\n{}", process.log_tail());
        }
        if Instant::now() > deadline {
            bail!("Envoy is not ready after {READY_WITHIN:?}\n{}", process.log_tail());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let written = std::fs::read_to_string(admin_file).unwrap_or_default();
        let Ok(admin) = written.trim().parse::<SocketAddr>() else { continue };
        let Ok(answer) = admin_call(admin, "GET", "/ready").await else { continue };
        if answer.status == 200 {
            let listeners = admin_call(admin, "GET", "/listeners?format=json").await?.json();
            return Ok((admin, listening(&listeners).with_context(|| process.log_tail())?));
        }
    }
}

fn listening(listeners: &Value) -> Result<SocketAddr> {
    let all = listeners.get("listener_statuses").and_then(Value::as_array);
    let ingress = all.into_iter().flatten().find(|one| one.get("name").is_some_and(|name| name == "ingress"));
    let addr = ingress.and_then(|one| one.pointer("/local_address/socket_address"));
    let addr = addr.ok_or_else(|| anyhow!("no listener `ingress` in {listeners}"))?;
    let ip = addr.get("address").and_then(Value::as_str).unwrap_or_default();
    let port = addr.get("port_value").and_then(Value::as_u64).unwrap_or_default();
    Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
}
