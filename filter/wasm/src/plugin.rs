//! State of one plugin configuration in one VM: what its root and its streams share.
//!
//! The table of exchanges is here, so an exchange lives as long as it owes something, whether or
//! not its stream does. Borrows are short and never held across a host call that may call back.

use crate::abi;
use crate::metrics::Counters;
use fencepost_filter_core::exchange::detached::UpstreamCall;
use fencepost_filter_core::exchange::payloads::{Note, RecentPayloads};
use fencepost_filter_core::exchange::{Call, Cluster, Effect, Exchange, Input, World};
use fencepost_filter_core::guard::Warning;
use fencepost_filter_core::policy::{Config, RoutePolicies};
use fencepost_protocol::StoreId;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Most exchanges that live on without a stream, and most bytes that they keep. Beyond either the
/// oldest is dropped: its claim is left to its lease, which holds or re-runs as its policy says.
const BACKGROUND_MAX: usize = 4_096;
const BACKGROUND_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of bodies in this VM above which no detached request is let in: the VM itself ends at
/// 1 GiB, and a body stands in it several times while it is handed over.
const KEPT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Least time between two log lines about mistakes that are found anew on every request.
const WARN_EVERY_MS: u64 = 10_000;

/// Identity of an exchange in its plugin's table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExchangeId(u64);

/// One exchange and the stream that it belongs to.
pub struct Slot {
    pub exchange: Exchange,
    /// Context of the stream, while there is one.
    pub stream: Option<u32>,
    /// What the host had got of the request when only its head was there, if it says so.
    pub head_size: Option<u64>,
    /// The request's `traceparent` (W3C Trace Context), for the calls made for it.
    pub trace: Option<Vec<u8>>,
}

/// Work for the root's next callback.
pub enum Job {
    /// Dispatch a call to the store.
    Call(PendingCall),
    /// Dispatch a detached call to the upstream.
    CallUpstream(ExchangeId, UpstreamCall),
    /// Step an exchange; its effects may touch its stream, so one of these per callback.
    Step(ExchangeId, Input),
}

/// A call to dispatch.
pub struct PendingCall {
    pub owner: Owner,
    pub cluster: Cluster,
    pub path: Cow<'static, str>,
    pub media: &'static str,
    pub frame: Rc<Vec<u8>>,
    pub timeout_ms: u32,
}

/// Who waits for a call's reply.
#[derive(Clone, Debug)]
pub enum Owner {
    Exchange(ExchangeId, Call),
    /// A detached call to the upstream.
    Upstream(ExchangeId),
    /// A renewal of many, in this order.
    Renewal(Vec<ExchangeId>),
}

/// Shared by a root and its streams.
#[derive(Default)]
pub struct Plugin {
    pub config: Option<Rc<Config>>,
    pub counters: Counters,
    pub slots: HashMap<ExchangeId, Slot>,
    pub jobs: VecDeque<Job>,
    /// Calls on their way, by the host's token.
    pub calls: HashMap<u32, Owner>,
    pub queue: Option<u32>,
    pub pin: Option<StoreId>,
    /// A body came while headers were held: the host option is on.
    pub body_seen_while_held: bool,
    /// Policies of the routes that were seen.
    pub routes: RoutePolicies,
    payloads: RecentPayloads,
    warned_at: Option<u64>,
    kept_bytes: usize,
    next_id: u64,
    last_now_ms: u64,
}

/// A plugin, shared.
pub type Shared = Rc<RefCell<Plugin>>;

impl Plugin {
    /// Milliseconds on a clock that never goes back.
    pub fn now_ms(&mut self) -> u64 {
        self.last_now_ms = self.last_now_ms.max(abi::now_ms());
        self.last_now_ms
    }

    /// Tells the operator of a mistake, and not too often of the same one.
    pub fn warn(&mut self, warning: &Warning) {
        match warning {
            Warning::New(text) => abi::log(abi::Level::Error, text),
            Warning::Repeated(text) => {
                let now_ms = self.now_ms();
                if self.warned_at.is_none_or(|at| at.saturating_add(WARN_EVERY_MS) <= now_ms) {
                    self.warned_at = Some(now_ms);
                    abi::log(abi::Level::Error, text);
                }
            }
        }
    }

    /// Whether a payload came under another key a short time ago.
    pub fn note_payload(&mut self, note: Note) -> bool {
        let now_ms = self.now_ms();
        self.payloads.note(note, now_ms)
    }

    /// Takes in a new exchange.
    pub fn admit(&mut self, slot: Slot) -> ExchangeId {
        self.next_id = self.next_id.wrapping_add(1);
        let id = ExchangeId(self.next_id);
        self.slots.insert(id, slot);
        id
    }

    /// Steps one exchange, if it is still there.
    pub fn step(&mut self, id: ExchangeId, input: Input) -> Vec<Effect> {
        let now_ms = self.now_ms();
        let store_timeout_ms = self.config.as_ref().map_or(2_000, |config| config.store.timeout_ms);
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        let has_room = self.kept_bytes <= KEPT_BYTES_MAX;
        let mut world = World { now_ms, pin: &mut self.pin, store_timeout_ms, has_room };
        let before = slot.exchange.kept_bytes();
        let effects = slot.exchange.step(input, &mut world);
        self.kept_bytes = self.kept_bytes.saturating_add(slot.exchange.kept_bytes()).saturating_sub(before);
        effects
    }

    /// Drops an exchange that owes nothing and has no stream.
    pub fn drop_if_over(&mut self, id: ExchangeId) {
        let over = self.slots.get(&id).is_some_and(|slot| slot.exchange.is_over() && slot.stream.is_none());
        if over {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ExchangeId) {
        if let Some(slot) = self.slots.remove(&id) {
            self.kept_bytes = self.kept_bytes.saturating_sub(slot.exchange.kept_bytes());
        }
    }

    /// The stream of an exchange is gone. Bounds what lives on without one.
    pub fn detach(&mut self, id: ExchangeId) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.stream = None;
        }
        self.drop_if_over(id);
        self.bound_background();
    }

    fn bound_background(&mut self) {
        // Each stream-less exchange is in `slots`; a scan is cheap below the bound's magnitude,
        // and above it the bound itself keeps the table small.
        if self.slots.len() <= BACKGROUND_MAX / 4 {
            return;
        }
        let alone = |slot: &Slot| slot.stream.is_none();
        let count = self.slots.values().filter(|slot| alone(slot)).count();
        let bytes: usize = self.slots.values().filter(|s| alone(s)).map(|s| s.exchange.kept_bytes()).sum();
        if count > BACKGROUND_MAX || bytes > BACKGROUND_BYTES_MAX {
            let oldest = self.slots.iter().filter(|(_, slot)| alone(slot)).map(|(id, _)| *id).min();
            if let Some(oldest) = oldest {
                self.remove(oldest);
                abi::log(
                    abi::Level::Warn,
                    "too much is owed to the store: the oldest duty is left to its lease",
                );
            }
        }
    }

    /// Puts work on the root's list and asks the host to call the root back. Where the host
    /// can't, the next tick takes the work.
    pub fn post(&mut self, job: Job) {
        self.jobs.push_back(job);
        if let Some(queue) = self.queue {
            let _ = abi::enqueue(queue);
        }
    }

    /// The owner of a reply, once.
    pub fn take_call(&mut self, token: u32) -> Option<Owner> {
        self.calls.remove(&token)
    }
}
