//! Instructions, counted by callgrind: the same number on a busy machine, so that a regression
//! shows where times would drown it.
//!
//! The program runs itself twice with different numbers of repeats; the difference is what the
//! repeats cost, without the start of the process.

use crate::exchange::guarded_exchange;
use crate::kernel::{Kernel, hash};
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::hint::black_box;
use std::process::Command;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Counted {
    /// SHA-256 of the body.
    Hash,
    /// The fingerprint of a canonical body.
    Fingerprint,
    /// The fingerprint of a reordered body.
    Reordered,
    /// A guarded request from its body to its end.
    Exchange,
}

const SIZE: usize = 1 << 10;

/// Repeats something.
pub fn repeat(counted: Counted, count: u32) -> Result<()> {
    let kernel = Kernel::new().context("the default policy does not compile")?;
    let canonical = crate::documents::canonical(SIZE);
    let reordered = crate::documents::reordered(SIZE);
    for _ in 0..count {
        match counted {
            Counted::Hash => drop(black_box(hash(black_box(canonical.as_bytes())).to_vec())),
            Counted::Fingerprint => {
                drop(black_box(kernel.fingerprint(black_box(canonical.as_bytes())).to_vec()))
            }
            Counted::Reordered => {
                drop(black_box(kernel.fingerprint(black_box(reordered.as_bytes())).to_vec()))
            }
            Counted::Exchange => guarded_exchange(canonical.as_bytes())?,
        }
    }
    Ok(())
}

/// Measures everything.
pub fn run(summary: &mut Summary) -> Result<()> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|found| found.status.success()) {
        summary.skip("instructions", "no valgrind");
        return Ok(());
    }
    let base = each(Counted::Hash)?;
    summary.add("instructions/hash/1KiB", base, "", None, Goal::None);
    for (name, counted) in [
        ("fingerprint_canonical", Counted::Fingerprint),
        ("fingerprint_reordered", Counted::Reordered),
        ("guarded_exchange", Counted::Exchange),
    ] {
        let compared = Some(("SHA-256 of the body", base));
        summary.add(&format!("instructions/{name}/1KiB"), each(counted)?, "", compared, Goal::None);
    }
    Ok(())
}

fn each(counted: Counted) -> Result<f64> {
    let (few, many) = (100, 400);
    Ok((count(counted, many)? - count(counted, few)?) / f64::from(many - few))
}

fn count(counted: Counted, repeats: u32) -> Result<f64> {
    let name = counted.to_possible_value().context("no name")?.get_name().to_owned();
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["--repeat", &name, "--repeats", &repeats.to_string()])
        .output()
        .context("run valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse().ok());
    match collected {
        Some(collected) if output.status.success() => Ok(collected),
        _ => bail!("valgrind: {text}"),
    }
}
