//! The HTTP context: a handle that forwards one stream's callbacks to its exchange.

use crate::abi::{self, Buffer, Map};
use crate::effects::{self, Origin};
use crate::facts::{self, HostFacts, evidence};
use crate::plugin::{ExchangeId, Shared, Slot};
use fencepost_filter_core::capture::EXPOSE_HEADERS;
use fencepost_filter_core::exchange::evidence::Evidence;
use fencepost_filter_core::exchange::origin::not_to_be_kept;
use fencepost_filter_core::exchange::{Exchange, Input, LocalReply, Outcome, ResponseHead};
use fencepost_filter_core::guard::{self, Refusal, Request, Verdict, is_nested};
use fencepost_filter_core::policy::Policy;
use fencepost_filter_core::problem::{Problem, ProblemKind};
use fencepost_protocol::ClaimToken;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;

/// See the module.
pub struct Stream {
    id: u32,
    shared: Shared,
    exchange: Option<ExchangeId>,
    /// The policy under which the request was refused before there was an exchange.
    refused: Option<Rc<Policy>>,
    /// Bytes of each body that the exchange has already got.
    request_seen: usize,
    response_seen: usize,
    /// Our own reply's body was put in place of the host's.
    own_body_restored: bool,
    /// What the host said when the stream was logged, before it was destroyed.
    last_word: Option<Evidence>,
}

impl Stream {
    /// A stream that is not guarded yet.
    pub fn new(id: u32, shared: Shared) -> Self {
        Self {
            id,
            shared,
            exchange: None,
            refused: None,
            request_seen: 0,
            response_seen: 0,
            own_body_restored: false,
            last_word: None,
        }
    }

    fn step(&mut self, input: Input) {
        let Some(id) = self.exchange else { return };
        let effects = match self.shared.try_borrow_mut() {
            Ok(mut plugin) => plugin.step(id, input),
            Err(_) => return,
        };
        effects::apply(&self.shared, id, effects, Origin::Stream);
    }

    fn ask<T>(&self, otherwise: T, question: impl FnOnce(&Exchange) -> T) -> T {
        let Some(id) = self.exchange else { return otherwise };
        match self.shared.try_borrow() {
            Ok(plugin) => match plugin.slots.get(&id) {
                Some(slot) => question(&slot.exchange),
                None => otherwise,
            },
            Err(_) => otherwise,
        }
    }

    fn request_action(&self) -> Action {
        if self.ask(false, Exchange::holds_request) { Action::Pause } else { Action::Continue }
    }

    fn response_action(&self) -> Action {
        if self.ask(false, Exchange::holds_response) { Action::Pause } else { Action::Continue }
    }

    fn refuse(&mut self, refusal: Refusal) -> Action {
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            if let Some(warning) = &refusal.warning {
                plugin.warn(warning);
            }
            let nested = is_nested(HostFacts::default().headers().unwrap_or_default());
            let mut reply = match plugin.config.as_deref() {
                Some(config) => refusal.reply(config),
                None => LocalReply::problem(&refusal.problem, None),
            };
            drop(plugin);
            reply.headers.extend(nested.then(not_to_be_kept));
            // Before the reply: the host may write the access log while it sends it.
            effects::record(&self.shared, Outcome::Refused);
            self.refused = refusal.policy;
            effects::local_reply(&reply);
        }
        Action::Pause
    }

    fn guard(&mut self, end: bool) -> Action {
        let facts = HostFacts::default();
        let Ok(mut plugin) = self.shared.try_borrow_mut() else {
            return self.refuse(Problem::new(ProblemKind::PolicyUnreadable, "the filter is busy").into());
        };
        let Some(config) = plugin.config.clone() else {
            drop(plugin);
            let problem = Problem::new(ProblemKind::PolicyUnreadable, "the filter is not configured");
            return self.refuse(problem.into());
        };
        let headers = || facts.headers().map(<[_]>::to_vec);
        let verdict = guard::judge(&config, &mut plugin.routes, &facts, &headers);
        drop(plugin);
        match verdict {
            Verdict::Pass => Action::Continue,
            Verdict::Refuse(refusal) => self.refuse(refusal),
            #[cfg(feature = "test-trap")]
            Verdict::Guard(_) if asks_for_a_trap(&facts) => core::arch::wasm32::unreachable(),
            Verdict::Guard(request) => self.begin(*request, end),
            Verdict::Observed(outcome) => {
                effects::record(&self.shared, outcome);
                Action::Continue
            }
        }
    }

    fn begin(&mut self, request: Request, end: bool) -> Action {
        let Some(token) = abi::random::<16>().map(ClaimToken::from_bytes) else {
            let problem = Problem::new(ProblemKind::StoreUnavailable, "the host has no random numbers");
            return self.refuse(problem.into());
        };
        for (name, value) in request.observed_headers() {
            let _ = abi::set_header(Map::Request, name, value.as_bytes());
        }
        // Of no use once a body came while headers were held.
        let body_comes = self.shared.try_borrow().is_ok_and(|plugin| plugin.body_seen_while_held);
        let head_size = if body_comes { None } else { facts::request_size() };
        let trace = request.header("traceparent").map(<[u8]>::to_vec);
        let admitted = self.shared.try_borrow_mut().map(|mut plugin| {
            let exchange = request.into_exchange(token, plugin.now_ms());
            plugin.admit(Slot { exchange, stream: Some(self.id), head_size, trace })
        });
        let Ok(id) = admitted else {
            return self.refuse(Problem::new(ProblemKind::PolicyUnreadable, "the filter is busy").into());
        };
        self.exchange = Some(id);
        if end {
            self.step(Input::RequestBody { chunk: Vec::new(), end: true });
        }
        self.request_action()
    }
}

