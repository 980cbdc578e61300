//! Temporary folders that are removed even when this process is killed.
//!
//! A folder is removed when its [`Scratch`] is dropped. Folders of statics are never dropped, and a
//! killed process drops nothing: so a small shell waits for the end of this process (its standard
//! input ends then) and removes what is left.

use crate::process::guard;
use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// A folder under the system's temporary folder.
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes a folder that other users can look into.
    pub fn new(name: &str) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::Builder::new().prefix(&format!("fencepost-{name}-")).tempdir()?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        remove_at_the_end(dir.path())?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes in a loop: a dying server may still write for a moment.
const JANITOR: &str = r#"
n=0
while IFS= read -r dir; do n=$((n+1)); eval "d$n=\$dir"; done
for try in 1 2 3 4 5 6 7 8 9 10; do
  left=0; i=0
  while [ $i -lt $n ]; do
    i=$((i+1)); eval "dir=\$d$i"
    if [ -e "$dir" ]; then rm -rf -- "$dir" 2>/dev/null; left=1; fi
  done
  [ $left = 0 ] && exit 0
  sleep 0.5
done
"#;

fn remove_at_the_end(dir: &Path) -> Result<()> {
    static JANITOR_INPUT: OnceLock<Mutex<Option<ChildStdin>>> = OnceLock::new();
    let mut input = guard(JANITOR_INPUT.get_or_init(Mutex::default));
    if input.is_none() {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(JANITOR).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal from the terminal must not end it before its work.
        let mut janitor = command.current_dir("/").process_group(0).spawn().context("start the janitor")?;
        *input = janitor.stdin.take();
    }
    if let Some(input) = input.as_mut() {
        writeln!(input, "{}", dir.display()).context("tell the janitor")?;
    }
    Ok(())
}
