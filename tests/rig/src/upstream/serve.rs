//! The upstream's HTTP side.

use super::ledger::{Ledger, Seen};
use super::{AnswerBody, Behaviour, Ending};
use anyhow::{Result, anyhow};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{JoinHandle, JoinSet};

/// Waiting connections: tests start hundreds at once.
const BACKLOG: u32 = 4_096;

/// Between the last bytes and a cut, so that the bytes are on their way; and between events.
const PAUSE: Duration = Duration::from_millis(30);

type AnswerStream = UnsyncBoxBody<Bytes, anyhow::Error>;

pub(super) fn listen(addr: SocketAddr) -> Result<TcpListener> {
    // The rig's runtime must be entered: a listener belongs to the runtime it was made in.
    let runtime = crate::runtime::handle()?;
    let _entered = runtime.enter();
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket.listen(BACKLOG)?)
}

pub(super) fn spawn(listener: TcpListener, ledger: Arc<Ledger>) -> Result<JoinHandle<()>> {
    let serve = async move {
        // Dropped with this task, and all connections with it.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let ledger = Arc::clone(&ledger);
            connections.spawn(async move {
                let service = service_fn(|request| answer(Arc::clone(&ledger), request));
                let server = auto::Builder::new(TokioExecutor::new());
                // An error is a cut connection; the ledger knows.
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
            while connections.try_join_next().is_some() {}
        }
    };
    Ok(crate::runtime::handle()?.spawn(serve))
}

async fn answer(ledger: Arc<Ledger>, request: Request<Incoming>) -> Result<Response<AnswerStream>> {
    if let Some(rest) = request.uri().path().strip_prefix("/_rig/") {
        return control(&ledger, rest);
    }
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let id = ledger.head(Seen {
        method: head.method.to_string(),
        path: path.clone(),
        query: head.uri.query().map(str::to_owned),
        headers: head.headers.clone(),
        http2: head.version == Version::HTTP_2,
        ..Seen::default()
    });
    let ending = EndMark { ledger: Arc::clone(&ledger), id, answered: false };
    // One that has made up its mind at the head lets the body lie.
    if !head.headers.contains_key("x-test-early") {
        read_body(&ledger, id, body).await?;
    }
    let n = ledger.execute(id);
    let behaviour = ledger.behaviour(&path).with_request(&head.headers, |name| ledger.gate(name));
    if let Some(gate) = &behaviour.gate {
        gate.pass().await;
    }
    tokio::time::sleep(behaviour.delay).await;
    match behaviour.ending {
        Ending::CloseBeforeHead => Err(anyhow!("closed as asked")),
        Ending::Hang => std::future::pending().await,
        Ending::Whole | Ending::Cut(_) => {
            let bodiless = head.method == Method::HEAD || matches!(behaviour.status, 204 | 304);
            respond(&behaviour, &path, n, bodiless, ending)
        }
    }
}

async fn read_body(ledger: &Ledger, id: usize, mut body: Incoming) -> Result<()> {
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(part) => ledger.body_part(id, &part),
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    ledger.trailers(id, trailers);
                }
            }
        }
    }
    Ok(())
}

fn respond(
    behaviour: &Behaviour,
    path: &str,
    n: u64,
    bodiless: bool,
    ending: EndMark,
) -> Result<Response<AnswerStream>> {
    let pieces = behaviour.pieces(n);
    let left = match (&pieces, behaviour.ending) {
        _ if bodiless => Some(0),
        (Some(pieces), Ending::Whole) => Some(pieces.len() + usize::from(!behaviour.trailers.is_empty())),
        _ => None,
    };
    let mut response = Response::new(watched(body(behaviour, pieces.clone())?, left, ending));
    *response.status_mut() = StatusCode::from_u16(behaviour.status)?;
    let headers = response.headers_mut();
    for (name, value) in &behaviour.headers {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(value)?);
    }
    // The usual headers of a body, unless the script has said them.
    let usual = |headers: &mut HeaderMap, name: &'static str, value: &str| -> Result<()> {
        if !headers.contains_key(name) {
            headers.insert(name, HeaderValue::from_str(value)?);
        }
        Ok(())
    };
    match behaviour.body {
        AnswerBody::Count => {
            usual(headers, "content-type", "application/json")?;
            usual(headers, "location", &format!("{path}/{n}"))?;
        }
        AnswerBody::Endless => usual(headers, "content-type", "text/event-stream")?,
        AnswerBody::Bytes(_) | AnswerBody::Size(_) | AnswerBody::OneBytePieces(_) => {}
    }
    if let (true, Some(pieces)) = (behaviour.state_length && behaviour.status != 204, &pieces) {
        usual(headers, "content-length", &pieces.iter().map(Bytes::len).sum::<usize>().to_string())?;
    }
    for (name, _) in &behaviour.trailers {
        headers.append("trailer", HeaderValue::from_str(name)?);
    }
    Ok(response)
}

