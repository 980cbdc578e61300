//! Faults: the real parts are broken, and a checker compares what ran with what clients were told.
//!
//! [`world`] is what is broken: two proxies, two instances of the service, PostgreSQL with or without
//! a synchronous standby, and links between all of them. [`fault`] breaks and mends it, [`client`]
//! keeps operations running and writes down what it was told ([`history`]), [`checker`] judges.
//! [`campaign`] draws a mixture from a seed; the tests have each fault alone.

pub mod campaign;
pub mod checker;
pub mod client;
pub mod fault;
pub mod history;
pub mod schedule;
pub mod world;
