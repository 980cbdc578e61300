//! A TCP proxy that can swallow one reply: what was asked is done, and nobody is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The proxy; ends with the test's runtime.
pub struct Cutting {
    pub addr: SocketAddr,
    armed: Arc<AtomicBool>,
    cut: Arc<AtomicU32>,
}

impl Cutting {
    pub async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (armed, cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (gun, shots) = (armed.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (armed, cut) = (gun.clone(), shots.clone());
                tokio::spawn(async move {
                    let server = TcpStream::connect(target).await.unwrap();
                    pass(client, server, &armed, &cut).await;
                });
            }
        });
        Self { addr, armed, cut }
    }

    /// The reply to the next request is swallowed, and its connection cut.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// How many replies were swallowed.
    pub fn cut(&self) -> u32 {
        self.cut.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, armed: &AtomicBool, cut: &AtomicU32) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            if to_server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    });
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
        // The server has answered, so it has committed.
        if armed.swap(false, Ordering::SeqCst) {
            cut.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if to_client.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    up.abort();
}
