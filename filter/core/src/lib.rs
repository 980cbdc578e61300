//! Every decision of the filter, free of any host: no proxy-wasm, clock, randomness or I/O.
//!
//! What a request and a host say comes in as plain values or through [`facts::Facts`]; what is to
//! be done goes out as plain values. Nothing here may panic on any input, because a panic in the
//! proxy ends every stream of that worker: indexing is denied by lint, recursion is bounded, and
//! every parser is tested with arbitrary bytes.
#![deny(clippy::indexing_slicing)]

pub use fencepost_fingerprint::{digest, fingerprint};

pub mod capture;
pub mod downstream;
pub mod error_template;
pub mod exchange;
pub mod facts;
pub mod grant;
pub mod guard;
pub mod host_value;
pub mod key;
pub mod policy;
pub mod problem;
pub mod router_commands;
pub mod scope;
pub mod store_key;
