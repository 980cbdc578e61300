//! Random lists of everything that changes entries: requests, holds, orders of people, erasing, recovery
//! of held keys. SQLite decides them by the specification in Rust, PostgreSQL in SQL, behind a boundary
//! that seals: both answer alike, and keep alike.
//!
//! The desk and recovery go by the database's own clock, which no test can set. So every lifetime is
//! over at once, a moment after the step, or not before the end of the test; and times are not compared.

use crate::bed::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fencepost_protocol::StoreKey;
use fencepost_protocol::claims::{OnLost, ReleaseCause, UnknownCause, UnknownRequest};
use fencepost_store::desk::{
    AgainOrder, AuditFilter, Desk, EraseOrder, FreeDone, FreeOrder, HoldDone, HoldOrder, HoldSeen, Whose,
};
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, Ruling, Settle, State, SweepKind};
use fencepost_store::grant::duration::Span;
use fencepost_store::recovery::postgres::PostgresRecovery;
use fencepost_store::recovery::store::{RecoveryStore, Rest};
use fencepost_store::seal::{KeyRing, Seal};
use fencepost_store::store::{Entry, Filter, Store, StoreKind};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const STEPS: usize = 400;

/// Over a moment after its step, and not before the end of the test.
const MS: [u64; 2] = [1, 3_600_000];

/// What passes after a step that gave something a short life.
const MOMENT: Duration = Duration::from_millis(3);

#[derive(Debug, Clone)]
enum Op {
    Claim(Claim),
    Complete(Complete),
    Release(Claim),
    Unknown(UnknownRequest),
    Renew(fencepost_protocol::claims::Renewal),
    Sweep(SweepKind),
    /// About the version that the key has, or about one before it.
    Settle(Settle, bool),
    BeginHold(HoldOrder),
    /// So many before the newest.
    LiftHold(i64),
    FreeHeld(i64),
    Erase(Option<Vec<String>>),
    /// About a key that recovery took, by its place among them.
    LookAgain(usize, bool),
    HeldTake(Vec<String>, u64),
    HeldPostpone(usize, bool, u64),
    HeldMark(usize, bool),
    HeldTidy,
    List(Option<bool>),
    Audit,
}

fn pick<'a, T>(rng: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[rng.random_range(0..of.len())]
}

/// Few keys of two prefixes, and few tokens, so that they meet. A token is one request's, so it has one
/// fingerprint: what is sealed is bound to it.
fn some_claim(rng: &mut StdRng) -> Claim {
    let number = rng.random_range(0..6);
    let mut claim = claim(0, number);
    claim.key = StoreKey::new(pick::<&str>(rng, &["test", "other"]), &[rng.random_range(0..2); 16]).unwrap();
    claim.fingerprint = fingerprint(if number == 5 { 2 } else { 1 });
    claim.on_lost = *pick(rng, &[OnLost::Hold, OnLost::Rerun]);
    claim.claim_ttl_ms = u32::try_from(*pick(rng, &MS)).unwrap();
    claim.max_run_ms = *pick(rng, &[0, 1]);
    claim.unknown_ttl_ms = *pick(rng, &[1, 3_600_000, 3_600_000]);
    claim
}

