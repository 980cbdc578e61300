//! Clients of the load: one request at a time on each, over a kept connection.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Protocol between a client and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 on connections that stay open.
    Http1,
    /// HTTP/2 without TLS.
    H2c,
}

impl Protocol {
    /// In names of figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::H2c => "h2c",
        }
    }
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    H2c(http2::SendRequest<Full<Bytes>>),
}

/// A client.
pub struct Client {
    sender: Sender,
    addr: SocketAddr,
}

/// An answer.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Whether it carries the marker of a replay.
    pub replayed: bool,
    /// Its body.
    pub body: Bytes,
}

/// As many clients on as many connections; clients of one HTTP/2 connection share it.
pub async fn clients(
    addr: SocketAddr,
    protocol: Protocol,
    count: usize,
    connections: usize,
) -> Result<Vec<Client>> {
    let mut clients: Vec<Client> = Vec::with_capacity(count);
    for at in 0..count {
        let sender = match (protocol, clients.get(at % connections.max(1))) {
            (Protocol::H2c, Some(Client { sender: Sender::H2c(sender), .. })) => Sender::H2c(sender.clone()),
            _ => connect(addr, protocol).await?,
        };
        clients.push(Client { sender, addr });
    }
    Ok(clients)
}

async fn connect(addr: SocketAddr, protocol: Protocol) -> Result<Sender> {
    let stream = TcpStream::connect(addr).await.with_context(|| format!("connect to {addr}"))?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(stream);
    match protocol {
        Protocol::Http1 => {
            let (sender, connection) = http1::handshake(io).await?;
            tokio::spawn(connection);
            Ok(Sender::Http1(sender))
        }
        Protocol::H2c => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(1 << 20).initial_connection_window_size(16 << 20);
            builder.max_concurrent_streams(30_000).initial_max_send_streams(4_096);
            let (sender, connection) = builder.handshake(io).await?;
            tokio::spawn(connection);
            Ok(Sender::H2c(sender))
        }
    }
}

impl Client {
    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Answer> {
        let response: Response<Incoming> = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::H2c(sender) => {
                // HTTP/2 needs the whole address.
                let target = format!("http://{}{}", self.addr, request.uri());
                *request.uri_mut() = target.parse()?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        let replayed = head.headers.contains_key("x-idempotent-replayed");
        Ok(Answer { status: head.status, replayed, body: body.collect().await?.to_bytes() })
    }

    /// Posts a frame to the store service and returns the frame that it answers.
    pub async fn frame(&mut self, path: &str, frame: Bytes) -> Result<Bytes> {
        self.post(path, fencepost_protocol::FRAME_MEDIA_TYPE, frame).await
    }

    /// Posts a body to the store service and returns the body that it answers with 200.
    pub async fn post(&mut self, path: &str, media_type: &str, body: Bytes) -> Result<Bytes> {
        let request = Request::post(path)
            .header("host", "store")
            .header("content-type", media_type)
            .body(Full::new(body))?;
        let answer = self.send(request).await?;
        if answer.status != StatusCode::OK {
            bail!("{path}: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
        Ok(answer.body)
    }
}
