//! Calls to a running service, over HTTP or HTTPS.

use super::model::ProblemView;
use crate::tls::{ClientTls, Dial, Trust};
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;

/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest reply: an answer of 32 MiB in base64, and its audit.
const REPLY_MAX: usize = 64 * 1024 * 1024;

/// Where the service is, and as whom to call it.
#[derive(Debug, Args)]
pub struct ClientArgs {
    /// The service.
    #[arg(long, env = "FENCEPOST_URL", default_value = "http://127.0.0.1:7070", value_name = "URL")]
    url: Uri,

    /// File with an operator's bearer token.
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    token_file: Option<PathBuf>,

    /// Variable with an operator's bearer token; FENCEPOST_TOKEN if it is set.
    #[arg(long, value_name = "NAME")]
    token_env: Option<String>,

    /// Authorities of the service's certificate, in PEM [default: the system's].
    #[arg(long, env = "FENCEPOST_CA", value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Client certificate in place of a token, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ClientArgs {
    fn tls(&self) -> Result<ClientTls, CallError> {
        let own = match (self.tls_cert.as_deref(), self.tls_key.as_deref()) {
            (Some(cert), Some(key)) => Some((("--tls-cert", cert), ("--tls-key", key))),
            _ => None,
        };
        let trust = Trust::of("--ca", self.ca.as_deref());
        ClientTls::open(trust, own).map_err(|error| CallError::Setting(error.to_string()))
    }

    fn dial(&self) -> Result<Dial, CallError> {
        let url = &self.url;
        let wrong = |why: String| CallError::Setting(format!("--url {url}: {why}"));
        let tls = match self.url.scheme_str() {
            Some("https") => Some(self.tls()?),
            Some("http") if self.ca.is_some() || self.tls_cert.is_some() => {
                return Err(wrong("found certificates for a service without https".into()));
            }
            Some("http") => None,
            _ => return Err(wrong("expected http://HOST:PORT or https://HOST:PORT".into())),
        };
        let authority = self.url.authority().map_or("", hyper::http::uri::Authority::as_str);
        Dial::new(authority, tls).map_err(wrong)
    }
}

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A setting can't work.
    #[error("{0}")]
    Setting(String),
    /// The service can't be reached, or what answers is not the service.
    #[error("{0}")]
    Unreachable(String),
    /// The service said no.
    #[error("{}: {}", .0.code, .0.detail)]
    Refused(ProblemView),
}

/// The service.
pub struct Client {
    url: Uri,
    dial: Dial,
    token: Option<String>,
}

impl Client {
    /// Reads the settings.
    pub fn new(args: &ClientArgs) -> Result<Self, CallError> {
        let (dial, token) = (args.dial()?, token(args)?);
        if token.is_some() && !dial.is_encrypted() && !dial.is_loopback() {
            eprintln!("--url {}: the token travels in clear; expected https", args.url);
        }
        Ok(Self { url: args.url.clone(), dial, token })
    }

    /// `GET`
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// `POST` of JSON.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, CallError> {
        let body = serde_json::to_vec(body).map_err(|error| CallError::Setting(error.to_string()))?;
        self.call(Method::POST, path, body.into()).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, CallError> {
        let answered = tokio::time::timeout(CALL_TIMEOUT, self.send(method, path, body)).await;
        let (status, body) = answered
            .map_err(|_| self.unreachable("no answer in time; whether an order was done is not known"))??;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|error| self.unreachable(error));
        }
        match serde_json::from_slice(&body) {
            Ok(problem) => Err(CallError::Refused(problem)),
            Err(_) => Err(self.unreachable(format!("status {status}; is that the service?"))),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), CallError> {
        let stream = self.dial.connect().await.map_err(|error| self.unreachable(error))?;
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        tokio::spawn(connection);
        let authority = self.url.authority().map_or("", hyper::http::uri::Authority::as_str);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(body))
            .map_err(|_| CallError::Setting("the token has characters that no header may have".into()))?;
        let response = send.send_request(request).await.map_err(|error| self.unreachable(error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, REPLY_MAX).collect().await.map_err(|error| self.unreachable(error))?;
        Ok((parts.status, body.to_bytes()))
    }

    fn unreachable(&self, why: impl std::fmt::Display) -> CallError {
        CallError::Unreachable(format!("--url {}: {why}", self.url))
    }
}

fn token(args: &ClientArgs) -> Result<Option<String>, CallError> {
    let (text, from) = match (&args.token_file, &args.token_env) {
        (Some(path), _) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                let path = path.display();
                CallError::Setting(format!(
                    "--token-file {path}: {error}; expected a file with the token alone"
                ))
            })?;
            (text, "--token-file")
        }
        (None, Some(name)) => {
            let text = std::env::var(name)
                .map_err(|_| CallError::Setting(format!("--token-env {name}: there is no such variable")))?;
            (text, "--token-env")
        }
        (None, None) => match std::env::var("FENCEPOST_TOKEN") {
            Ok(text) => (text, "FENCEPOST_TOKEN"),
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(CallError::Setting(format!("{from}: expected one token, and nothing else")));
    }
    Ok(Some(token.to_owned()))
}