fn some_op(rng: &mut StdRng) -> Op {
    let claim = some_claim(rng);
    let (back, place, stale) = (rng.random_range(0..3), rng.random_range(0..4), rng.random_ratio(1, 5));
    let prefixes = pick(rng, &[None, Some(vec!["test".to_owned()])]).clone();
    match rng.random_range(0..100) {
        0..36 => Op::Claim(claim),
        36..44 => Op::Complete(Complete {
            ttl_ms: *pick(rng, &[1, 1, 3_600_000]),
            ..complete(&claim, 7, &[rng.random(), 255])
        }),
        44..50 => Op::Release(claim),
        50..57 => Op::Unknown(UnknownRequest { cause: UnknownCause::Reset, ..unknown(&claim) }),
        57..60 => Op::Renew(renewal(&claim)),
        60..63 => Op::Sweep(*pick(rng, &SweepKind::ALL)),
        63..70 => {
            let rulings =
                [Ruling::Free(ReleaseCause::NotRun), Ruling::Free(ReleaseCause::Other), answer(b"told")];
            let order = order(&claim, pick(rng, &rulings).clone());
            Op::Settle(Settle { force: rng.random_bool(0.5), ..order }, stale)
        }
        70..73 => Op::BeginHold(HoldOrder {
            prefix: pick(rng, &[None, Some("test".to_owned()), Some("other".to_owned())]).clone(),
            since: *pick(rng, &[None, None, Some(START), Some(fencepost_store::entry::Micros(1 << 60))]),
            keys_for_ms: *pick(rng, &[None, Some(MS[0]), Some(MS[1]), Some(MS[1])]),
            grants: false,
            who: "ann".into(),
            reason: "restored".into(),
        }),
        73..78 => Op::LiftHold(back),
        78..83 => Op::FreeHeld(back),
        83..85 => Op::Erase(prefixes),
        85..87 => Op::LookAgain(place, stale),
        87..91 => {
            Op::HeldTake(prefixes.unwrap_or_else(|| vec!["test".into(), "other".into()]), *pick(rng, &MS))
        }
        91..93 => Op::HeldPostpone(place, stale, *pick(rng, &MS)),
        93..95 => Op::HeldMark(place, stale),
        95 => Op::HeldTidy,
        96..98 => Op::List(*pick(rng, &[None, Some(true), Some(false)])),
        _ => Op::Audit,
    }
}

/// A store with everything that stands beside its entries.
struct Place {
    bed: Bed,
    entries: Arc<dyn Store>,
    desk: Arc<dyn Desk>,
    recovery: Arc<dyn RecoveryStore>,
    /// Held keys that recovery took, with their turns.
    turns: BTreeMap<String, i64>,
    /// The newest hold.
    hold: i64,
}

impl Place {
    async fn new(kind: StoreKind, seal: Option<Arc<Seal>>) -> Self {
        let bed = Bed::real(kind).await;
        let recovery: Arc<dyn RecoveryStore> = match &bed.url {
            Some(url) => {
                let timeout = Duration::from_secs(5);
                Arc::new(PostgresRecovery::open(url, false, bed.store.store_id(), timeout).unwrap())
            }
            None => bed.store.recovery().unwrap(),
        };
        let entries = seal.map_or_else(|| bed.store.clone(), |seal| seal.store(bed.store.clone()));
        Self { desk: bed.store.desk().unwrap(), entries, recovery, bed, turns: BTreeMap::new(), hold: 0 }
    }

