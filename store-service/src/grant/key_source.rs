//! Where an issuer's keys come from: fixed, or a URL that is read again when it has to be.
//!
//! Rotation: a token with an unknown key id makes one reading, throttled, so that a flood of made-up
//! ids costs the issuer nothing; a set that is too old is read again as well, so that a key that was
//! taken back is forgotten. When reading fails, the old set serves until it is ten times too old;
//! then nothing is accepted. Only the configured URL is ever asked, and it is never taken from a
//! token. Race: callers that need a reading at once wait for one.
//!
//! The URL is `https`, or `http` on this machine, where a proxy beside the service reaches the issuer.
//! A host elsewhere without TLS is refused, because whoever sits on the way could put in a key.

use super::duration::Span;
use super::keys::KeySet;
use crate::tls::{ClientTls, Dial, Trust};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long one reading may take.
const READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest key set, in bytes.
const SET_MAX: usize = 256 * 1024;

/// A set serves without a fresh reading for this many times its age.
const STALE_FACTOR: u32 = 10;

/// A URL that can't be used.
#[derive(Debug)]
pub struct KeySourceError(pub String);

/// Keys that can't be had now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKeys;

/// The keys of one issuer.
pub enum KeySource {
    /// From the file.
    Fixed(Arc<KeySet>),
    /// From a URL.
    Url(Box<Remote>),
}

/// Keys behind a URL.
pub struct Remote {
    dial: Dial,
    authority: String,
    path: String,
    refresh_min: Duration,
    max_age: Duration,
    held: RwLock<Option<Held>>,
    /// When the last reading began; held while one runs.
    last_try: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Held {
    keys: Arc<KeySet>,
    at: Instant,
}

impl KeySource {
    /// Keys that do not change.
    pub fn fixed(keys: KeySet) -> Self {
        Self::Fixed(Arc::new(keys))
    }

    /// Keys behind a URL; with `https` its certificate is one of the authorities in `ca`, or of the
    /// system's.
    pub fn url(
        url: &str,
        ca: Option<&Path>,
        refresh_min: Span,
        max_age: Span,
    ) -> Result<Self, KeySourceError> {
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => {
                let tls = ClientTls::open(Trust::of("ca_file", ca), None);
                (Some(tls.map_err(|error| KeySourceError(error.to_string()))?), rest)
            }
            (None, Some(_)) if ca.is_some() => {
                return Err(KeySourceError("found ca_file with http; expected https://HOST/PATH".into()));
            }
            (None, Some(rest)) => (None, rest),
            (None, None) => return Err(KeySourceError("expected https://HOST/PATH".into())),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let dial = Dial::new(authority, tls).map_err(KeySourceError)?;
        if !dial.is_encrypted() && !dial.is_loopback() {
            return Err(KeySourceError(
                "found http to another machine; expected https://HOST/PATH, or http to 127.0.0.1, [::1] or \
                 localhost, where a proxy speaks TLS onwards: whoever sits on the way could put in a key"
                    .into(),
            ));
        }
        if refresh_min == Span::default() || max_age == Span::default() {
            return Err(KeySourceError("refresh_min, max_age: expected more than zero".into()));
        }
        Ok(Self::Url(Box::new(Remote {
            dial,
            authority: authority.to_owned(),
            path: format!("/{path}"),
            refresh_min: refresh_min.duration(),
            max_age: max_age.duration(),
            held: RwLock::new(None),
            last_try: Mutex::new(None),
        })))
    }

    /// The keys; read first when there are none or they are too old.
    pub async fn keys(&self) -> Result<Arc<KeySet>, NoKeys> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::Url(remote) => remote.keys().await,
        }
    }

    /// The keys after a token named one that `had` does not have; `None` when there are no others.
    pub async fn other_keys(&self, had: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        match self {
            Self::Fixed(_) => None,
            Self::Url(remote) => remote.other_keys(had).await,
        }
    }
}

impl Remote {
    fn held(&self) -> Option<Held> {
        self.held.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    async fn keys(&self) -> Result<Arc<KeySet>, NoKeys> {
        let fresh = |held: &Held| held.at.elapsed() <= self.max_age;
        if let Some(held) = self.held().filter(fresh) {
            return Ok(held.keys);
        }
        let mut last_try = self.last_try.lock().await;
        if self.held().filter(fresh).is_none() {
            self.read(&mut last_try).await;
        }
        let usable = |held: &Held| held.at.elapsed() <= self.max_age * STALE_FACTOR;
        self.held().filter(usable).map(|held| held.keys).ok_or(NoKeys)
    }

    async fn other_keys(&self, had: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let other = |held: &Held| !Arc::ptr_eq(&held.keys, had);
        let mut last_try = self.last_try.lock().await;
        if self.held().filter(other).is_none() {
            self.read(&mut last_try).await;
        }
        self.held().filter(other).map(|held| held.keys)
    }

    /// One reading, unless there was one a moment ago.
    async fn read(&self, last_try: &mut Option<Instant>) {
        if last_try.is_some_and(|at| at.elapsed() < self.refresh_min) {
            return;
        }
        *last_try = Some(Instant::now());
        let result = match tokio::time::timeout(READ_TIMEOUT, self.fetch()).await {
            Ok(result) => result,
            Err(_) => Err("no answer in time".into()),
        };
        match result {
            Ok(keys) => {
                let held = Held { keys: Arc::new(keys), at: Instant::now() };
                *self.held.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(held);
                metrics::counter!("fencepost_grant_key_reads_total", "result" => "read").increment(1);
            }
            Err(reason) => {
                metrics::counter!("fencepost_grant_key_reads_total", "result" => "failed").increment(1);
                tracing::warn!(authority = self.authority, %reason, "an issuer's keys can't be read");
            }
        }
    }

    async fn fetch(&self) -> Result<KeySet, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let stream = self.dial.connect().await?;
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| told(&error))?;
        let driver = tokio::spawn(connection);
        let request = Request::get(&self.path)
            .header(hyper::header::HOST, &self.authority)
            .header(hyper::header::ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new())
            .map_err(|error| told(&error))?;
        let reply = send.send_request(request).await.map_err(|error| told(&error))?;
        if reply.status() != hyper::StatusCode::OK {
            // A redirect is not followed: it would be another URL than the configured one.
            return Err(format!("status {}; expected 200", reply.status().as_u16()));
        }
        let body = Limited::new(reply.into_body(), SET_MAX).collect().await.map_err(|error| told(&error))?;
        driver.abort();
        let text = String::from_utf8(body.to_bytes().to_vec()).map_err(|_| "not UTF-8".to_owned())?;
        KeySet::parse(&text)
    }
}
