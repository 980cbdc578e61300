//! `fencepost-store erase`: the stored answers of one caller, batch by batch. One that was
//! interrupted is begun again: what is erased stays so.

use super::client::Client;
use super::desk_model::{CallerName, EraseOrder, EraseReply};
use super::print::printable;
use super::scope::StatedScope;
use super::terminal::{Common, End, ask, ended, print, reason};
use clap::{ArgGroup, Args};
use fencepost_filter_core::scope::{Scope, scope_digest};
use fencepost_protocol::ScopeDigest;
use std::process::ExitCode;

/// `fencepost-store erase`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").args(["scope", "scope_digest", "caller"]).required(true))]
pub struct Erase {
    #[command(flatten)]
    common: Common,

    /// The caller, as JSON, as `key` takes it.
    #[arg(long, value_name = "JSON")]
    scope: Option<StatedScope>,

    /// The caller, by the digest that entries show as their scope.
    #[arg(long, value_name = "HEX", value_parser = ScopeDigest::parse)]
    scope_digest: Option<ScopeDigest>,

    /// The caller of operations that no route admitted, by its id. These know no scope.
    #[arg(long, value_name = "ID", requires = "caller_namespace")]
    caller: Option<String>,

    /// Namespace of that id.
    #[arg(long, value_name = "NAMESPACE", requires = "caller")]
    caller_namespace: Option<String>,

    /// Why; it goes into the audit, so it names nobody.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
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

    /// Who, as the order says it, and as a person is shown it.
    fn whose(&self) -> Result<(EraseOrder, String), End> {
        if let (Some(id), Some(namespace)) = (&self.caller, &self.caller_namespace) {
            let shown = format!("caller  {} in {}\n", printable(id), printable(namespace));
            let caller = Some(CallerName { namespace: namespace.clone(), id: id.clone() });
            return Ok((EraseOrder { caller, ..EraseOrder::default() }, shown));
        }
        let scope = match (&self.scope, &self.scope_digest) {
            (Some(stated), _) => {
                let scope: Scope = stated.resolve().map_err(|error| format!("--scope: {error}"))?;
                scope_digest(&scope).to_hex()
            }
            (None, digest) => digest.map(|digest| digest.to_hex()).unwrap_or_default(),
        };
        let shown = format!("scope  {}\n", printable(&scope));
        Ok((EraseOrder { scope: Some(scope), ..EraseOrder::default() }, shown))
    }

    async fn erase(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let (order, shown) = self.whose()?;
        let order = EraseOrder { reason: self.reason, ..order };
        if !self.yes {
            ask(&shown, "Erase the stored answers of this caller, for ever", "--yes")?;
        }
        let mut total = EraseReply::default();
        loop {
            let batch = EraseOrder { after: total.next.take(), ..order.clone() };
            let done: EraseReply = client.post("/v1/operator/erase", &batch).await?;
            total = EraseReply {
                answers: total.answers + done.answers,
                operation_answers: total.operation_answers + done.operation_answers,
                left: total.left + done.left,
                looked: total.looked + done.looked,
                ..done
            };
            let erased = total.answers + total.operation_answers;
            eprintln!("{} entries and operations looked at, {erased} answers erased", total.looked);
            if total.next.is_none() {
                break;
            }
        }
        print(self.common.output, &total, said)
    }
}

fn said(total: &EraseReply) -> String {
    let mut text =
        format!("{} answers erased, and {} of operations\n", total.answers, total.operation_answers);
    if total.left > 0 {
        text.push_str(&format!(
            "{} entries and operations have no end and hold no answer yet: entries list --all --scope, \
             operations list\n",
            total.left
        ));
    }
    if let Some(prefixes) = &total.covered.key_prefixes {
        let prefixes = prefixes.join(", ");
        text.push_str(&format!("only keys with these prefixes, and no operations: {prefixes}\n"));
    }
    if !total.covered.entries {
        text.push_str("only operations: entries are found by --scope or --scope-digest\n");
    }
    text
}
