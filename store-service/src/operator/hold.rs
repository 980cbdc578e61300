//! `fencepost-store hold`: after a restored backup, hold what may have been done in the lost window.
//!
//! With `--store` it works on the database itself, while no service runs: a hold is begun before the
//! restored store is served.

use super::client::{CallError, Client};
use super::desk_model::{HoldOrder, HoldView, HoldsReply, LiftOrder};
use super::model::{EntryView, ListReply, ReleaseOrder};
use super::print_desk;
use super::terminal::{Common, End, ask, ended, milliseconds, print, with_query};
use crate::desk::Desk;
use crate::http::Problem;
use crate::http::holds;
use clap::{ArgGroup, Args, Subcommand};
use std::process::ExitCode;
use std::sync::Arc;

/// `fencepost-store hold`
#[derive(Debug, Args)]
pub struct HoldCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Hold from now on what may have been done in a lost window.
    Begin(Begin),
    /// List holds, the newest first.
    List(List),
    /// End a hold.
    Lift(Lift),
}

/// Where: a service, or the database itself.
#[derive(Debug, Args)]
struct Where {
    #[command(flatten)]
    common: Common,

    /// The database itself, where no service runs: sqlite:PATH, or postgres://USER@HOST/DATABASE.
    #[arg(long, value_name = "URL")]
    store: Option<crate::store::StoreUrl>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("keys").args(["keys_for", "no_keys"]).required(true))]
struct Begin {
    #[command(flatten)]
    place: Where,

    /// For how long keys without an answer are held: as long as clients may still retry requests of
    /// the lost window. A number with s, m, h or d.
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    keys_for: Option<u64>,

    /// Hold no keys: a request of the lost window that is retried runs again.
    #[arg(long)]
    no_keys: bool,

    /// End of the lost window, as 2026-11-30T20:15:00Z; now, if nothing is said.
    #[arg(long, value_name = "TIME", value_parser = print_desk::read_time)]
    since: Option<i64>,

    /// Only keys with this prefix; then grants are not held.
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Args)]
struct Lift {
    #[command(flatten)]
    place: Where,

    /// Its number.
    #[arg(value_name = "ID")]
    id: i64,

    /// Free the keys that it has held, too; without it they stay unknown until the hold's end.
    #[arg(long, conflicts_with = "store")]
    free: bool,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl HoldCommand {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(match self.command {
            Command::Begin(begin) => begin.run().await,
            Command::List(list) => list.run().await,
            Command::Lift(lift) => lift.run().await,
        })
    }
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Refused(format!("{}: {}", problem.code(), problem.detail()))
    }
}

impl Where {
    /// The desk of the database, where that was named.
    async fn desk(&self) -> Result<Option<Arc<dyn Desk>>, End> {
        let Some(url) = &self.store else { return Ok(None) };
        let store = crate::cli::open_store(url).await.map_err(|error| error.to_string())?;
        let desk = store.desk().ok_or_else(|| format!("--store {url}: it keeps nothing"))?;
        Ok(Some(desk))
    }
}

/// Who it was, where there is no token: the user of this machine.
fn somebody() -> String {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty() && !user.contains('\0'));
    format!("{} at the database", user.unwrap_or_else(|| "somebody".into()))
}

impl Begin {
    async fn run(self) -> Result<(), End> {
        let order = HoldOrder {
            reason: self.reason,
            since_us: self.since,
            keys_for_ms: self.keys_for,
            prefix: self.prefix,
            grants: None,
        };
        if !self.yes {
            let keys = match order.keys_for_ms {
                None => "not held: a forgotten request that is retried runs again".to_owned(),
                Some(ms) => format!("held for {} unless a person frees them", super::print::duration(ms)),
            };
            let grants = if order.prefix.is_none() { "held" } else { "not held" };
            let shown = format!("keys without an answer  {keys}\ngrants issued before    {grants}\n");
            ask(&shown, "Begin this hold", "--yes")?;
        }
        let output = self.place.common.output;
        let view: HoldView = match self.place.desk().await? {
            Some(desk) => {
                let done = desk.begin_hold(holds::checked(order, somebody())?).await;
                holds::told(done.map_err(Problem::from)?)?
            }
            None => Client::new(&self.place.common.client)?.post("/v1/operator/holds", &order).await?,
        };
        print(output, &view, print_desk::hold)
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let reply: HoldsReply = match self.place.desk().await? {
            Some(desk) => {
                let found = desk.holds().await.map_err(Problem::from)?;
                HoldsReply { holds: found.into_iter().map(holds::view).collect() }
            }
            None => Client::new(&self.place.common.client)?.get("/v1/operator/holds").await?,
        };
        print(self.place.common.output, &reply, print_desk::holds)
    }
}

impl Lift {
    async fn run(self) -> Result<(), End> {
        if !self.yes {
            let shown = format!("hold  {}\n", self.id);
            ask(&shown, "End this hold: what is not known to have run may run", "--yes")?;
        }
        let view: HoldView = match self.place.desk().await? {
            Some(desk) => {
                let done = desk.lift_hold(self.id, somebody(), self.reason.clone()).await;
                holds::told(done.map_err(Problem::from)?)?
            }
            None => {
                let client = Client::new(&self.place.common.client)?;
                let order = LiftOrder { reason: self.reason.clone() };
                let view = client.post(&format!("/v1/operator/holds/{}/lift", self.id), &order).await?;
                if self.free {
                    free(&client, &view, &self.reason).await?;
                }
                view
            }
        };
        print(self.place.common.output, &view, print_desk::hold)
    }
}

/// Frees the keys that were held, each by the version that the list showed; one that has changed
/// since is left.
async fn free(client: &Client, hold: &HoldView, reason: &str) -> Result<(), End> {
    let (mut freed, mut left, mut after) = (0_u64, 0_u64, None);
    loop {
        let path = with_query(
            "/v1/entries",
            vec![
                ("limit", Some("1000".into())),
                ("state", Some("unknown".into())),
                ("prefix", hold.prefix.clone()),
                ("after", after),
            ],
        );
        let page: ListReply = client.get(&path).await?;
        for entry in page.entries {
            if entry.cause.as_deref() != Some("held") {
                continue;
            }
            let order = ReleaseOrder { version: entry.version, reason: reason.to_owned(), force: false };
            match client.post::<EntryView>(&format!("/v1/entries/{}/release", entry.key), &order).await {
                Ok(_) => freed += 1,
                Err(CallError::Refused(_)) => left += 1,
                Err(error) => return Err(error.into()),
            }
        }
        eprintln!("{freed} keys freed, {left} left because they had changed");
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}
