//! End to end: a real Envoy with the built filter, the real service, real stores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod dashboards;
mod detached;
mod edges;
mod endings;
mod grants;
mod guarded;
mod hostile;
mod instances;
mod loopback_chain;
mod manifests;
mod mesh;
mod mutual_tls;
mod oddities;
mod off_by_default;
mod policies;
mod quotas;
mod rig;
mod rig_service;
mod scopes;
mod secrets;
mod settings;
mod spellings;
mod store_outage;
mod stored_bodies;
mod support;
mod tls;
mod traces;
mod updates;
mod wrong_replies;
