//! The contract: promises that every store keeps, each stamped per store as `<promise>__<store>`.
//!
//! PostgreSQL is the real one, started by the rig; a test without it fails rather than passing
//! unseen.

// Two underscores set the store apart from the promise.
#![allow(non_snake_case)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bed;
mod random;

/// Stamps each promise for each store.
macro_rules! contract {
    ($($room:ident :: $promise:ident),* $(,)?) => {
        pastey::paste! {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __memory>]() {
                    $room::$promise(fencepost_store::store::StoreKind::Memory).await;
                }
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __sqlite>]() {
                    $room::$promise(fencepost_store::store::StoreKind::Sqlite).await;
                }
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __postgres>]() {
                    $room::$promise(fencepost_store::store::StoreKind::Postgres).await;
                }
            )*
        }
    };
}

contract! {
    random::random_operations_are_answered_as_specified,
}
