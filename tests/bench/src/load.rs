//! Closed loops: workers that send one request after the other.

use crate::http::Client;
use crate::samples::Samples;
use anyhow::Result;
use bytes::Bytes;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What a load came to.
pub struct Load {
    /// Time of each request.
    pub samples: Samples,
    /// From the first to the last.
    pub elapsed: Duration,
}

impl Load {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.samples.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Sends frames: the list is dealt out to the clients in turn.
pub async fn frames(clients: &mut Vec<Client>, path: &'static str, frames: Vec<Bytes>) -> Result<Load> {
    posts(clients, path, fencepost_protocol::FRAME_MEDIA_TYPE, frames).await
}

/// The same with bodies of any media type.
pub async fn posts(
    clients: &mut Vec<Client>,
    path: &'static str,
    media_type: &'static str,
    frames: Vec<Bytes>,
) -> Result<Load> {
    let mut hands: Vec<Vec<Bytes>> = clients.iter().map(|_| Vec::new()).collect();
    let count = hands.len().max(1);
    for (at, frame) in frames.into_iter().enumerate() {
        if let Some(hand) = hands.get_mut(at % count) {
            hand.push(frame);
        }
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut client, hand) in clients.drain(..).zip(hands) {
        tasks.spawn(async move {
            let mut samples = Samples::default();
            for frame in hand {
                let sent = Instant::now();
                client.post(path, media_type, frame).await?;
                samples.add(sent.elapsed());
            }
            anyhow::Ok((client, samples))
        });
    }
    let mut samples = Samples::default();
    while let Some(done) = tasks.join_next().await {
        let (client, own) = done??;
        samples.merge(own);
        clients.push(client);
    }
    Ok(Load { samples, elapsed: start.elapsed() })
}
