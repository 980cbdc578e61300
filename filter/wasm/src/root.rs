//! The root context: owner of the exchanges, of every call, and of time.
//!
//! One stream is touched per callback: host actions that one callback queues for several streams
//! would run nested inside each other.

use crate::abi::{self, Buffer, Level, Map};
use crate::effects::{self, Origin};
use crate::metrics::Counters;
use crate::plugin::{ExchangeId, Job, Owner, PendingCall, Plugin, Shared};
use fencepost_filter_core::exchange::renewal;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{Cluster, Input};
use fencepost_filter_core::policy::Config;
use fencepost_protocol::claims::RENEW_MAX;
use fencepost_protocol::{FRAME_MEDIA_TYPE, PROTOCOL_HEADER, PROTOCOL_VERSION};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;
use std::time::Duration;

/// How often time is looked at. Shorter than the shortest bound of an exchange; a tick that finds
/// nothing costs a scan of the live exchanges.
const TICK_MS: u32 = 100;

/// See the module.
pub struct Root {
    id: u32,
    shared: Shared,
    /// The host wants to end this root; it was asked to wait for what is owed.
    ending: bool,
}

impl Root {
    /// A root that is not configured yet.
    pub fn new(id: u32) -> Self {
        Self { id, shared: Shared::default(), ending: false }
    }

    /// Dispatches every call on the list and steps at most one exchange.
    fn work(&mut self) {
        loop {
            let job = match self.shared.try_borrow_mut() {
                Ok(mut plugin) => plugin.jobs.pop_front(),
                Err(_) => return,
            };
            match job {
                Some(Job::Call(call)) => self.dispatch(call),
                Some(Job::Step(id, input)) => {
                    self.step(id, input);
                    return self.dispatch_all();
                }
                None => return,
            }
        }
    }

    /// Dispatches the calls at the front of the list.
    fn dispatch_all(&mut self) {
        loop {
            let call = match self.shared.try_borrow_mut() {
                Ok(mut plugin) => match plugin.jobs.pop_front() {
                    Some(Job::Call(call)) => call,
                    Some(step) => return plugin.jobs.push_front(step),
                    None => return,
                },
                Err(_) => return,
            };
            self.dispatch(call);
        }
    }

