//! An upstream that costs as little as possible: it reads the body and answers at once.

use anyhow::Result;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Request header that says how many bytes the answer has.
pub const SIZE: &str = "x-bench-answer-size";

/// Starts it; it serves as long as the process runs.
pub async fn start() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    Ok(addr)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let size = request.headers().get(SIZE).and_then(|size| size.to_str().ok()?.parse().ok()).unwrap_or(0);
    request.into_body().collect().await?;
    let response = Response::builder().header("content-type", "application/octet-stream");
    Ok(response.body(Full::new(Bytes::from(vec![b'a'; size])))?)
}
