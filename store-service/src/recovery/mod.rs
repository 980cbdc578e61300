//! Recovery: operations and held keys find their end.
//!
//! An operation stalls when its owner dies, when its outcome is unknown, or when recording fails.
//! Recovery becomes its owner, looks the effect up where it would be, and records what it finds. What
//! it can't find out, or must not do, it gives to a person. It never guesses: "not found" is never
//! "failed", and a held key is never released by a machine.
//!
//! Rooms: [`settings`] is the file of `--recovery`; [`plan`] and [`held_plan`] decide, without I/O,
//! clock or randomness; [`operation`] and [`held`] do what they say; [`endpoint`], [`sign`] and
//! [`answer`] speak with providers, [`targets`] are the keys that they know requests by, [`breaker`] spares them; [`store`] says what is written,
//! [`postgres`] and [`sqlite`] write it; [`worker`] are the loops, [`startup`] starts them.
//!
//! Races are closed in the store: taking over raises the owner's version, every write names it, and
//! each step renews the lease first. What no local state can fence is a request that is on its way
//! while somebody else looks: so nothing is sent again without the provider's word that concurrent
//! requests with one key are one.

pub mod answer;
pub mod backoff;
pub mod breaker;
pub mod endpoint;
mod event;
mod file;
pub mod held;
pub mod held_plan;
pub mod operation;
pub mod plan;
pub mod postgres;
pub mod provider;
pub mod settings;
pub mod sign;
pub mod sqlite;
pub mod startup;
pub mod store;
pub mod targets;
pub mod template;
pub mod worker;

pub use event::OperationEvent;
