//! Sealed answers: what lies in the database, what opens and what does not, and the change of keys.

// Two underscores set the store apart from the promise.
#![allow(non_snake_case)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
#[allow(dead_code)] // Shared with the contract, which uses all of it.
#[path = "../contract/bed.rs"]
mod bed;
mod keys;
mod operations;
mod processes;
mod renewing;
#[allow(dead_code)]
#[path = "../contract/served.rs"]
mod served;
mod statements;
#[allow(dead_code)]
#[path = "../grants/support.rs"]
mod support;
mod telling;

/// Stamps each promise for each store.
macro_rules! seals {
    ($($room:ident :: $promise:ident on $($store:ident)*),* $(,)?) => {
        pastey::paste! {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __ $store:lower>]() {
                    $room::$promise(fencepost_store::store::StoreKind::$store).await;
                }
            )*)*
        }
    };
}

seals! {
    answers::sealed_answers_are_replayed_and_lie_encrypted on Memory Sqlite Postgres,
    answers::answer_in_another_row_or_altered_is_refused_and_runs_nothing on Memory Sqlite Postgres,
    answers::without_the_right_key_retries_get_503_and_run_nothing on Memory Sqlite Postgres,
    operations::answers_of_operations_are_sealed_for_their_operation on Sqlite Postgres,
    renewing::renewal_seals_open_and_old_answers_while_they_are_replayed on Sqlite Postgres,
    telling::a_missing_key_is_told_to_operators_and_put_back_its_answers_are_replayed on Sqlite Postgres,
    telling::a_damaged_answer_is_told_to_operators_and_the_others_are_replayed on Sqlite Postgres,
    renewing::renewal_leaves_what_was_erased_changed_or_can_t_be_opened on Sqlite Postgres,
}
