//! The filter as a proxy-wasm module: a thin layer between the host's callbacks and the core.
//!
//! Nothing is decided here. A callback becomes one input of the core, and the core's effects
//! become host calls, in order.
//!
//! - Exchanges belong to the root context ([`plugin`]), so a call's reply is handled although the
//!   stream that wanted it is gone. Every call is dispatched while a root callback runs: the SDK
//!   delivers a reply to the context whose callback dispatched it, and drops the reply when that
//!   context is gone.
//! - A stream reaches the root through a shared queue of its own ([`root`]): the host posts to
//!   the worker's dispatcher and calls the root back without delay.
//! - Nothing here may panic: a trap ends every stream of the worker. The SDK's wrappers of host
//!   calls panic on any status that they do not expect, so only its dispatcher is used, and the
//!   host is called through [`abi`].
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod abi;
mod effects;
mod facts;
mod metrics;
mod plugin;
mod root;
mod stream;

// The macro exports `_initialize`, which has no documentation of its own.
#[allow(missing_docs)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|id| Box::new(crate::root::Root::new(id)));
    }}
}
