//! The database without a standby: killed, stopped, hanging.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::fault::Fault;
use fencepost_faults::history::End;

async fn database_is_away(fault: Fault) {
    let mut bed = Bed::own().await;
    let done = [Wish::inline("done"), Wish::detached("done"), credit("done")];
    for wish in &done {
        assert!(is_stored(&bed.send(wish, 0).await));
    }
    let running = bed.running("r", 0).await;
    fault.strike(&bed.world).await.unwrap();
    let refused = [Wish::inline("new"), credit("new")];
    for wish in &refused {
        assert_eq!(refusal(&bed.send(wish, 1).await), "store_unavailable");
        assert_eq!(bed.runs(wish), 0);
    }
    // Their clients are not made to wait for the database; what they get is marked.
    running.all_answered().await;
    fault.heal(&bed.world).await.unwrap();
    bed.served(&refused[0], 1).await;
    bed.holds().await;
    for wish in &done {
        assert!(matches!(bed.end(wish), End::Answered(_)), "{:?}", wish.subject);
    }
}

#[tokio::test]
async fn a_database_that_is_killed_keeps_what_was_told_and_serves_again() {
    database_is_away(Fault::DatabaseKilled).await;
}

#[tokio::test]
async fn a_database_that_is_restarted_keeps_what_was_told_and_serves_again() {
    database_is_away(Fault::DatabaseStopped).await;
}

#[tokio::test]
async fn a_database_that_hangs_confirms_nothing_and_serves_again() {
    database_is_away(Fault::DatabaseFrozen).await;
}