    fn dispatch(&mut self, call: PendingCall) {
        let Some(config) = self.shared.try_borrow().ok().and_then(|plugin| plugin.config.clone()) else {
            return;
        };
        let cluster = match call.cluster {
            Cluster::Decide => &config.store.decide_cluster,
            Cluster::Claim => &config.store.claim_cluster,
        };
        let version = PROTOCOL_VERSION.to_string();
        let headers = vec![
            (":method", "POST"),
            (":path", call.path),
            (":authority", config.store.authority.as_deref().unwrap_or(cluster)),
            ("content-type", FRAME_MEDIA_TYPE),
            (PROTOCOL_HEADER, version.as_str()),
        ];
        let timeout = Duration::from_millis(u64::from(call.timeout_ms));
        match hostcalls::dispatch_http_call(cluster, headers, Some(&call.frame), vec![], timeout) {
            Ok(token) => {
                if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                    plugin.calls.insert(token, call.owner);
                }
            }
            // The cluster is unknown or has no healthy host: the same as a broken connection,
            // but in a later callback, so that an exchange that calls again does not loop here.
            Err(_) => match call.owner {
                Owner::Exchange(id, which) => {
                    let input = Input::StoreReply { call: which, reply: CallReply::Broken };
                    if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                        plugin.post(Job::Step(id, input));
                    }
                }
                Owner::Renewal(ids) => self.on_renewal(ids, &CallReply::Broken),
            },
        }
    }

    /// Steps an exchange and carries its effects out on its stream, if there is one.
    fn step(&mut self, id: ExchangeId, input: Input) {
        let (effects, stream) = match self.shared.try_borrow_mut() {
            Ok(mut plugin) => (plugin.step(id, input), plugin.slots.get(&id).and_then(|slot| slot.stream)),
            Err(_) => return,
        };
        if let Some(stream) = stream {
            let _ = abi::set_effective_context(stream);
        }
        effects::apply(&self.shared, id, effects, Origin::Root);
        let _ = abi::set_effective_context(self.id);
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            plugin.drop_if_over(id);
        }
    }

    /// Renewals change no stream, so all of them are stepped at once.
    fn on_renewal(&mut self, ids: Vec<ExchangeId>, reply: &CallReply) {
        let Ok(mut plugin) = self.shared.try_borrow_mut() else { return };
        let inputs = renewal::decode(reply, ids.len(), &mut plugin.pin);
        for (id, input) in ids.into_iter().zip(inputs) {
            plugin.step(id, input);
        }
    }

    /// One call for every claim that is due.
    fn renew(&mut self) {
        let Ok(mut plugin) = self.shared.try_borrow_mut() else { return };
        let now_ms = plugin.now_ms();
        let (mut ids, mut claims) = (Vec::new(), Vec::new());
        for (id, slot) in plugin.slots.iter_mut() {
            if claims.len() >= RENEW_MAX {
                break;
            }
            if let Some(claim) = slot.exchange.take_due_renewal(now_ms) {
                ids.push(*id);
                claims.push(claim);
            }
        }
        let timeout_ms = plugin.config.as_ref().map_or(2_000, |config| config.store.timeout_ms);
        drop(plugin);
        if let Some((path, frame)) = renewal::encode(claims) {
            let owner = Owner::Renewal(ids);
            let frame = Rc::new(frame);
            self.dispatch(PendingCall { owner, cluster: Cluster::Decide, path, frame, timeout_ms });
        }
    }

    fn on_configured(&mut self, config: Config) -> Result<(), abi::Status> {
        // The name is this VM's alone: a queue calls back only the last one that registered it.
        let unique = abi::random::<16>().ok_or(abi::Status(u32::MAX))?;
        let name = unique.iter().fold(String::from("fencepost-"), |name, byte| format!("{name}{byte:02x}"));
        let queue = abi::register_queue(&name)?;
        abi::set_tick_ms(TICK_MS)?;
        let counters = Counters::define();
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            let Plugin { config: current, queue: own, counters: ids, .. } = &mut *plugin;
            *current = Some(Rc::new(config));
            *own = Some(queue);
            *ids = counters;
        }
        Ok(())
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, num_headers: usize, body_size: usize, _: usize) {
        let owner = match self.shared.try_borrow_mut() {
            Ok(mut plugin) => plugin.take_call(token),
            Err(_) => None,
        };
        let Some(owner) = owner else { return };
        let reply = read_reply(num_headers, body_size);
        match owner {
            Owner::Exchange(id, call) => {
                self.step(id, Input::StoreReply { call, reply });
                self.dispatch_all();
            }
            Owner::Renewal(ids) => self.on_renewal(ids, &reply),
        }
    }

    fn on_done(&mut self) -> bool {
        self.ending = true;
        self.shared.try_borrow().map_or(true, |plugin| plugin.slots.is_empty())
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let text = abi::buffer(Buffer::PluginConfiguration, 0, size).unwrap_or_default();
        let config = match Config::parse(&text) {
            Ok(config) => config,
            Err(error) => {
                abi::log(Level::Error, &format!("configuration refused: {error}"));
                return false;
            }
        };
        match self.on_configured(config) {
            Ok(()) => true,
            Err(status) => {
                abi::log(
                    Level::Error,
                    &format!("the host lacks what this filter needs (status {})", status.0),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        self.renew();
        let ending = self.ending;
        let Ok(mut plugin) = self.shared.try_borrow_mut() else { return };
        let now_ms = plugin.now_ms();
        let body_seen_while_held = plugin.body_seen_while_held;
        let due: Vec<ExchangeId> = {
            let due = plugin.slots.iter().filter(|(_, slot)| slot.exchange.is_due(now_ms));
            due.map(|(id, _)| *id).collect()
        };
        for id in due {
            plugin.post(Job::Step(id, Input::Tick { body_seen_while_held }));
        }
        let is_empty = plugin.slots.is_empty();
        drop(plugin);
        if ending && is_empty {
            abi::done();
        }
        self.work();
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let is_ours = self.shared.try_borrow().is_ok_and(|plugin| plugin.queue == Some(queue));
        if is_ours {
            let _ = abi::dequeue(queue);
            self.work();
        }
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(crate::stream::Stream::new(context_id, Rc::clone(&self.shared))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// Reads the reply of the call that has just come back. Without headers the stream was reset, and
/// asking for one would be refused.
fn read_reply(num_headers: usize, body_size: usize) -> CallReply {
    if num_headers == 0 {
        return CallReply::Broken;
    }
    let headers = abi::headers(Map::CallResponse).unwrap_or_default();
    let value = |name: &str| {
        let found = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        found.and_then(|(_, value)| core::str::from_utf8(value).ok())
    };
    let Some(status) = value(":status").and_then(|status| status.parse().ok()) else {
        return CallReply::Broken;
    };
    let from_service = value(PROTOCOL_HEADER).is_some();
    match abi::buffer(Buffer::CallResponseBody, 0, body_size) {
        Ok(body) => CallReply::Answer { status, from_service, body },
        Err(_) => CallReply::Broken,
    }
}
