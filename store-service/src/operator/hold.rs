//! `fencepost-store hold`: after a restored backup, hold what may have been done in the lost window.
//!
//! With `--store` it works on the database itself, while no service runs: a hold is begun before the
//! restored store is served.

use super::client::Client;
use super::desk_model::{FreeOrder, FreeReply, HoldOrder, HoldView, HoldsReply, LiftOrder};
use super::print_desk;
use super::terminal::{Common, End, ask, ended, milliseconds, print, reason};
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
    #[arg(long, value_name = "TEXT", value_parser = reason)]
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

    /// Free the keys that it has held and that no other hold holds, too; without it they stay unknown
    /// until the hold's end. Also for a hold that was lifted before.
    #[arg(long)]
    free: bool,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
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

/// Where the orders go.
enum At {
    Database(Arc<dyn Desk>),
    Service(Client),
}

impl Where {
    /// The database, where that was named; otherwise the service.
    async fn open(&self) -> Result<At, End> {
        let Some(url) = &self.store else { return Ok(At::Service(Client::new(&self.common.client)?)) };
        if let crate::store::StoreUrl::Sqlite(path) = url
            && !path.exists()
        {
            return Err(End::Setting(format!("--store {url}: there is no such file")));
        }
        let store = crate::cli::open_store(url).await.map_err(|error| error.to_string())?;
        let desk = store.desk().ok_or_else(|| format!("--store {url}: it keeps nothing"))?;
        Ok(At::Database(desk))
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
        // What can't be an order, and where it can't go, is said before anybody is asked.
        holds::checked(order.clone(), somebody())?;
        let output = self.place.common.output;
        let at = self.place.open().await?;
        if !self.yes {
            let keys = match order.keys_for_ms {
                None => "not held: a forgotten request that is retried runs again".to_owned(),
                Some(ms) => format!("held for {} unless a person frees them", super::print::duration(ms)),
            };
            let grants = if order.prefix.is_none() { "held" } else { "not held" };
            let shown = format!("keys without an answer  {keys}\ngrants issued before    {grants}\n");
            ask(&shown, "Begin this hold", "--yes")?;
        }
        let view: HoldView = match at {
            At::Database(desk) => {
                let done = desk.begin_hold(holds::checked(order, somebody())?).await;
                holds::told(done.map_err(Problem::from)?)?
            }
            At::Service(client) => client.post("/v1/operator/holds", &order).await?,
        };
        print(output, &view, print_desk::hold)
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let reply = HoldsReply { holds: self.place.open().await?.holds().await? };
        print(self.place.common.output, &reply, print_desk::holds)
    }
}

impl Lift {
    async fn run(self) -> Result<(), End> {
        let at = self.place.open().await?;
        let found = at.holds().await?.into_iter().find(|hold| hold.id == self.id);
        let hold = found.ok_or_else(|| End::Refused("no_hold: there is no such hold".into()))?;
        if hold.lifted_at_us.is_some() && !self.free {
            return Err(End::Refused("already_so: it is lifted; --free frees what it has held".into()));
        }
        if !self.yes {
            let question = match (hold.lifted_at_us, self.free) {
                (Some(_), true) => "Free the keys that it has held: they may run",
                (None, true) => "End this hold and free its keys: what is not known to have run may run",
                (_, false) => "End this hold: what is not known to have run may run",
            };
            ask(&print_desk::hold(&hold), question, "--yes")?;
        }
        // One that was lifted before may still have to be freed: the last try may have ended in between.
        let lifted = hold.lifted_at_us.is_some() && self.free;
        let view = if lifted { hold } else { at.lift(self.id, &self.reason).await? };
        if self.free {
            at.free(self.id, &self.reason).await?;
        }
        print(self.place.common.output, &view, print_desk::hold)
    }
}

impl At {
    async fn holds(&self) -> Result<Vec<HoldView>, End> {
        match self {
            Self::Database(desk) => {
                Ok(desk.holds().await.map_err(Problem::from)?.into_iter().map(holds::view).collect())
            }
            Self::Service(client) => Ok(client.get::<HoldsReply>("/v1/operator/holds").await?.holds),
        }
    }

    async fn lift(&self, id: i64, reason: &str) -> Result<HoldView, End> {
        match self {
            Self::Database(desk) => {
                let reason = holds::reasoned(reason.to_owned())?;
                let done = desk.lift_hold(id, somebody(), reason).await;
                Ok(holds::told(done.map_err(Problem::from)?)?)
            }
            Self::Service(client) => {
                let order = LiftOrder { reason: reason.to_owned() };
                Ok(client.post(&format!("/v1/operator/holds/{id}/lift"), &order).await?)
            }
        }
    }

    /// Frees the keys that were held and that no other hold holds, batch by batch.
    async fn free(&self, id: i64, reason: &str) -> Result<(), End> {
        let (mut freed, mut kept, mut after) = (0_u64, 0_u64, None);
        loop {
            let order = FreeOrder { reason: reason.to_owned(), after };
            let batch: FreeReply = match self {
                Self::Database(desk) => {
                    let order = holds::free_checked(id, order, somebody())?;
                    holds::freed(desk.free_held(order).await.map_err(Problem::from)?)?
                }
                Self::Service(client) => {
                    client.post(&format!("/v1/operator/holds/{id}/free"), &order).await?
                }
            };
            (freed, kept, after) = (freed + batch.freed, kept + batch.kept, batch.next);
            if after.is_some() {
                eprintln!("{freed} keys freed so far, {kept} kept");
            } else {
                eprintln!("{freed} keys freed; {kept} kept, because another hold holds them or they changed");
                return Ok(());
            }
        }
    }
}
