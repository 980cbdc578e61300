//! `fencepost-faults`: a random campaign for as long as one likes.

use anyhow::Result;
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// Breaks the real parts at random and checks that no promise breaks with them.
#[derive(Debug, Parser)]
#[command(name = "fencepost-faults", about)]
struct Options {
    /// Seed of the schedule; a new one each time unless given
    #[arg(long)]
    seed: Option<u64>,
    /// How long faults strike
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same in minutes, instead
    #[arg(long)]
    minutes: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<()> {
    let seconds = options.minutes.map_or(options.seconds, |minutes| minutes * 60);
    let seed = options.seed.unwrap_or_else(rand::random);
    let report = fencepost_faults::campaign::run(seed, Duration::from_secs(seconds)).await?;
    println!("{report:#?}");
    Ok(())
}
