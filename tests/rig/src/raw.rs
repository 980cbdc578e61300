//! Plain TCP, for what a proper HTTP library refuses to do: broken requests, odd header bytes,
//! hanging up in the middle.

use anyhow::{Result, anyhow};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Longest wait for bytes.
const BYTES_WITHIN: Duration = Duration::from_secs(30);

/// A connection. Dropping it closes it.
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    /// Connects.
    pub async fn open(to: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Connects, and takes few bytes that are not read.
    pub async fn open_narrow(to: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4_096)?;
        Ok(Self { stream: socket.connect(to).await? })
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.stream.write_all(bytes.as_ref()).await?)
    }

    /// Ends our direction only.
    pub async fn finish(&mut self) -> Result<()> {
        Ok(self.stream.shutdown().await?)
    }

    /// Reads until `mark` was seen or the peer ended; gives all bytes read.
    pub async fn read_until(&mut self, mark: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut part = [0; 8192];
        while mark.is_empty() || !bytes.windows(mark.len()).any(|window| window == mark) {
            let read = tokio::time::timeout(BYTES_WITHIN, self.stream.read(&mut part)).await;
            let len =
                read.map_err(|_| anyhow!("nothing within {BYTES_WITHIN:?} after {} bytes", bytes.len()))??;
            if len == 0 {
                break;
            }
            bytes.extend_from_slice(part.get(..len).unwrap_or_default());
        }
        Ok(bytes)
    }

    /// Reads until the peer ends.
    pub async fn read_to_end(&mut self) -> Result<Vec<u8>> {
        self.read_until(b"").await
    }

    /// Closes at once with a reset instead of an orderly end.
    pub fn reset(self) -> Result<()> {
        self.stream.set_zero_linger()?;
        Ok(())
    }
}

/// Sends bytes, ends our direction, reads all that comes. The request should say
/// `Connection: close`.
pub async fn exchange(to: SocketAddr, request: impl AsRef<[u8]>) -> Result<Vec<u8>> {
    let mut connection = RawConnection::open(to).await?;
    connection.send(request).await?;
    connection.read_to_end().await
}

/// An upstream that answers every request with the same bytes and closes. Requests must state the
/// length of their body.
pub struct RawUpstream {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl RawUpstream {
    /// Starts it.
    pub async fn start(answer: impl Into<Vec<u8>>) -> Result<Self> {
        Self::serve(answer, true).await
    }

    /// Starts one that answers as soon as a byte has come, reads no more and closes: what is still on
    /// its way to it meets a reset.
    pub async fn hasty(answer: impl Into<Vec<u8>>) -> Result<Self> {
        Self::serve(answer, false).await
    }

    async fn serve(answer: impl Into<Vec<u8>>, patient: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let answer = answer.into();
        let serve = async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    if !patient {
                        let _ = stream.read(&mut [0; 1]).await;
                        let _ = stream.write_all(&answer).await;
                        return;
                    }
                    if read_request(&mut stream).await.is_ok() {
                        let _ = stream.write_all(&answer).await;
                        let _ = stream.shutdown().await;
                        // An early close would reset the connection and lose the answer.
                        let _ = stream.read(&mut [0; 64]).await;
                    }
                });
            }
        };
        Ok(Self { addr, task: crate::runtime::handle()?.spawn(serve) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_request(stream: &mut TcpStream) -> Result<()> {
    let mut bytes = Vec::new();
    let mut part = [0; 8192];
    loop {
        let len = stream.read(&mut part).await?;
        if len == 0 {
            return Err(anyhow!("ended early"));
        }
        bytes.extend_from_slice(part.get(..len).unwrap_or_default());
        let Some(head_len) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(bytes.get(..head_len).unwrap_or_default()).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let body_len = length.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
        if bytes.len() >= head_len + 4 + body_len {
            return Ok(());
        }
    }
}
