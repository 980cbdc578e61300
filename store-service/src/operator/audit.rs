//! `fencepost-store audit`: what was written down about entries, operations, grants, holds and callers.

use super::audit_model::AuditReply;
use super::client::Client;
use super::print::{printable, time};
use super::print_desk::read_time;
use super::terminal::{Common, End, ended, print, with_query};
use crate::desk::AuditKind;
use clap::{Args, Subcommand};
use std::fmt::Write;
use std::process::ExitCode;

/// `fencepost-store audit`
#[derive(Debug, Args)]
pub struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List lines, the newest first: of people, of recovery and of the service.
    List(List),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    common: Common,

    /// Only lines about these.
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<AuditKind>,

    /// Only lines about this one, as the list names it: a stored key, an operation's id, a hold's number, a
    /// scope's digest; a grant is ["ISSUER","TENANT","ID"].
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,

    /// Only lines with this action, as the list prints it: release, erase, hold_begin and others.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only lines by this token, or `recovery/INSTANCE`.
    #[arg(long, value_name = "NAME")]
    who: Option<String>,

    /// Not before this time, as 2026-11-30T20:15:00Z.
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    since: Option<i64>,

    /// Before this time.
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    until: Option<i64>,

    /// Only lines behind this place, as the last page said it.
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
}

impl Audit {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(match self.command {
            Command::List(list) => list.run().await,
        })
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let path = with_query(
            "/v1/operator/audit",
            vec![
                ("limit", Some(self.limit.to_string())),
                ("kind", self.kind.map(|kind| kind.word().to_owned())),
                ("subject", self.subject),
                ("action", self.action),
                ("who", self.who),
                ("since_us", self.since.map(|us| us.to_string())),
                ("until_us", self.until.map(|us| us.to_string())),
                ("after", self.after),
            ],
        );
        let reply: AuditReply = client.get(&path).await?;
        print(self.common.output, &reply, table)
    }
}

fn table(reply: &AuditReply) -> String {
    if reply.lines.is_empty() {
        return "no lines\n".into();
    }
    let mut text = format!(
        "{:<20}  {:<16}  {:<18}  {:<9}  {:<40}  {:<36}  REASON\n",
        "AT (UTC)", "WHO", "ACTION", "KIND", "SUBJECT", "STATE"
    );
    for line in &reply.lines {
        let state = match &line.state_before[..] {
            "" => line.state_after.clone(),
            before => format!("{before} -> {}", line.state_after),
        };
        let _ = writeln!(
            text,
            "{:<20}  {:<16}  {:<18}  {:<9}  {:<40}  {:<36}  {}{}",
            time(line.at_us),
            printable(&line.who),
            printable(&line.action),
            line.kind,
            printable(&line.subject),
            printable(&state),
            if line.forced { "(forced) " } else { "" },
            printable(&line.reason)
        );
    }
    if let Some(next) = &reply.next {
        let _ = writeln!(text, "there may be more: --after {next}");
    }
    text
}
