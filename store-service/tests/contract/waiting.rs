//! Callers that wait for a key, and callers that go away.

use crate::bed::*;
use crate::served::{Served, claim_frame};
use async_trait::async_trait;
use fencepost_protocol::claims::{
    CompleteReply, ReleaseReply, RenewResult, Renewal, UnknownReply, UnknownRequest,
};
use fencepost_protocol::{FRAME_MEDIA_TYPE, StoreId, StoreKey, paths};
use fencepost_store::entry::{Claim, ClaimOutcome, Complete, Release, Settle, SettleReply, SweepKind};
use fencepost_store::http::Tokens;
use fencepost_store::service::Service;
use fencepost_store::store::{Audit, Beat, Entry, Filter, Store, StoreError, StoreKind};
use fencepost_store::waiters::Waiters;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(20);

async fn parked(service: &Service, count: usize) {
    until("callers are parked", async || service.waiters().len() == count).await;
}

/// A release wakes the callers that wait in the same process; one of them gets the claim.
pub async fn release_wakes_a_waiting_caller(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    bed.granted(&claim(1, 1)).await;
    let waiting: Vec<_> = (2..10)
        .map(|caller| {
            let service = service.clone();
            tokio::spawn(async move { service.claim(claim(1, caller), LONG).await.unwrap() })
        })
        .collect();
    parked(&service, 8).await;
    service.release(release(&claim(1, 1))).await.unwrap();
    parked(&service, 7).await;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    parked(&service, 0).await;
}

/// A completion answers everybody who waits.
pub async fn completion_answers_all_waiting_callers(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    let fence = bed.granted(&claim(1, 1)).await;
    let waiting: Vec<_> = (2..40)
        .map(|caller| {
            let service = service.clone();
            tokio::spawn(async move { service.claim(claim(1, caller), LONG).await.unwrap() })
        })
        .collect();
    parked(&service, 38).await;
    service.complete(complete(&claim(1, 1), fence, b"answer")).await.unwrap();
    for caller in waiting {
        let (outcome, _) = caller.await.unwrap();
        let ClaimOutcome::Completed(answer) = outcome else { panic!("{outcome:?}") };
        assert_eq!(&answer.body[..], b"answer");
    }
}

/// What another instance freed is found as well.
pub async fn waiting_caller_finds_what_another_instance_freed(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    bed.granted(&claim(1, 1)).await;
    let waiting = service.claim(claim(1, 2), LONG);
    let freeing = async {
        parked(&service, 1).await;
        bed.other.release(release(&claim(1, 1))).await.unwrap();
    };
    let ((outcome, parked_ms), ()) = {
        let (outcome, freed) = tokio::join!(waiting, freeing);
        (outcome.unwrap(), freed)
    };
    assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{outcome:?}");
    assert!(parked_ms > 0);
}

/// Under `rerun` a waiting caller takes the key over when lease and run end.
pub async fn waiting_caller_takes_over_at_the_end_of_the_lease(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    let short = |token| Claim { claim_ttl_ms: 300, max_run_ms: 0, ..rerun(1, token) };
    let old = bed.granted(&short(1)).await;
    let (outcome, _) = service.claim(short(2), LONG).await.unwrap();
    let ClaimOutcome::Claimed { fence, .. } = outcome else { panic!("{outcome:?}") };
    assert!(fence > old);
}

/// The wait ends when it should; a changed payload never waits; too many do not wait either.
pub async fn waiting_is_bounded(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::with_waiters(bed.store.clone(), Waiters::new(1, 2));
    bed.granted(&claim(1, 1)).await;
    let started = Instant::now();
    let wait = Duration::from_millis(300);
    let (outcome, parked_ms) = service.claim(claim(1, 2), wait).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::InProgress { .. }));
    assert!(started.elapsed() >= wait && parked_ms >= 300, "parked {parked_ms} ms");
    let changed = Claim { fingerprint: fingerprint(2), ..claim(1, 3) };
    assert_eq!(service.claim(changed, LONG).await.unwrap(), (ClaimOutcome::Mismatch, 0));
    let waiting = {
        let service = service.clone();
        tokio::spawn(async move { service.claim(claim(1, 4), LONG).await })
    };
    parked(&service, 1).await;
    let (outcome, parked_ms) = service.claim(claim(1, 5), LONG).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::InProgress { .. }) && parked_ms == 0);
    waiting.abort();
    parked(&service, 0).await;
}

