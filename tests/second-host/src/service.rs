//! The real store service, on a store in memory, and calls to it.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Headers of a call, as the filter gives them.
pub type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// A reply: its headers, `:status` among them, and its body.
#[derive(Debug, Clone)]
pub struct Reply {
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// A running service. Dropping it kills it.
pub struct Service {
    child: Child,
    addr: SocketAddr,
}

impl Service {
    /// Starts `FENCEPOST_STORE_BIN`.
    pub fn start() -> Result<Self> {
        let binary = std::env::var_os("FENCEPOST_STORE_BIN").context("FENCEPOST_STORE_BIN is not set")?;
        let mut command = Command::new(PathBuf::from(binary));
        command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
        let listen = line.split_whitespace().find_map(|word| word.strip_prefix("listen="));
        let Some(addr) = listen.and_then(|addr| addr.parse().ok()) else {
            let _ = child.kill();
            bail!("the service said {line:?}");
        };
        Ok(Self { child, addr })
    }

    /// Makes one call over a connection of its own.
    pub fn call(&self, headers: &Headers, body: &[u8]) -> Result<Reply> {
        let find =
            |name: &str| headers.iter().find(|(other, _)| other == name.as_bytes()).map(|(_, value)| value);
        let text = |name: &str| find(name).map(|value| String::from_utf8_lossy(value).into_owned());
        let (method, path) = (text(":method").context("no method")?, text(":path").context("no path")?);
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", text(":authority").unwrap_or_default());
        for (name, value) in headers.iter().filter(|(name, _)| !name.starts_with(b":")) {
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect_timeout(&self.addr, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        parse(&answer)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an answer whose length is told or which ends with its connection.
fn parse(answer: &[u8]) -> Result<Reply> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no end of the head")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.trim_ascii());
    let status =
        lines.next().and_then(|line| line.split(|byte| *byte == b' ').nth(1)).context("no status")?;
    let mut headers = vec![(b":status".to_vec(), status.to_vec())];
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').context("a line without a colon")?;
        headers.push((line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec()));
    }
    if headers.iter().any(|(name, _)| name == b"transfer-encoding") {
        bail!("a chunked answer");
    }
    Ok(Reply { headers, body: body.to_vec() })
}
