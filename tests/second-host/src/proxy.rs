//! A proxy around the filter, played step by step.
//!
//! Headers are held while the body comes in (the host option that Envoy must be given), local
//! replies go through the filter's own response callbacks, and a root callback is never nested into
//! another callback: all as in Envoy.

use crate::service::{Headers, Reply, Service};
use crate::world::{Calls, Log, PendingCall, Stream, World};
use anyhow::{Context, Result, anyhow, bail};
use proxy_wasm_host::abi::v0_2_1::types::Action;
use proxy_wasm_host::abi::v0_2_1::{
    CallScope, ContextId, Guest, GuestError, Host, HttpCallResponse, InMemoryStore, PluginConfig, QueueId,
    SharedServices, Started, StreamKind, VmServices,
};
use proxy_wasm_host::{Engine, HeaderMapExt, Limits, Module, VecHeaderMap};
use serde_json::Value;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a client, or the filter, gets.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u32,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<String> {
        let find = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        find.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// The `code` of a problem.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Where a request stands.
#[derive(Debug)]
pub enum Stand {
    /// The filter holds it.
    Held,
    /// It went on to the application, with these headers.
    Forwarded(Headers),
    /// The filter answered.
    Answered(Answer),
}

/// See the module.
pub struct Proxy {
    guest: Guest,
    root: ContextId,
    queue: QueueId,
    queued: Arc<AtomicU64>,
    world: Option<World>,
    calls: Arc<Calls>,
    /// The store is reached.
    pub connected: bool,
    service: Service,
    pub log: Log,
}

fn module() -> Result<&'static (Engine, Module)> {
    static MODULE: OnceLock<Result<(Engine, Module), String>> = OnceLock::new();
    let compile = || -> Result<(Engine, Module)> {
        let path = std::env::var_os("FENCEPOST_WASM").context("FENCEPOST_WASM is not set")?;
        let code = std::fs::read(PathBuf::from(path))?;
        let engine = Engine::new()?;
        let module = Module::new(&engine, &code)?;
        Ok((engine, module))
    };
    let compiled = MODULE.get_or_init(|| compile().map_err(|error| format!("{error:#}")));
    compiled.as_ref().map_err(|error| anyhow!("{error}"))
}

