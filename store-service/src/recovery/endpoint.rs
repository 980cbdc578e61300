//! One request to a provider's endpoint, signed, over a connection of its own.
//!
//! A connection is opened first and used later, so that the last check before sending stands right
//! before the sending. Redirects are not followed: they would lead elsewhere than the settings say.

use super::answer::Reply;
use super::sign::{KEY_ID_HEADER, SIGNATURE_HEADER, SigningKey, TIMESTAMP_HEADER};
use super::targets::Targets;
use super::template::Template;
use crate::tls::Dial;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// One endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Method.
    pub method: Method,
    /// Where, with places.
    pub url: Template,
    /// The way there.
    pub dial: Dial,
    /// How long one request may take, connecting included.
    pub timeout: Duration,
    /// The keys that go with a request that does something.
    pub targets: Targets,
    /// The key that signs.
    pub key: SigningKey,
    /// Longest answer, in bytes.
    pub answer_max: usize,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Message {
    /// Path and query.
    pub path: String,
    /// JSON; none with GET.
    pub body: Bytes,
    /// Headers with the providers' idempotency keys, where something is done.
    pub keys: Vec<(String, String)>,
}

/// Why there is no reply to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoReply {
    /// Nobody answered; why.
    Silence(String),
    /// Somebody did, with what can't be read; why.
    Unreadable(String),
}

impl From<String> for NoReply {
    fn from(why: String) -> Self {
        Self::Silence(why)
    }
}

/// An open connection. Dropping it closes it.
pub struct Line {
    send: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Endpoint {
    /// Opens a connection; says why there is none.
    pub async fn connect(&self) -> Result<Line, String> {
        let open = async {
            let stream = self.dial.connect().await?;
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
        };
        let (send, connection) =
            tokio::time::timeout(self.timeout, open).await.map_err(|_| "no connection in time")??;
        let driver = tokio::spawn(async move {
            // Its end shows in the request.
            let _ = connection.await;
        });
        Ok(Line { send, driver })
    }

    /// Sends on an open connection; says why there is no reply within `limit`, which is never longer
    /// than the endpoint's own.
    pub async fn send(&self, mut line: Line, message: &Message, limit: Duration) -> Result<Reply, NoReply> {
        let request = self.request(&message.path, message)?;
        let exchange = async {
            let reply = line.send.send_request(request).await.map_err(|error| error.to_string())?;
            let status = reply.status().as_u16();
            let body = Limited::new(reply.into_body(), self.answer_max).collect().await;
            let body = body.map_err(|error| {
                // Too long a body is an answer: the provider is there.
                if error.is::<LengthLimitError>() && !Reply::is_no_answer(status) {
                    let longest = self.answer_max;
                    return NoReply::Unreadable(format!("status {status}, and more than {longest} bytes"));
                }
                NoReply::Silence(format!("status {status}, and the body broke off"))
            })?;
            Ok(Reply { status, body: body.to_bytes() })
        };
        let limit = limit.min(self.timeout);
        tokio::time::timeout(limit, exchange)
            .await
            .unwrap_or_else(|_| Err("no answer in time".to_owned().into()))
    }

    fn request(&self, path: &str, message: &Message) -> Result<Request<Full<Bytes>>, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let signature = self.key.sign(now, self.method.as_str(), path, &message.body);
        let mut request = Request::builder()
            .method(self.method.clone())
            .uri(path)
            .header(header::HOST, self.url.authority())
            .header(header::ACCEPT, "application/json")
            .header(TIMESTAMP_HEADER, now)
            .header(KEY_ID_HEADER, self.key.id())
            .header(SIGNATURE_HEADER, signature);
        if !message.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, key) in &message.keys {
            request = request.header(name, key);
        }
        request.body(Full::new(message.body.clone())).map_err(|error| error.to_string())
    }
}
