//! Settings and start-up.
//!
//! A setting that can't work ends the program before it listens, with one line that names the
//! setting, what was found and what would be right, and exit code 2.

use crate::check::Check;
use crate::grant::startup::{GrantArgs, GrantStartError};
use crate::http::{Api, Limits, Server, ServerOptions, Tokens};
use crate::quota::{Quota, QuotaLimits};
use crate::recovery::startup::{RecoveryArgs, RecoveryStartError};
use crate::recovery::worker::Running;
use crate::seal::{SealArgs, SealStartError};
use crate::service::Service;
use crate::store::memory::Memory;
use crate::store::postgres::{self, Postgres};
use crate::store::sqlite::Sqlite;
use crate::store::{Clock, OpenError, Store, StoreKind, StoreUrl};
use crate::tls::listener::ListenerFiles;
use crate::tls::{ClientTls, ListenerTls, TlsFileError, Trust};
use crate::trace::{Traces, TracesError};
use crate::waiters::Waiters;
use crate::{heartbeat, log, metric, operator, sweep, waiters};
use clap::{Args, Parser, Subcommand};
use metrics_exporter_prometheus::PrometheusHandle;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The store service of Fencepost.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the HTTP interface.
    Serve(Box<Serve>),
    /// Create or update the schema, and end.
    Migrate(Migrate),
    /// Look at entries of a running service, and end what it can't.
    Entries(Box<operator::Entries>),
    /// Look at operations, and end what the service can't.
    Operations(Box<operator::Operations>),
    /// After a restored backup: hold what may have been done in the lost window.
    Hold(Box<operator::HoldCommand>),
    /// Erase the stored answers of one caller.
    Erase(Box<operator::Erase>),
    /// Look at what was written down: who did what, when and why.
    Audit(Box<operator::Audit>),
    /// Look at grants, and withdraw them.
    Grants(Box<operator::Grants>),
    /// Seal stored answers anew with the current key.
    Reseal(operator::Reseal),
    /// Look at how stored answers are sealed.
    Seal(operator::SealCommand),
    /// Say under which key the entry of a client's key is stored.
    Key(operator::KeyCommand),
    /// Look for mistakes in Envoy's configuration, offline.
    Check(Check),
    /// Print the JSON Schema of the filter's configuration.
    Schema,
}

#[derive(Debug, Args)]
struct StoreArgs {
    /// Where entries are kept: sqlite:PATH, or postgres://USER@HOST/DATABASE.
    #[arg(long, env = "FENCEPOST_STORE", default_value = "sqlite:fencepost.sqlite", value_name = "URL")]
    store: StoreUrl,

    /// Use unnamed statements on PostgreSQL: needed behind a transaction-mode pooler.
    #[arg(long, env = "FENCEPOST_PG_UNNAMED_STATEMENTS")]
    pg_unnamed_statements: bool,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    grants: GrantArgs,

    #[command(flatten)]
    recovery: RecoveryArgs,

