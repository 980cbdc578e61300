//! Clients: they send, repeat with the same key, hang up, and write down what they were told.

use crate::history::{End, Guard, History, Subject, Told};
use crate::world::World;
use anyhow::Result;
use fencepost_rig::client::Call;
use fencepost_rig::grants::{self, CREDITS};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest call: above everything that the filter promises to answer within.
const CALL_WITHIN: Duration = Duration::from_secs(45);

/// Longest time after the faults until each subject is answered, refused or unknown: the longest run
/// (`max_run`, 30 s), a lease, the grace of an instance after an outage (a lease) and that for an
/// instance that died (13 s and a lease), with leases of 6 s. The rest is for a loaded machine.
pub const SETTLED_WITHIN: Duration = Duration::from_secs(90);

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Grants of the clients are good for longer than any campaign lets them wait.
const GRANT_SECONDS: u64 = 3_000;

/// All that clients were told.
#[derive(Default)]
pub struct Notebook {
    history: Mutex<History>,
}

impl Notebook {
    /// What is in it.
    pub fn open(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subject with its call.
#[derive(Clone)]
pub struct Wish {
    /// What is wanted.
    pub subject: Subject,
    call: Call,
}

impl Wish {
    /// A payment under a key, inside the client's stream.
    pub fn inline(key: &str) -> Self {
        Self::keyed(Guard::Inline, &format!("/pay/{key}"), key)
    }

    /// A job under a key, on a call of the filter's own.
    pub fn detached(key: &str) -> Self {
        Self::keyed(Guard::Detached, &format!("/job/{key}"), key)
    }

    fn keyed(guard: Guard, path: &str, key: &str) -> Self {
        let call = Call::post(path).user("alice").key(key).json(&serde_json::json!({"amount": 1}));
        let subject = Subject { guard, id: path.to_owned(), grant: None };
        Self { subject, call: call.within(CALL_WITHIN) }
    }

    /// A credit by a grant.
    pub fn credit(grant: &str, operation: &str) -> Self {
        let token = grants::credit(grant, "250.00", GRANT_SECONDS);
        Self::credit_by(grant, &token, operation)
    }

    /// The same, by another operation of the same token.
    pub fn credit_by(grant: &str, token: &str, operation: &str) -> Self {
        let call = Call::post(CREDITS)
            .user("alice")
            .header("x-grant", token)
            .header("x-operation-id", operation)
            .header("content-type", "application/json")
            .body(r#"{"amount":250.00,"currency":"USD"}"#);
        let subject =
            Subject { guard: Guard::Grant, id: operation.to_owned(), grant: Some(grant.to_owned()) };
        Self { subject, call: call.within(CALL_WITHIN) }
    }

    /// Lets the upstream take so long.
    pub fn taking(mut self, delay: Duration) -> Self {
        self.call = self.call.header("x-test-delay-ms", delay.as_millis().to_string());
        self
    }

    /// Lets the upstream wait at a gate.
    pub fn at_gate(mut self, name: &str) -> Self {
        self.call = self.call.header("x-test-gate", name);
        self
    }

    /// Sends it once by a proxy, and writes down what it is told.
    pub async fn send(&self, world: &World, side: usize, notebook: &Notebook) -> Told {
        let told = match self.call.send(world.way_in(side)).await {
            Ok(answer) => Told::of(&answer),
            Err(_) => Told::Nothing,
        };
        notebook.open().tell(&self.subject, told.clone());
        told
    }

    /// Sends it and hangs up.
    pub async fn send_and_leave(&self, world: &World, side: usize, notebook: &Notebook, after: Duration) {
        let sent = tokio::time::timeout(after, self.call.send(world.way_in(side))).await;
        let told = sent.ok().and_then(Result::ok).map_or(Told::Nothing, |answer| Told::of(&answer));
        notebook.open().tell(&self.subject, told);
    }

    /// Asks until its end is told, by both proxies in turn, and writes the end down.
    pub async fn settle(&self, world: &World, notebook: &Notebook, deadline: Instant) -> End {
        let mut side = 0;
        let end = loop {
            side = 1 - side;
            if let Some(end) = self.send(world, side, notebook).await.end() {
                break end;
            }
            if Instant::now() > deadline {
                break End::Stuck;
            }
            tokio::time::sleep(PAUSE).await;
        };
        notebook.open().end(&self.subject, end.clone());
        end
    }
}

/// One client of a campaign: wish after wish until it is told to stop. Gives back its wishes.
pub async fn wish_on(
    world: &World,
    notebook: &Notebook,
    stop: &AtomicBool,
    seed: u64,
    number: usize,
) -> Vec<Wish> {
    let mut random = StdRng::seed_from_u64(seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut wishes = Vec::new();
    let mut count = 0;
    while !stop.load(Ordering::SeqCst) {
        count += 1;
        for wish in draw(&mut random, number, count) {
            attempts(&wish, world, notebook, &mut random).await;
            wishes.push(wish);
        }
    }
    wishes
}

/// A wish, or two that contend for one grant.
fn draw(random: &mut StdRng, number: usize, count: u64) -> Vec<Wish> {
    let name = format!("c{number}-{count}");
    let delay = *[0_u64, 0, 20, 200, 1_500].get(random.random_range(0..5)).unwrap_or(&0);
    let operation = |last: u64| format!("0190a7f0-{number:04x}-4000-8{last:03x}-{count:012x}");
    let wishes = match random.random_range(0..10) {
        0..4 => vec![Wish::inline(&name)],
        4..7 => vec![Wish::detached(&name)],
        7..9 => vec![Wish::credit(&name, &operation(1))],
        _ => {
            let token = grants::credit(&name, "250.00", GRANT_SECONDS);
            vec![Wish::credit_by(&name, &token, &operation(1)), Wish::credit_by(&name, &token, &operation(2))]
        }
    };
    wishes.into_iter().map(|wish| wish.taking(Duration::from_millis(delay))).collect()
}

async fn attempts(wish: &Wish, world: &World, notebook: &Notebook, random: &mut StdRng) {
    for _ in 0..5 {
        let side = random.random_range(0..2);
        if random.random_range(0..8) == 0 {
            let after = Duration::from_millis(random.random_range(1..120));
            wish.send_and_leave(world, side, notebook, after).await;
        } else if wish.send(world, side, notebook).await.end().is_some() {
            return;
        }
        tokio::time::sleep(PAUSE * random.random_range(0..4)).await;
    }
}
