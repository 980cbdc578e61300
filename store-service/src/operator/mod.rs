//! What operators use: `fencepost-store entries`, `operations`, `grants`, `hold`, `erase`, `audit` and
//! `key`.
//!
//! An order is always about a version that was seen. A person is shown the entry and asked; a
//! script names the version itself. Exit codes: 0 done, 1 the service or the person said no,
//! 2 wrong settings or no service.

mod audit;
pub mod audit_model;
mod client;
pub mod desk_model;
mod erase;
mod foreseen;
mod grants;
mod hold;
mod marked;
pub mod model;
mod operations;
pub(crate) mod print;
mod print_desk;
pub mod ruling;
pub(crate) mod scope;
mod seal;
mod target;
mod terminal;
pub(crate) mod told;

pub use audit::Audit;
pub use erase::Erase;
pub use grants::Grants;
pub use hold::HoldCommand;
pub use operations::Operations;
pub(crate) use print_desk::read_time;
pub use seal::{Reseal, SealCommand};
pub(crate) use terminal::{escaped, milliseconds};

use crate::store::StateName;
use clap::{ArgGroup, Args, Subcommand};
use client::Client;
use fencepost_protocol::{ScopeDigest, StoreKey};
use model::{EntryView, ListReply, LookAgainOrder, Octets, ReleaseOrder, SettleOrder, SettleWith};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use target::{Parts, Target};
use terminal::{Common, End, ask, ended, entry_version, print, reason, with_query};

/// `fencepost-store key`
#[derive(Debug, Args)]
pub struct KeyCommand {
    #[command(flatten)]
    parts: Parts,
}

/// `fencepost-store entries`
#[derive(Debug, Args)]
pub struct Entries {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List entries in the order of their keys: the unknown ones, unless another state is asked for.
    List(List),
    /// List the keys that recovery could not settle and has given to a person, and why.
    ForPerson(marked::ForPerson),
    /// Show one entry, and what people did to it.
    Show(Show),
    /// Let the key of an entry run again.
    Release(Release),
    /// Say what became of the request: it did not run, or this is its answer.
    Settle(Box<Settle>),
    /// Have recovery look up once more a held key that it has given to a person.
    LookAgain(LookAgain),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    common: Common,

    /// Only entries in this state.
    #[arg(long, value_enum, default_value = "unknown", conflicts_with = "all")]
    state: StateName,

    /// Entries in any state.
    #[arg(long)]
    all: bool,

    /// Only entries with this cause, as the list prints it: held, timeout, lease_expired and others.
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,

    /// Only entries, in any state, that a hold that stands keeps from running.
    #[arg(long, conflicts_with = "state")]
    held: bool,

    /// Only keys with this prefix.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,

    /// Only entries of this caller: JSON as `key` takes it, or the digest that an entry shows.
    #[arg(long, value_name = "JSON|HEX", value_parser = scope::digest_of)]
    scope: Option<ScopeDigest>,

    /// Only those claimed at least so long ago: a number with ms, s, m, h or d.
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    older_than: Option<u64>,

    /// Only keys behind this one.
    #[arg(long, value_name = "STORED_KEY", value_parser = StoreKey::parse)]
    after: Option<StoreKey>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    target: Target,

    /// Show the stored answer too. It may hold personal data.
    #[arg(long)]
    answer: bool,
}

/// An order about one entry as it was seen.
#[derive(Debug, Args)]
struct About {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    target: Target,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// The version that was seen, as show and list print it; needed with --yes.
    #[arg(long, value_name = "VERSION", value_parser = entry_version)]
    version: Option<String>,

    /// Do not ask.
    #[arg(long, requires = "version")]
    yes: bool,
}

#[derive(Debug, Args)]
struct LookAgain {
    #[command(flatten)]
    about: About,
}

#[derive(Debug, Args)]
struct Order {
    #[command(flatten)]
    about: About,

    /// Also where the request may be running: say so only if you know that it is not.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct Release {
    #[command(flatten)]
    order: Order,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["not_run", "status"]).required(true))]
struct Settle {
    #[command(flatten)]
    order: Order,

    /// The request certainly did not run: its key may.
    #[arg(long)]
    not_run: bool,

    /// It ran; retries get an answer with this status.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599))]
    status: Option<u16>,

    /// A header of that answer; may be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "status", value_parser = header)]
    header: Vec<(String, String)>,

    /// Body of that answer.
    #[arg(long, value_name = "TEXT", requires = "status", conflicts_with = "body_file")]
    body: Option<String>,

    /// File with the body of that answer.
    #[arg(long, value_name = "FILE", requires = "status")]
    body_file: Option<PathBuf>,

