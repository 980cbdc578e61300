//! HTTP calls as a test wants them: one connection each, headers as bytes, bounded.
//!
//! A call whose future is dropped closes its connection at once: that is a client that hangs up.

use crate::token;
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Longest call, unless another bound is set.
const CALL_WITHIN: Duration = Duration::from_secs(30);

/// A request; may be sent many times.
#[derive(Debug, Clone)]
pub struct Call {
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    chunks: Vec<Bytes>,
    chunked: bool,
    trailers: Vec<(String, String)>,
    http2: bool,
    within: Duration,
}

impl Call {
    /// A request without headers or body.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            chunks: Vec::new(),
            chunked: false,
            trailers: Vec::new(),
            http2: false,
            within: CALL_WITHIN,
        }
    }

    /// A POST.
    pub fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    /// A GET.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a header line; an equal name gives a second line.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Adds an `Idempotency-Key`.
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Adds a token of a demo user.
    pub fn user(self, subject: &str) -> Self {
        self.header("authorization", format!("Bearer {}", token::for_user(subject)))
    }

    /// Sets a JSON body with its content type.
    pub fn json(self, body: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Sets the body; its length is sent.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.chunks = vec![body.into()];
        self.chunked = false;
        self
    }

    /// Sets a body of several parts without a stated length.
    pub fn chunks(mut self, chunks: Vec<Bytes>) -> Self {
        self.chunks = chunks;
        self.chunked = true;
        self
    }

    /// Adds a trailer; the body is sent without a stated length.
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self.chunked = true;
        self
    }

    /// Uses HTTP/2 without TLS.
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Sets the bound on the whole call.
    pub fn within(mut self, bound: Duration) -> Self {
        self.within = bound;
        self
    }

    /// Sends it and reads the whole answer.
    pub async fn send(&self, to: SocketAddr) -> Result<Answer> {
        let call = async { self.connect(to).await?.whole().await };
        let what = || format!("{} {}", self.method, self.target);
        let bounded = tokio::time::timeout(self.within, call).await;
        bounded
            .map_err(|_| anyhow!("no answer within {:?}", self.within))
            .with_context(what)?
            .with_context(what)
    }

    /// Sends it and reads only the head of the answer.
    pub async fn open(&self, to: SocketAddr) -> Result<OpenAnswer> {
        let call = tokio::time::timeout(self.within, self.connect(to)).await;
        call.map_err(|_| anyhow!("no answer within {:?}", self.within))?
    }

    /// Sends it over a connection that is there, such as one with TLS, and reads the whole answer.
    pub async fn send_over<S>(&self, stream: S, to: SocketAddr) -> Result<Answer>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let call = async { self.converse(stream, to).await?.whole().await };
        let bounded = tokio::time::timeout(self.within, call).await;
        bounded.map_err(|_| anyhow!("no answer within {:?}", self.within))?
    }

    async fn connect(&self, to: SocketAddr) -> Result<OpenAnswer> {
        let stream = TcpStream::connect(to).await.context("connect")?;
        stream.set_nodelay(true)?;
        self.converse(stream, to).await
    }

    async fn converse<S>(&self, stream: S, to: SocketAddr) -> Result<OpenAnswer>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        let request = self.request(to)?;
        let (response, connection) = if self.http2 {
            let (mut send, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.context("handshake")?;
            let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
            (send.send_request(request).await?, connection)
        } else {
            let (mut send, connection) =
                hyper::client::conn::http1::handshake(io).await.context("handshake")?;
            let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
            (send.send_request(request).await?, connection)
        };
        Ok(OpenAnswer { response, _connection: connection })
    }

    fn request(&self, to: SocketAddr) -> Result<Request<BoxBody<Bytes, Infallible>>> {
        let uri = if self.http2 && self.target.starts_with('/') {
            format!("http://{to}{}", self.target)
        } else {
            self.target.clone()
        };
        let mut request = Request::new(self.request_body()?);
        *request.method_mut() = Method::from_bytes(self.method.as_bytes())?;
        *request.uri_mut() = uri.parse::<Uri>().context("target")?;
        let headers = request.headers_mut();
        for (name, value) in &self.headers {
            headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
        }
        if !self.http2 && !headers.contains_key("host") {
            headers.insert("host", HeaderValue::from_str(&to.to_string())?);
        }
        for (name, _) in &self.trailers {
            headers.append("trailer", HeaderValue::from_str(name)?);
        }
        if !self.trailers.is_empty() {
            headers.append("te", HeaderValue::from_static("trailers"));
        }
        Ok(request)
    }

    fn request_body(&self) -> Result<BoxBody<Bytes, Infallible>> {
        if !self.chunked {
            let body = self.chunks.first().cloned().unwrap_or_default();
            return Ok(http_body_util::Full::new(body).boxed());
        }
        let mut frames = self.chunks.iter().cloned().map(Frame::data).collect::<Vec<_>>();
        if !self.trailers.is_empty() {
            let mut trailers = HeaderMap::new();
            for (name, value) in &self.trailers {
                trailers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
            }
            frames.push(Frame::trailers(trailers));
        }
        Ok(BodyExt::boxed(StreamBody::new(stream::iter(frames.into_iter().map(Ok)))))
    }
}

/// Closes the connection when dropped.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer whose body is still to come. Dropping it closes the connection.
#[derive(Debug)]
pub struct OpenAnswer {
    response: Response<Incoming>,
    _connection: Connection,
}

impl OpenAnswer {
    /// HTTP status.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Header lines.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next part of the body; `None` at its end, an error where it was cut.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.response.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Reads the rest.
    pub async fn whole(self) -> Result<Answer> {
        let (head, body) = self.response.into_parts();
        let body = body.collect().await.with_context(|| format!("body after {} was cut", head.status))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes(), trailers })
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header lines, repeated names included.
    pub headers: HeaderMap,
    /// Body bytes.
    pub body: Bytes,
    /// Trailers.
    pub trailers: HeaderMap,
}

impl Answer {
    /// A header's first value as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All values of a header.
    pub fn header_lines(&self, name: &str) -> Vec<Vec<u8>> {
        self.headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
    }

    /// The body as text, for comparing and for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; `Null` where it is not.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// `code` of a problem body; empty where there is none.
    pub fn problem_code(&self) -> String {
        self.json().get("code").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    }

    /// Whether this is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.header("x-idempotent-replayed") == Some("true")
    }
}
