//! One-time grants: admitted once, everywhere, across restarts; and the operations that they admit.
//!
//! Rooms: [`jws`], [`keys`], [`key_source`], [`issuers`] and [`token`] prove that a grant was issued;
//! [`details`] and [`decimal`] compare it with what is asked for; [`store`] says what is decided
//! atomically, about an [`admission`], an [`operation`], an [`issued`] grant or a [`pin`], and
//! [`postgres`] and [`sqlite`] decide it; [`timing`] has every duration with what must hold between
//! them; [`service`] puts it together for a [`requester`], [`cleanup`] is the loop beside it, [`spans`] is what
//! traces see of the store.

pub mod admission;
pub mod cleanup;
pub mod decimal;
pub mod details;
pub mod duration;
pub mod issued;
pub mod issuers;
pub mod jws;
pub mod key_source;
pub mod keys;
pub mod limiter;
pub mod operation;
pub mod pin;
pub mod postgres;
pub mod requester;
pub mod service;
pub mod spans;
pub mod sqlite;
pub mod startup;
pub mod store;
pub mod timing;
pub mod token;
