//! The rig's own runtime: parts that live in this process must outlive the runtime of one test.

use anyhow::{Context, Result};
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle, Runtime};

/// A handle to it.
pub(crate) fn handle() -> Result<Handle> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let make = || Builder::new_multi_thread().worker_threads(2).thread_name("rig").enable_all().build();
    match RUNTIME.get_or_init(make) {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(error) => Err(anyhow::anyhow!("{error}")).context("start the rig's runtime"),
    }
}
