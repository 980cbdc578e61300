//! Outages of PostgreSQL as the service's callers see them: 503 with Retry-After, nothing half
//! done, and afterwards everything as if nothing had been.

use crate::bed::*;
use crate::served::*;
use fencepost_protocol::claims::{CompleteReply, RenewResult};
use fencepost_protocol::paths;
use fencepost_rig::postgres::{Options as ServerOptions, Postgres as Server};
use fencepost_store::entry::ClaimOutcome;
use fencepost_store::http::Tokens;
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::{Clock, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// It is killed with everything it runs.
    Killed,
    /// It ends in order.
    Stopped,
    /// It hangs: its machine answers and it does not.
    Frozen,
    /// What is sent arrives nowhere, in both directions; connections stay open.
    Swallowed,
    /// A failover left a standby at the address.
    Standby,
    /// It takes no writes any more, under open connections.
    ReadOnly,
}

/// A way to the server on which everything may get lost.
struct Relay {
    url: String,
    silent: watch::Sender<bool>,
}

impl Relay {
    async fn start(direct: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (before, rest) = direct.split_once("@127.0.0.1:").unwrap();
        let (port, database) = rest.split_once('/').unwrap();
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let target = format!("127.0.0.1:{port}");
        let (silent, silence) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (target, silence) = (target.clone(), silence.clone());
                tokio::spawn(async move {
                    let mut silence = silence;
                    let _ = silence.wait_for(|silent| !silent).await;
                    // Without a server the connection is closed.
                    if let Ok(server) = TcpStream::connect(&target).await {
                        let (from_client, to_client) = client.into_split();
                        let (from_server, to_server) = server.into_split();
                        tokio::join!(
                            pass(from_client, to_server, silence.clone()),
                            pass(from_server, to_client, silence)
                        );
                    }
                });
            }
        });
        Self { url, silent }
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    silence: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 65_536];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        // What is swallowed does not come later.
        if !*silence.borrow() && to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}

impl Fault {
    async fn strike(self, server: &Server, relay: &Relay) {
        match self {
            Self::Killed => server.kill().await.unwrap(),
            Self::Stopped => server.stop().await.unwrap(),
            Self::Frozen => server.freeze(),
            Self::Swallowed => drop(relay.silent.send_replace(true)),
            Self::Standby => {
                server.stop().await.unwrap();
                server.start_again_as_standby().await.unwrap();
            }
            Self::ReadOnly => set_read_only(server, "on").await,
        }
    }

    async fn heal(self, server: &Server, relay: &Relay) {
        match self {
            Self::Killed | Self::Stopped => server.start_again().await.unwrap(),
            Self::Frozen => server.thaw(),
            Self::Swallowed => drop(relay.silent.send_replace(false)),
            Self::Standby => server.promote().await.unwrap(),
            Self::ReadOnly => set_read_only(server, "off").await,
        }
    }
}

async fn set_read_only(server: &Server, value: &str) {
    let client = connect(&server.url("postgres")).await;
    let set = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
    client.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    client.batch_execute(&set).await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
}

/// Claims a key over HTTP; its fence.
async fn claimed(served: &Served, key: u64, token: u64) -> i64 {
    let reply = served.post(paths::CLAIMS, claim_frame(&claim(key, token), 0)).await;
    assert_eq!((reply.status, reply.json()["outcome"].as_str()), (200, Some("claimed")));
    reply.json()["fence"].as_i64().unwrap()
}

async fn is_ready(served: &Served) -> bool {
    served.send(served.request("GET", "/readyz", "")).await.status == 200
}

/// 503, to be asked again: for a claim, and for what finishes one.
async fn refuses(served: &Served, fence: i64) {
    let answer = complete(&claim(2, 1), fence, b"answer");
    let frame =
        fencepost_protocol::encode(&complete_request(&answer), &[&answer.headers, &answer.body]).unwrap();
    for (path, body) in [(paths::CLAIMS, claim_frame(&claim(3, 1), 0)), (paths::COMPLETE, frame)] {
        let reply = served.post(path, body).await;
        assert_eq!(reply.code(), (503, "store_unavailable".to_owned()), "{path}");
        assert_eq!(reply.header("retry-after"), "1");
    }
}

