//! `fencepost-rig`: installs the tools, shows the demo, keeps a stack up.

mod demo;
mod up;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Starts the real parts around Fencepost on this machine.
#[derive(Debug, Parser)]
#[command(name = "fencepost-rig", about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install Envoy, PostgreSQL and the filter's Rust target, once
    Tools,
    /// Send real requests through Envoy and show what happened to them
    Demo,
    /// Keep the whole stack running until it is stopped
    Up(up::Options),
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(Cli::parse().command)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Tools => fencepost_rig::tools::install().map(|()| ExitCode::SUCCESS),
        Command::Demo => demo::run().await,
        Command::Up(options) => up::run(options).await,
    }
}