/// What a body's stream does next.
enum Step {
    Send(Frame<Bytes>),
    Cut,
}

fn body(behaviour: &Behaviour, pieces: Option<Vec<Bytes>>) -> Result<AnswerStream> {
    let Some(pieces) = pieces else { return Ok(endless()) };
    let mut steps = Vec::new();
    if let Ending::Cut(after) = behaviour.ending {
        let mut left = after;
        for mut piece in pieces {
            let part = piece.split_to(piece.len().min(left));
            left -= part.len();
            if !part.is_empty() {
                steps.push(Step::Send(Frame::data(part)));
            }
        }
        steps.push(Step::Cut);
    } else {
        steps.extend(pieces.into_iter().map(|piece| Step::Send(Frame::data(piece))));
        if !behaviour.trailers.is_empty() {
            let mut trailers = HeaderMap::new();
            for (name, value) in &behaviour.trailers {
                trailers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
            }
            steps.push(Step::Send(Frame::trailers(trailers)));
        }
    }
    let frames = stream::unfold(steps.into_iter(), |mut steps| async {
        let frame = match steps.next()? {
            Step::Send(frame) => {
                // Lets the server write what it has: each piece leaves on its own.
                tokio::task::yield_now().await;
                Ok(frame)
            }
            Step::Cut => {
                tokio::time::sleep(PAUSE).await;
                Err(anyhow!("cut as asked"))
            }
        };
        Some((frame, steps))
    });
    Ok(StreamBody::new(frames).boxed_unsync())
}

fn endless() -> AnswerStream {
    let events = stream::unfold(0_u64, |n| async move {
        tokio::time::sleep(if n == 0 { Duration::ZERO } else { PAUSE }).await;
        Some((Ok(Frame::data(Bytes::from(format!("data: {n}\n\n")))), n + 1))
    });
    StreamBody::new(events).boxed_unsync()
}

/// Says how a request ended: dropped without `answered`, the peer left or the connection was cut.
struct EndMark {
    ledger: Arc<Ledger>,
    id: usize,
    answered: bool,
}

impl Drop for EndMark {
    fn drop(&mut self) {
        self.ledger.ended(self.id, self.answered);
    }
}

/// A body that marks its end. The server stops asking once the stated length was sent, so the end is
/// counted, not awaited.
struct Watched {
    body: AnswerStream,
    /// Frames to come; unknown where the body ends badly or never.
    left: Option<usize>,
    ending: EndMark,
}

fn watched(body: AnswerStream, left: Option<usize>, mut ending: EndMark) -> AnswerStream {
    ending.answered = left == Some(0);
    Watched { body, left, ending }.boxed_unsync()
}

impl Body for Watched {
    type Data = Bytes;
    type Error = anyhow::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, anyhow::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(_))) = polled {
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.ending.answered = self.left == Some(0);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0)
    }
}

fn control(ledger: &Ledger, what: &str) -> Result<Response<AnswerStream>> {
    let text = match what.split('/').collect::<Vec<_>>().as_slice() {
        ["executions"] => {
            let paths = ledger.executions();
            serde_json::json!({"total": paths.values().sum::<u64>(), "paths": paths}).to_string()
        }
        ["gates", name, "open"] => {
            ledger.gate(name).open();
            String::new()
        }
        _ => {
            let mut response = Response::new(plain(String::new()));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(plain(text)))
}

fn plain(text: String) -> AnswerStream {
    http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}