/// Of many that wait, each gets the claim once, one at a time.
pub async fn released_claim_passes_from_one_waiter_to_the_next(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    bed.granted(&claim(1, 1)).await;
    let mut callers = tokio::task::JoinSet::new();
    for token in 2..32 {
        let service = service.clone();
        callers.spawn(async move { (token, service.claim(claim(1, token), LONG).await.unwrap().0) });
    }
    parked(&service, 30).await;
    let mut holder = 1;
    for left in (0..30).rev() {
        service.release(release(&claim(1, holder))).await.unwrap();
        let (token, outcome) = callers.join_next().await.unwrap().unwrap();
        assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{outcome:?}");
        holder = token;
        assert_eq!((service.waiters().len(), callers.len()), (left, left));
    }
}

/// A caller that hangs up while the claim passes to it does not keep it from the next one.
pub async fn waiter_that_leaves_at_the_handover_holds_nothing(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::new(bed.store.clone());
    for round in 0..30_u64 {
        let token = move |number: u64| 10 * round + number;
        bed.granted(&claim(1, token(1))).await;
        let wait = |number| {
            let service = service.clone();
            tokio::spawn(async move { service.claim(claim(1, token(number)), LONG).await })
        };
        let leaving = [wait(2), wait(3)];
        let staying = wait(4);
        parked(&service, 3).await;
        let (released, ()) = tokio::join!(service.release(release(&claim(1, token(1)))), async {
            tokio::task::yield_now().await;
            leaving.iter().for_each(tokio::task::JoinHandle::abort);
        });
        assert_eq!(released.unwrap(), ReleaseReply::Released);
        // One that left may have been answered just before.
        for (number, caller) in (2..).zip(leaving) {
            if let Ok(Ok((ClaimOutcome::Claimed { .. }, _))) = caller.await {
                service.release(release(&claim(1, token(number)))).await.unwrap();
            }
        }
        let (outcome, _) = staying.await.unwrap().unwrap();
        assert!(matches!(outcome, ClaimOutcome::Claimed { .. }), "{outcome:?}");
        service.release(release(&claim(1, token(4)))).await.unwrap();
        parked(&service, 0).await;
    }
}

/// While no more callers may wait, answers, renewals and releases pass, and free those who do.
pub async fn what_frees_callers_passes_while_no_more_may_wait(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let service = Service::with_waiters(bed.store.clone(), Waiters::new(5, 10));
    let fences = [bed.granted(&claim(1, 1)).await, bed.granted(&claim(2, 1)).await];
    let callers: Vec<_> = (0..10)
        .map(|n| {
            let service = service.clone();
            tokio::spawn(async move { service.claim(claim(1 + n % 2, 10 + n), LONG).await.unwrap().0 })
        })
        .collect();
    parked(&service, 10).await;
    let beyond = service.claim(claim(2, 99), LONG).await.unwrap();
    assert!(matches!(beyond, (ClaimOutcome::InProgress { .. }, 0)), "{beyond:?}");
    let other = claim(3, 1);
    let fence = match service.claim(other.clone(), LONG).await.unwrap().0 {
        ClaimOutcome::Claimed { fence, .. } => fence,
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!(service.renew(vec![renewal(&other)]).await.unwrap(), [RenewResult::Renewed]);
    assert_eq!(service.complete(complete(&other, fence, b"3")).await.unwrap(), CompleteReply::Stored);
    let unknown = service.unknown(unknown(&claim(1, 1))).await.unwrap();
    assert_eq!(unknown, UnknownReply::Marked);
    assert_eq!(
        service.complete(complete(&claim(1, 1), fences[0], b"1")).await.unwrap(),
        CompleteReply::Stored
    );
    assert_eq!(
        service.complete(complete(&claim(2, 1), fences[1], b"2")).await.unwrap(),
        CompleteReply::Stored
    );
    for caller in callers {
        let outcome = caller.await.unwrap();
        assert!(matches!(outcome, ClaimOutcome::Completed(_) | ClaimOutcome::Unknown { .. }), "{outcome:?}");
    }
    parked(&service, 0).await;
}

/// A store whose claims and looks are decided at once and told only when their gate opens.
pub struct Gated {
    pub inner: Arc<dyn Store>,
    pub gate: Semaphore,
    pub decided: Semaphore,
    pub look_gate: Semaphore,
    pub looked: Semaphore,
}

impl Gated {
    /// With both gates closed.
    pub fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        let closed = || Semaphore::new(0);
        let (gate, decided, look_gate, looked) = (closed(), closed(), closed(), closed());
        Arc::new(Self { inner, gate, decided, look_gate, looked })
    }
}

