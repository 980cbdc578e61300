//! What the tests of single faults share: a world, its clients, and the judgement at the end.

use fencepost_faults::checker::{Violation, check};
use fencepost_faults::client::{Notebook, Wish};
use fencepost_faults::history::{End, Kept, Told};
use fencepost_faults::world::{Plan, World};
use fencepost_rig::upstream::Gate;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A world and what is wanted of it.
pub struct Bed {
    pub world: Arc<World>,
    pub notebook: Arc<Notebook>,
    wishes: Vec<Wish>,
}

/// Requests of every guard that wait in the upstream.
pub struct Running {
    gate: Gate,
    wishes: Vec<Wish>,
    told: Vec<JoinHandle<Told>>,
}

impl Bed {
    pub async fn on(plan: Plan) -> Self {
        let world = Arc::new(World::start(plan).await.unwrap());
        Self { world, notebook: Arc::default(), wishes: Vec::new() }
    }

    /// On the database that all share.
    pub async fn shared() -> Self {
        Self::on(Plan::default()).await
    }

    /// On a database of its own.
    pub async fn own() -> Self {
        Self::on(Plan { own_database: true, ..Plan::default() }).await
    }

    /// With a synchronous standby.
    pub async fn with_standby() -> Self {
        Self::on(Plan { standby: true, ..Plan::default() }).await
    }

    /// Sends a wish by a proxy.
    pub async fn send(&mut self, wish: &Wish, side: usize) -> Told {
        self.wishes.push(wish.clone());
        wish.send(&self.world, side, &self.notebook).await
    }

    /// Starts to send it.
    pub fn start(&mut self, wish: &Wish, side: usize) -> JoinHandle<Told> {
        self.wishes.push(wish.clone());
        let (world, notebook, wish) = (Arc::clone(&self.world), Arc::clone(&self.notebook), wish.clone());
        tokio::spawn(async move { wish.send(&world, side, &notebook).await })
    }

    /// One request of each guard by this proxy, as far as the upstream, where they wait. Where the last
    /// fault still shows in a refusal, another one is sent.
    pub async fn running(&mut self, name: &str, side: usize) -> Running {
        let gate = self.world.upstream.gate(name);
        let mut running = Running { gate, wishes: Vec::new(), told: Vec::new() };
        let kinds: [fn(&str) -> Wish; 3] = [Wish::inline, Wish::detached, credit];
        for kind in kinds {
            let mut tries = 0;
            loop {
                let wish = kind(&format!("{name}-{tries}")).at_gate(name);
                let mut told = self.start(&wish, side);
                let arrived = running.told.len() as u64 + 1;
                tokio::select! {
                    arrived = running.gate.wait_arrived(arrived) => {
                        arrived.unwrap();
                        running.wishes.push(wish);
                        running.told.push(told);
                        break;
                    }
                    told = &mut told => assert!(tries < 50 && !is_answer(&told.unwrap())),
                }
                tries += 1;
            }
        }
        running
    }

    /// Sends a wish until the application's answer comes.
    pub async fn served(&mut self, wish: &Wish, side: usize) -> Told {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let told = self.send(wish, side).await;
            if is_answer(&told) {
                return told;
            }
            assert!(Instant::now() < deadline, "it is not served again: {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sends a wish until it is told this code.
    pub async fn until_refused(&mut self, wish: &Wish, side: usize, code: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let told = self.send(wish, side).await;
            if refusal(&told) == code {
                return;
            }
            assert!(Instant::now() < deadline, "it is never told {code}: {told:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks for every end; what the checker says.
    pub async fn judged(&mut self) -> Vec<Violation> {
        self.wishes.sort_by(|one, other| one.subject.cmp(&other.subject));
        self.wishes.dedup_by(|one, other| one.subject == other.subject);
        self.world.settle(&self.wishes, &self.notebook).await.unwrap();
        check(&self.notebook.open())
    }

    /// Asks for every end; no promise is broken.
    pub async fn holds(&mut self) {
        let violations = self.judged().await;
        assert_eq!(violations, [], "{:#?}", self.notebook.open().records);
    }

    /// How it ended.
    pub fn end(&self, wish: &Wish) -> End {
        self.notebook.open().records[&wish.subject].end.clone().unwrap()
    }

    /// How often it ran.
    pub fn runs(&self, wish: &Wish) -> u64 {
        self.world.count(&self.notebook);
        self.notebook.open().records[&wish.subject].executions
    }
}

impl Running {
    /// Lets the upstream answer; what the clients are told.
    pub async fn finish(self) -> Vec<Told> {
        self.gate.open();
        let mut all = Vec::new();
        for told in self.told {
            all.push(told.await.unwrap());
        }
        all
    }

    /// Lets the upstream answer; every client gets the answer, stored or not.
    pub async fn all_answered(self) {
        for told in self.finish().await {
            assert!(is_answer(&told), "{told:?}");
        }
    }

    /// What is wanted.
    pub fn wishes(&self) -> Vec<Wish> {
        self.wishes.clone()
    }
}

/// A credit by a grant of this name.
pub fn credit(name: &str) -> Wish {
    Wish::credit(name, &operation(name))
}

/// An operation's id, of a name.
pub fn operation(name: &str) -> String {
    let sum = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    format!("0190a7f0-0000-4000-8000-{:012x}", sum & 0xffff_ffff_ffff)
}

pub fn is_answer(told: &Told) -> bool {
    matches!(told, Told::Answer { .. })
}

pub fn is_stored(told: &Told) -> bool {
    matches!(told, Told::Answer { kept: Kept::Stored, .. })
}

/// The code of a refusal; empty where it is none.
pub fn refusal(told: &Told) -> &str {
    match told {
        Told::Refused { code, .. } => code,
        Told::Answer { .. } | Told::Unclear { .. } | Told::Nothing => "",
    }
}
