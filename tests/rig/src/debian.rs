//! Programs out of Debian's packages, unpacked under the tools' folder and not installed: nothing
//! of the machine changes, no daemon starts, and no rights are needed. Only tests use them.

use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program and the package that it is in, the same in Debian and Ubuntu.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The package.
    pub package: &'static str,
}

/// Checks the model of the protocol. Needs a C compiler.
pub const SPIN: Program = Program { name: "spin", package: "spin" };

/// Checks rules for Prometheus.
pub const PROMTOOL: Program = Program { name: "promtool", package: "prometheus" };

/// All of them.
pub const ALL: [Program; 2] = [SPIN, PROMTOOL];

impl Program {
    /// Where it is: on the path, or unpacked.
    pub fn find(self) -> Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let unpacked = folder().join("usr/bin");
        let mut folders = std::env::split_paths(&path).chain([unpacked]);
        folders.find_map(|folder| Some(folder.join(self.name)).filter(|file| file.is_file())).with_context(
            || {
                format!(
                    "{} is not there: run `make tools` on Debian or Ubuntu, or install what your system \
                     calls their package {}",
                    self.name, self.package
                )
            },
        )
    }
}

/// The library that steps the clock of a process: the system's, or unpacked.
pub fn libfaketime() -> Result<PathBuf> {
    let below = |root: PathBuf| {
        let libraries = std::fs::read_dir(root.join("usr/lib")).into_iter().flatten().flatten();
        libraries.map(|one| one.path().join("faketime/libfaketime.so.1")).find(|file| file.is_file())
    };
    below(PathBuf::from("/")).or_else(|| below(folder())).with_context(|| {
        format!("libfaketime is not there: run `make tools` on Debian or Ubuntu, or install {LIBFAKETIME}")
    })
}

/// The package that it is in.
const LIBFAKETIME: &str = "libfaketime";

/// Unpacks what is missing. A machine without apt-get is told what it lacks; the rest works there.
pub fn unpack_missing() {
    if libfaketime().is_err() {
        eprintln!("tools: unpacking {LIBFAKETIME} ...");
        if let Err(error) = unpack(LIBFAKETIME) {
            eprintln!("tools: {LIBFAKETIME} is missing ({error:#}); a test of clocks needs it");
        }
    }
    for program in ALL.into_iter().filter(|program| program.find().is_err()) {
        eprintln!("tools: unpacking {} of the package {} ...", program.name, program.package);
        if let Err(error) = unpack(program.package) {
            eprintln!("tools: {} is missing ({error:#}); some tests need it", program.name);
        }
    }
}

fn folder() -> PathBuf {
    tools::folder().join("debian")
}

fn unpack(package: &str) -> Result<()> {
    let part = tools::folder().join("debian.part");
    let _ = std::fs::remove_dir_all(&part);
    std::fs::create_dir_all(&part)?;
    let download = |part: &Path| run(Command::new("apt-get").args(["download", package]).current_dir(part));
    if let Err(error) = download(&part) {
        // The lists of a fresh machine may be empty; only root may fetch them.
        run(Command::new("apt-get").args(["update", "-qq"])).map_err(|_| error)?;
        download(&part)?;
    }
    for file in std::fs::read_dir(&part)? {
        run(Command::new("dpkg-deb").arg("-x").arg(file?.path()).arg(folder()))?;
    }
    std::fs::remove_dir_all(&part)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let Output { status, stderr, .. } =
        command.output().with_context(|| format!("run {}", command.get_program().to_string_lossy()))?;
    if !status.success() {
        let last = String::from_utf8_lossy(&stderr).trim().lines().last().unwrap_or_default().to_owned();
        bail!("{}: {last}", command.get_program().to_string_lossy());
    }
    Ok(())
}
