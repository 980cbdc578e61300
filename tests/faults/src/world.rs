//! What is broken: two proxies, two instances of the service, one database, an upstream, and links.
//!
//! ```text
//! clients - link - Envoy 0 -+- link - service 0 - link -+- PostgreSQL - link - standby
//! clients - link - Envoy 1 -+- link - service 1 - link -+
//! ```
//!
//! Both proxies use both instances. Everything that is started again keeps its address, because the
//! others know links only.

use crate::client::{Notebook, Wish};
use anyhow::{Context, Result, bail};
use fencepost_rig::envoy::{Envoy, Route, Setup, loopback};
use fencepost_rig::grants;
use fencepost_rig::link::Link;
use fencepost_rig::postgres::{Options as ServerOptions, Postgres};
use fencepost_rig::scratch::Scratch;
use fencepost_rig::service::{Options, Service};
use fencepost_rig::upstream::Upstream;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::OnceCell;

/// A lease. Short, so that what is lost is soon called unknown; long enough for a loaded machine.
pub const CLAIM_TTL: &str = "6s";

/// The longest run: requests that tests hold in the upstream while something else takes its time.
const MAX_RUN: &str = "30s";

/// Above it.
const DETACHED_TIMEOUT: &str = "35s";

/// What a world is made of.
#[derive(Clone, Default)]
pub struct Plan {
    /// A PostgreSQL of its own, to be broken; else one that all worlds of the process share.
    pub own_database: bool,
    /// With a synchronous standby; implies a database of its own.
    pub standby: bool,
    /// How that database is started.
    pub server: ServerOptions,
}

/// All parts. They end with it, clients' side first.
pub struct World {
    envoys: [Mutex<Option<Arc<Envoy>>>; 2],
    setups: [Setup; 2],
    /// Links from clients to the proxies.
    pub to_envoy: [Link; 2],
    /// The instances.
    pub services: [Service; 2],
    /// Links from the proxies to the instances.
    pub to_service: [Link; 2],
    /// Links from the instances to the database.
    pub to_database: [Link; 2],
    /// The link by which the standby reads the primary's log.
    pub to_primary: Link,
    /// Counts what really ran.
    pub upstream: Upstream,
    database: Mutex<Database>,
    plan: Plan,
    _issuers: Scratch,
}

#[derive(Clone)]
struct Database {
    primary: Arc<Postgres>,
    standby: Option<Arc<Postgres>>,
}

impl World {
    /// Starts everything.
    pub async fn start(plan: Plan) -> Result<Self> {
        let primary = if plan.own_database || plan.standby {
            Arc::new(Postgres::start(plan.server.clone()).await?)
        } else {
            shared_database().await?
        };
        let url = primary.try_create_database().await?;
        let to_database = [Link::to(address(&primary)).await?, Link::to(address(&primary)).await?];
        let to_primary = Link::to(address(&primary)).await?;
        let (issuers, issuers_file) = grants::issuers(&Value::Null)?;
        let start = |n: usize| {
            let url = to_database.get(n).map(|link| by_link(&url, link)).unwrap_or_default();
            Service::start(Options::on(&url).arguments(&["--issuers", &issuers_file]))
        };
        let services = [start(0).await?, start(1).await?];
        let [first, second] = &services;
        let to_service = [Link::to(first.addr()).await?, Link::to(second.addr()).await?];
        let upstream = Upstream::start().await?;
        let setups = [0, 1].map(|n| setup(&upstream, &to_service, n));
        let [here, there] = &setups;
        let (here, there) = tokio::try_join!(Envoy::start(here), Envoy::start(there))?;
        let to_envoy = [Link::to(here.proxy()).await?, Link::to(there.proxy()).await?];
        let world = Self {
            envoys: [here, there].map(|envoy| Mutex::new(Some(Arc::new(envoy)))),
            setups,
            to_envoy,
            services,
            to_service,
            to_database,
            to_primary,
            upstream,
            database: Mutex::new(Database { primary, standby: None }),
            plan,
            _issuers: issuers,
        };
        if world.plan.standby {
            world.add_standby().await?;
        }
        Ok(world)
    }

    /// Where clients reach a proxy.
    pub fn way_in(&self, side: usize) -> SocketAddr {
        side_of(&self.to_envoy, side).addr()
    }

    /// A proxy, while it runs.
    pub fn envoy(&self, side: usize) -> Result<Arc<Envoy>> {
        guard(side_of(&self.envoys, side)).clone().context("this Envoy does not run")
    }

    /// Ends a proxy: at once, or in order.
    pub async fn end_envoy(&self, side: usize, at_once: bool) -> Result<()> {
        let envoy = guard(side_of(&self.envoys, side)).take().context("this Envoy does not run")?;
        let Ok(envoy) = Arc::try_unwrap(envoy) else { bail!("this Envoy is in use") };
        if at_once {
            envoy.kill().await?;
        } else {
            envoy.drain().await?;
            envoy.stop().await?;
        }
        Ok(())
    }

