//! Traces: spans of calls and statements, sent to a collector by OTLP over HTTP.
//!
//! Off unless an endpoint is set; then the spans cost nothing, because nobody asks for their level.
//! A call's span belongs to the trace that its `traceparent` names (W3C Trace Context), and is kept
//! if its caller keeps that trace. A trace says which call and which statement ran, how long, and
//! what came of it: no key, no scope, no token, no part of a request or an answer.
//!
//! A collector that is away or slow costs spans, never a call: they are sent by a thread of its
//! own out of a bounded queue, and dropped when it is full.

use crate::tls::{ClientTls, Dial};
use axum::extract::{MatchedPath, Request};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tokio::runtime::Handle;
use tracing::{Instrument, Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// Target of the spans: nothing else that this program writes is sent.
pub const TARGET: &str = "fencepost_trace";

/// How long one sending may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Most of a collector's answer that is read, in bytes.
const ANSWER_MAX: usize = 64 * 1024;

/// Where spans go. Whoever has it ends it, so that the last ones are sent.
pub struct Traces(SdkTracerProvider);

/// An endpoint that can't be used; why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TracesError(pub String);

impl Traces {
    /// To a collector: `endpoint` is the whole URL, usually `http://HOST:4318/v1/traces`. With TLS it
    /// is `https`, and the collector is verified.
    pub fn to(endpoint: &str, tls: Option<ClientTls>) -> Result<Self, TracesError> {
        // It may hold a password, so it is not repeated.
        let wrong = || TracesError("found something else".to_owned());
        let url: hyper::Uri = endpoint.parse().map_err(|_| wrong())?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let authority = url.authority().filter(|_| url.scheme_str() == Some(scheme)).ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(TracesError("found a user in it".to_owned()));
        }
        let dial = Dial::new(authority.as_str(), tls).map_err(TracesError)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender { dial, runtime: Handle::current() })
            .with_endpoint(endpoint)
            .with_timeout(SEND_TIMEOUT)
            .build()
            .map_err(|error| TracesError(error.to_string()))?;
        let resource = Resource::builder().with_service_name("fencepost-store").build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Self(provider))
    }

    /// What makes spans of this program's.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.0.tracer("fencepost-store");
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(TARGET, Level::TRACE))
    }

    /// Sends what is left, and ends.
    pub async fn end(self) {
        // It waits for the sending thread, which needs this runtime for its socket.
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown());
        if let Ok(Err(error)) = ended.await {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Sends on the service's runtime, for the exporter's thread, which has none; a connection for each
/// batch, which is one in some seconds.
#[derive(Debug)]
struct Sender {
    dial: Dial,
    runtime: Handle,
}

async fn send(dial: &Dial, request: hyper::Request<Bytes>) -> Result<hyper::Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().map(ToString::to_string).unwrap_or_default();
    head.headers.insert(hyper::header::HOST, authority.parse()?);
    // The path alone, as one asks a server that is no proxy.
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    head.uri = path.parse()?;
    let (mut send, connection) = handshake(TokioIo::new(dial.connect().await?)).await?;
    let driver = tokio::spawn(connection);
    let reply = send.send_request(hyper::Request::from_parts(head, Full::new(body))).await?;
    let (head, body) = reply.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
    driver.abort();
    Ok(hyper::Response::from_parts(head, body))
}

#[async_trait::async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: hyper::Request<Bytes>) -> Result<hyper::Response<Bytes>, HttpError> {
        let dial = self.dial.clone();
        let sent = self
            .runtime
            .spawn(async move { tokio::time::timeout(SEND_TIMEOUT, send(&dial, request)).await? });
        sent.await?
    }
}

/// A span around a call, in its caller's trace.
pub async fn call(path: Option<MatchedPath>, request: Request, next: Next) -> Response {
    // The path as it was matched: one that was asked for may hold anything.
    let route = path.as_ref().map_or("unmatched", MatchedPath::as_str);
    let span = tracing::trace_span!(
        target: TARGET, "call",
        otel.name = route, otel.kind = "server", otel.status_code = tracing::field::Empty,
        http.request.method = request.method().as_str(), http.route = route,
        http.response.status_code = tracing::field::Empty,
    );
    if span.is_disabled() {
        return next.run(request).await;
    }
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Headers(request.headers())));
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// A span around one operation on the store, within the caller's.
pub fn operation(name: &'static str, store: &'static str) -> Span {
    tracing::trace_span!(
        target: TARGET, "operation",
        otel.name = name, db.operation.name = name, db.system.name = store,
    )
}

/// A span around one statement. It serves a batch of operations: it stands in the trace of the
/// first, and is linked with the others.
pub fn statement<'a>(name: &'static str, mut operations: impl ExactSizeIterator<Item = &'a Span>) -> Span {
    let size = operations.len();
    let parent = operations.next().and_then(Span::id);
    let span = tracing::trace_span!(
        target: TARGET, parent: parent, "statement",
        otel.name = name, otel.kind = "client", db.system.name = "postgresql",
        db.query.summary = name, db.operation.batch.size = size,
    );
    for other in operations {
        span.follows_from(other);
    }
    span
}

/// A span around a statement that serves one operation alone, within the current one.
pub fn statement_alone(name: &'static str) -> Span {
    tracing::trace_span!(
        target: TARGET, "statement",
        otel.name = name, otel.kind = "client", db.system.name = "postgresql", db.query.summary = name,
    )
}

/// A span around a piece of work that no call asked for: the root of a trace of its own.
pub fn work(name: &'static str) -> Span {
    tracing::trace_span!(target: TARGET, parent: None, "work", otel.name = name)
}

/// A span around a request to somebody else, within the current one.
pub fn request(name: &'static str) -> Span {
    tracing::trace_span!(target: TARGET, "request", otel.name = name, otel.kind = "client")
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_is_refused_is_not_repeated() {
        for endpoint in [
            "http://me:secret@host/v1/traces",
            "ftp://me:secret@host/",
            "me:secret@host",
            "http://me:secret@ho st/",
        ] {
            let told = Traces::to(endpoint, None).err().unwrap().to_string();
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
