//! Random lists of operations: every store answers each of them as the specification does.

use crate::bed::*;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause, UnknownRequest};
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, Release, Ruling, Settle, SweepKind};
use fencepost_store::store::memory::Memory;
use fencepost_store::store::{Clock, Filter, StateName, Store, StoreKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Debug, Clone)]
enum Op {
    Claim(Claim, u64),
    Complete(Complete),
    Release(Release),
    /// Gives back the claim that was granted last on the key.
    GiveBack(Claim),
    Unknown(UnknownRequest),
    Renew(Vec<fencepost_protocol::claims::Renewal>),
    Sweep(SweepKind, u64),
    /// A person's order, about the version that the key has or about another one.
    Settle(Settle, bool),
    Look(StoreKey),
    List(Filter),
    Pass(u64),
}

fn some_claim(rng: &mut StdRng) -> Claim {
    // Few keys, tokens and fingerprints, so that they meet.
    let mut claim = claim(rng.random_range(0..3), rng.random_range(0..12));
    claim.fingerprint = fingerprint(if rng.random_ratio(1, 5) { 2 } else { 1 });
    claim.scheme = scheme(if rng.random_ratio(1, 10) { 2 } else { 1 });
    claim.on_lost = if rng.random_bool(0.5) { OnLost::Hold } else { OnLost::Rerun };
    claim.claim_ttl_ms = *pick(rng, &[1_000, 30_000]);
    claim.max_run_ms = *pick(rng, &[0, 1_000, 60_000]);
    claim.unknown_ttl_ms = *pick(rng, &[1_000, 60_000]);
    claim
}

fn pick<'a, T>(rng: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

fn some_op(rng: &mut StdRng) -> Op {
    let claim = some_claim(rng);
    let calm = *pick(rng, &[0, 10_000, CALM, CALM]);
    match rng.random_range(0..100) {
        0..40 => Op::Claim(claim, calm),
        40..50 => {
            let fence = *pick(rng, &[1, START.0 + 5, (1 << 53) - 1]);
            let mut complete = complete(&claim, fence, &[rng.random(), 0, 255]);
            complete.ttl_ms = *pick(rng, &[1, 1_000, 100_000]);
            Op::Complete(complete)
        }
        50..62 => Op::Release(Release { cause: ReleaseCause::StatusNotStored, ..release(&claim) }),
        62..66 => Op::GiveBack(claim),
        66..73 => Op::Unknown(UnknownRequest { cause: UnknownCause::Reset, ..unknown(&claim) }),
        73..80 => {
            let mut renewals = vec![renewal(&claim)];
            if rng.random_bool(0.5) {
                let mut second = some_claim(rng);
                second.key = key(7);
                renewals.insert(0, renewal(&second));
            }
            Op::Renew(renewals)
        }
        80..82 => {
            let rulings = [
                Ruling::Free(ReleaseCause::NotRun),
                Ruling::Free(ReleaseCause::Other),
                Ruling::Answer {
                    status: 201,
                    headers: vec![0; 4].into(),
                    body: vec![1, 0].into(),
                    ttl_ms: 50_000,
                },
            ];
            let order = order(&claim, pick(rng, &rulings).clone());
            Op::Settle(Settle { force: rng.random_bool(0.5), ..order }, rng.random_ratio(1, 5))
        }
        82..84 => Op::Look(claim.key),
        84..86 => Op::List(Filter {
            state: *pick(
                rng,
                &[None, Some(StateName::Unknown), Some(StateName::Claimed), Some(StateName::Completed)],
            ),
            prefixes: pick(rng, &[None, Some(vec!["other".to_owned(), "test".to_owned()])]).clone(),
            scope: *pick(rng, &[None, Some(claim.scope)]),
            cause: pick(rng, &[None, None, Some("timeout".to_owned()), Some("lease_expired".to_owned())])
                .clone(),
            held: *pick(rng, &[None, Some(false)]),
            older_than_ms: *pick(rng, &[None, Some(0), Some(30_000)]),
            after: pick(rng, &[None, Some(key(0))]).clone(),
            limit: *pick(rng, &[1, 10]),
        }),
        86..88 => Op::Sweep(*pick(rng, &SweepKind::ALL), calm),
        88..96 => Op::Pass(*pick(rng, &[0, 1, 999, 1_000, 1_001, 30_000, 61_000])),
        _ => Op::Pass(*pick(rng, &[600_000, 3_600_000])),
    }
}

