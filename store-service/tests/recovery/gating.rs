//! A TCP proxy before PostgreSQL that can hold one statement: before it is executed, or after its
//! execution and before anybody is told. It reads the names of prepared statements from the protocol.

use fencepost_rig::upstream::Gate;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Where a statement is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// The database does not have it yet.
    Before,
    /// The database has committed it, and its answer is kept back.
    After,
}

#[derive(Clone)]
struct Trap {
    statement: &'static str,
    at: At,
    /// Which execution of it, from 1.
    turn: usize,
    seen: usize,
    gate: Gate,
}

/// The proxy; ends with the test's runtime.
pub struct Gating {
    pub addr: SocketAddr,
    trap: Arc<Mutex<Option<Trap>>>,
}

impl Gating {
    pub async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let trap: Arc<Mutex<Option<Trap>>> = Arc::default();
        let shared = trap.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let trap = shared.clone();
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    let held: Arc<Mutex<Option<Gate>>> = Arc::default();
                    let back = tokio::spawn(answers(from_server, to_client, held.clone()));
                    requests(from_client, to_server, &trap, &held).await;
                    back.abort();
                });
            }
        });
        Self { addr, trap }
    }

    /// The statement of this name is held at its `turn`th execution; the gate knows when it has come.
    pub fn hold(&self, statement: &'static str, at: At, turn: usize) -> Gate {
        let gate = Gate::new();
        *self.trap.lock().unwrap() = Some(Trap { statement, at, turn, seen: 0, gate: gate.clone() });
        gate
    }
}

/// Whole messages, so that the one that executes a statement can be held by itself.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    trap: &Mutex<Option<Trap>>,
    held: &Mutex<Option<Gate>>,
) {
    let mut names: HashMap<Vec<u8>, String> = HashMap::new();
    // The first message has no type.
    let mut first = true;
    loop {
        let mut message = Vec::new();
        if !first {
            let Ok(kind) = from.read_u8().await else { return };
            message.push(kind);
        }
        let Ok(length) = from.read_u32().await else { return };
        message.extend(length.to_be_bytes());
        let head = message.len();
        message.resize(head + length as usize - 4, 0);
        if from.read_exact(&mut message[head..]).await.is_err() {
            return;
        }
        let kind = if first { 0 } else { message[0] };
        let mut texts = message[head..].split(|byte| *byte == 0);
        let (one, two) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        match kind {
            // Parse: name of the statement, then its text, whose head names its file.
            b'P' => {
                let text = String::from_utf8_lossy(two);
                let name = text.trim_start_matches("-- ").split(':').next().unwrap_or_default().to_owned();
                names.insert(one.to_vec(), name);
            }
            // Bind: name of the portal, then of the statement.
            b'B' => {
                let name = names.get(two).cloned().unwrap_or_default();
                if let Some((at, gate)) = sprung(trap, &name) {
                    match at {
                        At::Before => gate.pass().await,
                        At::After => *held.lock().unwrap() = Some(gate),
                    }
                }
            }
            _ => {}
        }
        first = false;
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

fn sprung(trap: &Mutex<Option<Trap>>, name: &str) -> Option<(At, Gate)> {
    let mut trap = trap.lock().unwrap();
    let set = trap.as_mut().filter(|trap| trap.statement == name)?;
    set.seen += 1;
    (set.seen == set.turn).then(|| (set.at, set.gate.clone()))
}

/// What comes back after the held statement was sent is kept until the gate opens. The server has
/// answered with everything, so it has committed.
async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, held: Arc<Mutex<Option<Gate>>>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let gate = held.lock().unwrap().take();
        if let Some(gate) = gate {
            // The answer may come in pieces: the last message of it says "ready for query".
            let mut whole = buffer[..read].to_vec();
            while !whole.ends_with(b"Z\0\0\0\x05I") {
                let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
                whole.extend(&buffer[..read]);
            }
            gate.pass().await;
            if to.write_all(&whole).await.is_err() {
                return;
            }
        } else if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
