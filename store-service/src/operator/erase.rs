//! `fencepost-store erase`: the stored answers of one caller, batch by batch. One that was
//! interrupted is begun again: what is erased stays so.

use super::client::Client;
use super::desk_model::{EraseOrder, EraseReply};
use super::scope::StatedScope;
use super::terminal::{Common, End, ask, ended, print};
use clap::{ArgGroup, Args};
use fencepost_filter_core::scope::{Scope, scope_digest};
use std::process::ExitCode;

/// `fencepost-store erase`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").args(["scope", "scope_digest"]).required(true))]
pub struct Erase {
    #[command(flatten)]
    common: Common,

    /// The caller, as JSON, as `key` takes it.
    #[arg(long, value_name = "JSON")]
    scope: Option<StatedScope>,

    /// The caller, by the digest that entries show as their scope.
    #[arg(long, value_name = "HEX")]
    scope_digest: Option<String>,

    /// Why; it goes into the audit, so it names nobody.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

impl Erase {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(self.erase().await)
    }

    async fn erase(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let scope = match (&self.scope, self.scope_digest) {
            (Some(stated), _) => {
                let scope: Scope = stated.resolve().map_err(|error| format!("--scope: {error}"))?;
                scope_digest(&scope).to_hex()
            }
            (None, digest) => digest.unwrap_or_default(),
        };
        if !self.yes {
            let shown = format!("scope  {scope}\n");
            ask(&shown, "Erase the stored answers of this caller, for ever", "--yes")?;
        }
        let mut total = EraseReply::default();
        loop {
            let order =
                EraseOrder { scope: scope.clone(), reason: self.reason.clone(), after: total.next.take() };
            let batch: EraseReply = client.post("/v1/operator/erase", &order).await?;
            total = EraseReply {
                answers: total.answers + batch.answers,
                left: total.left + batch.left,
                looked: total.looked + batch.looked,
                next: batch.next,
            };
            eprintln!("{} entries looked at, {} answers erased", total.looked, total.answers);
            if total.next.is_none() {
                break;
            }
        }
        print(self.common.output, &total, |total| {
            let mut text = format!("{} answers erased\n", total.answers);
            if total.left > 0 {
                text.push_str(&format!(
                    "{} entries are claimed or unknown and hold no answer yet: entries list --all --scope\n",
                    total.left
                ));
            }
            text
        })
    }
}
