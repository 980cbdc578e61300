//! Callers that wait in one instance for what another one frees, on PostgreSQL.

use crate::bed::*;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{CompleteReply, ReleaseReply, RenewResult};
use fencepost_rig::pgbouncer::PgBouncer;
use fencepost_rig::postgres::Postgres as Server;
use fencepost_store::entry::ClaimOutcome;
use fencepost_store::service::{ClaimAnswer, Service};
use fencepost_store::store::postgres::{Options, Postgres};
use fencepost_store::store::{Clock, Hearing, Store, Woken};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

const LONG: Duration = Duration::from_secs(60);

/// What an instance was told: a key, or nothing for "anything may have changed".
type Heard = UnboundedReceiver<Option<StoreKey>>;

/// One instance with an ear of the test's own.
struct Instance {
    service: Arc<Service>,
    store: Arc<Postgres>,
    heard: Heard,
}

async fn instance(url: &str, options: Options) -> Instance {
    let store = Arc::new(Postgres::open(url, Clock::Real, true, options).await.unwrap());
    let (tell, heard) = unbounded_channel();
    store.listen(Box::new(move |woken| {
        let _ = tell.send(match woken {
            Woken::Key(key) => Some(key.clone()),
            Woken::All => None,
        });
    }));
    let service = Service::new(store.clone());
    Instance { service, store, heard }
}

impl Instance {
    async fn listens(&self) {
        until("the instance listens", async || self.store.hearing() == Hearing::Notified).await;
    }

    async fn polls(&self) -> String {
        let mut why = String::new();
        until("the instance looks for itself", async || match self.store.hearing() {
            Hearing::Polling(reason) if reason != "not connected yet" => {
                why = reason;
                true
            }
            _ => false,
        })
        .await;
        why
    }

