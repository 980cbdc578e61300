//! The contract: promises that every store keeps, each stamped per store as `<promise>__<store>`.
//!
//! PostgreSQL is the real one, started by the rig; a test without it fails rather than passing
//! unseen.

// Two underscores set the store apart from the promise.
#![allow(non_snake_case)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bed;
mod console;
mod encrypted;
mod entry_checks;
mod finishing;
mod grace;
mod holding;
mod holds;
mod hostile;
mod http_edges;
mod instances;
mod outages;
mod people;
mod quotas;
mod random;
mod random_orders;
mod served;
mod server;
mod small_statements;
mod starting;
mod statements;
mod sweeping;
mod waiting;

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
    hostile::text_of_people_is_kept_as_text,
    holding::one_winner_among_128_callers,
    holding::at_most_one_holder_under_claim_and_release_loops,
    holding::stale_holder_that_finishes_last_changes_nothing,
    holding::stale_holder_that_finishes_first_changes_nothing,
    holding::stale_holder_that_fails_after_takeover_changes_nothing,
    holding::racing_fingerprints_have_one_winner_that_all_losers_name,
    holding::tampered_herd_is_told_apart,
    holding::expired_claim_is_taken_over_by_exactly_one_where_rerun,
    holding::expired_claim_is_held_where_hold,
    holding::renewals_win_over_retries_after_a_restart,
    holding::claim_made_again_is_not_given_back_for_its_first_caller,
    finishing::complete_twice_keeps_the_first_answer,
    finishing::complete_after_release_is_kept_only_where_nobody_holds_the_key,
    finishing::release_before_its_claim_keeps_the_claim_out,
    finishing::renew_after_expiry_keeps_an_untouched_claim,
    finishing::unknown_outcome_follows_the_policy_of_its_claim,
    finishing::claim_asked_again_with_its_token_is_the_same_claim,
    finishing::fence_grows_across_deletion,
    finishing::read_storm_is_byte_for_byte,
    finishing::invented_fence_does_not_spend_the_numbers,
    finishing::dead_tokens_are_bounded,
    sweeping::sweeper_works_in_bounded_batches,
    sweeping::an_answer_lives_from_its_completion_however_long_it_took,
    sweeping::sweepers_lag_is_the_age_of_the_oldest_row_past_its_end,
    sweeping::sweeps_and_claims_at_once_lose_nothing,
    waiting::release_wakes_a_waiting_caller,
    waiting::completion_answers_all_waiting_callers,
    waiting::waiting_caller_finds_what_another_instance_freed,
    waiting::waiting_caller_takes_over_at_the_end_of_the_lease,
    waiting::waiting_is_bounded,
    waiting::released_claim_passes_from_one_waiter_to_the_next,
    waiting::waiter_that_leaves_at_the_handover_holds_nothing,
    waiting::what_frees_callers_passes_while_no_more_may_wait,
    waiting::claim_won_for_a_caller_already_gone_is_given_back,
    waiting::callers_that_hang_up_poison_nothing,
    quotas::of_claims_at_once_exactly_the_burst_is_made,
    quotas::what_makes_no_claim_is_never_refused,
    quotas::places_of_claims_that_ended_elsewhere_are_found,
    quotas::claim_whose_key_fell_free_after_the_look_is_counted,
    quotas::refused_claim_is_told_in_words_that_its_caller_knows,
    console::operator_settles_an_unknown_outcome_by_the_clients_key,
    people::unknown_outcome_ends_by_its_lifetime,
    people::answer_that_comes_after_a_persons_is_told_so,
    people::unknown_outcome_ends_by_a_person,
    people::unknown_outcome_ends_by_an_answer_that_still_arrives,
    people::order_applies_to_the_version_that_was_seen_and_to_no_other,
    people::order_is_refused_while_the_request_may_be_running,
    people::answer_is_released_before_it_is_replaced,
    people::freed_key_runs_again_and_its_old_token_claims_nothing,
    people::of_orders_at_once_exactly_one_is_done,
    people::order_about_a_live_claim_answers_who_waits,
    people::entries_are_listed_in_order_and_without_their_answers,
    random::random_operations_are_answered_as_specified,
}
