//! `fencepost-rig up`: the stack in the foreground, for people and for tests from outside.
//!
//! Standard output gets one line, `ready proxy=... store=... upstream=... admin=...`; everything for
//! people goes to standard error.

use anyhow::{Context, Result, bail};
use clap::Args;
use fencepost_rig::envoy::loopback::{self, LOOPBACK};
use fencepost_rig::envoy::{Route, UPSTREAM};
use fencepost_rig::policy_file::{self, PolicyFile};
use fencepost_rig::postgres::{self, Postgres};
use fencepost_rig::stack::{Builder, Stack, Store};
use fencepost_rig::{token, tools};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// What is kept up.
#[derive(Debug, Args)]
pub struct Options {
    /// The filter's configuration, YAML or JSON [default: envoy/policies/demo.yaml]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Where the service keeps its entries: `sqlite`, `sqlite:FILE`, `postgres` (starts one) or
    /// `postgres://...`
    #[arg(long, value_name = "URL", default_value = "sqlite")]
    store: String,

    /// Address of your own upstream [default: a sample that counts]
    #[arg(long, value_name = "HOST:PORT")]
    upstream: Option<String>,

    /// Port of the proxy on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,

    /// Requests below PREFIX come under POLICY; repeatable, first match wins [default: the only
    /// policy for everything; of several policies, NAME below /NAME]
    #[arg(long = "route", value_name = "PREFIX=POLICY")]
    routes: Vec<String>,

    /// Port of Envoy's admin interface on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    envoy_admin_port: u16,
}

/// Keeps the stack up until a signal comes or a part ends.
pub async fn run(options: Options) -> Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(stopped);
    // What was started ends when the unfinished start is dropped.
    let (stack, server, example) = tokio::select! {
        started = start(&options) => started?,
        () = &mut stopped => return Ok(ExitCode::SUCCESS),
    };
    let upstream = match &options.upstream {
        Some(upstream) => upstream.clone(),
        None => stack.upstream().addr().to_string(),
    };
    say_how_to_use(&stack, &example);
    println!(
        "ready proxy=http://{} store=http://{} upstream=http://{upstream} admin=http://{}",
        stack.proxy(),
        stack.service.addr(),
        stack.envoy.admin()
    );
    let ended = tokio::select! {
        () = &mut stopped => None,
        status = stack.envoy.wait() => Some(("Envoy", status?, stack.envoy.log_tail())),
        status = stack.service.wait() => Some(("the service", status?, stack.service.log_tail())),
    };
    if let Some((what, status, log)) = ended {
        bail!("{what} ended by itself: {status}\n{log}");
    }
    eprintln!("stopping");
    stack.stop().await?;
    if let Some(server) = server {
        server.stop().await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The stack, the database server that goes with it, and a guarded path to try.
async fn start(options: &Options) -> Result<(Stack, Option<Postgres>, String)> {
    let file = options.policy.clone().unwrap_or_else(|| tools::repository().join("envoy/policies/demo.yaml"));
    let policies = policy_file::read(&file)?;
    let routes = routes(&options.routes, &policies)?;
    let mut server = None;
    let store = match options.store.as_str() {
        "sqlite" => Store::Sqlite,
        "postgres" => {
            let postgres = Postgres::start(postgres::Options::default()).await?;
            let url = postgres.try_create_database().await?;
            server = Some(postgres);
            Store::Url(url)
        }
        url => Store::Url(url.to_owned()),
    };
    let (port, admin_port) = (options.port, options.envoy_admin_port);
    let PolicyFile { configuration, store_clusters, detached, .. } = policies;
    for (policy, cluster) in &detached {
        if ![LOOPBACK, UPSTREAM].contains(&cluster.as_str()) {
            bail!(
                "policies.{policy}.execution.detached.cluster: found {cluster:?}, expected {LOOPBACK:?} or {UPSTREAM:?}, which this stack has"
            );
        }
    }
    let needs_loopback = !detached.is_empty();
    let mut builder: Builder = Stack::builder(configuration).store(store).envoy(move |mut setup| {
        (setup.port, setup.admin_port) = (port, admin_port);
        setup.store_clusters = store_clusters;
        if needs_loopback { setup.change(loopback::add) } else { setup }
    });
    let example = routes.first().map_or_else(|| "/".to_owned(), |route| route.prefix().to_owned());
    for route in routes {
        builder = builder.route(route);
    }
    if let Some(upstream) = &options.upstream {
        builder = builder.upstream(resolve(upstream).await?);
    }
    Ok((builder.start().await?, server, example))
}

/// Routes as given, or one for each policy; then everything else, unmarked.
fn routes(given: &[String], file: &PolicyFile) -> Result<Vec<Route>> {
    let mut routes = Vec::new();
    for route in given {
        let (prefix, policy) = route.rsplit_once('=').context("--route wants PREFIX=POLICY")?;
        if !prefix.starts_with('/') {
            bail!("--route {route}: the prefix must start with `/`");
        }
        if !file.policies.iter().any(|name| name == policy) {
            bail!("--route {route}: the policy file has no policy `{policy}`, only {:?}", file.policies);
        }
        routes.push(Route::guarded(prefix, policy));
    }
    match file.policies.as_slice() {
        _ if !routes.is_empty() => {}
        [only] => routes.push(Route::guarded("/", only)),
        several => {
            // The longest first, so that a name which another one begins with keeps its paths.
            let mut several: Vec<&String> = several.iter().collect();
            several.sort_by_key(|name| std::cmp::Reverse(name.len()));
            routes.extend(several.into_iter().map(|name| Route::guarded(&format!("/{name}"), name)));
        }
    }
    routes.push(Route::to("/"));
    Ok(routes)
}

async fn resolve(upstream: &str) -> Result<SocketAddr> {
    let upstream = upstream.strip_prefix("http://").unwrap_or(upstream).trim_end_matches('/');
    let what = || format!("--upstream {upstream}: HOST:PORT is wanted");
    let mut found = tokio::net::lookup_host(upstream).await.with_context(what)?;
    found.next().with_context(what)
}

fn say_how_to_use(stack: &Stack, example: &str) {
    let proxy = stack.proxy();
    let path = if example == "/" { "/payments" } else { example };
    eprintln!("Envoy with the filter serves at http://{proxy}. It verifies tokens of these users, and puts");
    eprintln!("their claims where a scope of `jwt: {{payload: jwt_payload, claim: sub}}` finds them:");
    for user in ["alice", "bob"] {
        eprintln!("  {user}: {}", token::for_user(user));
    }
    eprintln!("Send this twice: the second answer is the first one, marked as a replay.");
    eprintln!("  curl -i http://{proxy}{path} -H 'Content-Type: application/json' \\");
    eprintln!("    -H 'Idempotency-Key: order-1' -H 'Authorization: Bearer {}' \\", token::for_user("alice"));
    eprintln!("    -d '{{\"amount\": 100}}'");
    let (envoy, service) = (stack.envoy.log_path().display(), stack.service.log_path());
    eprintln!("Logs: {envoy} and {}; they go with the stack. Ctrl-C stops everything.", service.display());
}
