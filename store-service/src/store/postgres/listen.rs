//! The listener: hears from other instances that a key was freed.
//!
//! It needs a connection that is ours alone, so behind a transaction-mode pooler it needs an
//! address of its own that leads past it. Whether there is such a pooler is tried out before
//! anything is left on a connection, because a `LISTEN` through it would stay behind on a server
//! connection that others use. Without a listener the callers that wait look for themselves, more
//! often; the log says so.
//!
//! After every connect the order is: listen, prove it by a probe that takes the way of the real
//! notices, and only then wake everybody once, who ask again: what was told while nobody listened
//! is found by that. A caller marks its claim only after it began to listen, and its end is told
//! only after it was committed, so between the two nothing is missed.

use super::OpenError;
use super::batch::Queue;
use super::notice::{Notice, Op, Payload};
use super::session::{Connector, told};
use super::statements::{BACKEND_PID, LISTEN, Name};
use crate::store::{Ears, Hearing, Woken};
use fencepost_protocol::StoreId;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Client;

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long a probe may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the connection is tried: a peer that vanished without a word is found by this.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long the listener waits before it tries an address again that hears nothing.
const DEAF_PAUSE: Duration = Duration::from_secs(30);

/// How often two connections are compared to find a pooler.
const POOLER_TRIES: usize = 4;

/// What a listener is made of.
pub struct Listener {
    /// Where it connects.
    pub connector: Connector,
    /// The database that it belongs to.
    pub expected: StoreId,
    /// Name of this instance in notices.
    pub instance: String,
    /// Who is told.
    pub ears: Arc<Ears>,
    /// The way of the real notices.
    pub notices: Arc<Queue<Notice>>,
}

/// Why a connection ended.
enum End {
    /// A transaction-mode pooler is in between.
    Pooler,
    /// Listening works, but what we tell does not arrive.
    Deaf,
    /// It is lost, or was never made.
    Lost(String),
}

impl From<OpenError> for End {
    fn from(error: OpenError) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<tokio_postgres::Error> for End {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Lost(told(&error))
    }
}

impl Listener {
    /// Listens for ever, or until it is clear that it never will.
    pub async fn run(self) {
        let mut backoff = BACKOFF_MIN;
        loop {
            let end = self.listen(&mut backoff).await;
            metrics::gauge!("fencepost_listening").set(0.0);
            let (reason, pause) = match end {
                End::Pooler => {
                    let reason = "a transaction-mode pooler is in between: what other instances free is found by \
                                  looking, every 250 ms; --listen-store with an address past the pooler is faster";
                    tracing::warn!("{reason}");
                    self.ears.set_hearing(Hearing::Polling(reason.to_owned()));
                    return;
                }
                End::Deaf => {
                    let reason = "notices do not arrive at the listening connection; what other instances free is \
                                  found by looking, every 250 ms; expected --listen-store to lead to the same database";
                    (reason.to_owned(), DEAF_PAUSE)
                }
                End::Lost(reason) => (reason, backoff),
            };
            if self.ears.set_hearing(Hearing::Polling(reason.clone())) {
                tracing::warn!(%reason, "not listening to other instances; looking every 250 ms instead");
            }
            tokio::time::sleep(pause).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn listen(&self, backoff: &mut Duration) -> End {
        match self.connect().await {
            Ok((client, heard)) => {
                *backoff = BACKOFF_MIN;
                self.hear(&client, heard).await
            }
            Err(end) => end,
        }
    }

    async fn connect(&self) -> Result<(Client, UnboundedReceiver<String>), End> {
        if self.pooled().await? {
            return Err(End::Pooler);
        }
        let (client, mut heard) = self.connector.listening().await?;
        client.batch_execute(LISTEN).await?;
        self.check(&client).await?;
        self.probe(&mut heard).await?;
        Ok((client, heard))
    }

    async fn hear(&self, client: &Client, mut heard: UnboundedReceiver<String>) -> End {
        if self.ears.set_hearing(Hearing::Notified) {
            tracing::info!("listening to other instances");
        }
        metrics::gauge!("fencepost_listening").set(1.0);
        self.ears.tell(Woken::All);
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                text = heard.recv() => match text.map(|text| Payload::parse(&text, &self.instance)) {
                    Some(Payload::Freed(key)) => {
                        metrics::counter!("fencepost_notices_heard_total").increment(1);
                        self.ears.tell(Woken::Key(&key));
                    }
                    Some(Payload::Own | Payload::Probe(_) | Payload::Other) => {}
                    None => return End::Lost("the listening connection ended".into()),
                },
                _ = checks.tick() => if let Err(end) = self.check(client).await {
                    return end;
                },
            }
        }
    }

    /// Is the connection alive, and the database still ours?
    async fn check(&self, client: &Client) -> Result<(), End> {
        let asked = client.query_typed(Name::Heartbeat.sql().text, &[]);
        let rows = tokio::time::timeout(CHECK_INTERVAL, asked)
            .await
            .map_err(|_| End::Lost("the listening connection does not answer".into()))??;
        let id: Option<&[u8]> = rows.first().map(|row| row.try_get("store_id")).transpose()?;
        if id.and_then(StoreId::from_slice) == Some(self.expected) {
            return Ok(());
        }
        Err(End::Lost("--listen-store leads to another database than --store".into()))
    }

    /// Sends a notice on the way that the real ones take, and waits for it.
    async fn probe(&self, heard: &mut UnboundedReceiver<String>) -> Result<(), End> {
        let nonce = super::random_name().map_err(End::from)?;
        self.notices
            .ask(Op::probe(&self.instance, &nonce))
            .await
            .map_err(|error| End::Lost(error.to_string()))?;
        let arrives = async {
            while let Some(text) = heard.recv().await {
                // Others need no attention yet: everybody is woken after this.
                if Payload::parse(&text, &self.instance) == Payload::Probe(nonce.clone()) {
                    return Ok(());
                }
            }
            Err(End::Lost("the listening connection ended".into()))
        };
        tokio::time::timeout(PROBE_TIMEOUT, arrives).await.unwrap_or(Err(End::Deaf))
    }

    /// Is there a transaction-mode pooler in between? Then two connections are served by one
    /// server process, or one connection by several.
    async fn pooled(&self) -> Result<bool, End> {
        let (one, other) = (self.connector.client().await?, self.connector.client().await?);
        let mut pids = [HashSet::new(), HashSet::new()];
        for _ in 0..POOLER_TRIES {
            for (client, pids) in [&one, &other].into_iter().zip(&mut pids) {
                let rows = client.query_typed(BACKEND_PID, &[]).await?;
                let pid: Option<i32> = rows.first().map(|row| row.try_get("pid")).transpose()?;
                pids.insert(pid);
            }
        }
        let [one, other] = pids;
        Ok(one.len() > 1 || other.len() > 1 || !one.is_disjoint(&other))
    }
}
