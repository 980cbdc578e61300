//! Each fault alone, then all of them mixed at random.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests are tests

mod asynchronous;
mod bed;
mod clock;
mod database;
mod disk;
mod links;
mod mixture;
mod parts;
mod standby;
