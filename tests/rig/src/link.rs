//! A TCP link between two parts, on which a test breaks things.
//!
//! Every connection through it is a pair of sockets. What the link does to them is one value that all
//! of them watch ([`Weather`]); cutting is a number that grows, and a connection that is older than it
//! ends. Bytes are never changed, dropped from the middle, or delivered twice: TCP does not do that
//! either. So "lost" means held until the connection is cut.

use crate::runtime;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Most bytes taken at once.
const PIECE: usize = 64 * 1024;

/// What happens on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Bytes pass.
    Fair,
    /// Bytes pass, each piece so much later.
    Slow(Duration),
    /// Nothing passes in either direction; connections stay open, and what was sent arrives later.
    Silent,
    /// Requests pass and answers do not. Ends by [`Link::set`], which then cuts: the answers are lost.
    AnswersLost,
    /// Connections end, and new ones are closed at once.
    Cut,
}

#[derive(Debug, Clone, Copy)]
struct State {
    weather: Weather,
    target: SocketAddr,
    /// Connections that began under a smaller number end.
    cuts: u64,
}

/// The direction of bytes: towards the target, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// A link. Dropping it ends its connections.
pub struct Link {
    addr: SocketAddr,
    state: watch::Sender<State>,
    held: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Link {
    /// A link to a target, on a port that was free.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let runtime = runtime::handle()?;
        let listener = {
            let _entered = runtime.enter();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").context("bind a link")?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)?
        };
        let addr = listener.local_addr()?;
        let state = watch::Sender::new(State { weather: Weather::Fair, target, cuts: 0 });
        let held = Arc::new(AtomicU64::new(0));
        let task = runtime.spawn(accept(listener, state.subscribe(), Arc::clone(&held)));
        Ok(Self { addr, state, held, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what happens from now on. Answers that were held as lost stay lost.
    pub fn set(&self, weather: Weather) {
        self.state.send_modify(|state| {
            if weather == Weather::Cut || state.weather == Weather::AnswersLost {
                state.cuts += 1;
            }
            state.weather = weather;
        });
    }

    /// Ends all connections; new ones are as before.
    pub fn cut_once(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Leads elsewhere from now on; connections to the old target end.
    pub fn lead_to(&self, target: SocketAddr) {
        self.state.send_modify(|state| {
            state.target = target;
            state.cuts += 1;
        });
    }

    /// How many pieces have been held back so far because of the weather.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Waits until more than `before` pieces were held back: something is lost in the link.
    pub async fn wait_held(&self, before: u64) -> Result<()> {
        let waits = async {
            while self.held() <= before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waits).await.context("nothing is held back by the link")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn passes(&self, way: Way) -> bool {
        match self.weather {
            Weather::Fair | Weather::Slow(_) => true,
            Weather::Silent | Weather::Cut => false,
            Weather::AnswersLost => way == Way::There,
        }
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<State>, held: Arc<AtomicU64>) {
    // Dropped with this task, and all connections with it.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        connections.spawn(connection(from, state.clone(), Arc::clone(&held)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(from: TcpStream, state: watch::Receiver<State>, held: Arc<AtomicU64>) {
    let now = *state.borrow();
    let carried = async {
        if now.weather == Weather::Cut {
            return;
        }
        let Ok(to) = TcpStream::connect(now.target).await else { return };
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        let (from_read, from_write) = from.into_split();
        let (to_read, to_write) = to.into_split();
        let watch = |way| (way, now.cuts, state.clone(), Arc::clone(&held));
        tokio::join!(
            carry(from_read, to_write, watch(Way::There)),
            carry(to_read, from_write, watch(Way::Back))
        );
    };
    let mut cuts = state.clone();
    tokio::select! {
        () = carried => {}
        _ = cuts.wait_for(|state| state.cuts > now.cuts) => {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (way, born, mut state, held): (Way, u64, watch::Receiver<State>, Arc<AtomicU64>),
) {
    let mut piece = vec![0; PIECE];
    while let Ok(len @ 1..) = from.read(&mut piece).await {
        if !state.borrow_and_update().passes(way) {
            held.fetch_add(1, Ordering::SeqCst);
        }
        let goes_on = state.wait_for(|state| state.cuts > born || state.passes(way)).await;
        let Ok(now) = goes_on.map(|state| *state) else { return };
        // The weather may have become fair by the same change that cut this connection: what was held
        // is lost.
        if now.cuts > born {
            return;
        }
        if let Weather::Slow(delay) = now.weather {
            tokio::time::sleep(delay).await;
        }
        let Some(bytes) = piece.get(..len) else { return };
        if to.write_all(bytes).await.is_err() {
            return;
        }
    }
    // The other direction may go on: an end is passed on as an end.
    let _ = to.shutdown().await;
}
