//! Filters that do less than ours, and what a request pays for them.
//!
//! - Without a configuration it lets everything pass: Envoy enters the VM for each callback of a
//!   stream, and nothing else happens. What a request pays for it is what no filter can save.
//! - With the configuration `{"calls":true}` it asks the store's health instead of a claim, at the same places
//!   where the filter makes its calls, and reads nothing: below [`REPLAY`] it calls once, when the
//!   request's body is there, and answers itself; below [`NEW_KEY`] it calls before it forwards, and
//!   again when the answer is there. What a request pays for it, the calls aside, is what no filter can
//!   save that asks a store.

#![cfg(target_arch = "wasm32")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};
use std::time::Duration;

/// Prefix of requests that are answered after one call.
const REPLAY: &str = "/floor/replay";

/// Prefix of requests that are forwarded after one call and answered after another.
const NEW_KEY: &str = "/floor/new-key";

/// Configuration of a filter that calls.
const CALLS: &[u8] = br#"{"calls":true}"#;

/// Cluster of the store.
const STORE: &str = "fencepost_store";

struct Noop;

impl Context for Noop {}

impl HttpContext for Noop {}

/// Where a request that asks the store is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Passes.
    Out,
    /// Its body is awaited; then the only call.
    Replay,
    /// Its body is awaited; then the first of two calls.
    NewKey,
    /// With the upstream; the second call follows the answer.
    Forwarded,
    /// The second call is on its way, or was answered.
    Answered,
}

struct Calls(Stage);

impl Calls {
    fn call(&self) -> Action {
        let headers = vec![(":method", "GET"), (":path", "/healthz"), (":authority", "store")];
        match self.dispatch_http_call(STORE, headers, None, vec![], Duration::from_secs(2)) {
            Ok(_) => Action::Pause,
            Err(_) => Action::Continue,
        }
    }
}

impl Context for Calls {
    fn on_http_call_response(&mut self, _: u32, _: usize, _: usize, _: usize) {
        match self.0 {
            Stage::Replay => {
                self.0 = Stage::Out;
                self.send_http_response(200, vec![], None);
            }
            Stage::NewKey => {
                self.0 = Stage::Forwarded;
                self.resume_http_request();
            }
            Stage::Answered => self.resume_http_response(),
            Stage::Out | Stage::Forwarded => {}
        }
    }
}

impl HttpContext for Calls {
    fn on_http_request_headers(&mut self, _: usize, end: bool) -> Action {
        let path = self.get_http_request_header(":path").unwrap_or_default();
        self.0 = match () {
            () if path.starts_with(REPLAY) => Stage::Replay,
            () if path.starts_with(NEW_KEY) => Stage::NewKey,
            () => return Action::Continue,
        };
        if end { self.call() } else { Action::Pause }
    }

    fn on_http_request_body(&mut self, _: usize, end: bool) -> Action {
        match self.0 {
            Stage::Replay | Stage::NewKey if end => self.call(),
            Stage::Replay | Stage::NewKey => Action::Pause,
            _ => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, end: bool) -> Action {
        if self.0 != Stage::Forwarded {
            return Action::Continue;
        }
        if end {
            self.0 = Stage::Answered;
            return self.call();
        }
        Action::Pause
    }

    fn on_http_response_body(&mut self, _: usize, end: bool) -> Action {
        if self.0 != Stage::Forwarded {
            return Action::Continue;
        }
        if end {
            self.0 = Stage::Answered;
            return self.call();
        }
        Action::Pause
    }
}

/// Makes streams of one kind.
struct Root {
    calls: bool,
}

impl Context for Root {}

impl RootContext for Root {
    fn on_configure(&mut self, _: usize) -> bool {
        self.calls = self.get_plugin_configuration().as_deref() == Some(CALLS);
        true
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(if self.calls { Box::new(Calls(Stage::Out)) } else { Box::new(Noop) })
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

// The macro exports `_initialize`, which has no documentation of its own.
#[allow(missing_docs)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| Box::new(crate::Root { calls: false }));
    }}
}