    /// Starts a proxy again, behind the same link.
    pub async fn start_envoy(&self, side: usize) -> Result<()> {
        let envoy = Envoy::start(side_of(&self.setups, side)).await?;
        side_of(&self.to_envoy, side).lead_to(envoy.proxy());
        *guard(side_of(&self.envoys, side)) = Some(Arc::new(envoy));
        Ok(())
    }

    /// The database's primary.
    pub fn primary(&self) -> Arc<Postgres> {
        guard(&self.database).primary.clone()
    }

    /// Its standby.
    pub fn standby(&self) -> Result<Arc<Postgres>> {
        guard(&self.database).standby.clone().context("there is no standby")
    }

    /// Gives the primary a standby that it waits for.
    pub async fn add_standby(&self) -> Result<()> {
        let primary = self.primary();
        self.to_primary.lead_to(address(&primary));
        let standby = primary.standby(self.to_primary.addr(), self.plan.server.clone()).await?;
        guard(&self.database).standby = Some(Arc::new(standby));
        primary.wait_for_standbys(true).await
    }

    /// The primary dies, its standby takes over, and the instances are led to it.
    pub async fn fail_over(&self) -> Result<()> {
        let standby = self.standby()?;
        self.primary().kill().await?;
        standby.promote().await?;
        for link in &self.to_database {
            link.lead_to(address(&standby));
        }
        *guard(&self.database) = Database { primary: standby, standby: None };
        Ok(())
    }

    /// Asks for every wish until it has an end or its bound is over, and counts what ran.
    pub async fn settle(self: &Arc<Self>, wishes: &[Wish], notebook: &Arc<Notebook>) -> Result<()> {
        let deadline = Instant::now() + crate::client::SETTLED_WITHIN;
        let mut asking = tokio::task::JoinSet::new();
        for wish in wishes {
            let (world, notebook, wish) = (Arc::clone(self), Arc::clone(notebook), wish.clone());
            asking.spawn(async move { wish.settle(&world, &notebook, deadline).await });
            while asking.len() >= 16 {
                asking.join_next().await.context("nobody asks")??;
            }
        }
        while let Some(done) = asking.join_next().await {
            done?;
        }
        self.count(notebook);
        Ok(())
    }

    /// Writes down how often everything ran.
    pub fn count(&self, notebook: &Notebook) {
        let mut runs = BTreeMap::<String, u64>::new();
        for seen in self.upstream.seen().iter().filter(|seen| seen.execution.is_some()) {
            let operation = seen.header("x-fencepost-operation-id");
            *runs.entry(operation.unwrap_or(&seen.path).to_owned()).or_default() += 1;
        }
        notebook.open().ran(runs);
    }
}

/// One of two, by its side; any other number is one of them too.
pub fn side_of<T>(both: &[T; 2], side: usize) -> &T {
    let [first, second] = both;
    if side.is_multiple_of(2) { first } else { second }
}

pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(server: &Postgres) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// The same database by way of a link.
fn by_link(url: &str, link: &Link) -> String {
    let database = url.rsplit('/').next().unwrap_or_default();
    format!("postgres://postgres@{}/{database}", link.addr())
}

async fn shared_database() -> Result<Arc<Postgres>> {
    static SHARED: OnceCell<Arc<Postgres>> = OnceCell::const_new();
    let start = || async { Ok(Arc::new(Postgres::start(ServerOptions::default()).await?)) };
    SHARED.get_or_try_init(start).await.cloned()
}

/// Policies under `hold`, one for each guard.
fn configuration() -> Value {
    let keyed = |namespace: &str| {
        json!({
            "namespace": namespace,
            "scope": [{"jwt": {"payload": "jwt_payload", "claim": "sub"}}],
            "claim_ttl": CLAIM_TTL,
            "max_run": MAX_RUN,
            "wait": "2s",
        })
    };
    let detached =
        json!({"detached": {"cluster": loopback::LOOPBACK, "loopback": true, "timeout": DETACHED_TIMEOUT}});
    let mut job = keyed("jobs");
    job["execution"] = detached.clone();
    let mut credit = grants::policy();
    credit["max_run"] = json!(MAX_RUN);
    credit["execution"] = detached;
    let mut configuration = grants::configuration(&credit);
    configuration["store"]["timeout"] = json!("2s");
    configuration["policies"]["pay"] = keyed("payments");
    configuration["policies"]["job"] = job;
    configuration
}

fn setup(upstream: &Upstream, to_service: &[Link; 2], side: usize) -> Setup {
    // Each begins with its own instance and has the other one: a cluster takes them in turn.
    let own = side_of(to_service, side).addr();
    let mut setup = Setup::new(upstream.addr()).guarded(configuration(), own);
    setup.stores.push(side_of(to_service, side + 1).addr());
    setup.dynamic_listeners = true;
    // As long as a run may take, as a proxy should be set up.
    setup.drain_seconds = 30;
    let setup = setup.route(Route::guarded("/pay", "pay")).route(Route::guarded("/job", "job"));
    setup.route(grants::route()).change(loopback::add)
}