async fn outage(fault: Fault) {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let relay = Relay::start(&server.create_database().await).await;
    let store = Postgres::open(&relay.url, Clock::Real, true, Options::default()).await.unwrap();
    let served = Served::start(Arc::new(store), Tokens::open()).await;
    let beats = tokio::spawn(fencepost_store::heartbeat::run(served.service.clone()));
    let fences = [claimed(&served, 1, 1).await, claimed(&served, 2, 1).await];
    until("ready", async || is_ready(&served).await).await;
    let parked = {
        let service = served.service.clone();
        tokio::spawn(async move { service.claim(claim(1, 9), Duration::from_secs(60)).await })
    };
    until("a caller is parked", async || served.service.waiters().len() == 1).await;

    fault.strike(&server, &relay).await;
    until("not ready", async || !is_ready(&served).await).await;
    refuses(&served, fences[1]).await;
    assert_eq!(served.send(served.request("GET", "/healthz", "")).await.status, 200);
    // Who waits is not left alone with it either.
    let told = tokio::time::timeout(Duration::from_secs(30), parked).await.expect("still parked").unwrap();
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    assert_eq!(served.service.calm().ms(), 0);

    fault.heal(&server, &relay).await;
    until("ready again", async || is_ready(&served).await).await;
    until("claims are decided again", async || {
        served.post(paths::CLAIMS, claim_frame(&claim(4, 1), 0)).await.status == 200
    })
    .await;
    // What was confirmed before is there, and holders renew and finish.
    let other = served.service.claim(claim(1, 2), Duration::ZERO).await.unwrap().0;
    assert!(matches!(other, ClaimOutcome::InProgress { .. }), "{other:?}");
    assert_eq!(served.service.renew(vec![renewal(&claim(1, 1))]).await.unwrap(), [RenewResult::Renewed]);
    let stored = served.service.complete(complete(&claim(2, 1), fences[1], b"answer")).await.unwrap();
    assert!(matches!(stored, CompleteReply::Stored | CompleteReply::AlreadyStored), "{stored:?}");
    // The claim that got 503 is made, or its token makes it now.
    assert!(claimed(&served, 3, 1).await > fences[1]);
    // No connection is poisoned: each of many answers is the right one.
    for number in 100..200_u64 {
        let fence = claimed(&served, number, 1).await;
        let answer = complete(&claim(number, 1), fence, &number.to_be_bytes());
        assert_eq!(served.service.complete(answer).await.unwrap(), CompleteReply::Stored);
        let told = served.service.claim(claim(number, 2), Duration::ZERO).await.unwrap().0;
        let ClaimOutcome::Completed(told) = told else { panic!("{told:?}") };
        assert_eq!(told.body[..], number.to_be_bytes());
    }
    beats.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_is_503_until_it_is_back() {
    outage(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_server_is_503_until_it_is_back() {
    outage(Fault::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_is_503_until_it_goes_on() {
    outage(Fault::Frozen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_are_503_until_the_way_is_open() {
    outage(Fault::Swallowed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_at_the_address_decides_nothing_until_it_is_promoted() {
    outage(Fault::Standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_turns_read_only_decides_nothing_until_it_takes_writes() {
    outage(Fault::ReadOnly).await;
}

/// Under load, over restarts: what was told is true, and what was not told can be asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_under_load_lose_nothing_that_was_confirmed() {
    let server = Arc::new(Server::start(ServerOptions::default()).await.unwrap());
    let url = server.create_database().await;
    let store = Arc::new(Postgres::open(&url, Clock::Real, true, Options::default()).await.unwrap());
    let (stop, stopped) = watch::channel(false);
    let callers: Vec<_> = (0..16_u64)
        .map(|caller| {
            let (store, stopped) = (store.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut told = Vec::new();
                for number in 0.. {
                    if *stopped.borrow() {
                        break;
                    }
                    let mine = claim(caller * 1_000_000 + number, 1);
                    match store.claim(Arc::new(mine.clone()), CALM).await {
                        Ok(ClaimOutcome::Claimed { fence, .. }) => told.push((mine, Some(fence))),
                        Ok(other) => panic!("{other:?}"),
                        Err(StoreError::Unavailable(_)) => {
                            told.push((mine, None));
                            // An outage is told at once: do not spin.
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
                told
            })
        })
        .collect();
    for round in 0..3 {
        let before = store.claim(Arc::new(claim(99_000_000 + round, 1)), CALM).await;
        assert!(before.is_ok(), "{before:?}");
        if round == 1 {
            server.kill().await.unwrap()
        } else {
            server.stop().await.unwrap()
        }
        server.start_again().await.unwrap();
        until("the server is found again", async || {
            store.claim(Arc::new(claim(99_000_000 + round + 1, 1)), CALM).await.is_ok()
        })
        .await;
    }
    stop.send_replace(true);
    let (mut confirmed, mut asked_again) = (0, 0);
    for caller in callers {
        for (mine, fence) in caller.await.unwrap() {
            let now = store.claim(Arc::new(mine), CALM).await.unwrap();
            let ClaimOutcome::Claimed { fence: found, .. } = now else { panic!("{now:?}") };
            match fence {
                Some(fence) => {
                    assert_eq!(found, fence);
                    confirmed += 1;
                }
                None => asked_again += 1,
            }
        }
    }
    println!("{confirmed} confirmed, {asked_again} asked again");
    assert!(confirmed > 0);
}

/// A statement that takes too long is given up, on the server as well, and can be asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statement_that_takes_too_long_is_given_up_and_leaves_nothing_half_done() {
    let url = database().await;
    let store = Postgres::open(&url, Clock::Real, true, Options::default()).await.unwrap();
    let mine = claim(1, 1);
    let ClaimOutcome::Claimed { fence, .. } = store.claim(Arc::new(mine.clone()), CALM).await.unwrap() else {
        panic!()
    };
    let mut locker = connect(&url).await;
    let transaction = locker.transaction().await.unwrap();
    transaction.execute("SELECT 1 FROM fencepost.entries FOR UPDATE", &[]).await.unwrap();
    let told = store.complete(complete(&mine, fence, b"answer")).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    // Nothing of it stays behind the lock to be done later.
    let watcher = connect(&url).await;
    until("the statement is cancelled", async || {
        let waiting = "SELECT count(*) AS waiting FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>("waiting") == 0
    })
    .await;
    transaction.rollback().await.unwrap();
    let entry = store.entry(&mine.key, true).await.unwrap().unwrap();
    assert_eq!(entry.row.token, mine.token);
    assert!(matches!(entry.row.state, fencepost_store::entry::State::Claimed(_)), "{entry:?}");
    until("the store works again", async || {
        matches!(
            store.complete(complete(&mine, fence, b"answer")).await,
            Ok(CompleteReply::Stored | CompleteReply::AlreadyStored)
        )
    })
    .await;
    let told = store.claim(Arc::new(claim(1, 2)), CALM).await.unwrap();
    assert!(matches!(told, ClaimOutcome::Completed(_)), "{told:?}");
}