    #[command(flatten)]
    seal: SealArgs,

    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "FENCEPOST_LISTEN", default_value = "127.0.0.1:7070", value_name = "IP:PORT")]
    listen: SocketAddr,

    /// JSON list of accepted bearer tokens: [{"token_sha256", "roles", "key_prefixes"}].
    #[arg(long, env = "FENCEPOST_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Certificate chain of the listener, in PEM: it speaks TLS, and notices when the file is replaced.
    #[arg(long, env = "FENCEPOST_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM.
    #[arg(long, env = "FENCEPOST_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Authorities of client certificates, in PEM: entries of the token file name them by client_san.
    #[arg(long, env = "FENCEPOST_TLS_CLIENT_CA", value_name = "FILE", requires_all = ["tls_cert", "token_file"])]
    tls_client_ca: Option<PathBuf>,

    /// Revocation lists of these authorities, in PEM, one of each: a certificate in them is refused.
    #[arg(long, env = "FENCEPOST_TLS_CLIENT_CRL", value_name = "FILE", requires = "tls_client_ca")]
    tls_client_crl: Option<PathBuf>,

    /// Most connections at once; more wait to be accepted.
    #[arg(long, env = "FENCEPOST_CONNECTIONS_MAX", default_value_t = Limits::default().connections_max, value_name = "N",
          value_parser = connections)]
    connections_max: usize,

    /// This is the only instance: allows a SQLite or memory store with a listener beyond loopback.
    #[arg(long, env = "FENCEPOST_SINGLE_INSTANCE")]
    single_instance: bool,

    /// Do not touch the schema; refuse to start when it is not up to date.
    #[arg(long, env = "FENCEPOST_NO_MIGRATE")]
    no_migrate: bool,

    /// PostgreSQL connections for claims.
    #[arg(long, env = "FENCEPOST_CLAIM_CONNECTIONS", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    claim_connections: u16,

    /// PostgreSQL connections for everything else, so that claims never keep it waiting.
    #[arg(long, env = "FENCEPOST_FINISH_CONNECTIONS", default_value_t = 3, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    finish_connections: u16,

    /// Where to listen to other instances, if the store's address leads through a transaction-mode
    /// pooler: an address past it.
    #[arg(long, env = "FENCEPOST_LISTEN_STORE", value_name = "URL")]
    listen_store: Option<StoreUrl>,

    /// Most claims that wait for one key.
    #[arg(long, env = "FENCEPOST_WAITERS_PER_KEY", default_value_t = waiters::PER_KEY_MAX, value_name = "N")]
    waiters_per_key: usize,

    /// Most claims that wait in this process.
    #[arg(long, env = "FENCEPOST_WAITERS_MAX", default_value_t = waiters::TOTAL_MAX, value_name = "N")]
    waiters_max: usize,

    /// Most new claims of one caller (scope) in a minute; counted by each instance for itself.
    #[arg(long, env = "FENCEPOST_SCOPE_CLAIMS_PER_MINUTE", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    scope_claims_per_minute: Option<u32>,

    /// Most new claims of one caller at once, after a pause [default: as many as in a minute].
    #[arg(long, env = "FENCEPOST_SCOPE_CLAIMS_BURST", value_name = "N", requires = "scope_claims_per_minute",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    scope_claims_burst: Option<u32>,

    /// Most live claims of one caller: requests in progress; counted by each instance for itself.
    #[arg(long, env = "FENCEPOST_SCOPE_CLAIMS_LIVE", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scope_claims_live: Option<u32>,

    /// How often to sweep, in seconds.
    #[arg(long, env = "FENCEPOST_SWEEP_INTERVAL", default_value = "5", value_name = "SECONDS",
          value_parser = seconds)]
    sweep_interval: Duration,

    /// Where traces go, by OTLP over HTTP or HTTPS: the collector's whole URL.
    #[arg(long, env = "FENCEPOST_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,

    /// Authorities of the collector's certificate, in PEM [default: the system's].
    #[arg(long, env = "FENCEPOST_OTLP_CA", value_name = "FILE", requires = "otlp_endpoint")]
    otlp_ca: Option<PathBuf>,

    /// Client certificate for the collector, in PEM.
    #[arg(long, env = "FENCEPOST_OTLP_CERT", value_name = "FILE", requires_all = ["otlp_endpoint", "otlp_key"])]
    otlp_cert: Option<PathBuf>,

    /// Its private key, in PEM.
    #[arg(long, env = "FENCEPOST_OTLP_KEY", value_name = "FILE", requires = "otlp_cert")]
    otlp_key: Option<PathBuf>,

    /// How long requests in flight may take after SIGTERM, in seconds.
    #[arg(long, env = "FENCEPOST_DRAIN_TIMEOUT", default_value = "10", value_name = "SECONDS",
          value_parser = seconds)]
    drain_timeout: Duration,

    /// How long to stay reachable, and not ready, after SIGTERM, in seconds.
    #[arg(long, env = "FENCEPOST_DRAIN_DELAY", default_value = "0", value_name = "SECONDS",
          value_parser = seconds_or_zero)]
    drain_delay: Duration,
}

