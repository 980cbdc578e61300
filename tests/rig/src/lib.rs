//! The rig: starts the real parts around Fencepost and takes them down again.
//!
//! Used by tests, by `make demo` and by `make up`. Promises of every part:
//! - ports come from the OS, files live in a temporary folder of their own;
//! - children die with this process, whatever kills it ([`process`]), and their folders are removed
//!   after them ([`scratch`]);
//! - every wait is bounded, and a failure says what the part last wrote.

pub mod authority;
pub mod between;
pub mod browser;
pub mod client;
pub mod clock;
pub mod debian;
pub mod envoy;
pub mod grants;
pub mod link;
pub mod pgbouncer;
pub mod policy_file;
pub mod postgres;
pub mod process;
pub mod raw;
mod runtime;
pub mod scratch;
pub mod service;
pub mod small_disk;
pub mod stack;
pub mod standby;
pub mod tls_front;
pub mod token;
pub mod tools;
pub mod upstream;
