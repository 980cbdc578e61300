//! `fencepost-store operations`: look at operations, and end what the service can't.

use super::client::Client;
use super::desk_model::{EndingWord, OperationSettleOrder, OperationView, OperationsReply};
use super::foreseen;
use super::print_desk;
use super::terminal::{Common, End, ask, ended, milliseconds, operation_version, print, reason, with_query};
use crate::http::operations as http;
use clap::{Args, Subcommand, ValueEnum};
use fencepost_protocol::grants::OperationId;
use std::process::ExitCode;

/// `fencepost-store operations`
#[derive(Debug, Args)]
pub struct Operations {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List operations in the order of their ids: those without an end, unless others are asked for.
    List(List),
    /// Show one operation, and what happened to it.
    Show(Show),
    /// Say how an operation ended.
    Settle(Settle),
}

/// Which states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Status {
    Open,
    Admitted,
    Succeeded,
    Failed,
    Unknown,
    NeedsReconciliation,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Admitted => "admitted",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::NeedsReconciliation => "needs_reconciliation",
        }
    }
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    common: Common,

    /// Only operations in this state; `open` are all that have no end yet.
    #[arg(long, value_enum, default_value = "open", conflicts_with_all = ["all", "needs_reconciliation"])]
    status: Status,

    /// Only those that wait for a person.
    #[arg(long, conflicts_with = "all")]
    needs_reconciliation: bool,

    /// Operations in any state.
    #[arg(long)]
    all: bool,

    /// Only of grants of this issuer.
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,

    /// Only of this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Only of callers in this namespace.
    #[arg(long, value_name = "NAMESPACE")]
    caller_namespace: Option<String>,

    /// Only of this caller.
    #[arg(long, value_name = "ID")]
    caller: Option<String>,

    /// Only those without an end for this cause, as the list prints it: owner, not_found, window_passed
    /// and others.
    #[arg(long, value_name = "CAUSE")]
    cause: Option<String>,

    /// Only those admitted at least so long ago: a number with ms, s, m, h or d.
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    older_than: Option<u64>,

    /// Only ids behind this one.
    #[arg(long, value_name = "OPERATION_ID", value_parser = operation_id)]
    after: Option<OperationId>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    common: Common,

    /// The operation.
    #[arg(value_name = "OPERATION_ID", value_parser = operation_id)]
    operation: OperationId,
}

#[derive(Debug, Args)]
struct Settle {
    #[command(flatten)]
    common: Common,

    /// The operation.
    #[arg(value_name = "OPERATION_ID", value_parser = operation_id)]
    operation: OperationId,

    /// How it ended: `succeeded` if the effect exists, `failed` if there is none and none can come;
    /// `look-again` if recovery is to look it up once more.
    #[arg(long, value_enum, value_name = "OUTCOME")]
    outcome: EndingWord,

    /// The provider's id of the effect, or its code of refusal.
    #[arg(long, value_name = "TEXT", value_parser = reference)]
    reference: Option<String>,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// The version that was seen, as show and list print it; needed with --yes.
    #[arg(long, value_name = "VERSION", value_parser = operation_version)]
    version: Option<String>,

    /// Do not ask.
    #[arg(long, requires = "version")]
    yes: bool,
}

impl Operations {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(match self.command {
            Command::List(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Settle(settle) => settle.run().await,
        })
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let status = if self.needs_reconciliation { Status::NeedsReconciliation } else { self.status };
        let path = with_query(
            "/v1/operator/operations",
            vec![
                ("limit", Some(self.limit.to_string())),
                ("status", (!self.all).then(|| status.word().to_owned())),
                ("issuer", self.issuer),
                ("tenant", self.tenant),
                ("caller_namespace", self.caller_namespace),
                ("caller", self.caller),
                ("cause", self.cause),
                ("older_than_ms", self.older_than.map(|ms| ms.to_string())),
                ("after", self.after.map(|id| id.to_string())),
            ],
        );
        let reply: OperationsReply = client.get(&path).await?;
        print(self.common.output, &reply, print_desk::operations)
    }
}

impl Show {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let shown: OperationView = client.get(&path(&self.operation)).await?;
        print(self.common.output, &shown, print_desk::operation)
    }
}

impl Settle {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        if self.outcome == EndingWord::LookAgain && self.reference.is_some() {
            return Err(End::Setting("--reference: expected none where recovery is to look again".into()));
        }
        let path = path(&self.operation);
        let version = match (&self.version, self.yes) {
            (Some(version), true) => version.clone(),
            _ => {
                let shown: OperationView = client.get(&path).await?;
                if self.version.as_ref().is_some_and(|version| *version != shown.version) {
                    return Err(End::Refused(format!(
                        "--version: the operation is not any more what was seen; it has version {} now",
                        shown.version
                    )));
                }
                foreseen::operation(&shown, self.outcome)?;
                let question = match self.outcome {
                    EndingWord::Succeeded => "Say that the effect exists, for ever",
                    EndingWord::Failed => "Say that there is no effect and none can come, for ever",
                    EndingWord::LookAgain => "Have recovery look it up again",
                };
                let otherwise = "--yes with the --version that was seen";
                ask(&print_desk::operation(&shown), question, otherwise)?;
                shown.version
            }
        };
        let order = OperationSettleOrder {
            version,
            reason: self.reason,
            outcome: self.outcome,
            reference: self.reference,
        };
        let shown: OperationView = client.post(&format!("{path}/settle"), &order).await?;
        print(self.common.output, &shown, print_desk::operation)
    }
}

fn path(id: &OperationId) -> String {
    format!("/v1/operator/operations/{id}")
}

/// The id of an operation.
fn operation_id(text: &str) -> Result<OperationId, String> {
    OperationId::parse(text).map_err(|_| "expected the id of an operation, a UUID".into())
}

/// The provider's id of an effect.
fn reference(text: &str) -> Result<String, String> {
    http::reference(text.to_owned()).map_err(|problem| problem.detail().to_owned())
}
