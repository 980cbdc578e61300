//! `fencepost-store operations`: look at operations, and end what the service can't.

use super::client::Client;
use super::desk_model::{EndingWord, OperationSettleOrder, OperationView, OperationsReply};
use super::print_desk;
use super::terminal::{Common, End, ask, ended, milliseconds, print, with_query};
use clap::{Args, Subcommand, ValueEnum};
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
    #[arg(long, value_name = "OPERATION_ID")]
    after: Option<String>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    common: Common,

    /// The operation.
    #[arg(value_name = "OPERATION_ID")]
    operation: String,
}

#[derive(Debug, Args)]
struct Settle {
    #[command(flatten)]
    common: Common,

    /// The operation.
    #[arg(value_name = "OPERATION_ID")]
    operation: String,

    /// How it ended: `succeeded` if the effect exists, `failed` if there is none and none can come;
    /// `look-again` if recovery is to look it up once more.
    #[arg(long, value_enum, value_name = "OUTCOME")]
    outcome: EndingWord,

    /// The provider's id of the effect, or its code of refusal.
    #[arg(long, value_name = "TEXT")]
    reference: Option<String>,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// The version that was seen, as show and list print it; needed with --yes.
    #[arg(long, value_name = "VERSION")]
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
                ("after", self.after),
            ],
        );
        let reply: OperationsReply = client.get(&path).await?;
        print(self.common.output, &reply, print_desk::operations)
    }
}

impl Show {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let shown: OperationView = client.get(&path(&self.operation)?).await?;
        print(self.common.output, &shown, print_desk::operation)
    }
}

impl Settle {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let path = path(&self.operation)?;
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

/// The path of an operation; an id is hexadecimal digits and hyphens.
fn path(id: &str) -> Result<String, End> {
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
        return Err(End::Setting(format!("{id:?}: expected the id of an operation, a UUID")));
    }
    Ok(format!("/v1/operator/operations/{id}"))
}