    /// Lifetime of that answer: a number with ms, s, m, h or d.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = milliseconds)]
    ttl: u64,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl KeyCommand {
    /// Prints the stored key.
    pub fn run(&self) -> ExitCode {
        ended(
            self.parts.stored().map_err(End::from).and_then(|key| Ok(writeln!(std::io::stdout(), "{key}")?)),
        )
    }
}

impl Entries {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(match self.command {
            Command::List(list) => list.run().await,
            Command::ForPerson(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Release(release) => release.run().await,
            Command::Settle(settle) => settle.run().await,
            Command::LookAgain(again) => again.run().await,
        })
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let path = with_query(
            "/v1/entries",
            vec![
                ("limit", Some(self.limit.to_string())),
                // What is held may be in any state but completed.
                ("state", (!self.all && !self.held).then(|| self.state.word().to_owned())),
                ("cause", self.cause),
                ("held", self.held.then(|| "true".to_owned())),
                ("prefix", self.prefix),
                ("scope", self.scope.map(|scope| scope.to_hex())),
                ("older_than_ms", self.older_than.map(|ms| ms.to_string())),
                ("after", self.after.map(|key| key.to_string())),
            ],
        );
        let reply: ListReply = client.get(&path).await?;
        print(self.common.output, &reply, print::list)
    }
}

impl Show {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let shown: EntryView = client.get(&path(&self.target.stored()?, answer_query(self.answer))).await?;
        print(self.common.output, &shown, print::entry)
    }
}

impl Release {
    async fn run(self) -> Result<(), End> {
        let Order { about, force } = self.order;
        let (client, key, version) =
            about.confirmed(|seen| foreseen::entry(seen, false, force), "Let this key run again").await?;
        let body = ReleaseOrder { version, reason: about.reason, force };
        let shown: EntryView = client.post(&path(&key, "/release"), &body).await?;
        print(about.common.output, &shown, print::entry)
    }
}

impl Settle {
    async fn run(self) -> Result<(), End> {
        let (with, question) = match self.status {
            None => (SettleWith::NotRun, "Say that it did not run, so that this key may"),
            Some(status) => {
                let headers = self.header.into_iter().map(|(name, value)| (name, Octets(value.into_bytes())));
                let body = match (self.body, &self.body_file) {
                    (Some(text), _) => text.into_bytes(),
                    (None, Some(path)) => std::fs::read(path)
                        .map_err(|error| format!("--body-file {}: {error}", path.display()))?,
                    (None, None) => Vec::new(),
                };
                let answer = SettleWith::Answer {
                    status,
                    headers: headers.collect(),
                    body: Octets(body),
                    ttl_ms: Some(self.ttl),
                };
                (answer, "Store this answer for its retries")
            }
        };
        // Said here rather than after a question.
        ruling::ruling(with.clone())?;
        let answer = self.status.is_some();
        let Order { about, force } = self.order;
        let (client, key, version) =
            about.confirmed(|seen| foreseen::entry(seen, answer, force), question).await?;
        let body = SettleOrder { version, reason: about.reason, force, with };
        let shown: EntryView = client.post(&path(&key, "/settle"), &body).await?;
        print(about.common.output, &shown, print::entry)
    }
}

impl LookAgain {
    async fn run(self) -> Result<(), End> {
        let about = self.about;
        let (client, key, version) = about.confirmed(|_| Ok(()), "Have recovery look it up again").await?;
        let body = LookAgainOrder { version, reason: about.reason };
        let shown: EntryView = client.post(&path(&key, "/look-again"), &body).await?;
        print(about.common.output, &shown, print::entry)
    }
}

impl About {
    /// The service, the key, and the version that the order is about: the one that was named, or that a
    /// person has just seen and said yes to. What is certain to be refused is refused before.
    async fn confirmed(
        &self,
        foreseen: impl Fn(&EntryView) -> Result<(), End>,
        question: &str,
    ) -> Result<(Client, StoreKey, String), End> {
        let key = self.target.stored()?;
        let client = Client::new(&self.common.client)?;
        if let (Some(version), true) = (&self.version, self.yes) {
            return Ok((client, key, version.clone()));
        }
        let shown: EntryView = client.get(&path(&key, "")).await?;
        if self.version.as_ref().is_some_and(|version| *version != shown.version) {
            return Err(End::Refused(format!(
                "--version: the entry is not any more what was seen; it has version {} now",
                shown.version
            )));
        }
        foreseen(&shown)?;
        ask(&print::entry(&shown), question, "--yes with the --version that was seen")?;
        Ok((client, key, shown.version))
    }
}

fn answer_query(answer: bool) -> &'static str {
    if answer { "?answer=true" } else { "" }
}

fn path(key: &StoreKey, rest: &str) -> String {
    format!("/v1/entries/{key}{rest}")
}
