//! One-time grants on a real PostgreSQL: admitted once, by whatever instance, across restarts.

// Two underscores set the store apart from the promise.
#![allow(non_snake_case)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod audit;
mod claims;
mod console;
mod console_login;
mod cutting;
mod described;
mod desk;
mod erasing;
mod holds;
mod http;
mod operations;
mod processes;
mod retention;
mod revocation;
mod rows;
mod runbook;
mod sqlite;
mod statements;
mod support;
mod tokens;
