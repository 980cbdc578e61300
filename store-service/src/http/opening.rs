//! The beginning of a connection has to come in time.
//!
//! Until a connection has shown whether it speaks HTTP/1 or HTTP/2, neither of them looks at the
//! clock: one that sends nothing, or a part of HTTP/2's preface, would keep its place for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What an HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reading fails if its version is not known in time.
pub struct Opening<S> {
    stream: S,
    /// None: it is known.
    undecided: Option<Undecided>,
}

struct Undecided {
    end: Pin<Box<Sleep>>,
    /// What the preface still lacks.
    lacks: &'static [u8],
}

impl<S> Opening<S> {
    /// With this time from now on.
    pub fn new(stream: S, patience: Duration) -> Self {
        let undecided = Undecided { end: Box::pin(tokio::time::sleep(patience)), lacks: PREFACE };
        Self { stream, undecided: Some(undecided) }
    }
}

impl Undecided {
    /// Is the version still open after these bytes? None are the end of the stream.
    fn after(&mut self, bytes: &[u8]) -> bool {
        self.lacks = self.lacks.strip_prefix(bytes).unwrap_or_default();
        !bytes.is_empty() && !self.lacks.is_empty()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let known = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let Some(undecided) = &mut this.undecided else { return read };
        match read {
            Poll::Pending if undecided.end.as_mut().poll(cx).is_ready() => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the connection said nothing in time",
            ))),
            Poll::Ready(Ok(())) => {
                if !undecided.after(buf.filled().get(known..).unwrap_or_default()) {
                    this.undecided = None;
                }
                read
            }
            Poll::Pending | Poll::Ready(Err(_)) => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
