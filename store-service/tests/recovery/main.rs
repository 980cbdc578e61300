//! Recovery: stalled operations and held keys find their end, whatever happens meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, non_snake_case)]

mod bed;
mod crashes;
mod encrypted;
mod gating;
mod keys;
mod outages;
mod places;
mod processes;
mod provider;
mod races;
mod random;
mod settling;
mod statements;

#[allow(dead_code)] // each suite uses its own part
#[path = "../contract/bed.rs"]
mod entries;
#[allow(dead_code)] // each suite uses its own part
#[path = "../grants/support.rs"]
mod support;

/// Makes one test for each store out of a promise.
macro_rules! on_stores {
    ($($module:ident :: $promise:ident,)*) => {
        pastey::paste! {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __sqlite>]() {
                    crate::$module::$promise(fencepost_store::store::StoreKind::Sqlite).await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn [<$promise __postgres>]() {
                    crate::$module::$promise(fencepost_store::store::StoreKind::Postgres).await;
                }
            )*
        }
    };
}

on_stores! {
    settling::billing_success_whose_record_was_lost_is_found_and_not_repeated,
    settling::a_definite_refusal_of_the_provider_is_failed,
    settling::not_found_is_never_failed_and_ends_with_a_person,
    settling::what_was_never_sent_is_sent_once_inside_the_contract,
    settling::an_operation_without_a_provider_goes_to_a_person_in_the_end,
    settling::nothing_is_looked_up_while_the_owner_lives,
    settling::an_unclear_answer_settles_nothing,
    races::a_handler_that_pauses_past_its_lease_resumes_while_recovery_looks,
    races::a_handler_that_resumes_before_recovery_looks_keeps_its_operation,
    races::a_late_unknown_and_a_recovered_success_in_both_orders,
    races::the_original_call_in_flight_is_waited_for_where_keys_are_not_atomic,
    races::the_original_call_and_recovery_make_one_effect_where_keys_are_atomic,
    races::nothing_is_sent_after_the_providers_window,
    races::the_window_that_ends_between_look_up_and_sending_stops_the_sending,
    races::a_recoverer_that_pauses_past_its_lease_changes_nothing,
    races::a_recoverer_that_was_replaced_records_nothing_while_the_next_one_looks,
    races::a_recoverer_that_pauses_before_sending_sends_nothing,
    races::two_recoverers_never_both_own_an_operation,
    races::what_was_ended_while_recovery_looks_stays_as_it_is,
    keys::a_held_key_that_is_found_is_completed_and_audited,
    keys::a_held_key_that_is_not_found_stays_held_and_is_marked,
    keys::a_late_answer_and_a_found_answer_in_both_orders,
    keys::a_persons_order_while_recovery_looks_wins,
    keys::of_two_recoverers_one_looks_a_key_up,
    keys::a_marker_goes_with_its_entry,
    keys::a_person_has_recovery_look_again_for_a_key,
    outages::a_silent_provider_is_left_alone_and_uses_up_no_attempts,
    outages::a_provider_that_comes_back_is_asked_again,
    outages::a_provider_that_is_away_for_a_moment_sends_nothing_old_to_a_person,
    outages::an_answer_that_is_too_long_is_unclear_and_its_provider_is_there,
    places::a_key_waits_while_an_operation_has_the_only_place,
    places::an_operation_waits_while_a_key_has_the_only_place,
    places::a_provider_that_was_away_is_tried_with_one_request_by_both_loops_together,
    encrypted::a_provider_behind_tls_is_asked_only_where_both_know_each_other,
    settling::a_person_has_recovery_look_again,
    settling::a_person_ends_an_operation_while_recovery_rests,
    settling::operations_without_an_end_are_listed_by_cause,
    random::random_lives_of_operations_end_with_at_most_one_effect,
}
