//! The fingerprint against the bare hash and a value tree, native and in V8.
//!
//! Ratios are taken per round, in which all kernels take turns, and the median round counts: what
//! disturbs the machine for a moment disturbs all of them.

use crate::allocations;
use crate::documents::{self, SCALE, SIZES};
use crate::kernel::{Kernel, hash, tree};
use crate::samples::median;
use crate::summary::{Goal, Summary};
use anyhow::{Context, Result, bail};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::tools;
use serde::Deserialize;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// At most this many times the bare hash of the same bytes, for canonical bodies.
const RATIO_MAX: f64 = 2.5;

/// Growth of the time per byte from the smallest to the largest hostile body.
const GROWTH_MAX: f64 = 2.0;

const ROUNDS: usize = 9;

/// Nanoseconds of one run, one number per round.
#[derive(Debug, Deserialize)]
struct Times {
    name: String,
    bytes: usize,
    hash: Vec<f64>,
    fingerprint: Vec<f64>,
    tree: Vec<f64>,
    digest: String,
    #[serde(default)]
    memory_bytes: f64,
}

/// Measures everything.
pub fn run(summary: &mut Summary, wasm: &Path, budget: Duration) -> Result<()> {
    keep_freed_memory();
    let kernel = Kernel::new().context("the default policy does not compile")?;
    let usual = usual();
    let hostile = hostile();
    let native: Vec<_> = usual.iter().map(|(name, body)| native(&kernel, name, body, budget)).collect();
    report_usual(summary, "native", &native);
    let scale: Vec<_> =
        hostile.iter().map(|(name, body)| native_one(&kernel, name, body, budget / 4)).collect();
    report_hostile(summary, "native", &scale);
    report_allocations(summary, &kernel);
    match in_v8(wasm, &usual, budget)? {
        Ok(times) => {
            report_usual(summary, "v8", &times);
            for (ours, theirs) in native.iter().zip(&times) {
                if ours.digest != theirs.digest {
                    bail!("{}: native and wasm make different fingerprints", ours.name);
                }
            }
            if let Ok(times) = in_v8(wasm, &hostile, budget / 2)? {
                report_hostile(summary, "v8", &times);
                let most = times.iter().map(|times| times.memory_bytes).fold(0.0, f64::max);
                summary.add(
                    "fingerprint/v8/linear_memory_after_all",
                    most / 1048576.0,
                    "MiB",
                    None,
                    Goal::None,
                );
            }
        }
        Err(why) => summary.skip("fingerprint/v8", &why),
    }
    Ok(())
}

/// From here on the C library keeps freed blocks up to this size, as a wasm module's memory does: else a
/// large table is taken from the system and given back for each fingerprint, and what is measured is
/// page faults. (glibc raises its thresholds when a block that it had mapped is freed.)
fn keep_freed_memory() {
    drop(black_box(vec![1_u8; 31 << 20]));
}

/// Something that makes 32 bytes.
type Kernel32<'a> = &'a dyn Fn() -> [u8; 32];

type Bodies = Vec<(String, String)>;

fn usual() -> Bodies {
    let mut bodies = Vec::new();
    for (at, (size_name, size)) in SIZES.into_iter().enumerate() {
        for (spelling, make) in [
            ("canonical", documents::canonical as fn(usize) -> String),
            ("reordered", documents::reordered),
            ("pretty", documents::pretty),
        ] {
            // The number keeps the order of the folder's listing.
            bodies.push((format!("{at}_{spelling}_{size_name}"), make(size)));
        }
    }
    bodies
}

fn hostile() -> Bodies {
    let of_size = |(at, (size_name, size)): (usize, (&str, usize))| {
        let named = move |(kind, body)| (format!("{at}_{kind}_{size_name}"), body);
        documents::hostile(size).into_iter().map(named).collect::<Vec<_>>()
    };
    SCALE.into_iter().enumerate().flat_map(of_size).collect()
}

