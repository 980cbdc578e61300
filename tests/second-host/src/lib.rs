//! The built filter in a second, independent proxy-wasm host.
//!
//! Envoy's host is one reading of the ABI; `proxy-wasm-host` on wasmtime is another, written by
//! others. The same wasm, byte for byte, runs the main scenarios here: what it relies on beyond the
//! ABI would show. A small proxy is played around it, step by step and without threads, so every
//! interleaving is exact. Calls to the store go to the real service.

pub mod proxy;
pub mod service;
pub mod world;
