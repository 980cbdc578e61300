//! `fencepost-store reseal` and `seal status`: how stored answers are sealed, and sealing them anew.
//! They work on the database itself; on SQLite the service has to be stopped.

use super::terminal::{End, Output, ended, print};
use crate::cli::open_store;
use crate::seal::{Counts, KeyRing, Progress, Seal, SealStore, Table, count, renew};
use crate::store::{StoreError, StoreUrl};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Where, and how to print.
#[derive(Debug, Args)]
struct Place {
    /// Where entries are kept: sqlite:PATH, or postgres://USER@HOST/DATABASE.
    #[arg(long, env = "FENCEPOST_STORE", default_value = "sqlite:fencepost.sqlite", value_name = "URL")]
    store: StoreUrl,

    /// How to print.
    #[arg(long, value_enum, default_value = "table")]
    output: Output,
}

/// `fencepost-store reseal`
#[derive(Debug, Args)]
pub struct Reseal {
    #[command(flatten)]
    place: Place,

    /// The keys: the first seals, all of them open.
    #[arg(long, env = "FENCEPOST_SEAL_KEYS", value_name = "FILE")]
    seal_keys: PathBuf,
}

/// `fencepost-store seal`
#[derive(Debug, Args)]
pub struct SealCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count stored answers by the key that they are sealed with.
    Status(Status),
}

#[derive(Debug, Args)]
struct Status {
    #[command(flatten)]
    place: Place,
}

/// How many answers are sealed with which key.
#[derive(Debug, Serialize)]
struct StatusView {
    /// Sealed, by key id.
    keys: BTreeMap<String, TableCounts>,
    /// Not sealed.
    open: TableCounts,
    /// Sealed in a form that this version does not know.
    unreadable: TableCounts,
    /// Ids that an answer may be sealed with, as far as a start has to know.
    listed: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct TableCounts {
    entries: u64,
    operations: u64,
}

/// What a renewal did.
#[derive(Debug, Serialize)]
struct ResealView {
    looked: u64,
    sealed: u64,
    passed: u64,
    failed: u64,
    status: StatusView,
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Setting(error.to_string())
    }
}

async fn keeper(place: &Place) -> Result<Arc<dyn SealStore>, End> {
    let store = open_store(&place.store).await.map_err(|error| error.to_string())?;
    let keeper = store.seals();
    keeper.ok_or_else(|| End::Setting(format!("--store {}: nothing is left there to look at", place.store)))
}

async fn status(keeper: &dyn SealStore) -> Result<StatusView, End> {
    let (entries, operations) =
        (count(keeper, Table::Entries).await?, count(keeper, Table::Operations).await?);
    let both = |of: fn(&Counts) -> u64| TableCounts { entries: of(&entries), operations: of(&operations) };
    let ids = entries.keys.keys().chain(operations.keys.keys());
    let of_key = |id| TableCounts { entries: entries.with(id), operations: operations.with(id) };
    Ok(StatusView {
        keys: ids.map(|id| (id.to_string(), of_key(id))).collect(),
        open: both(|counts| counts.open),
        unreadable: both(|counts| counts.unreadable),
        listed: keeper.keys().await?,
    })
}

fn shown(view: &StatusView) -> String {
    let mut text = format!("{:<18} {:>12} {:>12}\n", "KEY", "ENTRIES", "OPERATIONS");
    let mut row = |name: &str, counts: &TableCounts| {
        text.push_str(&format!("{name:<18} {:>12} {:>12}\n", counts.entries, counts.operations));
    };
    for id in &view.listed {
        if !view.keys.contains_key(id) {
            row(id, &TableCounts::default());
        }
    }
    for (id, counts) in &view.keys {
        row(id, counts);
    }
    row("(not sealed)", &view.open);
    if view.unreadable.entries + view.unreadable.operations > 0 {
        row("(unknown form)", &view.unreadable);
    }
    text
}

impl SealCommand {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        let Command::Status(command) = self.command;
        let run = async {
            let keeper = keeper(&command.place).await?;
            print(command.place.output, &status(&*keeper).await?, shown)
        };
        ended(run.await)
    }
}

impl Reseal {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(self.reseal().await)
    }

    async fn reseal(self) -> Result<(), End> {
        let ring = KeyRing::read(&self.seal_keys).map_err(|error| error.to_string())?;
        let seal = Seal::new(Some(ring));
        let keeper = keeper(&self.place).await?;
        let Some(ring) = seal.ring() else { return Ok(()) };
        let current = ring.current().0;
        keeper.add_key(current.as_str()).await?;
        let mut total = Progress::default();
        for table in Table::ALL {
            let tell = |progress: &Progress| {
                eprintln!(
                    "{}: {} rows looked at, {} answers sealed, up to {}",
                    table.word(),
                    progress.looked,
                    progress.sealed,
                    progress.after
                );
            };
            let done = renew(&seal, &*keeper, table, tell).await?;
            total.looked += done.looked;
            total.sealed += done.sealed;
            total.passed += done.passed;
            total.failed += done.failed;
        }
        let mut status = status(&*keeper).await?;
        for id in ring.ids().filter(|id| *id != current) {
            // An instance that still seals with it writes it down again.
            if !status.keys.contains_key(id.as_str()) {
                keeper.drop_key(id.as_str()).await?;
            }
        }
        status.listed = keeper.keys().await?;
        let Progress { looked, sealed, passed, failed, .. } = total;
        let view = ResealView { looked, sealed, passed, failed, status };
        print(self.place.output, &view, |view| {
            format!("{} answers sealed, {} left\n{}", view.sealed, view.failed, shown(&view.status))
        })?;
        if failed > 0 {
            return Err(End::Refused(format!(
                "{failed} answers can't be opened with these keys, and were left"
            )));
        }
        Ok(())
    }
}
