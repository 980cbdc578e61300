//! The service's HTTP interface on a real socket. The first byte of the input chooses: `r` sends
//! the rest as it is; anything else sends it as the body of a call or a query.
//!
//! Promised: no answer is a 5xx, every answer names the database, and the service goes on.

use fencepost_protocol::FRAME_MEDIA_TYPE;
use fencepost_store::http::{Api, Server, ServerOptions, Tokens};
use fencepost_store::service::Service;
use fencepost_store::store::Clock;
use fencepost_store::store::memory::Memory;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// A call of any input is answered in far less.
const PATIENCE: Duration = Duration::from_secs(20);

static SERVED: LazyLock<(Runtime, SocketAddr)> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let addr = runtime.block_on(async {
        let service = Service::new(Arc::new(Memory::new(Clock::Real).unwrap()));
        let options = ServerOptions { drain_timeout: Duration::from_secs(1) };
        let api = Api::new(service, Tokens::open(), None);
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), api, options).await.unwrap();
        let addr = server.local_addr().unwrap();
        tokio::spawn(server.serve(std::future::pending()));
        addr
    });
    (runtime, addr)
});

pub fn run(data: &[u8]) {
    let (runtime, addr) = &*SERVED;
    let is_raw = data.first() == Some(&b'r');
    let answer = runtime.block_on(send(*addr, &request(data), is_raw));
    assert!(is_raw || answer.starts_with(b"HTTP/1.1 "), "no answer to {data:?}");
    check(&answer, data);
    let health = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let healthy = runtime.block_on(send(*addr, health, false));
    assert!(healthy.starts_with(b"HTTP/1.1 200"), "it does not go on");
}

fn request(data: &[u8]) -> Vec<u8> {
    let (choice, rest) = data.split_first().unwrap_or((&b'p', b""));
    let post = |path: &str, media: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {media}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            rest.len()
        );
        [head.as_bytes(), rest].concat()
    };
    let get = |path: &str| {
        // What no request target may have is written as it would be by a client.
        let query: String = rest.iter().map(|byte| format!("%{byte:02X}")).collect();
        format!("GET {path}{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
    };
    match choice {
        b'r' => rest.to_vec(),
        b'q' => get("/v1/entries?state="),
        b'k' => get("/v1/entries/"),
        b's' => post("/v1/entries/prod:00000000000000000000000000000000/settle", "application/json"),
        b'c' => post("/v1/complete", FRAME_MEDIA_TYPE),
        b'l' => post("/v1/release", FRAME_MEDIA_TYPE),
        b'u' => post("/v1/unknown", FRAME_MEDIA_TYPE),
        b'n' => post("/v1/renew", FRAME_MEDIA_TYPE),
        b'g' => post("/v1/grants/admit", "application/json"),
        _ => post("/v1/claims", FRAME_MEDIA_TYPE),
    }
}

/// Everything that comes back until the service closes. A request that may be cut ends by our closing.
async fn send(addr: SocketAddr, bytes: &[u8], may_be_cut: bool) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // The service may refuse and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        if may_be_cut {
            let _ = stream.shutdown().await;
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    tokio::time::timeout(PATIENCE, exchange).await.expect("no end of an answer")
}

fn check(answer: &[u8], data: &[u8]) {
    let text = String::from_utf8_lossy(answer);
    let Some(status) = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)) else { return };
    assert!(!status.starts_with('5'), "{status} for {data:?}");
    // What is no HTTP is answered by the HTTP library, with nothing but a status.
    let is_from_the_library = status == "400" && text.contains("content-length: 0");
    let is_limit = status == "414" || status == "431";
    assert!(is_from_the_library || is_limit || text.contains("x-fencepost-store-id: "), "{text}");
}
