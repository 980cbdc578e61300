//! The Fencepost store service: it decides claims on idempotency keys atomically, keeps answers
//! for replays, and lets callers wait for each other.
//!
//! Rooms: [`entry`] has the state table as pure functions, [`store`] keeps rows and decides on
//! them, [`service`] adds waiting and tasks that outlive their callers, [`http`] is the interface,
//! [`tls`] is who is at the other end,
//! [`desk`] is what people decide about what is kept, [`operator`] what they use for it, [`sweep`] and [`heartbeat`] are the loops beside it, [`cli`] reads the settings,
//! [`check`] reads Envoy's.

pub mod bucket;
pub mod calm;
pub mod check;
pub mod cli;
pub mod desk;
pub mod entry;
pub mod grant;
pub mod heartbeat;
pub mod http;
pub mod log;
pub mod metric;
pub mod operator;
pub mod quota;
pub mod recent;
pub mod recovery;
pub mod seal;
pub mod service;
pub mod store;
pub mod sweep;
pub mod tls;
pub mod trace;
pub mod waiters;
