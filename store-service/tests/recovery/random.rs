//! Random lives of operations: handlers that die, come late or are still at work, providers that lie
//! down and get up, recoverers at once and one after the other, time that passes. The provider's books
//! are compared with the records at the end. A failure prints its seed; `FENCEPOST_SEED` replays it.

use crate::bed::{Bed, Over};
use fencepost_protocol::grants::OperationId;
use fencepost_protocol::grants::OperationStatus::{
    self, Admitted, Failed, NeedsReconciliation, Succeeded, Unknown,
};
use fencepost_store::grant::store::OwnerOutcome;
use fencepost_store::store::StoreKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

/// Lives in one test.
const LIVES: u64 = 6;

/// Things that happen in one life.
const TURNS: usize = 25;

pub async fn random_lives_of_operations_end_with_at_most_one_effect(kind: StoreKind) {
    let seed = std::env::var("FENCEPOST_SEED").ok().map(|seed| seed.parse().unwrap());
    let first = seed.unwrap_or_else(|| rand::random::<u64>() >> 8);
    let lives = if seed.is_some() { 1 } else { LIVES };
    for seed in first..first + lives {
        println!("FENCEPOST_SEED={seed}");
        life(kind, seed).await;
    }
}

async fn life(kind: StoreKind, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let bed = Bed::new(kind).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(bed.admitted().await);
    }
    let mut settings = bed.settings(true, json!({"give_up": {"attempts": 1_000}}));
    // Its rest is real time, which does not pass here: while it is open nothing is looked up.
    settings["providers"]["billing"]["breaker"] = json!({"failures": 5, "open_for": "1ms"});
    let recoverers = [bed.recoverer("one", &settings), bed.recoverer("two", &settings)];
    // What each handler was told, so that it never claims more.
    let mut ended: Vec<Option<OperationStatus>> = vec![None; ids.len()];
    for _ in 0..TURNS {
        let at = random.random_range(0..ids.len());
        match random.random_range(0..10) {
            0 | 1 => bed.pass(Over::Lease).await,
            2 => {
                recoverers[0].run_once().await.unwrap();
            }
            3 | 4 => {
                let (one, two) = tokio::join!(recoverers[0].run_once(), recoverers[1].run_once());
                one.and(two).unwrap();
            }
            5 => {
                let said = [
                    (503, ""),
                    (404, "what?"),
                    (200, r#"{"operation_id": "ID", "outcome": "in_progress"}"#),
                    (200, r#"{"outcome": "refused"}"#),
                ];
                bed.provider.say(Some(said[random.random_range(0..said.len())]));
            }
            6 => bed.provider.say(None),
            7 if !matches!(bed.status(&ids[at]).await, Succeeded) => bed.provider.refuse(&ids[at]),
            _ => handler(&bed, &ids[at], &mut ended[at], &mut random).await,
        }
        for (id, ended) in ids.iter().zip(&ended) {
            let status = bed.status(id).await;
            if let Some(ended) = ended {
                assert_eq!(status, *ended, "seed {seed}: an end was overwritten");
            }
            assert!(bed.provider.effects(id) <= 1, "seed {seed}: two effects");
        }
    }
    bed.provider.say(None);
    for _ in 0..20 {
        bed.pass(Over::Lease).await;
        for recoverer in &recoverers {
            recoverer.run_once().await.unwrap();
        }
    }
    for id in &ids {
        let (status, effects) = (bed.status(id).await, bed.provider.effects(id));
        assert!(!matches!(status, Admitted | Unknown), "seed {seed}: open for ever");
        let fits = match status {
            Succeeded => effects == 1,
            Failed => effects == 0,
            _ => status == NeedsReconciliation,
        };
        assert!(fits, "seed {seed}: {status:?} with {effects} effects");
        let events = bed.grants.store().history(id.clone()).await.unwrap();
        assert!(events.iter().filter(|event| event.step == "record").count() <= 1, "seed {seed}");
        assert!(events.windows(2).all(|two| two[0].owner_version <= two[1].owner_version), "seed {seed}");
    }
    bed.check_signatures();
}

/// The original handler does what it may: asks, sends, records what it was told.
async fn handler(bed: &Bed, id: &OperationId, ended: &mut Option<OperationStatus>, random: &mut StdRng) {
    if !matches!(bed.handler_may_submit(id).await, OwnerOutcome::Done(_)) {
        // Too late: whatever it still records must change nothing that is final.
        bed.handler_records(id, Unknown).await;
        return;
    }
    let outcome = match bed.provider.create_now(id.as_str()) {
        _ if random.random_bool(0.3) => return, // it dies here
        Ok(_) => [Succeeded, Unknown][random.random_range(0..2)],
        Err(_) => [Failed, Unknown][random.random_range(0..2)],
    };
    let recorded = bed.handler_records(id, outcome).await;
    if matches!(recorded, OwnerOutcome::Done(_)) && outcome != Unknown {
        *ended = Some(outcome);
    }
}
