//! Calls to a running service, over HTTP or HTTPS.

use super::model::ProblemView;
use crate::tls::ClientTls;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

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

    /// Authorities of the service's certificate, in PEM; needed with https.
    #[arg(long, env = "FENCEPOST_CA", value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Client certificate in place of a token, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "ca"])]
    tls_cert: Option<PathBuf>,

    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl ClientArgs {
    fn tls(&self) -> Result<ClientTls, CallError> {
        let ca = self.ca.as_deref().ok_or_else(|| {
            let url = &self.url;
            CallError::Setting(format!(
                "--url {url}: expected --ca FILE with the authorities of its certificate"
            ))
        })?;
        let own = match (self.tls_cert.as_deref(), self.tls_key.as_deref()) {
            (Some(cert), Some(key)) => Some((("--tls-cert", cert), ("--tls-key", key))),
            _ => None,
        };
        ClientTls::open(("--ca", ca), own).map_err(|error| CallError::Setting(error.to_string()))
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
    host: String,
    address: String,
    tls: Option<ClientTls>,
    token: Option<String>,
}

impl Client {
    /// Reads the settings.
    pub fn new(args: &ClientArgs) -> Result<Self, CallError> {
        let (host, usual, tls) = match (args.url.scheme_str(), args.url.host()) {
            (Some("http"), Some(host)) => (host, 80, None),
            (Some("https"), Some(host)) => (host, 443, Some(args.tls()?)),
            _ => {
                let url = &args.url;
                return Err(CallError::Setting(format!(
                    "--url {url}: expected http://HOST:PORT or https://HOST:PORT"
                )));
            }
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = args.url.port_u16().unwrap_or(usual);
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self { url: args.url.clone(), host, address, tls, token: token(args)? })
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
        let stream = TcpStream::connect(&self.address).await.map_err(|error| self.unreachable(error))?;
        let Some(tls) = &self.tls else { return self.send_over(stream, method, path, body).await };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| self.unreachable(error))?;
        let connected = TlsConnector::from(tls.config()).connect(name, stream).await;
        self.send_over(connected.map_err(|error| self.unreachable(error))?, method, path, body).await
    }

    async fn send_over<S>(
        &self,
        stream: S,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.unreachable(error))?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.address)
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
