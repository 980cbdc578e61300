//! The root context: owner of the exchanges, of every call, and of time.
//!
//! One stream is touched per callback: host actions that one callback queues for several streams
//! would run nested inside each other.

use crate::abi::{self, Buffer, Level, Map};
use crate::effects::{self, Origin};
use crate::facts;
use crate::metrics::Counters;
use crate::plugin::{ExchangeId, Job, Owner, PendingCall, Plugin, Shared};
use fencepost_filter_core::exchange::detached::{UpstreamCall, UpstreamReply};
use fencepost_filter_core::exchange::renewal;
use fencepost_filter_core::exchange::store_reply::CallReply;
use fencepost_filter_core::exchange::{Cluster, HeldBody, Input, Pair};
use fencepost_filter_core::guard::Warning;
use fencepost_filter_core::policy::{Config, RoutePolicies};
use fencepost_protocol::claims::RENEW_MAX;
use fencepost_protocol::{FRAME_MEDIA_TYPE, PROTOCOL_HEADER, PROTOCOL_VERSION, STORE_ID_HEADER, StoreId};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;

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
                Some(Job::CallUpstream(id, call)) => self.dispatch_upstream(id, &call),
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
            let job = match self.shared.try_borrow_mut() {
                Ok(mut plugin) => plugin.jobs.pop_front(),
                Err(_) => return,
            };
            match job {
                Some(Job::Call(call)) => self.dispatch(call),
                Some(Job::CallUpstream(id, call)) => self.dispatch_upstream(id, &call),
                Some(step @ Job::Step(..)) => {
                    if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                        plugin.jobs.push_front(step);
                    }
                    return;
                }
                None => return,
            }
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
        let authority = config.store.authority.as_deref().unwrap_or(cluster);
        let version = PROTOCOL_VERSION.to_string();
        let headers = [
            (":method", "POST"),
            (":path", &call.path),
            (":authority", authority),
            ("content-type", call.media),
            (PROTOCOL_HEADER, version.as_str()),
        ];
        let mut headers: Vec<Pair> =
            headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        if let Some(trace) = self.trace_of(&call.owner) {
            headers.push(("traceparent".into(), trace));
        }
        match abi::call(cluster, &headers, &call.frame, call.timeout_ms) {
            Ok(token) => {
                if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                    plugin.calls.insert(token, call.owner);
                }
            }
            // The cluster is unknown or has no healthy host: the same as a broken connection,
            // but in a later callback, so that an exchange that calls again does not loop here.
            Err(_) => {
                self.warn_of_cluster(cluster);
                match call.owner {
                    Owner::Exchange(id, which) => {
                        let input = Input::StoreReply { call: which, reply: CallReply::Broken };
                        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                            plugin.post(Job::Step(id, input));
                        }
                    }
                    Owner::Renewal(ids) => self.on_renewal(ids, &CallReply::Broken),
                    Owner::Upstream(_) => {}
                }
            }
        }
    }

    /// The trace that a call belongs to. A renewal is for many requests, and belongs to none.
    fn trace_of(&self, owner: &Owner) -> Option<Vec<u8>> {
        let Owner::Exchange(id, _) = owner else { return None };
        self.shared.try_borrow().ok()?.slots.get(id)?.trace.clone()
    }

    /// Says, not too often, that a cluster took no call.
    fn warn_of_cluster(&self, cluster: &str) {
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            let text = format!("cluster {cluster:?} took no call: is it there, and healthy?");
            plugin.warn(&Warning::Repeated(text));
        }
    }

    fn dispatch_upstream(&mut self, id: ExchangeId, call: &UpstreamCall) {
        let sent = abi::call(&call.cluster, &call.headers, &call.body, call.timeout_ms);
        if sent.is_err() {
            self.warn_of_cluster(&call.cluster);
        }
        let Ok(mut plugin) = self.shared.try_borrow_mut() else { return };
        match sent {
            Ok(token) => {
                plugin.calls.insert(token, Owner::Upstream(id));
            }
            // The cluster is unknown or has no healthy host: certainly not sent.
            Err(_) => plugin.post(Job::Step(id, Input::UpstreamReply(UpstreamReply::NotSent))),
        }
    }

    /// Steps an exchange and carries its effects out on its stream, if there is one.
    fn step(&mut self, id: ExchangeId, mut input: Input) {
        let stream = match self.shared.try_borrow() {
            Ok(plugin) => plugin.slots.get(&id).and_then(|slot| slot.stream),
            Err(_) => return,
        };
        if let Some(stream) = stream {
            let _ = abi::set_effective_context(stream);
        }
        if let Input::Tick { body } = &mut input {
            *body = self.held_body(id);
        }
        let effects = match self.shared.try_borrow_mut() {
            Ok(mut plugin) => plugin.step(id, input),
            Err(_) => return,
        };
        effects::apply(&self.shared, id, effects, Origin::Root);
        let _ = abi::set_effective_context(self.id);
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            plugin.drop_if_over(id);
        }
    }

    /// Where the body of the effective stream's request is, while its headers are held.
    fn held_body(&self, id: ExchangeId) -> HeldBody {
        let Ok(plugin) = self.shared.try_borrow() else { return HeldBody::Coming };
        if plugin.body_seen_while_held {
            return HeldBody::Coming;
        }
        let head_size = plugin.slots.get(&id).and_then(|slot| slot.head_size);
        match (head_size, facts::request_size()) {
            (Some(head), Some(now)) if now > head => HeldBody::Withheld,
            (Some(_), Some(_)) => HeldBody::Coming,
            _ => HeldBody::Unsaid,
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
            let (cluster, path, media) = (Cluster::Decide, path.into(), FRAME_MEDIA_TYPE);
            self.dispatch(PendingCall { owner, cluster, path, media, frame, timeout_ms });
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
            let Plugin { config: current, queue: own, counters: ids, routes, .. } = &mut *plugin;
            *routes = RoutePolicies::default();
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
        match owner {
            Owner::Exchange(id, call) => {
                let reply = read_reply(num_headers, body_size);
                self.step(id, Input::StoreReply { call, reply });
                self.dispatch_all();
            }
            Owner::Renewal(ids) => self.on_renewal(ids, &read_reply(num_headers, body_size)),
            Owner::Upstream(id) => {
                self.step(id, Input::UpstreamReply(read_upstream_reply(num_headers, body_size)));
                self.dispatch_all();
            }
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
        let due: Vec<ExchangeId> = {
            let due = plugin.slots.iter().filter(|(_, slot)| slot.exchange.is_due(now_ms));
            due.map(|(id, _)| *id).collect()
        };
        for id in due {
            plugin.post(Job::Step(id, Input::Tick { body: HeldBody::Coming }));
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

/// Reads the reply of the store call that has just come back.
fn read_reply(num_headers: usize, body_size: usize) -> CallReply {
    match read_response(num_headers, body_size) {
        Some((status, headers, body)) => {
            let is_ours = |(name, _): &Pair| name.eq_ignore_ascii_case(PROTOCOL_HEADER.as_bytes());
            let store =
                headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(STORE_ID_HEADER.as_bytes()));
            let store = store.and_then(|(_, value)| StoreId::parse(core::str::from_utf8(value).ok()?).ok());
            CallReply::Answer { status, from_service: headers.iter().any(is_ours), store, body }
        }
        None => CallReply::Broken,
    }
}

fn read_upstream_reply(num_headers: usize, body_size: usize) -> UpstreamReply {
    match read_response(num_headers, body_size) {
        Some((status, headers, body)) => UpstreamReply::Response { status, headers, body },
        None => UpstreamReply::Lost,
    }
}

/// Reads a response; nothing if any part of it is missing. Without headers the stream was reset,
/// and asking for one would be refused.
fn read_response(num_headers: usize, body_size: usize) -> Option<(u16, Vec<Pair>, Vec<u8>)> {
    if num_headers == 0 {
        return None;
    }
    let headers = abi::headers(Map::CallResponse).ok()?;
    let (_, status) = headers.iter().find(|(name, _)| name == b":status")?;
    let status = core::str::from_utf8(status).ok()?.parse().ok()?;
    let body = abi::buffer(Buffer::CallResponseBody, 0, body_size).ok()?;
    (body.len() == body_size).then_some((status, headers, body))
}
