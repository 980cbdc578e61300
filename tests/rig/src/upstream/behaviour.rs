//! What the upstream does with a request: set by a test, or by the request's `x-test-*` headers.

use super::Gate;
use bytes::Bytes;
use hyper::HeaderMap;
use std::time::Duration;

/// Pieces that a body of a given size is sent in.
const PIECE: usize = 16 * 1024;

/// What to do with one request.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// HTTP status.
    pub status: u16,
    /// Header lines, as bytes; 0x80 to 0xFF are allowed in values.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: AnswerBody,
    /// Whether the body's length is stated.
    pub state_length: bool,
    /// Waits here first.
    pub gate: Option<Gate>,
    /// Then waits this long.
    pub delay: Duration,
    /// How the answer ends.
    pub ending: Ending,
    /// Trailers; need a body without a stated length.
    pub trailers: Vec<(String, String)>,
}

/// An answer's body.
#[derive(Debug, Clone)]
pub enum AnswerBody {
    /// `{"n":N}` with `Location: PATH/N`, N being the number of the execution on this path.
    Count,
    /// These bytes.
    Bytes(Bytes),
    /// This many bytes.
    Size(usize),
    /// These bytes, each in a piece of its own.
    OneBytePieces(Bytes),
    /// Server-sent events without end.
    Endless,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In order.
    Whole,
    /// The connection closes before the head.
    CloseBeforeHead,
    /// The connection closes after this many bytes of the body.
    Cut(usize),
    /// Never: no head comes.
    Hang,
}

impl Default for Behaviour {
    /// 201 with a count.
    fn default() -> Self {
        Self {
            status: 201,
            headers: Vec::new(),
            body: AnswerBody::Count,
            state_length: true,
            gate: None,
            delay: Duration::ZERO,
            ending: Ending::Whole,
            trailers: Vec::new(),
        }
    }
}

impl Behaviour {
    /// Answers with a status and the usual body.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Waits at a gate.
    pub fn gated(gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..Self::default() }
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: AnswerBody) -> Self {
        self.body = body;
        self
    }

    /// Sends the body without a stated length.
    pub fn chunked(mut self) -> Self {
        self.state_length = false;
        self
    }

    /// Waits at a gate.
    pub fn at(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Waits before the answer.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the ending.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Adds a trailer; the body's length is not stated.
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self.state_length = false;
        self
    }

    /// Applies the request's `x-test-*` headers:
    /// `status`, `header` (`name: value`, repeatable), `body`, `body-size`, `pieces` (a text sent in
    /// one-byte pieces), `sse`, `chunked`, `delay-ms`, `gate` (a name), `trailer` (`name: value`) and
    /// `ending` (`close`, `hang`, `cut:BYTES`). What can't be read is left out. `early` is not seen here:
    /// a request that has it is answered before its body is read.
    pub(super) fn with_request(mut self, headers: &HeaderMap, gate: impl Fn(&str) -> Gate) -> Self {
        for (name, value) in headers {
            let Some(name) = name.as_str().strip_prefix("x-test-") else { continue };
            let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            self = match name {
                "status" => Self { status: text.parse().unwrap_or(self.status), ..self },
                "header" => match split_line(value.as_bytes()) {
                    Some((name, value)) => self.header(&name, value),
                    None => self,
                },
                "body" => self.body(AnswerBody::Bytes(Bytes::copy_from_slice(value.as_bytes()))),
                "body-size" => self.body(AnswerBody::Size(text.parse().unwrap_or(0))),
                "pieces" => self.body(AnswerBody::OneBytePieces(text.into())).chunked(),
                "sse" => self.body(AnswerBody::Endless),
                "chunked" => self.chunked(),
                "delay-ms" => self.delay(Duration::from_millis(text.parse().unwrap_or(0))),
                "gate" => self.at(&gate(&text)),
                "trailer" => match text.split_once(':') {
                    Some((name, value)) => self.trailer(name.trim(), value.trim()),
                    None => self,
                },
                "ending" => match text.as_str() {
                    "close" => self.ending(Ending::CloseBeforeHead),
                    "hang" => self.ending(Ending::Hang),
                    other => match other.strip_prefix("cut:").and_then(|bytes| bytes.parse().ok()) {
                        Some(bytes) => self.ending(Ending::Cut(bytes)),
                        None => self,
                    },
                },
                _ => self,
            };
        }
        self
    }

    /// The body's bytes in the pieces they are sent in; `None` where it has no end.
    pub(super) fn pieces(&self, n: u64) -> Option<Vec<Bytes>> {
        let whole = match &self.body {
            AnswerBody::Count => Bytes::from(format!("{{\"n\":{n}}}")),
            AnswerBody::Bytes(bytes) => bytes.clone(),
            AnswerBody::Size(size) => (b'a'..=b'z').cycle().take(*size).collect(),
            AnswerBody::OneBytePieces(bytes) => {
                return Some((0..bytes.len()).map(|at| bytes.slice(at..=at)).collect());
            }
            AnswerBody::Endless => return None,
        };
        let mut pieces = Vec::new();
        let mut rest = whole;
        while !rest.is_empty() {
            pieces.push(rest.split_to(rest.len().min(PIECE)));
        }
        Some(pieces)
    }
}

fn split_line(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(line.get(..colon)?).ok()?.trim().to_owned();
    Some((name, line.get(colon + 1..)?.trim_ascii().to_vec()))
}
