//! Fuzz targets. Each takes any bytes and panics when a promise is broken; none needs anything
//! beside it but the service's HTTP, which is served in this process.
//!
//! Two drivers: `tests/smoke.rs` runs the corpus and seeded mutations of it on a stable compiler,
//! bounded, in CI; the workspace in `cargo-fuzz/` runs the same targets under libFuzzer, guided by
//! coverage. What they find becomes a file in `corpus/TARGET/`, and so a test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a target is a test

mod mutate;
mod target;

pub use mutate::Mutator;
pub use target::{ALL, Target, run};
