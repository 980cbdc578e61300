//! One count of a provider's places: operations and held keys share its limit and its breaker.
//!
//! What waits for a place does nothing that could be seen. A second provider, whose keys are looked up
//! one after the other in the same round, shows that there was time enough.

use crate::bed::{Bed, Over};
use crate::entries;
use crate::provider::Provider;
use crate::support::until;
use fencepost_protocol::StoreKey;
use fencepost_store::entry::Claim;
use fencepost_store::recovery::held::HeldEnded;
use fencepost_store::recovery::operation::Ended;
use fencepost_store::recovery::worker::{Recovery, Round};
use fencepost_store::store::StoreKind;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Keys of the second provider.
const OTHERS: u8 = 6;

fn start(recovery: &Arc<Recovery>) -> JoinHandle<Round> {
    let recovery = recovery.clone();
    tokio::spawn(async move { recovery.run_once().await.unwrap() })
}

/// A recoverer with one place at the provider, and a second provider.
async fn with_one_place(bed: &Bed) -> (Arc<Recovery>, Provider) {
    let other = Provider::start().await;
    let mut settings = bed.settings(true, json!({}));
    settings["providers"]["billing"]["concurrency"] = json!(1);
    settings["providers"]["other"] = json!({
        "sign": {"key_id": "k1", "key_file": "recovery.key"},
        "concurrency": 1,
        "keys": {
            "prefixes": ["other"],
            "lookup": {"url": format!("http://{}/keys?key={{key}}&fence={{fence}}", other.addr)},
        },
    });
    (bed.recoverer("one", &settings), other)
}

async fn keys_of_the_other(bed: &Bed) {
    for number in 0..OTHERS {
        let key = StoreKey::new("other", &[number; 16]).unwrap();
        bed.unknown(Claim { key, ..entries::claim(100, 100 + u64::from(number)) }).await;
    }
}

async fn the_other_was_asked(other: &Provider) {
    until("the other provider is asked", async || other.lookups().len() == usize::from(OTHERS)).await;
}

/// Who waited in which round is not said.
async fn both_found(first: JoinHandle<Round>, second: JoinHandle<Round>) {
    let rounds = [first.await.unwrap(), second.await.unwrap()];
    let operations = rounds.iter().filter_map(|round| round.operations.get(&Ended::Succeeded)).sum::<u32>();
    let keys = rounds.iter().filter_map(|round| round.keys.get(&HeldEnded::Completed)).sum::<u32>();
    assert_eq!((operations, keys), (1, 1), "{rounds:?}");
}

fn found() -> serde_json::Value {
    json!({"outcome": "succeeded", "answer": {"status": 201, "headers": [], "body": ""}})
}

pub async fn a_key_waits_while_an_operation_has_the_only_place(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (recovery, other) = with_one_place(&bed).await;
    let id = bed.stalled().await;
    bed.provider.create_now(id.as_str()).unwrap();
    bed.provider.looking.shut();
    let first = start(&recovery);
    bed.provider.looking.wait_arrived(1).await.unwrap();
    let (claim, _) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    keys_of_the_other(&bed).await;
    let second = start(&recovery);
    the_other_was_asked(&other).await;
    assert_eq!(bed.provider.lookups(), [id.to_string()], "the key waits");
    bed.provider.looking.open();
    both_found(first, second).await;
    assert_eq!(bed.provider.lookups(), [id.to_string(), claim.key.to_string()]);
}

pub async fn an_operation_waits_while_a_key_has_the_only_place(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let (recovery, other) = with_one_place(&bed).await;
    let id = bed.admitted().await;
    bed.provider.create_now(id.as_str()).unwrap();
    let (claim, _) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    bed.provider.looking.shut();
    let first = start(&recovery);
    bed.provider.looking.wait_arrived(1).await.unwrap();
    bed.pass(Over::Lease).await;
    keys_of_the_other(&bed).await;
    let second = start(&recovery);
    the_other_was_asked(&other).await;
    assert_eq!(bed.provider.lookups(), [claim.key.to_string()], "the operation waits");
    assert_eq!(bed.history(&id).await.len(), 0, "and nobody has taken it meanwhile");
    bed.provider.looking.open();
    both_found(first, second).await;
    assert_eq!(bed.provider.lookups(), [claim.key.to_string(), id.to_string()]);
}

pub async fn a_provider_that_was_away_is_tried_with_one_request_by_both_loops_together(kind: StoreKind) {
    let bed = Bed::new(kind).await;
    let mut settings = bed.settings(true, json!({}));
    settings["providers"]["billing"]["breaker"] = json!({"failures": 1, "open_for": "1ms"});
    let recovery = bed.recoverer("one", &settings);
    let id = bed.stalled().await;
    bed.provider.create_now(id.as_str()).unwrap();
    bed.provider.say(Some((503, "")));
    assert_eq!(recovery.run_once().await.unwrap().operations[&Ended::Postponed], 1);
    bed.provider.say(None);
    bed.pass(Over::Lease).await;
    bed.provider.looking.shut();
    let asked = bed.provider.looking.arrived();
    let mut rounds = Vec::new();
    until("an operation tries the provider", async || {
        rounds.push(start(&recovery));
        bed.provider.looking.arrived() > asked
    })
    .await;
    // While it is tried, a round finds no place and ends, although a key is held.
    let (claim, _) = bed.held(1).await;
    bed.provider.answer_key(claim.key.as_str(), found());
    let round = tokio::time::timeout(Duration::from_secs(20), recovery.run_once()).await;
    assert_eq!(round.expect("nothing is looked up beside the trial").unwrap(), Round::default());
    bed.provider.looking.open();
    for round in rounds {
        round.await.unwrap();
    }
    assert_eq!(bed.provider.lookups(), [id.to_string(), id.to_string()]);
    assert_eq!(recovery.run_once().await.unwrap().keys[&HeldEnded::Completed], 1);
}
