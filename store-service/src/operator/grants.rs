//! `fencepost-store grants`: look at grants, and withdraw them.
//!
//! A revocation contends with admissions for the same key: the first to commit wins, so there is no
//! version to name. It needs a token with the role `revoke`.

use super::client::Client;
use super::desk_model::{GrantReleaseOrder, GrantView, GrantsReply, HoldsReply, RevokedReply};
use super::print_desk;
use super::terminal::{Common, End, ask, ended, print, reason, with_query};
use crate::desk::GrantState;
use clap::{Args, Subcommand};
use fencepost_protocol::grants::{GrantName, GrantToken, RevokeRequest, TEXT_MAX, paths};
use std::path::PathBuf;
use std::process::ExitCode;

/// `fencepost-store grants`
#[derive(Debug, Args)]
pub struct Grants {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the grants that are known, in the order of their names.
    List(List),
    /// Show one grant.
    Show(Show),
    /// Withdraw a grant that nobody has used.
    Revoke(Revoke),
    /// Let a grant be admitted that a hold refuses.
    Release(Release),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    common: Common,

    /// Only grants in this state.
    #[arg(long, value_enum)]
    state: Option<GrantState>,

    /// Only of this issuer.
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,

    /// Only for this tenant.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,

    /// Only for this subject.
    #[arg(long, value_name = "SUBJECT")]
    subject: Option<String>,

    /// Only open ones that a hold that stands refuses, by the time of issue that was recorded.
    #[arg(long)]
    held: bool,

    /// Only names behind this one, as the last list said.
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,

    /// At most so many, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

#[derive(Debug, Args)]
struct Name {
    /// Who issued it.
    #[arg(long, value_name = "ISSUER", value_parser = name)]
    issuer: String,

    /// Its id.
    #[arg(long, value_name = "ID", value_parser = name)]
    id: String,

    /// The tenant, where the issuer's ids are unique in a tenant only.
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    name: Name,
}

#[derive(Debug, Args)]
struct Revoke {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    name: Name,

    /// File with the grant itself: needed where its issue was not recorded.
    #[arg(long, value_name = "FILE")]
    grant_file: Option<PathBuf>,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT", value_parser = short_reason)]
    reason: String,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
struct Release {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    name: Name,

    /// Why; it goes into the audit.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: String,

    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// A part of a grant's name.
fn name(text: &str) -> Result<String, String> {
    let good = (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    good.then(|| text.to_owned())
        .ok_or_else(|| format!("expected 1 to {TEXT_MAX} bytes, without control characters"))
}

/// A reason of a revocation.
fn short_reason(text: &str) -> Result<String, String> {
    let text = reason(text)?;
    let short = text.chars().count() <= TEXT_MAX;
    short.then_some(text).ok_or_else(|| format!("expected why, in 1 to {TEXT_MAX} characters"))
}

impl Grants {
    /// Runs the command.
    pub async fn run(self) -> ExitCode {
        ended(match self.command {
            Command::List(list) => list.run().await,
            Command::Show(show) => show.run().await,
            Command::Revoke(revoke) => revoke.run().await,
            Command::Release(release) => release.run().await,
        })
    }
}

impl List {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let path = with_query(
            "/v1/operator/grants",
            vec![
                ("limit", Some(self.limit.to_string())),
                ("state", self.state.map(|state| state.word().to_owned())),
                ("issuer", self.issuer),
                ("tenant", self.tenant),
                ("subject", self.subject),
                ("held", self.held.then(|| "true".to_owned())),
                ("after", self.after),
            ],
        );
        let reply: GrantsReply = client.get(&path).await?;
        print(self.common.output, &reply, print_desk::grants)
    }
}

impl Name {
    async fn find(&self, client: &Client) -> Result<Option<GrantView>, End> {
        let path = with_query(
            "/v1/operator/grants",
            vec![
                ("issuer", Some(self.issuer.clone())),
                ("grant_id", Some(self.id.clone())),
                ("key_tenant", self.tenant.clone()),
            ],
        );
        Ok(client.get::<GrantsReply>(&path).await?.grants.into_iter().next())
    }
}

impl Show {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        match self.name.find(&client).await? {
            Some(grant) => print(self.common.output, &grant, print_desk::grant),
            None => Err(End::Refused(
                "no_grant: nothing is known of such a grant; one that is a token is known from its use, its \
                 revocation, or its recorded issue"
                    .into(),
            )),
        }
    }
}

impl Name {
    fn shown(&self) -> String {
        let tenant = self.tenant.as_deref().unwrap_or("-");
        format!("issuer  {}\ngrant   {}\ntenant  {tenant}\n", self.issuer, self.id)
    }
}

impl Release {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        if !self.yes {
            let holds = client.get::<HoldsReply>("/v1/operator/holds").await?.holds;
            if !holds.iter().any(|hold| hold.grants && hold.lifted_at_us.is_none()) {
                let why = "nothing_held: no hold over grants stands, so none is refused for one";
                return Err(End::Refused(why.into()));
            }
            ask(
                &self.name.shown(),
                "Say that it was not used in the lost window, so that it may be",
                "--yes",
            )?;
        }
        let order = GrantReleaseOrder {
            issuer: self.name.issuer,
            grant_id: self.name.id,
            key_tenant: self.name.tenant.unwrap_or_default(),
            reason: self.reason,
        };
        let reply: serde_json::Value = client.post("/v1/operator/grants/release", &order).await?;
        print(self.common.output, &reply, |_| "released\n".into())
    }
}

impl Revoke {
    async fn run(self) -> Result<(), End> {
        let client = Client::new(&self.common.client)?;
        let token = match &self.grant_file {
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("--grant-file {}: {error}", path.display()))?;
                Some(GrantToken::new(text.trim()))
            }
            None => None,
        };
        if !self.yes {
            ask(&self.name.shown(), "Withdraw this grant, for ever", "--yes")?;
        }
        let name = GrantName {
            issuer: self.name.issuer.clone(),
            grant_id: self.name.id.clone(),
            tenant: self.name.tenant.clone(),
        };
        let grant = token.is_none().then_some(name);
        let request = RevokeRequest { token, grant, reason: self.reason };
        let reply: RevokedReply = client.post(paths::REVOKE, &request).await?;
        print(self.common.output, &reply, |reply| {
            if reply.before { "revoked before\n".into() } else { "revoked\n".into() }
        })
    }
}
