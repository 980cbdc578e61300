//! The disk of the database's tables, or of its log of writes, is full.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::history::End;
use fencepost_faults::world::Plan;
use fencepost_rig::postgres::Options;
use fencepost_rig::small_disk::{self, SmallDisk};

/// Where mounting is not permitted this can't be tried; the test says so and shows nothing.
#[tokio::test]
async fn a_full_disk_refuses_what_it_can_not_hold_and_serves_again_when_there_is_room() {
    if !small_disk::is_possible() {
        eprintln!("not tried: mounting is not permitted here");
        return;
    }
    let server = Options { small_disk: Some(SmallDisk::Tables(96)), ..Options::default() };
    let mut bed = Bed::on(Plan { own_database: true, server, ..Plan::default() }).await;
    let done = Wish::inline("done");
    assert!(is_stored(&bed.send(&done, 0).await));
    bed.world.primary().fill_disk().unwrap();
    // Pages that are there are filled up first.
    let mut refused = None;
    for n in 0..2_000 {
        let wish = Wish::inline(&format!("fill{n}"));
        let told = bed.send(&wish, n % 2).await;
        if refusal(&told) == "store_unavailable" {
            refused = Some(wish);
            break;
        }
        assert!(is_answer(&told), "{told:?}");
    }
    let refused = refused.expect("the disk is never full");
    assert_eq!(bed.runs(&refused), 0);
    assert!(is_answer(&bed.send(&done, 1).await), "what is there is read");
    bed.world.primary().free_disk().unwrap();
    bed.served(&refused, 0).await;
    bed.holds().await;
    assert!(matches!(bed.end(&done), End::Answered(_)));
}

/// Leaves 100 kB of the log's present file, which has 1 MiB.
const USE_UP: &str = "SELECT pg_logical_emit_message(false, 'ballast', repeat('x', greatest(0, \
    1048576 - 100000 - ((pg_current_wal_insert_lsn() - '0/0'::pg_lsn) % 1048576)::int)))";

/// PostgreSQL stops itself when it can't write its log. What it had confirmed is in the log.
#[tokio::test]
async fn a_full_disk_of_the_log_stops_the_database_and_loses_nothing_that_was_told() {
    if !small_disk::is_possible() {
        eprintln!("not tried: mounting is not permitted here");
        return;
    }
    // No file of the log is used again: else the checkpoint after a crash would make room.
    let settings = vec![("wal_keep_size".to_owned(), "1GB".to_owned())];
    let small_disk = Some(SmallDisk::Log(192));
    let server = Options { small_disk, settings, ..Options::default() };
    let mut bed = Bed::on(Plan { own_database: true, server, ..Plan::default() }).await;
    let mut done = vec![Wish::inline("done"), Wish::detached("done"), credit("done")];
    for wish in &done {
        assert!(is_stored(&bed.send(wish, 0).await));
    }
    let running = bed.running("r", 0).await;
    let primary = bed.world.primary();
    primary.fill_disk().unwrap();
    primary.ask("postgres", USE_UP).await.unwrap();
    // Its log takes some more requests, of every guard.
    let kinds: [fn(&str) -> Wish; 3] = [Wish::inline, Wish::detached, credit];
    let mut refused = None;
    for n in 0..3_000 {
        let wish = kinds[n % 3](&format!("fill{n}"));
        let told = bed.send(&wish, n % 2).await;
        if refusal(&told) == "store_unavailable" {
            refused = Some(wish);
            break;
        }
        if is_stored(&told) {
            done.push(wish);
        }
    }
    let refused = refused.expect("the disk is never full");
    let log = std::fs::read_to_string(primary.log_path()).unwrap();
    let full = |line: &str| line.contains("PANIC") && line.contains("No space left on device");
    assert!(log.lines().any(full), "it stopped for another reason: {log}");
    // Their clients are not made to wait for the database; what they get is marked.
    running.all_answered().await;
    // It may try to recover until somebody ends it; it has no room for that.
    primary.kill().await.unwrap();
    primary.free_disk().unwrap();
    primary.start_again().await.unwrap();
    bed.served(&refused, 0).await;
    bed.holds().await;
    for wish in &done {
        assert!(matches!(bed.end(wish), End::Answered(_)), "{:?}", wish.subject);
    }
}