    /// What it answers, without times.
    async fn run(&mut self, op: &Op) -> String {
        let store = &self.entries;
        match op {
            Op::Claim(claim) => told(&store.claim(Arc::new(claim.clone()), CALM).await.unwrap()),
            Op::Complete(complete) => format!("{:?}", store.complete(complete.clone()).await.unwrap()),
            Op::Release(claim) => format!("{:?}", store.release(release(claim)).await.unwrap()),
            Op::Unknown(request) => format!("{:?}", store.unknown(request.clone()).await.unwrap()),
            Op::Renew(renewal) => format!("{:?}", store.renew(vec![renewal.clone()]).await.unwrap()),
            Op::Sweep(kind) => format!("{}", store.sweep(*kind, CALM, 1_000).await.unwrap()),
            Op::Settle(order, stale) => {
                let version = self.version(&order.key, *stale).await.unwrap_or(order.version);
                match self.entries.settle(Settle { version, ..order.clone() }).await.unwrap() {
                    fencepost_store::entry::SettleReply::Running { .. } => "running".into(),
                    other => format!("{other:?}"),
                }
            }
            Op::BeginHold(order) => {
                let done = self.desk.begin_hold(order.clone()).await.unwrap();
                if let HoldDone::Begun(hold) = &done {
                    self.hold = hold.id;
                }
                hold(&done)
            }
            Op::LiftHold(back) => {
                let done = self.desk.lift_hold(self.hold - back, "bob".into(), "over".into());
                hold(&done.await.unwrap())
            }
            Op::FreeHeld(back) => {
                let (who, reason) = ("bob".into(), "seen".into());
                let order = FreeOrder { hold: self.hold - back, after: None, who, reason };
                match self.desk.free_held(order).await.unwrap() {
                    FreeDone::Done(freed) => format!("freed {} kept {}", freed.freed, freed.kept),
                    other => format!("{other:?}"),
                }
            }
            Op::Erase(prefixes) => {
                let order = EraseOrder {
                    whose: Whose::Scope(claim(0, 0).scope),
                    prefixes: prefixes.clone(),
                    after: None,
                    who: "ann".into(),
                    reason: "asked to".into(),
                };
                let erased = self.desk.erase(order).await.unwrap();
                format!("{erased:?}")
            }
            Op::LookAgain(place, stale) => {
                let Some((key, _)) = self.taken(*place, false) else { return "none".into() };
                let Some(version) = self.version(&key, *stale).await else { return "absent".into() };
                let order = AgainOrder { key, version, who: "ann".into(), reason: "it is back".into() };
                format!("{:?}", self.desk.look_again(order).await.unwrap())
            }
            Op::HeldTake(prefixes, lease) => {
                let take = self.recovery.held_take(prefixes.clone(), Span::ms(*lease), "r".into(), 100);
                let mut taken = take.await.unwrap();
                taken.sort_by(|a, b| a.key.as_str().cmp(b.key.as_str()));
                let told = taken.iter().map(|held| format!("{} {} {}", held.key, held.turn, held.attempts));
                let told = told.collect::<Vec<_>>().join(", ");
                self.turns.extend(taken.into_iter().map(|held| (held.key.to_string(), held.turn)));
                told
            }
            Op::HeldPostpone(place, stale, ms) => {
                let Some((key, turn)) = self.taken(*place, *stale) else { return "none".into() };
                let rest = Rest { span: Span::ms(*ms), counted: !stale };
                let done = self.recovery.held_postpone(key, turn, rest, "unclear".into());
                format!("{:?}", done.await.unwrap())
            }
            Op::HeldMark(place, stale) => {
                let Some((key, turn)) = self.taken(*place, *stale) else { return "none".into() };
                let done = self.recovery.held_mark(key, turn, "tired".into(), "unclear".into());
                format!("{:?}", done.await.unwrap())
            }
            Op::HeldTidy => format!("{:?}", self.recovery.held_tidy(None, 1_000).await.unwrap()),
            Op::List(held) => {
                let filter = Filter { held: *held, limit: 100, ..Filter::default() };
                seen(&self.entries.entries(filter).await.unwrap())
            }
            Op::Audit => self.lines().await,
        }
    }

    async fn version(&self, key: &StoreKey, stale: bool) -> Option<fencepost_store::entry::Version> {
        let mut version = self.entries.entry(key, false).await.unwrap()?.row.version();
        version.fence -= i64::from(stale);
        Some(version)
    }

    /// A key that recovery took, and its turn or the one before.
    fn taken(&self, place: usize, stale: bool) -> Option<(StoreKey, i64)> {
        let (key, turn) = self.turns.iter().nth(place % self.turns.len().max(1))?;
        Some((StoreKey::parse(key).unwrap(), turn - i64::from(stale)))
    }

    /// Every audit's lines; those of one statement share a time, so in the order of their words.
    async fn lines(&self) -> String {
        let filter = AuditFilter { limit: 1_000, ..AuditFilter::default() };
        let lines = self.desk.audit(filter).await.unwrap().into_iter();
        let mut lines: Vec<_> = lines
            .map(|line| {
                format!("{} {} {} {} {}", line.kind, line.subject, line.who, line.action, line.reason)
            })
            .collect();
        lines.sort();
        lines.join("\n")
    }

    /// All that is kept.
    async fn kept(&self) -> String {
        let mut entries = Vec::new();
        for (prefix, number) in [("test", 0), ("test", 1), ("other", 0), ("other", 1)] {
            let key = StoreKey::new(prefix, &[number; 16]).unwrap();
            entries.extend(self.entries.entry(&key, true).await.unwrap());
        }
        let listed = self.entries.entries(Filter { limit: 100, ..Filter::default() }).await.unwrap();
        let marked = self.recovery.held_list(None, None, 100).await.unwrap().into_iter();
        let marked: Vec<_> = marked.map(|held| format!("{} {}", held.key, held.attempts)).collect();
        format!("{}\n{}\n{marked:?}", seen(&entries), seen(&listed))
    }
}