    /// The next key that it was told.
    async fn hears(&mut self) -> StoreKey {
        let next = async {
            loop {
                if let Some(key) = self.heard.recv().await.unwrap() {
                    return key;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), next).await.expect("nothing was heard")
    }

    fn waits(&self, key: u64, token: u64) -> JoinHandle<ClaimAnswer> {
        let service = self.service.clone();
        tokio::spawn(async move { service.claim(claim(key, token), LONG).await })
    }

    async fn parked(&self, count: usize) {
        until("callers are parked", async || self.service.waiters().len() == count).await;
    }
}

async fn two(url: &str) -> (Instance, Instance) {
    let (one, other) = (instance(url, Options::default()).await, instance(url, Options::default()).await);
    one.listens().await;
    other.listens().await;
    (one, other)
}

async fn is_marked(url: &str, number: u64) {
    let client = connect(url).await;
    until("the claim is marked", async || {
        let rows = client
            .query("SELECT waited FROM fencepost.entries WHERE key = $1", &[&key(number).as_str()])
            .await
            .unwrap();
        rows.iter().any(|row| row.get("waited"))
    })
    .await;
}

fn claimed(answer: ClaimAnswer) {
    let outcome = answer.unwrap().0;
    assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_claim_passes_to_exactly_one_waiter_of_two_instances() {
    let url = database().await;
    let (one, other) = two(&url).await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let mut callers = JoinSet::new();
    for token in 2..42 {
        let instance = if token % 2 == 0 { &one } else { &other };
        let service = instance.service.clone();
        callers.spawn(async move {
            claimed(service.claim(claim(1, token), LONG).await);
            token
        });
    }
    one.parked(20).await;
    other.parked(20).await;
    let mut holder = 1;
    let mut served = BTreeSet::new();
    for left in (0..40).rev() {
        let at = if holder % 2 == 0 { &other } else { &one };
        assert_eq!(at.service.release(release(&claim(1, holder))).await.unwrap(), ReleaseReply::Released);
        holder = callers.join_next().await.unwrap().unwrap();
        assert!(served.insert(holder));
        // Nobody else got it: all others still wait.
        assert_eq!(one.service.waiters().len() + other.service.waiters().len(), left, "after {holder}");
        assert_eq!(callers.len(), left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_caller_is_told_by_the_other_instance_and_nobody_is_told_in_vain() {
    let url = database().await;
    let (one, mut other) = two(&url).await;
    let mut fences = Vec::new();
    for number in 1..=4 {
        match one.service.claim(claim(number, 1), Duration::ZERO).await.unwrap().0 {
            ClaimOutcome::Claimed { fence, .. } => fences.push(fence),
            outcome => panic!("{outcome:?}"),
        }
    }
    let waiting: Vec<_> = [2, 3, 4].map(|number| other.waits(number, 2)).into();
    other.parked(3).await;
    for number in [2, 3, 4] {
        is_marked(&url, number).await;
    }
    // Nobody waits for the first one.
    one.service.complete(complete(&claim(1, 1), fences[0], b"1")).await.unwrap();
    one.service.complete(complete(&claim(2, 1), fences[1], b"2")).await.unwrap();
    assert_eq!(other.hears().await, key(2));
    one.service.release(release(&claim(3, 1))).await.unwrap();
    assert_eq!(other.hears().await, key(3));
    one.service.unknown(unknown(&claim(4, 1))).await.unwrap();
    assert_eq!(other.hears().await, key(4));
    let mut told = Vec::new();
    for caller in waiting {
        told.push(caller.await.unwrap().unwrap().0);
    }
    assert!(matches!(told[0], ClaimOutcome::Completed(_)), "{told:?}");
    assert!(matches!(told[1], ClaimOutcome::Claimed { .. }), "{told:?}");
    assert!(matches!(told[2], ClaimOutcome::Unknown { .. }), "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_marked_once_however_many_wait_for_it() {
    let url = database().await;
    let (one, other) = two(&url).await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let client = connect(&url).await;
    let version = async || -> String {
        let row = client
            .query_one("SELECT xmin::text || ' ' || ctid::text AS version FROM fencepost.entries", &[])
            .await
            .unwrap();
        row.get("version")
    };
    let mut callers = vec![one.waits(1, 2)];
    is_marked(&url, 1).await;
    let marked = version().await;
    callers.extend((0..50).flat_map(|n| [one.waits(1, 10 + n), other.waits(1, 100 + n)]));
    one.parked(51).await;
    other.parked(50).await;
    // A look of each instance passes as well.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(version().await, marked);
    callers.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_that_are_lost_with_their_connection_are_made_up_for() {
    let url = database().await;
    let (one, mut other) = two(&url).await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    claimed(one.service.claim(claim(2, 1), Duration::ZERO).await);
    let (first, second) = (other.waits(1, 2), other.waits(2, 2));
    other.parked(2).await;
    is_marked(&url, 1).await;
    // Nobody can connect, so the listeners stay away once they are ended.
    let name = url.rsplit('/').next().unwrap().to_owned();
    let admin = connect(&url.replace(&name, "postgres")).await;
    let allow = |allow| format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {allow}");
    admin.batch_execute(&allow(false)).await.unwrap();
    let ended = admin
        .query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = $1 AND application_name = 'fencepost-store listener'",
            &[&name],
        )
        .await
        .unwrap();
    assert_eq!(ended.len(), 2);
    other.polls().await;
    one.service.release(release(&claim(1, 1))).await.unwrap();
    claimed(first.await.unwrap());
    // Back again: everybody is woken once, and told from then on.
    while other.heard.try_recv().is_ok() {}
    admin.batch_execute(&allow(true)).await.unwrap();
    other.listens().await;
    until("everybody was woken", async || matches!(other.heard.try_recv(), Ok(None))).await;
    is_marked(&url, 2).await;
    one.service.release(release(&claim(2, 1))).await.unwrap();
    assert_eq!(other.hears().await, key(2));
    claimed(second.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_never_comes_is_made_up_for_by_looking() {
    let url = database().await;
    let (one, other) = two(&url).await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let waiting = [other.waits(1, 2), other.waits(1, 3), other.waits(1, 4)];
    other.parked(3).await;
    is_marked(&url, 1).await;
    // Somebody ends it and tells nobody.
    connect(&url).await.execute("DELETE FROM fencepost.entries", &[]).await.unwrap();
    other.parked(2).await;
    assert_eq!(other.store.hearing(), Hearing::Notified);
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sweeper_wakes_who_waits_for_what_it_called_lost() {
    let url = database().await;
    let (mut one, mut other) = two(&url).await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let (here, there) = (one.waits(1, 2), other.waits(1, 3));
    is_marked(&url, 1).await;
    // The lease ends before its time, and for its whole length the services are not calm: only
    // the sweep, which says that it is, may call it lost.
    let early = "UPDATE fencepost.entries SET lease_until = clock_timestamp() - interval '1 second'";
    assert_eq!(connect(&url).await.execute(early, &[]).await.unwrap(), 1);
    let swept = one.store.sweep(fencepost_store::entry::SweepKind::MarkLost, CALM, 10).await.unwrap();
    assert_eq!(swept, 1);
    assert_eq!((one.hears().await, other.hears().await), (key(1), key(1)));
    for caller in [here, there] {
        assert!(matches!(caller.await.unwrap().unwrap().0, ClaimOutcome::Unknown { .. }));
    }
}

/// Commits in this database so far; exact once its sessions have ended.
async fn commits(url: &str) -> i64 {
    let name = url.rsplit('/').next().unwrap().to_owned();
    let admin = connect(&url.replace(&name, "postgres")).await;
    until("all sessions have ended", async || {
        let row = admin
            .query_one("SELECT count(*) AS sessions FROM pg_stat_activity WHERE datname = $1", &[&name])
            .await
            .unwrap();
        row.get::<_, i64>("sessions") == 0
    })
    .await;
    let row = admin
        .query_one("SELECT xact_commit FROM pg_stat_database WHERE datname = $1", &[&name])
        .await
        .unwrap();
    row.get("xact_commit")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_herd_of_1000_waiters_of_one_key_does_not_run_1000_statements() {
    let url = database().await;
    let one = instance(&url, Options::default()).await;
    one.listens().await;
    let outcome = one.service.claim(claim(1, 1), Duration::ZERO).await.unwrap().0;
    let ClaimOutcome::Claimed { fence, .. } = outcome else { panic!("{outcome:?}") };
    let callers: Vec<_> = (2..1_002).map(|token| one.waits(1, token)).collect();
    one.parked(1_000).await;
    one.service.complete(complete(&claim(1, 1), fence, b"answer")).await.unwrap();
    for caller in callers {
        assert!(matches!(caller.await.unwrap().unwrap().0, ClaimOutcome::Completed(_)));
    }
    drop(one);
    let commits = commits(&url).await;
    assert!(commits < 400, "{commits} statements");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_on_a_hundred_keys_are_all_answered_by_two_instances() {
    let url = database().await;
    let (one, other) = two(&url).await;
    let mut fences = Vec::new();
    for number in 0..100 {
        match one.service.claim(claim(number, 1), Duration::ZERO).await.unwrap().0 {
            ClaimOutcome::Claimed { fence, .. } => fences.push(fence),
            outcome => panic!("{outcome:?}"),
        }
    }
    let callers: Vec<_> = (0..1_000)
        .map(|n| if n % 2 == 0 { one.waits(n / 2 % 100, 10 + n) } else { other.waits(n / 2 % 100, 10 + n) })
        .collect();
    one.parked(500).await;
    other.parked(500).await;
    let finished = (0..100).zip(fences).map(|(number, fence)| {
        let instance = if number % 2 == 0 { &one } else { &other };
        instance.service.complete(complete(&claim(number, 1), fence, &number.to_be_bytes()))
    });
    let finished = futures_util::future::join_all(finished).await;
    assert!(finished.into_iter().all(|reply| reply == Ok(CompleteReply::Stored)));
    for (n, caller) in (0..1_000_u64).zip(callers) {
        let outcome = caller.await.unwrap().unwrap().0;
        let ClaimOutcome::Completed(answer) = outcome else { panic!("{outcome:?}") };
        assert_eq!(answer.body[..], (n / 2 % 100).to_be_bytes());
    }
    one.parked(0).await;
    other.parked(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_claims_keep_back_no_completion_renewal_or_release() {
    let url = database().await;
    let one = instance(&url, Options { claim_connections: 1, ..Options::default() }).await;
    let mut fences = Vec::new();
    for number in 1..=4 {
        match one.service.claim(claim(number, 1), Duration::ZERO).await.unwrap().0 {
            ClaimOutcome::Claimed { fence, .. } => fences.push(fence),
            outcome => panic!("{outcome:?}"),
        }
    }
    // A claim by its own token writes, and stands behind this lock with the only connection.
    let mut locker = connect(&url).await;
    let transaction = locker.transaction().await.unwrap();
    transaction
        .execute("SELECT 1 FROM fencepost.entries WHERE key = $1 FOR UPDATE", &[&key(1).as_str()])
        .await
        .unwrap();
    let stuck = one.waits(1, 1);
    let watcher = connect(&url).await;
    until("the claim is stuck", async || {
        let waiting = "SELECT count(*) AS stuck FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>("stuck") == 1
    })
    .await;
    let complete = one.service.complete(complete(&claim(2, 1), fences[1], b"answer")).await.unwrap();
    assert_eq!(complete, CompleteReply::Stored);
    assert_eq!(one.service.renew(vec![renewal(&claim(3, 1))]).await.unwrap(), [RenewResult::Renewed]);
    assert_eq!(one.service.release(release(&claim(4, 1))).await.unwrap(), ReleaseReply::Released);
    assert!(!stuck.is_finished());
    transaction.rollback().await.unwrap();
    claimed(stuck.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_transaction_pooler_waiting_callers_look_and_every_promise_holds() {
    let direct = database().await;
    let pooler = PgBouncer::start(Server::shared().await, 5).await.unwrap();
    let url = pooler.url(&direct);
    let options = Options { unnamed_statements: true, ..Options::default() };
    let (one, other) = (instance(&url, options.clone()).await, instance(&url, options).await);
    for instance in [&one, &other] {
        assert!(instance.polls().await.contains("transaction-mode pooler"));
    }
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let waiting = other.waits(1, 2);
    other.parked(1).await;
    one.service.release(release(&claim(1, 1))).await.unwrap();
    claimed(waiting.await.unwrap());
    for round in 0..5 {
        let callers = (0..128).map(|caller| {
            let instance = if caller % 2 == 0 { &one } else { &other };
            instance.service.claim(claim(10 + round, 1_000 + caller), Duration::ZERO)
        });
        let outcomes = futures_util::future::join_all(callers).await;
        let winners: Vec<_> = (1_000..)
            .zip(&outcomes)
            .filter_map(|(token, outcome)| match outcome {
                Ok((ClaimOutcome::Claimed { fence, .. }, _)) => Some((token, *fence)),
                Ok((ClaimOutcome::InProgress { .. }, _)) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        let [(token, fence)] = winners[..] else { panic!("{winners:?}") };
        let winner = claim(10 + round, token);
        assert_eq!(other.service.renew(vec![renewal(&winner)]).await.unwrap(), [RenewResult::Renewed]);
        let stored = one.service.complete(complete(&winner, fence, b"answer")).await.unwrap();
        assert_eq!(stored, CompleteReply::Stored);
        let told = other.service.claim(claim(10 + round, 1), Duration::ZERO).await.unwrap().0;
        assert!(matches!(told, ClaimOutcome::Completed(_)), "{told:?}");
    }
    one.service.heartbeat().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_an_address_past_the_pooler_waiting_callers_are_told() {
    let direct = database().await;
    let pooler = PgBouncer::start(Server::shared().await, 5).await.unwrap();
    let options =
        Options { unnamed_statements: true, listen_url: Some(direct.clone()), ..Options::default() };
    let url = pooler.url(&direct);
    let (one, mut other) = (instance(&url, options.clone()).await, instance(&url, options).await);
    one.listens().await;
    other.listens().await;
    claimed(one.service.claim(claim(1, 1), Duration::ZERO).await);
    let waiting = other.waits(1, 2);
    is_marked(&direct, 1).await;
    one.service.release(release(&claim(1, 1))).await.unwrap();
    assert_eq!(other.hears().await, key(1));
    claimed(waiting.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_address_on_another_database_is_noticed() {
    let (url, elsewhere) = (database().await, database().await);
    instance(&elsewhere, Options::default()).await;
    let one = instance(&url, Options { listen_url: Some(elsewhere), ..Options::default() }).await;
    assert!(one.polls().await.contains("another database"));
}
