//! The database's clock, which decides leases and lifetimes, is stepped.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::history::End;
use fencepost_faults::world::Plan;
use fencepost_rig::clock::SteppedClock;
use fencepost_rig::postgres::Options;

#[tokio::test]
async fn a_database_clock_that_jumps_runs_nothing_twice() {
    let clock = SteppedClock::new().unwrap();
    let server = Options { environment: clock.environment(), ..Options::default() };
    let mut bed = Bed::on(Plan { own_database: true, server, ..Plan::default() }).await;
    let done = Wish::inline("done");
    assert!(is_stored(&bed.send(&done, 0).await));
    let running = bed.running("r", 0).await;
    let keys = running.wishes();
    let now = "SELECT (extract(epoch FROM clock_timestamp()) - extract(epoch FROM pg_postmaster_start_time())) > 900";
    assert_eq!(bed.world.primary().ask("postgres", now).await.unwrap().as_deref(), Some("f"));
    clock.step(1_000).unwrap();
    assert_eq!(
        bed.world.primary().ask("postgres", now).await.unwrap().as_deref(),
        Some("t"),
        "it has the clock"
    );
    // Leases are over at a blow. Holders may renew first, but nobody runs them again.
    drop(bed.send(&keys[0], 1).await);
    drop(bed.send(&keys[1], 1).await);
    running.all_answered().await;
    bed.served(&Wish::inline("later"), 1).await;
    // Back: what is claimed now would be held for longer, if its holder did not end it.
    clock.step(0).unwrap();
    bed.served(&Wish::detached("earlier"), 0).await;
    bed.holds().await;
    assert!(matches!(bed.end(&done), End::Answered(_)));
}