fn native(kernel: &Kernel, name: &str, body: &str, budget: Duration) -> Times {
    let body = body.as_bytes();
    let slice = budget / (3 * ROUNDS as u32);
    let runs: [Kernel32<'_>; 3] =
        [&|| hash(black_box(body)), &|| kernel.fingerprint(black_box(body)), &|| tree(black_box(body))];
    let [hash, fingerprint, tree] = take_turns(runs, slice);
    let digest = hex(&kernel.fingerprint(body));
    Times { name: name.to_owned(), bytes: body.len(), hash, fingerprint, tree, digest, memory_bytes: 0.0 }
}

/// Without the value tree, which would take long for these bodies and says nothing here.
fn native_one(kernel: &Kernel, name: &str, body: &str, budget: Duration) -> Times {
    let body = body.as_bytes();
    let runs: [Kernel32<'_>; 2] = [&|| hash(black_box(body)), &|| kernel.fingerprint(black_box(body))];
    let [hash, fingerprint] = take_turns(runs, budget / (2 * ROUNDS as u32));
    let (tree, digest) = (Vec::new(), String::new());
    Times { name: name.to_owned(), bytes: body.len(), hash, fingerprint, tree, digest, memory_bytes: 0.0 }
}

fn take_turns<const N: usize>(runs: [Kernel32<'_>; N], slice: Duration) -> [Vec<f64>; N] {
    let time = |run: Kernel32<'_>, count: u32| {
        let start = Instant::now();
        for _ in 0..count {
            black_box(run());
        }
        start.elapsed()
    };
    let counts = runs.map(|run| {
        let mut count = 1;
        while time(run, count) < slice && count < 1 << 24 {
            count *= 2;
        }
        count
    });
    let mut times = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for ((run, count), times) in runs.iter().zip(counts).zip(&mut times) {
            times.push(time(run, count).as_nanos() as f64 / f64::from(count));
        }
    }
    times
}

fn in_v8(wasm: &Path, bodies: &Bodies, budget: Duration) -> Result<Result<Vec<Times>, String>> {
    if !wasm.is_file() {
        return Ok(Err(format!("{} is not there", wasm.display())));
    }
    if !Command::new("node").arg("--version").output().is_ok_and(|node| node.status.success()) {
        return Ok(Err("no node".into()));
    }
    let folder = Scratch::new("bench-bodies")?;
    for (name, body) in bodies {
        std::fs::write(folder.path().join(name), body)?;
    }
    let script: PathBuf = tools::repository().join("tests/bench/js/fingerprint.mjs");
    let node = Command::new("node")
        .arg(script)
        .arg(wasm)
        .arg(folder.path())
        .arg(budget.as_millis().to_string())
        .output()
        .context("run node")?;
    if !node.status.success() {
        bail!("node: {}", String::from_utf8_lossy(&node.stderr));
    }
    let text = String::from_utf8(node.stdout)?;
    let times: Result<Vec<Times>, _> = text.lines().map(serde_json::from_str).collect();
    let mut times = times?;
    // In the order of the bodies, not of the folder.
    times.sort_by_key(|times| bodies.iter().position(|(name, _)| *name == times.name));
    Ok(Ok(times))
}

fn report_usual(summary: &mut Summary, runtime: &str, all: &[Times]) {
    for times in all {
        let label = times.name.split_once('_').map_or("", |(_, label)| label).replace('_', "/");
        let goal = if label.starts_with("canonical") { Goal::RatioAtMost(RATIO_MAX) } else { Goal::None };
        let name = format!("fingerprint/{runtime}/{label}");
        let ratio = median_ratio(&times.fingerprint, &times.hash);
        let value = median(&times.fingerprint) / 1e3;
        summary.add_ratio(&name, value, "us", "SHA-256 of the same bytes", Some(ratio), goal);
        let tree = median_ratio(&times.tree, &times.fingerprint);
        let name = format!("{name}/value_tree");
        summary.add_ratio(&name, median(&times.tree) / 1e3, "us", "the fingerprint", Some(tree), Goal::None);
    }
}

fn report_hostile(summary: &mut Summary, runtime: &str, all: &[Times]) {
    let parsed = |times: &Times| {
        let (_, label) = times.name.split_once('_')?;
        let (kind, size) = label.rsplit_once('_')?;
        Some((kind.to_owned(), size.to_owned()))
    };
    let mut firsts: Vec<(String, f64)> = Vec::new();
    for times in all {
        let Some((kind, size)) = parsed(times) else { continue };
        let per_byte = median(&times.fingerprint) / times.bytes as f64;
        let first = firsts.iter().find(|(first, _)| *first == kind).map(|(_, first)| *first);
        if first.is_none() {
            firsts.push((kind.clone(), per_byte));
        }
        let goal = if first.is_some() { Goal::RatioAtMost(GROWTH_MAX) } else { Goal::None };
        let compared = first.map(|first| ("time per byte of the smallest", first));
        summary.add(
            &format!("fingerprint/{runtime}/hostile/{kind}/{size}"),
            per_byte,
            "ns/B",
            compared,
            goal,
        );
    }
}

/// One table of spans may grow with the body, and nothing else: few allocations, whatever is in it.
fn report_allocations(summary: &mut Summary, kernel: &Kernel) {
    for (size_name, size) in SIZES {
        for (spelling, body) in
            [("canonical", documents::canonical(size)), ("reordered", documents::reordered(size))]
        {
            let count = |run: Kernel32<'_>| {
                let before = allocations::count();
                black_box(run());
                (allocations::count() - before) as f64
            };
            let ours = count(&|| kernel.fingerprint(body.as_bytes()));
            let theirs = count(&|| tree(body.as_bytes()));
            let name = format!("fingerprint/native/allocations/{spelling}/{size_name}");
            summary.add(&name, ours, "", Some(("a value tree", theirs)), Goal::None);
        }
    }
}

fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
