//! A PostgreSQL whose tables, or whose log of writes, are on a small disk of their own, to be filled
//! by a test.
//!
//! The disk is memory, mounted in a mount namespace that a process of its own holds, so that the disk
//! is still there when the server has ended and starts again. Nobody else sees it, and it goes with
//! the last process in the namespace, however that ends.
//!
//! Needs root and the right to mount.

use crate::postgres::{NOBODY, Postgres, plain_environment};
use crate::process::{Process, Start};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is on the small disk, and the disk's size in MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallDisk {
    /// The tables.
    Tables(u32),
    /// The log of writes (`pg_wal`).
    Log(u32),
}

impl SmallDisk {
    fn size_mib(self) -> u32 {
        match self {
            Self::Tables(mib) | Self::Log(mib) => mib,
        }
    }

    /// The part of the server's data that is moved onto it.
    fn part(self) -> &'static str {
        match self {
            Self::Tables(_) => "base",
            Self::Log(_) => "pg_wal",
        }
    }
}

/// Mounts, moves the part of the data, says so, and keeps the namespace. The arguments: folder, MiB,
/// part, user.
const HOLD: &str = r#"
set -e
folder=$1 size=$2 part=$3 user=$4
mkdir "$folder/disk"
mount -t tmpfs -o "size=${size}m,mode=0700,uid=$user,gid=$user" tmpfs "$folder/disk"
cp -a "$folder/data/$part/." "$folder/disk/"
mount --bind "$folder/disk" "$folder/data/$part"
echo mounted
exec sleep infinity
"#;

/// Whether this process may mount in a namespace of its own.
pub fn is_possible() -> bool {
    let mount = "mount -t tmpfs -o size=1m tmpfs /mnt";
    let tried = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", mount])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Mounts the disk; it is there as long as the process that is returned.
pub(crate) async fn hold(disk: SmallDisk, folder: &Path) -> Result<Process> {
    let mut command = tool("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", HOLD, "hold"]);
    command.arg(folder).arg(disk.size_mib().to_string()).arg(disk.part()).arg(NOBODY.to_string());
    let log = folder.join("disk.log");
    let start = Start { command, log, read_stdout: true, death_signal: libc::SIGKILL };
    let (holder, stdout) = Process::start(start)?;
    let stdout = stdout.context("its output is read")?;
    let said = tokio::task::spawn_blocking(move || BufReader::new(stdout).lines().next()).await?;
    match said {
        Some(Ok(line)) if line == "mounted" => Ok(holder),
        other => bail!("the disk is not mounted: {other:?}\n{}", holder.log_tail()),
    }
}

/// A command that becomes the server, in the namespace of the disk.
pub(crate) fn server(postgres: &Path, holder: &Process) -> Command {
    let mut command = tool("nsenter");
    command.arg(format!("--mount=/proc/{}/ns/mnt", holder.pid()));
    command.arg("setpriv").arg(format!("--reuid={NOBODY}")).arg(format!("--regid={NOBODY}"));
    command.args(["--clear-groups", "--pdeathsig", "QUIT"]).arg(postgres);
    command
}

fn tool(name: &str) -> Command {
    let mut command = plain_environment(Command::new(name));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

impl Postgres {
    /// Fills its small disk.
    pub fn fill_disk(&self) -> Result<()> {
        let mut ballast = std::fs::File::create(self.ballast()?).context("make the ballast")?;
        let piece = vec![0x5A; 64 * 1024];
        for size in [piece.len(), 4_096] {
            while let Some(piece) = piece.get(..size) {
                match ballast.write_all(piece) {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("fill the disk"),
                }
            }
        }
        Ok(())
    }

    /// Makes room again.
    pub fn free_disk(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()?).context("remove the ballast")
    }

    /// A file on the disk, by the way into the holder's view of the file system.
    fn ballast(&self) -> Result<PathBuf> {
        let holder = self.disk_holder().context("the server has no small disk")?;
        let folder = self.folder().strip_prefix("/").context("a folder from the root")?;
        Ok(PathBuf::from(format!("/proc/{}/root", holder.pid())).join(folder).join("disk/ballast"))
    }
}
