//! The statements that most claims and answers need, where another transaction has the row: each is
//! held at the other's lock, and let go in each order.

use crate::bed::*;
use fencepost_protocol::claims::CompleteReply;
use fencepost_store::entry::{Claim, ClaimOutcome, State};
use fencepost_store::store::Store;
use fencepost_store::store::postgres::{Options, Postgres};
use std::sync::Arc;

struct Stage {
    store: Arc<Postgres>,
    locker: tokio_postgres::Client,
    watcher: tokio_postgres::Client,
}

impl Stage {
    async fn new() -> Self {
        let url = database().await;
        let store = Postgres::open(&url, fencepost_store::store::Clock::Real, true, Options::default()).await;
        Self { store: Arc::new(store.unwrap()), locker: connect(&url).await, watcher: connect(&url).await }
    }

    async fn granted(&self, claim: &Claim) -> i64 {
        match self.store.claim(Arc::new(claim.clone()), CALM).await.unwrap() {
            ClaimOutcome::Claimed { fence, .. } => fence,
            other => panic!("{other:?}"),
        }
    }

    /// Another transaction does this and does not end yet.
    async fn begin(&self, statement: &str) {
        self.locker.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
    }

    async fn end(&self, how: &str) {
        self.locker.batch_execute(how).await.unwrap();
    }

    /// A statement of the store stands behind the other transaction.
    async fn is_held(&self) {
        until("a statement waits", async || {
            let waiting = "SELECT count(*) AS waiting FROM pg_stat_activity
                           WHERE datname = current_database() AND wait_event_type = 'Lock'";
            self.watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>("waiting") == 1
        })
        .await;
    }

    async fn state(&self, claim: &Claim) -> (fencepost_protocol::ClaimToken, State) {
        let row = self.store.entry(&claim.key, true).await.unwrap().unwrap().row;
        (row.token, row.state)
    }
}

/// The row of a claim that another instance is about to make.
const MAKE: &str = "
    INSERT INTO fencepost.entries (key, state, token, fence, scheme, fingerprint, scope, dead_tokens, lease_until,
                                   run_until, on_lost, claim_ttl_ms, unknown_ttl_ms, until, created_at, updated_at)
    VALUES ('test:00000000000000000000000000000001', 'claimed', decode(repeat('cd', 16), 'hex'), 1, '1-test',
            decode(repeat('01', 32), 'hex'), decode(repeat('07', 16), 'hex'), '{}', now() + interval '1 minute',
            now() + interval '1 minute', 'hold', 1000, 1000, 'infinity', now(), now())";

/// What a claim is told that waits for such a row, and the stage after it.
async fn claimed_behind(end: &str) -> (Stage, Claim, ClaimOutcome) {
    let stage = Stage::new().await;
    stage.begin(MAKE).await;
    let (store, mine) = (stage.store.clone(), claim(1, 1));
    let asked = Arc::new(mine.clone());
    let asking = tokio::spawn(async move { store.claim(asked, CALM).await.unwrap() });
    stage.is_held().await;
    stage.end(end).await;
    (stage, mine, asking.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_meets_a_row_in_the_making_loses_where_it_is_kept() {
    let (stage, mine, outcome) = claimed_behind("COMMIT").await;
    assert!(matches!(outcome, ClaimOutcome::InProgress { .. }), "{outcome:?}");
    assert_eq!(stage.state(&mine).await.0.as_bytes(), &[0xcd; 16]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_meets_a_row_in_the_making_wins_where_it_is_not_kept() {
    let (stage, mine, outcome) = claimed_behind("ROLLBACK").await;
    let ClaimOutcome::Claimed { fence, lease_until } = outcome else { panic!("{outcome:?}") };
    // What the caller is told without reading it is what the row says.
    let row = stage.store.entry(&mine.key, true).await.unwrap().unwrap().row;
    let State::Claimed(lease) = &row.state else { panic!("{row:?}") };
    assert_eq!((row.token, row.fence, lease.until), (mine.token, fence, lease_until));
}

/// What may become of the holder's row while its answer waits for the lock.
async fn answered_behind(change: &str, end: &str) -> (CompleteReply, fencepost_protocol::ClaimToken, State) {
    let stage = Stage::new().await;
    let mine = claim(1, 1);
    let fence = stage.granted(&mine).await;
    stage.begin(change).await;
    let (store, answer) = (stage.store.clone(), complete(&mine, fence, b"answer"));
    let asking = tokio::spawn(async move { store.complete(answer).await.unwrap() });
    stage.is_held().await;
    stage.end(end).await;
    let reply = asking.await.unwrap();
    let (token, state) = stage.state(&mine).await;
    (reply, token, state)
}

/// Another token takes the claim over.
const TAKE_OVER: &str = "UPDATE fencepost.entries SET token = decode(repeat('cd', 16), 'hex'), fence = fence + 1, updated_at = now()";

/// The sweeper, or an instance, calls the outcome unknown.
const LOSE: &str =
    "UPDATE fencepost.entries SET state = 'unknown', cause = 'lease_expired', lease_until = NULL,
                    run_until = NULL, on_lost = NULL, claim_ttl_ms = NULL, unknown_ttl_ms = NULL,
                    until = now() + interval '1 hour', updated_at = now()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_meets_a_take_over_changes_nothing() {
    let (reply, token, state) = answered_behind(TAKE_OVER, "COMMIT").await;
    assert!(matches!(reply, CompleteReply::Refused { .. }), "{reply:?}");
    assert_eq!(token.as_bytes(), &[0xcd; 16]);
    assert!(matches!(state, State::Claimed(_)), "{state:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_meets_a_take_over_is_stored_where_that_is_not_kept() {
    let (reply, token, state) = answered_behind(TAKE_OVER, "ROLLBACK").await;
    assert_eq!((reply, token), (CompleteReply::Stored, claim(1, 1).token));
    assert!(matches!(state, State::Completed { status: 201, .. }), "{state:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_meets_its_own_unknown_outcome_is_stored_onto_it() {
    let (reply, token, state) = answered_behind(LOSE, "COMMIT").await;
    assert_eq!((reply, token), (CompleteReply::Stored, claim(1, 1).token));
    assert!(matches!(state, State::Completed { status: 201, .. }), "{state:?}");
}
