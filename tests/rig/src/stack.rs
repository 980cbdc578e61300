//! The whole stack: upstream, service on a store, Envoy with the filter. All end together.

use crate::client::{Answer, Call};
use crate::envoy::{Envoy, Route, Setup};
use crate::postgres::Postgres;
use crate::scratch::Scratch;
use crate::service::{self, Service};
use crate::upstream::Upstream;
use anyhow::{Context, Result};
use serde_json::Value;
use std::net::SocketAddr;

/// Where the service keeps its entries.
#[derive(Debug, Clone)]
pub enum Store {
    /// A SQLite file that goes with the stack.
    Sqlite,
    /// A new database on the shared PostgreSQL of this process.
    Postgres,
    /// Any store, by its URL.
    Url(String),
}

/// How a stack is put together.
pub struct Builder {
    policies: Value,
    routes: Vec<Route>,
    store: Store,
    upstream: Option<SocketAddr>,
    service: Vec<String>,
    environment: Vec<(String, String)>,
    change: Vec<Box<dyn FnOnce(Setup) -> Setup + Send>>,
}

/// A running stack.
pub struct Stack {
    // In the order in which they end.
    /// The proxy.
    pub envoy: Envoy,
    /// The store service.
    pub service: Service,
    upstream: Option<Upstream>,
    _files: Option<Scratch>,
}

impl Stack {
    /// A stack with a filter configuration and routes yet to be given.
    pub fn builder(configuration: Value) -> Builder {
        Builder {
            policies: configuration,
            routes: Vec::new(),
            store: Store::Sqlite,
            upstream: None,
            service: Vec::new(),
            environment: Vec::new(),
            change: Vec::new(),
        }
    }

    /// Where the proxy listens.
    pub fn proxy(&self) -> SocketAddr {
        self.envoy.proxy()
    }

    /// Sends a call through the proxy.
    pub async fn send(&self, call: &Call) -> Result<Answer> {
        call.send(self.proxy()).await
    }

    /// The sample upstream.
    ///
    /// # Panics
    /// When the stack was built with another upstream.
    #[allow(clippy::panic)]
    pub fn upstream(&self) -> &Upstream {
        match &self.upstream {
            Some(upstream) => upstream,
            None => panic!("this stack has an upstream of its own"),
        }
    }

    /// Stops everything in order: the proxy first, so that nothing is cut.
    pub async fn stop(self) -> Result<()> {
        self.envoy.stop().await.context("stop Envoy")?;
        self.service.stop().await.context("stop the service")?;
        if let Some(upstream) = &self.upstream {
            upstream.close().await;
        }
        Ok(())
    }
}

impl Builder {
    /// Adds a route.
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// Sets the store.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Uses another upstream than the sample.
    pub fn upstream(mut self, upstream: SocketAddr) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// Adds arguments of the service.
    pub fn service_arguments(mut self, arguments: &[&str]) -> Self {
        self.service.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Sets a variable of the service's environment.
    pub fn service_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Changes Envoy's setup.
    pub fn envoy(mut self, change: impl FnOnce(Setup) -> Setup + Send + 'static) -> Self {
        self.change.push(Box::new(change));
        self
    }

    /// Starts everything.
    pub async fn start(self) -> Result<Stack> {
        let (url, files) = match self.store {
            Store::Sqlite => {
                let files = Scratch::new("sqlite")?;
                (format!("sqlite:{}", files.path().join("fencepost.sqlite").display()), Some(files))
            }
            Store::Postgres => (Postgres::shared().await.try_create_database().await?, None),
            Store::Url(url) => (url, None),
        };
        let options = service::Options {
            store: url,
            arguments: self.service,
            environment: self.environment,
            ..service::Options::default()
        };
        let service = Service::start(options).await.context("start the service")?;
        let own = if self.upstream.is_none() { Some(Upstream::start().await?) } else { None };
        let upstream = self.upstream.or(own.as_ref().map(Upstream::addr)).context("no upstream")?;
        let mut setup = Setup::new(upstream).guarded(self.policies, service.addr());
        setup.routes = self.routes;
        for change in self.change {
            setup = change(setup);
        }
        let envoy = Envoy::start(&setup).await.context("start Envoy")?;
        Ok(Stack { envoy, service, upstream: own, _files: files })
    }
}