impl Context for Stream {
    fn on_done(&mut self) -> bool {
        self.leave();
        true
    }
}

impl Stream {
    /// Puts our own reply's body back, whatever the host has made of it.
    fn restore_own_body(&mut self) {
        let body = self.ask(None, |exchange| exchange.own_reply_body().map(<[u8]>::to_vec));
        if let Some(body) = body {
            let rest: &[u8] = if self.own_body_restored { &[] } else { &body };
            let _ = abi::replace_buffer(Buffer::ResponseBody, rest);
            self.own_body_restored = true;
        }
    }

    /// What the host says about the end, where it makes a difference.
    fn evidence(&self) -> Option<Evidence> {
        self.ask(true, Exchange::wants_evidence).then(evidence)
    }

    /// Tells the exchange, once, that its stream is gone.
    fn leave(&mut self) {
        if let Some(id) = self.exchange {
            let evidence = self.last_word.take().or_else(|| self.evidence());
            self.step(Input::StreamGone(evidence.unwrap_or_default()));
            self.exchange = None;
            if let Ok(mut plugin) = self.shared.try_borrow_mut() {
                plugin.detach(id);
            }
        }
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, end: bool) -> Action {
        self.guard(end)
    }

    fn on_http_request_body(&mut self, size: usize, end: bool) -> Action {
        if self.ask(false, Exchange::observes_request) {
            // While the body passes, the host's buffer is what is new.
            self.step(match new_bytes(Buffer::RequestBody, &mut 0, size) {
                Some(chunk) => Input::RequestBody { chunk, end },
                None => Input::RequestUnreadable,
            });
            return Action::Continue;
        }
        if !self.ask(false, Exchange::holds_request) {
            return Action::Continue;
        }
        if let Ok(mut plugin) = self.shared.try_borrow_mut() {
            plugin.body_seen_while_held = true;
        }
        // While the body is held, the host's buffer is all of it: only what is new is read.
        let chunk = new_bytes(Buffer::RequestBody, &mut self.request_seen, size);
        self.step(match chunk {
            Some(chunk) => Input::RequestBody { chunk, end },
            None => Input::RequestUnreadable,
        });
        self.request_action()
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.step(Input::RequestTrailers);
        self.request_action()
    }

    fn on_http_response_headers(&mut self, _: usize, end: bool) -> Action {
        if self.exchange.is_none() {
            if let Some(policy) = &self.refused
                && policy.response.cors_expose
                && let Some(value) = policy.exposed(&abi::headers(Map::Response).unwrap_or_default())
            {
                let _ = abi::set_header(Map::Response, EXPOSE_HEADERS, &value);
            }
            return Action::Continue;
        }
        let headers = abi::headers(Map::Response).unwrap_or_default();
        if self.ask(false, Exchange::has_replied) {
            if let Some(map) = self.ask(None, |exchange| exchange.own_reply_headers(&headers)) {
                let _ = abi::set_headers(Map::Response, &map);
            }
            if end
                && self.ask(false, |exchange| exchange.own_reply_body().is_some_and(|body| !body.is_empty()))
            {
                // The host has taken the body away (an empty one of `local_reply_config`): without
                // it, the length would keep the client waiting.
                abi::log(
                    abi::Level::Warn,
                    "local_reply_config has emptied a replay: exclude our replies from it",
                );
                let _ = abi::set_header(Map::Response, "content-length", b"0");
            }
            return Action::Continue;
        }
        let status = headers.iter().find(|(name, _)| name == b":status");
        let status =
            status.and_then(|(_, value)| core::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0);
        self.step(Input::ResponseHead(ResponseHead { status, headers, evidence: evidence(), end }));
        self.response_action()
    }

    fn on_http_response_body(&mut self, size: usize, end: bool) -> Action {
        if self.ask(false, Exchange::has_replied) {
            self.restore_own_body();
            return Action::Continue;
        }
        let chunk = if self.ask(false, Exchange::wants_response_body) {
            new_bytes(Buffer::ResponseBody, &mut self.response_seen, size)
        } else {
            Some(Vec::new())
        };
        self.step(match chunk {
            Some(chunk) => Input::ResponseBody { chunk, end },
            None => Input::ResponseUnreadable { end },
        });
        self.response_action()
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.step(Input::ResponseTrailers);
        self.response_action()
    }

    fn on_log(&mut self) {
        if self.exchange.is_some() {
            self.last_word = self.evidence();
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What a held buffer has beyond what was seen, which may be nothing; `None` if it can't be read to its end.
fn new_bytes(kind: Buffer, seen: &mut usize, size: usize) -> Option<Vec<u8>> {
    if *seen >= size {
        return Some(Vec::new());
    }
    let chunk = abi::buffer(kind, *seen, size.saturating_sub(*seen)).unwrap_or_default();
    *seen = seen.saturating_add(chunk.len());
    (*seen >= size).then_some(chunk)
}

/// In the build for tests, a request header ends the VM, as a bug would.
#[cfg(feature = "test-trap")]
fn asks_for_a_trap(facts: &HostFacts) -> bool {
    !fencepost_filter_core::facts::Facts::header(facts, "x-test-trap").is_empty()
}