impl Proxy {
    /// Starts the filter with a configuration, beside a service of its own.
    pub fn start(configuration: &Value) -> Result<Self> {
        let (engine, module) = module()?;
        let host = Host::new(engine)?;
        let (log, calls, queued) = (Log::default(), Arc::new(Calls::default()), Arc::new(AtomicU64::new(0)));
        let counter = Arc::clone(&queued);
        let shared = InMemoryStore::new().with_enqueue_observer(Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let shared: Arc<dyn SharedServices> = Arc::new(shared);
        let services =
            VmServices::new(Arc::new(log.clone())).with_shared(shared).with_callouts(calls.clone());
        let mut guest = Guest::new(&host, module, services, &Limits::default())?;
        let plugin =
            PluginConfig::new().with_root_id("fencepost").with_configuration(configuration.to_string());
        let root = match guest.start(plugin)? {
            Started::Serving(root) => root,
            _ => bail!("the filter refused its configuration: {:?}", log.lines()),
        };
        let changes = guest.take_changes();
        let queue = changes.queues.iter().next().context("the filter registered no queue")?.queue;
        let service = Service::start()?;
        let world = Some(World::default());
        Ok(Self { guest, root, queue, queued, world, calls, connected: true, service, log })
    }

    fn with<R>(
        &mut self,
        body: impl FnOnce(&mut CallScope<'_, World>) -> Result<R, GuestError>,
    ) -> Result<R> {
        let world = self.world.take().context("the world is lent")?;
        let (result, world) = self.guest.with(world, body);
        self.world = Some(world);
        Ok(result?)
    }

    fn stream(&mut self, id: ContextId) -> Result<&mut Stream> {
        let world = self.world.as_mut().context("the world is lent")?;
        world.streams.get_mut(&id.get()).context("no such stream")
    }

    /// Begins a request and settles: until nothing more happens by itself.
    pub fn begin(&mut self, headers: &[(&str, &str)], body: &[u8]) -> Result<ContextId> {
        let root = self.root;
        let id = self.with(|scope| {
            let id = scope.on_context_create(Some(root))?;
            scope.expect_stream_kind(id, StreamKind::Http)?;
            Ok(id)
        })?;
        let pairs = headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        let stream = Stream {
            request_headers: pairs.collect::<Vec<_>>().into(),
            request_body: body.to_vec(),
            properties: [("xds.route_metadata.filter_metadata.fencepost".to_owned(), policy("pay"))].into(),
            ..Stream::default()
        };
        self.world.as_mut().context("the world is lent")?.streams.insert(id.get(), stream);
        let (count, end) = (u32::try_from(headers.len())?, body.is_empty());
        let mut action = self.with(|scope| scope.on_request_headers(id, count, end))?;
        if !end && self.stream(id)?.local.is_none() {
            let len = u32::try_from(body.len())?;
            action = self.with(|scope| scope.on_request_body(id, len, true))?;
        }
        if action == Action::Continue {
            self.stream(id)?.request_resumed = true;
        }
        self.settle()?;
        Ok(id)
    }

    /// Calls the root back for its queue, and answers its calls to the store.
    pub fn settle(&mut self) -> Result<()> {
        loop {
            let (root, queue) = (self.root, self.queue);
            while self.queued.load(Ordering::Relaxed) > 0 {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                self.with(|scope| scope.on_queue_ready(root, queue))?;
            }
            let Some(call) = self.calls.take(|cluster| cluster.starts_with("store")) else { return Ok(()) };
            let reply = if self.connected { self.service.call(&call.headers, &call.body).ok() } else { None };
            self.deliver(&call, reply)?;
        }
    }

    fn deliver(&mut self, call: &PendingCall, reply: Option<Reply>) -> Result<()> {
        let (context, callout) = (call.context, call.callout);
        let response = match &reply {
            None => HttpCallResponse::failed(),
            Some(reply) => {
                let headers = reply.headers.iter();
                let pairs =
                    headers.map(|(name, value)| (Cow::from(name.as_slice()), Cow::from(value.as_slice())));
                HttpCallResponse::received(pairs.collect()).with_body(reply.body.as_slice())
            }
        };
        self.with(|scope| scope.on_http_call_response(context, callout, response))
    }

    /// The filter's own call to a cluster that is not the store's: a detached request.
    pub fn take_detached(&self) -> Option<PendingCall> {
        self.calls.take(|cluster| !cluster.starts_with("store"))
    }

    /// Answers a detached request.
    pub fn answer_detached(
        &mut self,
        call: &PendingCall,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<()> {
        let headers =
            headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        self.deliver(call, Some(Reply { headers: headers.collect(), body: body.to_vec() }))?;
        self.settle()
    }

    /// One tick of the filter's clock.
    pub fn tick(&mut self) -> Result<()> {
        let root = self.root;
        self.with(|scope| scope.on_tick(root))?;
        self.settle()
    }

    /// Where a request stands. A reply of the filter passes its own response callbacks first.
    pub fn stand(&mut self, id: ContextId) -> Result<Stand> {
        let stream = self.stream(id)?;
        if let Some((status, headers, body)) = stream.local.take() {
            let answer = self.respond(id, status, headers, body, "")?;
            return Ok(Stand::Answered(answer.context("the filter holds its own reply")?));
        }
        if stream.request_resumed {
            Ok(Stand::Forwarded(stream.request_headers.pairs()))
        } else {
            Ok(Stand::Held)
        }
    }

    /// The application answers a forwarded request. Nothing means that the filter holds the answer.
    pub fn answer(
        &mut self,
        id: ContextId,
        status: u32,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Option<Answer>> {
        let headers =
            headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        self.respond(id, status, headers.collect(), body.to_vec(), "via_upstream")
    }

    fn respond(
        &mut self,
        id: ContextId,
        status: u32,
        headers: Headers,
        body: Vec<u8>,
        details: &str,
    ) -> Result<Option<Answer>> {
        let stream = self.stream(id)?;
        let mut all = vec![(b":status".to_vec(), status.to_string().into_bytes())];
        all.extend(headers);
        let (count, end, len) = (u32::try_from(all.len())?, body.is_empty(), u32::try_from(body.len())?);
        stream.response_headers = VecHeaderMap::from(all);
        stream.response_body = body;
        for (name, value) in [
            ("response.code_details", details.as_bytes().to_vec()),
            ("response.flags", 0_u64.to_le_bytes().to_vec()),
            ("upstream.request_attempt_count", 1_u64.to_le_bytes().to_vec()),
        ] {
            stream.properties.insert(name.to_owned(), value);
        }
        let mut action = self.with(|scope| scope.on_response_headers(id, count, end))?;
        if !end {
            action = self.with(|scope| scope.on_response_body(id, len, true))?;
        }
        self.settle()?;
        let stream = self.stream(id)?;
        if action == Action::Pause && !stream.response_resumed {
            return Ok(None);
        }
        let mut headers = stream.response_headers.pairs();
        let status = headers.iter().find(|(name, _)| name == b":status").map(|(_, value)| value.clone());
        let status = String::from_utf8(status.context("no status")?)?.parse()?;
        headers.retain(|(name, _)| !name.starts_with(b":"));
        Ok(Some(Answer { status, headers, body: stream.response_body.clone() }))
    }

    /// The stream ends: its client has its answer, or has left.
    pub fn end(&mut self, id: ContextId) -> Result<()> {
        self.with(|scope| {
            scope.on_done(id)?;
            scope.on_log(id)?;
            scope.on_delete(id)?;
            Ok(())
        })?;
        self.world.as_mut().context("the world is lent")?.streams.remove(&id.get());
        self.settle()
    }

    /// What the filter says of a request in the access log.
    pub fn result(&mut self, id: ContextId) -> Result<String> {
        let stream = self.stream(id)?;
        let result = stream.properties.iter().find(|(path, _)| path.ends_with("fencepost.result"));
        Ok(result.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default())
    }
}

/// `{policy: NAME}`, as hosts write a map.
fn policy(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [1, 6, name.len()] {
        bytes.extend((number as u32).to_le_bytes());
    }
    bytes.extend(b"policy\0");
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes
}
