//! A child process that never outlives this one.
//!
//! Linux can send a signal to a child when its parent dies, but "parent" there is the *thread* that
//! started the child: a test thread ends long before its process. So every child is started by one
//! thread that lives as long as the process. A child that changes its user loses the setting, which
//! is why it is made after the change (the standard library runs `pre_exec` last).
//!
//! Race: a signal by process id could hit a stranger once the child was reaped and its id reused.
//! [`Process::signal`] and the reaper take the same lock, and nothing is sent after reaping.

use anyhow::{Context, Result, anyhow};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::watch;

/// Bytes of a log shown when a part fails.
const LOG_TAIL_BYTES: usize = 6_000;

/// How a child is started.
pub struct Start {
    /// What to run; its standard input and error are set by [`Process::start`].
    pub command: Command,
    /// File that receives standard error, and standard output unless it is read.
    pub log: PathBuf,
    /// Whether the caller reads standard output.
    pub read_stdout: bool,
    /// Signal the child gets when this process dies.
    pub death_signal: i32,
}

/// A running or ended child. Dropping it kills it.
pub struct Process {
    pid: i32,
    log: PathBuf,
    reaped: Arc<Mutex<bool>>,
    ended: watch::Receiver<Option<ExitStatus>>,
}

impl Process {
    /// Starts a child. The second value is its standard output where that was asked for.
    pub fn start(start: Start) -> Result<(Self, Option<std::process::ChildStdout>)> {
        let Start { mut command, log, read_stdout, death_signal } = start;
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log).context("open log")?;
        command.stdin(Stdio::null()).stderr(file.try_clone().context("share log")?);
        command.stdout(if read_stdout { Stdio::piped() } else { Stdio::from(file) });
        // A signal from the terminal goes to us; we end the children in order.
        command.process_group(0);
        die_with_parent(&mut command, death_signal);
        let what = command.get_program().to_string_lossy().into_owned();
        let mut child = spawn(command).with_context(|| format!("start {what}"))?;
        let stdout = child.stdout.take();
        let pid = i32::try_from(child.id()).context("process id")?;
        let reaped = Arc::new(Mutex::new(false));
        let (tell, ended) = watch::channel(None);
        let lock = Arc::clone(&reaped);
        std::thread::Builder::new().name(format!("reap-{pid}")).spawn(move || reap(child, &lock, &tell))?;
        Ok((Self { pid, log, reaped, ended }, stdout))
    }

    /// Process id; may belong to a stranger once the child has ended.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// File with what the child wrote.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Exit status, if it has ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        *self.ended.borrow()
    }

    /// Sends a signal. Nothing happens after the child's end.
    pub fn signal(&self, signal: i32) {
        let reaped = guard(&self.reaped);
        if !*reaped {
            // SAFETY: plain system call; the id is still ours because the child is not reaped.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Waits for the end.
    pub async fn wait(&self) -> Result<ExitStatus> {
        let mut ended = self.ended.clone();
        let status = ended.wait_for(Option::is_some).await.context("reaper is gone")?;
        status.ok_or_else(|| anyhow!("no exit status"))
    }

    /// A view of its end that lives on without it.
    pub fn ended(&self) -> watch::Receiver<Option<ExitStatus>> {
        self.ended.clone()
    }

    /// Sends `signal` and waits for the end; kills the child after `patience`.
    pub async fn stop(&self, signal: i32, patience: Duration) -> Result<ExitStatus> {
        // A stopped process handles no signal but SIGKILL.
        self.signal(signal);
        self.signal(libc::SIGCONT);
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(status) => status,
            Err(_) => {
                self.signal(libc::SIGKILL);
                self.wait().await
            }
        }
    }

    /// The end of the log, for messages.
    pub fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
    }
}

/// The end of a log file, for messages.
pub fn log_tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let tail = bytes.get(bytes.len().saturating_sub(LOG_TAIL_BYTES)..).unwrap_or_default();
    format!("--- end of {} ---\n{}", log.display(), String::from_utf8_lossy(tail))
}

/// Children of a process, by the kernel's table.
pub fn children_of(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Whether a process has ended; one that nobody has reaped yet counts as ended.
pub fn is_gone(pid: i32) -> bool {
    stat_field(pid, 0).is_none_or(|state| state == "Z" || state == "X")
}

fn parent_of(pid: i32) -> Option<i32> {
    stat_field(pid, 1)?.parse().ok()
}

/// A field of the kernel's line about a process, counted from its state.
fn stat_field(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything, brackets too.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(field).map(str::to_owned)
}

fn die_with_parent(command: &mut Command, signal: i32) {
    // SAFETY: plain system call.
    let parent = unsafe { libc::getpid() };
    let arm = move || {
        // SAFETY: async-signal-safe system calls only, between fork and exec.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, signal) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the setting was made.
            if libc::getppid() != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(arm) };
}

type Job = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a command on the thread that lives as long as this process.
pub(crate) fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (give, jobs) = mpsc::channel::<Job>();
        let work = move || {
            for (mut command, answer) in jobs {
                let _ = answer.send(command.spawn());
            }
        };
        // A failure shows as a closed channel at the first use.
        let _ = std::thread::Builder::new().name("spawner".into()).spawn(work);
        Mutex::new(give)
    });
    let (answer, child) = mpsc::channel();
    guard(spawner).send((command, answer)).map_err(|_| anyhow!("the spawning thread is gone"))?;
    Ok(child.recv().context("the spawning thread is gone")??)
}

/// Waits for the end without reaping, then reaps under the lock that signals take.
fn reap(mut child: Child, reaped: &Mutex<bool>, tell: &watch::Sender<Option<ExitStatus>>) {
    loop {
        // SAFETY: an all-zero siginfo_t is a valid value, and the call only writes to it.
        let result = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        if result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            break;
        }
    }
    let mut reaped = guard(reaped);
    let status = child.wait().ok();
    *reaped = true;
    tell.send_replace(status);
}

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
