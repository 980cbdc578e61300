//! A hop between the proxy and the service that changes the bodies of replies: a service, or
//! something in its place, that says what it should not.
//!
//! It speaks HTTP/1.1 and HTTP/2 without TLS, and HTTP/1.1 to its target, one connection for each
//! call. Status and headers of a reply stay, its stated length fits the new body.

use crate::runtime;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What becomes of the body of a reply to a call on a path.
pub type Change = Arc<dyn Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync>;

/// The hop. Dropping it closes its connections.
pub struct Between {
    addr: SocketAddr,
    change: Arc<Mutex<Option<Change>>>,
    task: JoinHandle<()>,
}

impl Between {
    /// A hop to a target that changes nothing yet.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let runtime = runtime::handle()?;
        let listener = {
            let _entered = runtime.enter();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a hop")?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)?
        };
        let addr = listener.local_addr()?;
        let change = Arc::new(Mutex::new(None));
        let task = runtime.spawn(accept(listener, target, Arc::clone(&change)));
        Ok(Self { addr, change, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes replies from now on.
    pub fn change(&self, change: impl Fn(&str, Vec<u8>) -> Vec<u8> + Send + Sync + 'static) {
        *crate::process::guard(&self.change) = Some(Arc::new(change));
    }

    /// Changes nothing any more.
    pub fn leave(&self) {
        *crate::process::guard(&self.change) = None;
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, change: Arc<Mutex<Option<Change>>>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let change = Arc::clone(&change);
        connections.spawn(async move {
            let service = service_fn(|request| pass(request, target, Arc::clone(&change)));
            let server = auto::Builder::new(TokioExecutor::new());
            drop(server.serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(
    request: Request<Incoming>,
    target: SocketAddr,
    change: Arc<Mutex<Option<Change>>>,
) -> Result<Response<Full<Bytes>>> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path().to_owned();
    head.uri = head.uri.path_and_query().context("no path")?.as_str().parse()?;
    head.version = hyper::Version::HTTP_11;
    head.headers.insert(HOST, HeaderValue::from_str(&target.to_string())?);
    let stream = TcpStream::connect(target).await?;
    let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move { drop(connection.await) });
    let (mut head, body) = send.send_request(Request::from_parts(head, Full::new(body))).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    let change = crate::process::guard(&change).clone();
    let body = match change {
        Some(change) => Bytes::from(change(&path, body.to_vec())),
        None => body,
    };
    head.version = hyper::Version::default();
    for name in [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Full::new(body)))
}