#[async_trait]
impl Store for Gated {
    fn kind(&self) -> StoreKind {
        self.inner.kind()
    }
    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }
    async fn claim(&self, claim: Arc<Claim>, calm_ms: u64) -> Result<ClaimOutcome, StoreError> {
        let outcome = self.inner.claim(claim, calm_ms).await;
        self.decided.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        outcome
    }
    async fn complete(&self, complete: Complete) -> Result<CompleteReply, StoreError> {
        self.inner.complete(complete).await
    }
    async fn release(&self, release: Release) -> Result<ReleaseReply, StoreError> {
        self.inner.release(release).await
    }
    async fn unknown(&self, request: UnknownRequest) -> Result<UnknownReply, StoreError> {
        self.inner.unknown(request).await
    }
    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<RenewResult>, StoreError> {
        self.inner.renew(renewals).await
    }
    async fn sweep(&self, kind: SweepKind, calm_ms: u64, limit: u32) -> Result<u64, StoreError> {
        self.inner.sweep(kind, calm_ms, limit).await
    }

    async fn sweep_lag(&self) -> Result<u64, StoreError> {
        self.inner.sweep_lag().await
    }
    async fn entry(&self, key: &StoreKey, answer: bool) -> Result<Option<Entry>, StoreError> {
        self.inner.entry(key, answer).await
    }
    async fn look(&self, key: &StoreKey) -> Result<Option<Entry>, StoreError> {
        let seen = self.inner.look(key).await;
        self.looked.add_permits(1);
        self.look_gate.acquire().await.unwrap().forget();
        seen
    }
    async fn entries(&self, filter: Filter) -> Result<Vec<Entry>, StoreError> {
        self.inner.entries(filter).await
    }
    async fn audit(&self, key: &StoreKey) -> Result<Vec<Audit>, StoreError> {
        self.inner.audit(key).await
    }
    async fn settle(&self, order: Settle) -> Result<SettleReply, StoreError> {
        self.inner.settle(order).await
    }
    async fn heartbeat(&self) -> Result<Beat, StoreError> {
        self.inner.heartbeat().await
    }
}

/// A claim that was won for a caller that had gone away is given back.
pub async fn claim_won_for_a_caller_already_gone_is_given_back(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let gated = Gated::new(bed.store.clone());
    let service = Service::new(gated.clone());
    let caller = {
        let service = service.clone();
        tokio::spawn(async move { service.claim(claim(1, 1), LONG).await })
    };
    gated.decided.acquire().await.unwrap().forget();
    assert!(matches!(bed.claim(&claim(1, 2)).await, ClaimOutcome::InProgress { .. }));
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gated.gate.add_permits(1);
    until("the claim is given back", async || {
        matches!(bed.claim(&claim(1, 3)).await, ClaimOutcome::Claimed { .. })
    })
    .await;
    bed.store.release(release(&claim(1, 3))).await.unwrap();
    assert_eq!(bed.claim(&claim(1, 1)).await, ClaimOutcome::Dead);
}

/// Callers that hang up in the middle of a claim leave no connection or statement that a later
/// caller could trip over, and no parked caller.
pub async fn callers_that_hang_up_poison_nothing(kind: StoreKind) {
    let bed = Bed::real(kind).await;
    let served = Arc::new(Served::start(bed.store.clone(), Tokens::open()).await);
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let callers: Vec<_> = (0..20_u64)
        .map(|caller| {
            let served = served.clone();
            tokio::spawn(async move {
                let mut rng = StdRng::seed_from_u64(seed ^ caller);
                for turn in 0..50 {
                    let claim = claim(rng.random_range(0..30), 1_000 + caller * 100 + turn);
                    let body = claim_frame(&claim, 2_000);
                    let head = format!(
                        "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: {FRAME_MEDIA_TYPE}\r\ncontent-length: {}\r\n\r\n",
                        paths::CLAIMS,
                        body.len()
                    );
                    let mut stream = TcpStream::connect(served.addr).await.unwrap();
                    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
                    let patience = Duration::from_micros(rng.random_range(0..5_000));
                    let _ = tokio::time::timeout(patience, stream.read_u8()).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    parked(&served.service, 0).await;
    for number in 0..100 {
        let mine = claim(1_000 + number, 1);
        let reply = served.post(paths::CLAIMS, claim_frame(&mine, 0)).await.json();
        assert_eq!(reply["outcome"], "claimed");
        let body = number.to_be_bytes();
        let answer = complete(&mine, reply["fence"].as_i64().unwrap(), &body);
        assert_eq!(served.service.complete(answer).await.unwrap(), CompleteReply::Stored);
        let again = served.post(paths::CLAIMS, claim_frame(&claim(1_000 + number, 2), 0)).await;
        assert_eq!(again.json()["outcome"], "completed");
        assert!(again.body.ends_with(&body));
    }
}