/// The end of the lease that the key was last granted until, as each store said it.
type LastLease = Option<fencepost_store::entry::Micros>;

async fn run(store: &dyn Store, op: &Op, last: &mut LastLease) -> String {
    match op {
        Op::Claim(claim, calm) => {
            let outcome = store.claim(Arc::new(claim.clone()), *calm).await.unwrap();
            if let ClaimOutcome::Claimed { lease_until, .. } = &outcome {
                *last = Some(*lease_until);
            }
            format!("{outcome:?}")
        }
        Op::Complete(complete) => format!("{:?}", store.complete(complete.clone()).await.unwrap()),
        Op::Release(release) => format!("{:?}", store.release(release.clone()).await.unwrap()),
        Op::GiveBack(claim) => {
            let only_lease = Some(last.unwrap_or(START));
            format!("{:?}", store.release(Release { only_lease, ..release(claim) }).await.unwrap())
        }
        Op::Unknown(request) => format!("{:?}", store.unknown(request.clone()).await.unwrap()),
        Op::Renew(renewals) => format!("{:?}", store.renew(renewals.clone()).await.unwrap()),
        Op::Sweep(kind, calm) => format!("{:?}", store.sweep(*kind, *calm, 1_000).await.unwrap()),
        Op::Settle(order, stale) => {
            let entry = store.entry(&order.key, false).await.unwrap();
            let mut version = entry.as_ref().map_or(order.version, |entry| entry.row.version());
            version.fence += i64::from(*stale);
            let reply = store.settle(Settle { version, ..order.clone() }).await.unwrap();
            format!("{entry:?} {reply:?}")
        }
        Op::Look(key) => {
            let entry = store.entry(key, true).await.unwrap();
            format!("{entry:?} {:?}", store.audit(key).await.unwrap())
        }
        Op::List(filter) => format!("{:?}", store.entries(filter.clone()).await.unwrap()),
        Op::Pass(_) => String::new(),
    }
}

/// Both instances of the store take turns, so that one of them has unnamed statements.
async fn compare(bed: &Bed, seed: u64, steps: usize) {
    let (clock, hand) = Clock::set(START);
    let model = Memory::new(clock).unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut model_last, mut store_last) = (None, None);
    let mut log = Vec::new();
    for step in 0..steps {
        let op = some_op(&mut rng);
        if let Op::Pass(ms) = op {
            bed.pass_ms(ms);
            hand.fetch_add(i64::try_from(ms * 1_000).unwrap(), Ordering::SeqCst);
        }
        let expected = run(&model, &op, &mut model_last).await;
        let found = run(&*bed.instance(step), &op, &mut store_last).await;
        log.push(format!("{step}: {op:?} -> {expected}"));
        assert_eq!(
            found,
            expected,
            "seed {seed}, FENCEPOST_SEED={seed} repeats it\n{}",
            log[log.len().saturating_sub(25)..].join("\n")
        );
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("FENCEPOST_SEED") {
        Ok(seed) => vec![seed.parse().expect("FENCEPOST_SEED is a number")],
        Err(_) => (0..6).map(|_| rand::random()).collect(),
    }
}

/// Every answer to a random list of operations is the specification's.
pub async fn random_operations_are_answered_as_specified(kind: StoreKind) {
    for seed in seeds() {
        println!("seed {seed}");
        compare(&Bed::set(kind).await, seed, 600).await;
    }
}

/// The statements decide the same where the entries are in partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_operations_on_partitions_are_answered_as_specified() {
    for seed in seeds().into_iter().take(3) {
        println!("seed {seed}");
        compare(&Bed::partitioned().await, seed, 600).await;
    }
}
