//! The listener: accepts connections, ends TLS on them where it is set, and stops without cutting
//! what is in flight.

use super::Api;
use super::link::Link;
use super::opening::Opening;
use crate::tls::{ListenerTls, Peer};
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// Streams of one HTTP/2 connection. A proxy has few connections and parks a claim in each stream,
/// so this must not be what bounds waiting.
const STREAMS_MAX: u32 = 30_000;

/// A peer that is silent for this long is asked, and dropped if it does not answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Pause after an accept that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the listener.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// How long requests in flight may take once the service is stopping.
    pub drain_timeout: Duration,
}

/// What one peer, or all of them, may take of the listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long a TLS handshake, a connection's first bytes and a request's head may take, and a
    /// connection be idle before it.
    pub head_timeout: Duration,
    /// Most connections at once; more wait to be accepted. A proxy needs one for each of its
    /// workers and clusters, so this is far beyond honest use, and below the usual bound on open
    /// files, which the store needs as well.
    pub connections_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_timeout: Duration::from_secs(10), connections_max: 10_000 }
    }
}

/// A bound listener.
pub struct Server {
    listener: TcpListener,
    options: ServerOptions,
    places: Arc<Semaphore>,
    serving: Serving,
}

/// What every connection needs.
#[derive(Clone)]
struct Serving {
    router: Router,
    limits: Limits,
    tls: Option<Arc<ListenerTls>>,
}

impl Server {
    /// Binds the address.
    pub async fn bind(addr: SocketAddr, api: Api, options: ServerOptions) -> io::Result<Self> {
        let limits = Limits::default();
        let places = Arc::new(Semaphore::new(limits.connections_max));
        let listener = TcpListener::bind(addr).await?;
        Ok(Self { listener, options, places, serving: Serving { router: api.router(), limits, tls: None } })
    }

    /// With other limits.
    pub fn limited(self, limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.connections_max));
        Self { places, serving: Serving { limits, ..self.serving }, ..self }
    }

    /// With TLS on every connection.
    pub fn with_tls(mut self, tls: Option<ListenerTls>) -> Self {
        self.serving.tls = tls.map(Arc::new);
        self
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done, then lets the requests in flight finish. False when the drain
    /// timeout cut some of them.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> bool {
        let graceful = GracefulShutdown::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.accept() => match accepted {
                    Ok((stream, place)) => {
                        let serving = self.serving.clone();
                        tokio::spawn(serving.connection(stream, place, graceful.watcher()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        tokio::time::timeout(self.options.drain_timeout, graceful.shutdown()).await.is_ok()
    }

    /// The next connection, once there is a place for it.
    async fn accept(&self) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, place))
    }
}

impl Serving {
    async fn connection(self, stream: TcpStream, place: OwnedSemaphorePermit, watcher: Watcher) {
        // Replies are single small writes: waiting to join them only costs time.
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.http(stream, Link::default(), watcher).await,
            Some(tls) => {
                let acceptor = TlsAcceptor::from(tls.config(Instant::now()));
                match tokio::time::timeout(self.limits.head_timeout, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => {
                        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                        let link = Link::encrypted(shown.map(|certificate| Peer::of(certificate)));
                        self.http(stream, link, watcher).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                }
            }
        }
        drop(place);
    }

    async fn http<S>(&self, stream: S, link: Link, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.head_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(16 * 1024 * 1024)
            .keep_alive_interval(Some(PING_INTERVAL));
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |request: Request<Incoming>| router.call(arrived(request, &link)));
        let stream = Opening::new(stream, self.limits.head_timeout);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "connection ended");
        }
    }
}

/// Tells the handlers over which connection a request came.
fn arrived(request: Request<Incoming>, link: &Link) -> Request<Body> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(link.clone());
    request
}
