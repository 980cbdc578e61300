//! `fencepost-bench`: measures Fencepost on one machine in one run, against what else would do the
//! job there. `docs/performance.md` explains every figure.
//!
//! Nothing here is a test: a figure that misses its goal is printed, and the run goes on.

mod admissions;
mod allocations;
mod bed;
mod claims;
mod curves;
mod documents;
mod entries;
mod envoys;
mod exchange;
mod fingerprint;
mod frames;
mod http;
mod instructions;
#[path = "../wasm/src/kernel.rs"]
mod kernel;
mod load;
mod machine;
mod memory;
mod peers;
mod proxy;
mod random;
#[cfg(test)]
mod same;
mod samples;
mod seal;
mod summary;
mod upstream;
mod waiters;

use anyhow::Result;
use clap::{Args, Parser, ValueEnum};
use instructions::Counted;
use std::path::PathBuf;
use std::time::Duration;
use summary::Summary;

#[global_allocator]
static ALLOCATOR: allocations::Counted = allocations::Counted;

#[derive(Debug, Parser)]
#[command(about = "Measures Fencepost against what else would do the job, on this machine")]
struct Cli {
    /// What to measure.
    #[arg(value_enum, default_value = "all")]
    areas: Vec<Area>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Area {
    All,
    Fingerprint,
    Claims,
    Admissions,
    Waiters,
    Envoy,
    Memory,
    Instructions,
    Peers,
    Seal,
}

#[derive(Debug, Clone, Args)]
struct Options {
    /// Where the figures go, as JSON.
    #[arg(long, default_value = "target/bench/summary.json")]
    summary: PathBuf,
    /// The fingerprint as a wasm module.
    #[arg(long, default_value = "target/wasm32-wasip1/wasm/fencepost_bench_wasm.wasm")]
    fingerprint_wasm: PathBuf,
    /// Filters that do less than ours, as a wasm module.
    #[arg(long, default_value = "target/wasm32-wasip1/wasm/fencepost_bench_noop.wasm")]
    noop_wasm: PathBuf,
    /// Rounds of which the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each timed run.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Measures the peers as well: installs them with pip.
    #[arg(long)]
    peers: bool,
    /// Where the peers are installed.
    #[arg(long, default_value = "target/bench/peers")]
    peers_folder: PathBuf,
    /// Entries in the large table.
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Requests whose memory is watched.
    #[arg(long, default_value_t = 60_000)]
    requests: usize,
    /// Callers that wait at once.
    #[arg(long, default_value_t = 10_000)]
    parked: usize,
    /// Runs one kernel and nothing else: for callgrind.
    #[arg(long, hide = true, value_enum)]
    repeat: Option<Counted>,
    /// How often.
    #[arg(long, hide = true, default_value_t = 1)]
    repeats: u32,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(counted) = cli.options.repeat {
        return instructions::repeat(counted, cli.options.repeats);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(cli))
}

async fn run(cli: Cli) -> Result<()> {
    let mut summary = Summary::default();
    let result = measure(&cli, &mut summary).await;
    // What was measured before an error is worth keeping.
    summary.print();
    summary.write(&cli.options.summary)?;
    println!("written to {}", cli.options.summary.display());
    result
}

async fn measure(cli: &Cli, summary: &mut Summary) -> Result<()> {
    let options = &cli.options;
    let wanted = |area: Area| cli.areas.iter().any(|wanted| *wanted == Area::All || *wanted == area);
    println!("{}", summary::head());
    machine::run(summary);
    if wanted(Area::Fingerprint) {
        let budget = Duration::from_millis(500);
        fingerprint::run(summary, &options.fingerprint_wasm, budget)?;
    }
    let effort = claims::Effort { rounds: options.rounds.max(1), seconds: options.seconds.max(1) };
    if wanted(Area::Instructions) {
        instructions::run(summary)?;
    }
    if wanted(Area::Seal) {
        seal::run(summary, Duration::from_secs(1))?;
    }
    if [Area::Claims, Area::Admissions, Area::Waiters, Area::Envoy, Area::Memory, Area::Peers]
        .into_iter()
        .any(wanted)
    {
        let server = bed::postgres().await?;
        if wanted(Area::Claims) {
            claims::run(summary, &server, effort).await?;
        }
        if wanted(Area::Admissions) {
            admissions::run(summary, &server, effort).await?;
        }
        if wanted(Area::Waiters) {
            waiters::run(summary, &server, effort.rounds).await?;
        }
        if wanted(Area::Envoy) {
            let slice = Duration::from_millis(u64::from(effort.seconds) * 300);
            let effort = proxy::Effort { rounds: effort.rounds, slice };
            proxy::run(summary, &server, &options.noop_wasm, effort).await?;
        }
        if wanted(Area::Memory) {
            let effort = memory::Effort {
                requests: options.requests,
                entries: options.entries,
                parked: options.parked,
                rounds: effort.rounds,
            };
            memory::run(summary, &server, effort).await?;
        }
        if options.peers || cli.areas.contains(&Area::Peers) {
            let slice = Duration::from_millis(u64::from(effort.seconds) * 500);
            peers::run(summary, &server, &options.peers_folder, effort.rounds, slice).await?;
        } else if wanted(Area::Peers) {
            summary.skip("peers/fastapi_idempotency", "not asked for: --peers");
        }
    }
    Ok(())
}
