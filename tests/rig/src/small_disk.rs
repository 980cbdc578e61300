//! A PostgreSQL whose tables are on a small disk of their own, to be filled by a test.
//!
//! The disk is memory, mounted in a mount namespace of the server's process alone: nobody else sees
//! it, and it goes with the last process of the server, however that ends. The server's log of
//! writes stays on the ordinary disk: a full disk for that one stops PostgreSQL as a whole, which is
//! the outage that killing it shows as well.
//!
//! Needs root and the right to mount.

use crate::postgres::{NOBODY, Postgres, plain_environment};
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Mounts, moves the tables, and becomes the server. `$0` the folder, `$1` MiB, then the command.
const PREPARE: &str = r#"
set -e
folder=$1 size=$2 user=$3
shift 3
mkdir "$folder/disk"
mount -t tmpfs -o "size=${size}m,mode=0700,uid=$user,gid=$user" tmpfs "$folder/disk"
cp -a "$folder/data/base/." "$folder/disk/"
mount --bind "$folder/disk" "$folder/data/base"
exec setpriv --reuid="$user" --regid="$user" --clear-groups --pdeathsig QUIT "$@"
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

pub(crate) fn server(postgres: &Path, folder: &Path, mib: u32) -> Command {
    let mut command = plain_environment(Command::new("unshare"));
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.args(["--mount", "--propagation", "private", "sh", "-c", PREPARE, "prepare"]);
    command.arg(folder).arg(mib.to_string()).arg(NOBODY.to_string()).arg(postgres);
    command
}

impl Postgres {
    /// Fills the disk of its tables.
    pub fn fill_table_disk(&self) -> Result<()> {
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
    pub fn free_table_disk(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()?).context("remove the ballast")
    }

    /// A file on the disk, by the way into the server's own view of the file system.
    fn ballast(&self) -> Result<PathBuf> {
        let Some(pid) = self.pid() else { bail!("the server does not run") };
        let folder = self.folder().strip_prefix("/").context("a folder from the root")?;
        Ok(PathBuf::from(format!("/proc/{pid}/root")).join(folder).join("disk/ballast"))
    }
}
