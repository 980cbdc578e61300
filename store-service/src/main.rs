//! `fencepost-store`: see `fencepost-store --help`.

use clap::Parser;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match fencepost_store::cli::Cli::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fencepost-store: {error}");
            ExitCode::from(2)
        }
    }
}
