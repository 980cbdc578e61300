//! The service behind its real HTTP interface, and a client for it.

use bytes::Bytes;
use fencepost_protocol::claims::{ClaimRequest, CompleteRequest};
use fencepost_protocol::{FRAME_MEDIA_TYPE, encode};
use fencepost_store::entry::{Claim, Complete};
use fencepost_store::http::{Api, Limits, Server, ServerOptions, Tokens};
use fencepost_store::service::Service;
use fencepost_store::store::Store;
use fencepost_store::tls::ListenerTls;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A listener on a free port.
pub struct Served {
    pub addr: SocketAddr,
    pub service: Arc<Service>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<bool>,
}

/// One reply.
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Head of a frame, or a problem.
    pub fn json(&self) -> serde_json::Value {
        if self.header("content-type") == FRAME_MEDIA_TYPE {
            return fencepost_protocol::decode(&self.body).unwrap().0;
        }
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn code(&self) -> (u16, String) {
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        (self.status, json["code"].as_str().unwrap().to_owned())
    }
}

impl Served {
    pub async fn start(store: Arc<dyn Store>, tokens: Tokens) -> Self {
        Self::limited(store, tokens, Limits::default()).await
    }

    pub async fn encrypted(store: Arc<dyn Store>, tokens: Tokens, tls: ListenerTls) -> Self {
        Self::open(store, tokens, Limits::default(), Some(tls)).await
    }

    pub async fn limited(store: Arc<dyn Store>, tokens: Tokens, limits: Limits) -> Self {
        Self::open(store, tokens, limits, None).await
    }

    async fn open(store: Arc<dyn Store>, tokens: Tokens, limits: Limits, tls: Option<ListenerTls>) -> Self {
        Self::of(Service::new(store), tokens, limits, tls).await
    }

    /// Of a service with bounds of its own.
    pub async fn of(service: Arc<Service>, tokens: Tokens, limits: Limits, tls: Option<ListenerTls>) -> Self {
        let api = Api::new(service.clone(), tokens, None);
        let options = ServerOptions { drain_timeout: Duration::from_secs(5) };
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), api, options).await.unwrap();
        let server = server.limited(limits).with_tls(tls);
        let addr = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        Self { addr, service, stop: Some(stop), task }
    }

    /// Stops; says whether everything in flight was finished.
    pub async fn stop(mut self) -> bool {
        let _ = self.stop.take().unwrap().send(());
        self.task.await.unwrap()
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        read(send.send_request(request).await.unwrap()).await
    }

    pub async fn send_h2(&self, request: Request<Full<Bytes>>) -> Reply {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        read(send.send_request(request).await.unwrap()).await
    }

    pub fn request(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.addr))
            .header("host", self.addr.to_string())
            .header("content-type", FRAME_MEDIA_TYPE)
            .body(Full::new(body.into()))
            .unwrap()
    }

    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        self.send(self.request("POST", path, body)).await
    }
}

pub async fn read(response: hyper::Response<hyper::body::Incoming>) -> Reply {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub fn claim_request(claim: &Claim, wait_ms: u32) -> ClaimRequest {
    ClaimRequest {
        v: 1,
        key: claim.key.clone(),
        token: claim.token,
        scheme: claim.scheme.clone(),
        fingerprint: claim.fingerprint,
        scope: claim.scope,
        claim_ttl_ms: claim.claim_ttl_ms,
        max_run_ms: claim.max_run_ms,
        on_lost: claim.on_lost,
        unknown_ttl_ms: claim.unknown_ttl_ms,
        wait_ms,
        knows_quota: true,
    }
}

pub fn claim_frame(claim: &Claim, wait_ms: u32) -> Vec<u8> {
    encode(&claim_request(claim, wait_ms), &[]).unwrap()
}

pub fn complete_request(complete: &Complete) -> CompleteRequest {
    CompleteRequest {
        v: 1,
        key: complete.key.clone(),
        token: complete.token,
        fence: complete.fence,
        scheme: complete.scheme.clone(),
        fingerprint: complete.fingerprint,
        scope: complete.scope,
        status: complete.status,
        headers_len: complete.headers.len().try_into().unwrap(),
        body_len: complete.body.len().try_into().unwrap(),
        ttl_ms: complete.ttl_ms,
    }
}
