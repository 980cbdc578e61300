//! The PostgreSQL server: which one is accepted, and what happens when it goes away.

use crate::bed::*;
use fencepost_protocol::claims::CompleteReply;
use fencepost_rig::postgres::{Options as ServerOptions, Postgres as Server};
use fencepost_store::entry::{ClaimOutcome, Complete, SweepKind};
use fencepost_store::service::Service;
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::{Clock, OpenError, Store, StoreError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const UNNAMED: Options =
    Options { claim_connections: 2, finish_connections: 1, unnamed_statements: true, listen_url: None };
const PREPARED: Options = Options { unnamed_statements: false, ..UNNAMED };

async fn open(url: &str, options: Options) -> Result<Postgres, OpenError> {
    Postgres::open(url, Clock::Real, true, options).await
}

/// A database with this setting for every session.
async fn with_setting(setting: &str) -> String {
    let url = database().await;
    let client = connect(&url).await;
    let name = url.rsplit('/').next().unwrap();
    client.batch_execute(&format!("ALTER DATABASE {name} SET {setting}")).await.unwrap();
    url
}

async fn refusal(url: &str, options: Options) -> String {
    match open(url, options).await {
        Ok(_) => panic!("accepted"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn server_that_can_forget_what_it_confirmed_is_refused() {
    let url = with_setting("synchronous_commit = off").await;
    for options in [PREPARED, UNNAMED] {
        assert!(refusal(&url, options).await.contains("synchronous_commit"));
    }
}

#[tokio::test]
async fn server_that_takes_no_writes_is_refused() {
    let url = with_setting("default_transaction_read_only = on").await;
    for options in [PREPARED, UNNAMED] {
        refusal(&url, options).await;
    }
}

#[tokio::test]
async fn isolation_level_is_pinned_where_sessions_are_ours_and_checked_elsewhere() {
    let url = with_setting("default_transaction_isolation = 'serializable'").await;
    assert!(refusal(&url, UNNAMED).await.contains("read committed"));
    let store = open(&url, PREPARED).await.unwrap();
    let outcome = store.claim(Arc::new(claim(1, 1)), CALM).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::Claimed { .. }));
}

#[tokio::test]
async fn tls_that_is_asked_for_is_not_silently_left_out() {
    let url = format!("{}?sslmode=require", database().await);
    assert!(refusal(&url, PREPARED).await.contains("sslmode=require"));
}

#[tokio::test]
async fn another_database_behind_the_address_is_noticed() {
    let url = database().await;
    let store = open(&url, PREPARED).await.unwrap();
    store.heartbeat().await.unwrap();
    let client = connect(&url).await;
    client
        .execute("UPDATE fencepost.meta SET store_id = decode(repeat('ab', 16), 'hex')", &[])
        .await
        .unwrap();
    assert!(matches!(store.heartbeat().await, Err(StoreError::Unavailable(_))));
}

/// Forwards bytes to PostgreSQL, and cuts a connection when the server answers a message with
/// these bytes in it: the statement ran, and nobody learns how it ended.
struct Cutting {
    url: String,
    cuts: Arc<AtomicUsize>,
}

impl Cutting {
    async fn start(url: &str, marker: &'static [u8], cuts: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (before, rest) = url.split_once("@127.0.0.1:").unwrap();
        let (server_port, database) = rest.split_once('/').unwrap();
        let target = format!("127.0.0.1:{server_port}");
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let cuts = Arc::new(AtomicUsize::new(cuts));
        let left = cuts.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(forward(client, server, marker, left.clone()));
            }
        });
        Self { url, cuts }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, marker: &[u8], cuts: Arc<AtomicUsize>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut cut = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(len @ 1..) = read else { return };
                if up[..len].windows(marker.len()).any(|window| window == marker) {
                    let one_less = |left: usize| left.checked_sub(1);
                    cut = cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
                }
                if server.write_all(&up[..len]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(len @ 1..) = read else { return };
                if cut || client.write_all(&down[..len]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_acknowledgement_is_asked_again_with_the_same_token() {
    // Tokens of the tests begin like this, and nothing else on the wire does.
    const TOKEN: &[u8] = &[0xa5; 8];
    for options in [PREPARED, UNNAMED] {
        let url = database().await;
        let direct = open(&url, PREPARED).await.unwrap();
        let proxy = Cutting::start(&url, TOKEN, 1).await;
        let store = open(&proxy.url, options).await.unwrap();
        let mine = claim(1, 1);
        let outcome = store.claim(Arc::new(mine.clone()), CALM).await.unwrap();
        let ClaimOutcome::Claimed { fence, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "nothing was cut");
        // The claim that the cut reply would have told is the one that was told.
        let again = direct.claim(Arc::new(mine.clone()), CALM).await.unwrap();
        assert!(matches!(again, ClaimOutcome::Claimed { fence: same, .. } if same == fence));
        proxy.cuts.store(1, Ordering::SeqCst);
        let stored = store.complete(complete(&mine, fence, b"answer")).await.unwrap();
        assert_eq!(stored, CompleteReply::AlreadyStored);
        // Lost twice: the caller decides, and its own repetition finds its claim.
        proxy.cuts.store(2, Ordering::SeqCst);
        let lost = store.claim(Arc::new(claim(2, 1)), CALM).await;
        assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
        let found = store.claim(Arc::new(claim(2, 1)), CALM).await.unwrap();
        assert!(matches!(found, ClaimOutcome::Claimed { .. }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_is_told_at_once_and_starts_the_grace_anew() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let url = server.create_database().await;
    let service = Service::new(Arc::new(open(&url, PREPARED).await.unwrap()));
    let (held, wait) = (claim(1, 1), Duration::ZERO);
    assert!(matches!(service.claim(held.clone(), wait).await.unwrap().0, ClaimOutcome::Claimed { .. }));
    server.kill().await.unwrap();
    until("the outage is noticed", async || service.heartbeat().await.is_err()).await;
    assert_eq!(service.calm().ms(), 0);
    assert!(service.calm().outage().is_some());
    until("callers are told at once", async || {
        let asked = Instant::now();
        let told = service.claim(claim(2, 1), wait).await;
        matches!(told, Err(StoreError::Unavailable(_))) && asked.elapsed() < Duration::from_millis(100)
    })
    .await;
    server.start_again().await.unwrap();
    // What was confirmed before is there.
    until("the server is found again, by both lanes", async || {
        let told = service.claim(claim(1, 2), wait).await;
        assert!(!matches!(told, Ok((ClaimOutcome::Claimed { .. }, _))), "{told:?}");
        service.heartbeat().await.is_ok() && told.is_ok()
    })
    .await;
    assert!(service.calm().outage().is_none());
    assert!(service.calm().ms() < 30_000);
    let renewed = service.renew(vec![renewal(&held)]).await.unwrap();
    assert_eq!(renewed, [fencepost_protocol::claims::RenewResult::Renewed]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_stops_answering_holds_nobody_for_ever() {
    let server = Server::start(ServerOptions::default()).await.unwrap();
    let url = server.create_database().await;
    let store = open(&url, PREPARED).await.unwrap();
    store.claim(Arc::new(claim(1, 1)), CALM).await.unwrap();
    server.freeze();
    let asked = Instant::now();
    let told = store.claim(Arc::new(claim(2, 1)), CALM).await;
    assert!(matches!(told, Err(StoreError::Unavailable(_))), "{told:?}");
    assert!(asked.elapsed() < Duration::from_secs(10));
    server.thaw();
    until("the store works again", async || store.claim(Arc::new(claim(2, 1)), CALM).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_operation_that_the_database_refuses_harms_no_other_in_its_batch() {
    let bed = Bed::real(fencepost_store::store::StoreKind::Postgres).await;
    let claims: Vec<_> = (0..200).map(|number| claim(number, 1)).collect();
    let fences: Vec<_> = crate::holding::together(&bed, claims.clone()).await;
    let answers = claims.iter().zip(fences).enumerate().map(|(number, (claim, outcome))| {
        let ClaimOutcome::Claimed { fence, .. } = outcome else { panic!("{outcome:?}") };
        let mut answer = complete(claim, fence, b"answer");
        if number % 50 == 7 {
            // The HTTP interface refuses it; the table does as well.
            answer.status = 700;
        }
        bed.store.complete(answer)
    });
    let results = futures_util::future::join_all(answers).await;
    for (number, result) in results.into_iter().enumerate() {
        match number % 50 {
            7 => assert!(matches!(result, Err(StoreError::Broken(_))), "{number}: {result:?}"),
            _ => assert_eq!(result, Ok(CompleteReply::Stored), "{number}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_batches_of_two_instances_never_deadlock() {
    let bed = Arc::new(Bed::real(fencepost_store::store::StoreKind::Postgres).await);
    let url = bed.url.clone().unwrap();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let tasks: Vec<_> = (0..64_u64)
        .map(|caller| {
            let bed = bed.clone();
            tokio::spawn(async move {
                let mut rng = StdRng::seed_from_u64(seed ^ caller);
                for turn in 0..80 {
                    let store = bed.instance(rng.random_range(0..2));
                    let mine = rerun(rng.random_range(0..40), caller * 1_000 + turn);
                    let outcome = store.claim(Arc::new(mine.clone()), CALM).await.unwrap();
                    let ClaimOutcome::Claimed { fence, .. } = outcome else {
                        store.release(release(&mine)).await.unwrap();
                        continue;
                    };
                    store
                        .renew((0..40).map(|n| renewal(&rerun(n, caller * 1_000 + turn))).collect())
                        .await
                        .unwrap();
                    match turn % 4 {
                        0 => drop(store.release(release(&mine)).await.unwrap()),
                        1 => drop(store.unknown(unknown(&mine)).await.unwrap()),
                        2 => {
                            let answer = Complete { ttl_ms: 1, ..complete(&mine, fence, b"answer") };
                            store.complete(answer).await.unwrap();
                        }
                        _ => {
                            store.release(release(&mine)).await.unwrap();
                            store.sweep(SweepKind::DropEnded, CALM, 10).await.unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let client = connect(&url).await;
    let query = "SELECT pg_stat_force_next_flush(), deadlocks, xact_rollback FROM pg_stat_database
                 WHERE datname = current_database()";
    let row = client.query_one(query, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>("deadlocks"), row.get::<_, i64>("xact_rollback")), (0, 0));
}
