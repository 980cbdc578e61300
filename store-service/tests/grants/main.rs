//! One-time grants on a real PostgreSQL: admitted once, by whatever instance, across restarts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod cutting;
mod http;
mod operations;
mod processes;
mod retention;
mod revocation;
mod rows;
mod sqlite;
mod statements;
mod support;
mod tokens;
