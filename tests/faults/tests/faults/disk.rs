//! The disk of the database's tables is full.

use crate::bed::*;
use fencepost_faults::client::Wish;
use fencepost_faults::history::End;
use fencepost_faults::world::Plan;
use fencepost_rig::postgres::Options;
use fencepost_rig::small_disk;

/// Where mounting is not permitted this can't be tried; the test says so and shows nothing.
#[tokio::test]
async fn a_full_disk_refuses_what_it_can_not_hold_and_serves_again_when_there_is_room() {
    if !small_disk::is_possible() {
        eprintln!("not tried: mounting is not permitted here");
        return;
    }
    let server = Options { table_disk_mib: Some(96), ..Options::default() };
    let mut bed = Bed::on(Plan { own_database: true, server, ..Plan::default() }).await;
    let done = Wish::inline("done");
    assert!(is_stored(&bed.send(&done, 0).await));
    bed.world.primary().fill_table_disk().unwrap();
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
    bed.world.primary().free_table_disk().unwrap();
    bed.served(&refused, 0).await;
    bed.holds().await;
    assert!(matches!(bed.end(&done), End::Answered(_)));
}
