//! A filter that lets everything pass: Envoy enters the VM for each callback of a stream, and nothing
//! else happens. What a request pays for it is what no filter can save.

#![cfg(target_arch = "wasm32")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

struct Noop;

impl Context for Noop {}

impl HttpContext for Noop {}

impl RootContext for Noop {
    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Noop))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

// The macro exports `_initialize`, which has no documentation of its own.
#[allow(missing_docs)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| Box::new(crate::Noop));
    }}
}