fn told(outcome: &ClaimOutcome) -> String {
    match outcome {
        ClaimOutcome::Claimed { .. } => "claimed".into(),
        ClaimOutcome::InProgress { .. } => "in progress".into(),
        ClaimOutcome::Unknown { cause, .. } => format!("unknown {cause:?}"),
        ClaimOutcome::Completed(answer) => {
            format!("{} {:?} {:?}", answer.status, answer.headers, answer.body)
        }
        other => format!("{other:?}"),
    }
}

fn hold(done: &HoldDone) -> String {
    let words = |hold: &HoldSeen| {
        format!("{} {:?} {} {}", hold.id, hold.prefix, hold.keys_until.is_some(), hold.lifted_at.is_some())
    };
    match done {
        HoldDone::Begun(hold) => format!("begun {}", words(hold)),
        HoldDone::Lifted(hold) => format!("lifted {}", words(hold)),
        HoldDone::Ahead | HoldDone::Absent => format!("{done:?}"),
    }
}

fn seen(entries: &[Entry]) -> String {
    let words = |entry: &Entry| {
        let state = match &entry.row.state {
            State::Claimed(lease) => format!("claimed {:?}", lease.on_lost),
            State::Completed { status, headers, body, .. } => {
                format!("completed {status} {headers:?} {body:?}")
            }
            State::Unknown { cause, .. } => format!("unknown {cause:?}"),
            State::Released { cause, .. } => format!("released {cause:?}"),
        };
        let (row, held) = (&entry.row, entry.held);
        let lengths = (entry.headers_len, entry.body_len);
        format!("{} {state} {:?} {:?} {held:?} {lengths:?}", entry.key, row.token, row.dead)
    };
    entries.iter().map(words).collect::<Vec<_>>().join("\n")
}

/// Does the step give anything a life that is over a moment later?
fn is_short(op: &Op) -> bool {
    match op {
        Op::Claim(claim) => claim.claim_ttl_ms == 1 || claim.max_run_ms == 1 || claim.unknown_ttl_ms == 1,
        Op::Complete(complete) => complete.ttl_ms == 1,
        // The lifetime is that of the claim.
        Op::Unknown(_) | Op::Sweep(_) | Op::Renew(_) => true,
        Op::BeginHold(order) => order.keys_for_ms == Some(1),
        Op::HeldTake(_, ms) | Op::HeldPostpone(_, _, ms) => *ms == 1,
        _ => false,
    }
}

async fn compare(seed: u64) {
    let key = format!("k1 {}", STANDARD.encode([1; 32]));
    let seal = Seal::new(Some(KeyRing::parse(&key).unwrap()));
    let mut specified = Place::new(StoreKind::Sqlite, None).await;
    let mut place = Place::new(StoreKind::Postgres, Some(seal)).await;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut log = Vec::new();
    for step in 0..STEPS {
        let op = some_op(&mut rng);
        let (expected, found) = (specified.run(&op).await, place.run(&op).await);
        if is_short(&op) {
            tokio::time::sleep(MOMENT).await;
        }
        log.push(format!("{step}: {op:?} -> {expected}"));
        let tell = || {
            let tail = log[log.len().saturating_sub(25)..].join("\n");
            format!("seed {seed}, FENCEPOST_SEED={seed} repeats it\n{tail}")
        };
        assert_eq!(found, expected, "{}", tell());
        let (expected, found) = (specified.kept().await, place.kept().await);
        assert_eq!(found, expected, "kept otherwise; {}", tell());
    }
    assert_eq!(place.lines().await, specified.lines().await, "seed {seed}");
    drop(place.bed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_orders_of_people_and_recovery_are_answered_alike_by_sqlite_and_sealed_postgres() {
    let seeds: Vec<u64> = match std::env::var("FENCEPOST_SEED") {
        Ok(seed) => vec![seed.parse().expect("FENCEPOST_SEED is a number")],
        Err(_) => (0..4).map(|_| rand::random()).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        compare(seed).await;
    }
}