#[derive(Debug, Args)]
struct Migrate {
    #[command(flatten)]
    store: StoreArgs,
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| "expected 1 to 1000000".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let duration = seconds_or_zero(text)?;
    if duration.is_zero() { Err("expected more than zero".into()) } else { Ok(duration) }
}

fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    let number: f64 = number.parse().map_err(|_| "expected seconds, for example 5 or 0.5".to_owned())?;
    if (0.0..=86_400.0).contains(&number) {
        Ok(Duration::from_secs_f64(number))
    } else {
        Err("expected 0 to 86400 seconds".into())
    }
}

/// Why the program did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store can't be used.
    #[error("--store {url}: {error}")]
    Store {
        /// Where, without a password.
        url: String,
        /// Why.
        error: OpenError,
    },
    /// The token file can't be used.
    #[error(transparent)]
    Tokens(#[from] crate::http::TokenFileError),
    /// A certificate or key can't be used.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// Client certificates by half.
    #[error("{0}")]
    ClientCertificates(&'static str),
    /// Grants can't be served.
    #[error(transparent)]
    Grants(#[from] GrantStartError),
    /// Recovery can't run.
    #[error(transparent)]
    Recovery(#[from] RecoveryStartError),
    /// Answers can't be sealed, or not all be opened.
    #[error(transparent)]
    Seal(#[from] SealStartError),
    /// A listener for everybody without tokens.
    #[error(
        "--listen {0} is reachable from other machines and no --token-file is set; expected a token file, or an \
         address on loopback such as 127.0.0.1:7070"
    )]
    OpenListener(SocketAddr),
    /// A store of this process alone, reachable from other machines.
    #[error(
        "--listen {listen} is reachable from other machines and --store is {store}, which belongs to one service \
         process; expected PostgreSQL, an address on loopback, or --single-instance to say that there is no other \
         instance"
    )]
    SharedStore {
        /// Address.
        listen: SocketAddr,
        /// Which store.
        store: &'static str,
    },
    /// A listening address that can't be one.
    #[error(
        "--listen-store {0}: found an address that other instances can't be heard at; expected \
         postgres://USER@HOST/DATABASE, and --store on PostgreSQL as well"
    )]
    ListenStore(StoreUrl),
    /// The address can't be bound.
    #[error("--listen {addr}: {error}; expected a free address of this machine")]
    Bind {
        /// Address.
        addr: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The system refused something.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// Traces can't be sent there.
    #[error("--otlp-endpoint: {0}; expected a URL such as http://127.0.0.1:4318/v1/traces")]
    Traces(#[from] crate::trace::TracesError),
    /// Metrics could not be set up.
    #[error("metrics: {0}")]
    Metrics(String),
}

impl Cli {
    /// Runs the command.
    pub async fn run(self) -> Result<ExitCode, StartError> {
        let traces = match &self.command {
            Command::Serve(serve) => serve.traces()?,
            _ => None,
        };
        log::init(traces.as_ref());
        let result = self.command.run().await;
        if let Some(traces) = traces {
            traces.end().await;
        }
        result
    }
}

impl Command {
    async fn run(self) -> Result<ExitCode, StartError> {
        match self {
            Command::Check(check) => Ok(check.run()),
            Command::Schema => {
                std::io::stdout().lock().write_all(crate::check::schema_text().as_bytes())?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Serve(serve) => serve.run().await,
            Command::Entries(entries) => Ok(entries.run().await),
            Command::Operations(operations) => Ok(operations.run().await),
            Command::Hold(hold) => Ok(hold.run().await),
            Command::Erase(erase) => Ok(erase.run().await),
            Command::Audit(audit) => Ok(audit.run().await),
            Command::Grants(grants) => Ok(grants.run().await),
            Command::Reseal(reseal) => Ok(reseal.run().await),
            Command::Seal(seal) => Ok(seal.run().await),
            Command::Key(key) => Ok(key.run()),
            Command::Migrate(migrate) => {
                let options =
                    postgres::Options { claim_connections: 1, finish_connections: 1, ..migrate.store.pg() };
                let store = migrate.store.open(true, options).await?;
                println!("migrated store_id={} store={}", store.store_id().to_hex(), store.kind().name());
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl StoreArgs {
    fn pg(&self) -> postgres::Options {
        postgres::Options { unnamed_statements: self.pg_unnamed_statements, ..postgres::Options::default() }
    }

    async fn open(&self, migrate: bool, pg: postgres::Options) -> Result<Arc<dyn Store>, StartError> {
        let opened: Result<Arc<dyn Store>, OpenError> = match &self.store {
            StoreUrl::Memory => Memory::new(Clock::Real).map(|store| Arc::new(store) as _),
            StoreUrl::Sqlite(path) => {
                Sqlite::open(path, Clock::Real, migrate).await.map(|store| Arc::new(store) as _)
            }
            StoreUrl::Postgres(url) => {
                Postgres::open(url, Clock::Real, migrate, pg).await.map(|store| Arc::new(store) as _)
            }
        };
        opened.map_err(|error| StartError::Store { url: self.store.to_string(), error })
    }
}

/// Opens a database for an order that needs no service. Its schema has to be there.
pub(crate) async fn open_store(url: &StoreUrl) -> Result<Arc<dyn Store>, StartError> {
    let store = StoreArgs { store: url.clone(), pg_unnamed_statements: false };
    let options = postgres::Options { claim_connections: 1, finish_connections: 1, ..store.pg() };
    store.open(false, options).await
}

impl Serve {
    fn traces(&self) -> Result<Option<Traces>, StartError> {
        let Some(endpoint) = &self.otlp_endpoint else { return Ok(None) };
        let own = match (self.otlp_cert.as_deref(), self.otlp_key.as_deref()) {
            (Some(cert), Some(key)) => Some((("--otlp-cert", cert), ("--otlp-key", key))),
            _ => None,
        };
        let tls = || ClientTls::open(Trust::of("--otlp-ca", self.otlp_ca.as_deref()), own);
        let tls = if endpoint.starts_with("https://") {
            Some(tls()?)
        } else if self.otlp_ca.is_some() || own.is_some() {
            return Err(TracesError("found certificates for a collector without https".into()).into());
        } else {
            None
        };
        Ok(Some(Traces::to(endpoint, tls)?))
    }

    fn tls(&self, tokens: &Tokens) -> Result<Option<ListenerTls>, StartError> {
        match (self.tls_client_ca.is_some(), tokens.know_certificates()) {
            (true, false) => {
                return Err(StartError::ClientCertificates(
                    "--tls-client-ca is set and no entry of --token-file has client_san, so that no certificate \
                     would open anything; expected one, or no --tls-client-ca",
                ));
            }
            (false, true) => {
                return Err(StartError::ClientCertificates(
                    "--token-file has an entry with client_san and there is no --tls-client-ca, so that no \
                     certificate is ever asked for; expected --tls-client-ca with --tls-cert and --tls-key",
                ));
            }
            (true, true) | (false, false) => {}
        }
        let (Some(cert), Some(key)) = (self.tls_cert.clone(), self.tls_key.clone()) else { return Ok(None) };
        let files = ListenerFiles {
            cert,
            key,
            client_ca: self.tls_client_ca.clone(),
            client_crl: self.tls_client_crl.clone(),
        };
        Ok(Some(ListenerTls::open(files)?))
    }

    fn check(&self) -> Result<Tokens, StartError> {
        let tokens = match &self.token_file {
            Some(path) => Tokens::read(path)?,
            None => Tokens::open(),
        };
        let everywhere = !self.listen.ip().is_loopback();
        if everywhere && self.token_file.is_none() {
            return Err(StartError::OpenListener(self.listen));
        }
        let alone = match self.store.store.kind() {
            StoreKind::Memory => Some("memory"),
            StoreKind::Sqlite => Some("a SQLite file"),
            StoreKind::Postgres => None,
        };
        if let Some(store) = alone.filter(|_| everywhere && !self.single_instance) {
            return Err(StartError::SharedStore { listen: self.listen, store });
        }
        if let Some(url) = &self.listen_store
            && (alone.is_some() || url.kind() != StoreKind::Postgres)
        {
            return Err(StartError::ListenStore(url.clone()));
        }
        Ok(tokens)
    }

    async fn run(self) -> Result<ExitCode, StartError> {
        let tokens = self.check()?;
        let tls = self.tls(&tokens)?;
        let seal = self.seal.open()?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let metrics = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
            .and_then(|builder| builder.install_recorder())
            .map_err(|error| StartError::Metrics(error.to_string()))?;
        metric::declare();
        let pg = postgres::Options {
            claim_connections: self.claim_connections.into(),
            finish_connections: self.finish_connections.into(),
            listen_url: self.listen_store.as_ref().and_then(StoreUrl::postgres).map(str::to_owned),
            ..self.store.pg()
        };
        let waiters = Waiters::new(self.waiters_per_key, self.waiters_max);
        let quota = Quota::new(QuotaLimits {
            per_minute: self.scope_claims_per_minute,
            burst: self.scope_claims_burst,
            live: self.scope_claims_live,
        });
        let store = seal.store(self.store.open(!self.no_migrate, pg).await?);
        self.seal.check(&seal, &*store).await?;
        let service = Service::with_bounds(store, waiters, quota);
        let unnamed = self.store.pg_unnamed_statements;
        let grants = self.grants.open(&self.store.store, unnamed, service.store(), &seal).await?;
        let timings = grants.as_ref().map(|grants| grants.issuers().timings).unwrap_or_default();
        let recovery_store = RecoveryArgs::store(&self.store.store, unnamed, &timings, &service, &seal)
            .map_err(RecoveryStartError::Open)?;
        let known = grants.as_ref().map(|grants| grants.issuers());
        let desk = self.recovery.desk(&self.store.store, timings, recovery_store.clone(), &service, known)?;
        let api = Api::new(service.clone(), tokens, Some(metrics.clone()))
            .with_grants(grants)
            .with_recovery(recovery_store);
        let options = ServerOptions { drain_timeout: self.drain_timeout };
        let server = Server::bind(self.listen, api, options)
            .await
            .map_err(|error| StartError::Bind { addr: self.listen, error })?
            .with_tls(tls)
            .limited(Limits { connections_max: self.connections_max, ..Limits::default() });
        let beats = tokio::spawn(heartbeat::run(service.clone()));
        let sweeps = tokio::spawn(sweep::run(service.clone(), self.sweep_interval));
        let upkeep = tokio::spawn(keep_metrics(metrics));
        let recovery = desk.map(Running::start);
        say_ready(&server, &service)?;
        let draining_since = OnceLock::new();
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            service.drain();
            if let Some(recovery) = &recovery {
                recovery.tell();
            }
            tokio::time::sleep(self.drain_delay).await;
            // Cannot fail: it is set here alone, once.
            let _ = draining_since.set(Instant::now());
        };
        if !server.serve(stop).await {
            tracing::warn!("the drain timeout cut requests in flight");
        }
        if let Some(recovery) = recovery {
            // Requests and recovery share one timeout.
            let spent = draining_since.get().map_or(Duration::ZERO, Instant::elapsed);
            recovery.stop(self.drain_timeout.saturating_sub(spent)).await;
        }
        upkeep.abort();
        sweeps.abort();
        beats.abort();
        let _ = beats.await;
        service.store().leave().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Folds recorded samples into their buckets: without it they pile up until somebody reads them.
async fn keep_metrics(metrics: PrometheusHandle) {
    let mut ticks = tokio::time::interval(Duration::from_secs(5));
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

/// The one line on standard output: whoever started the program waits for it.
fn say_ready(server: &Server, service: &Service) -> Result<(), StartError> {
    let store = service.store();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "ready listen={} store_id={} store={}",
        server.local_addr()?,
        store.store_id().to_hex(),
        store.kind().name()
    )?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
