//! One suite for every store: memory, SQLite, Postgres, and each of them behind the batching front.
//!
//! Time is moved by hand. What only one engine can show (its constraints, its lost connections) stands beside the suite.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests stop at the first surprise, and say their seed")]

mod conformance {
    pub mod answers;
    pub mod batches;
    pub mod bench;
    pub mod conflicts;
    pub mod deadlines;
    pub mod dropped;
    pub mod listing;
    pub mod lives;
    pub mod postgres;
    pub mod proxy;
    pub mod sealed;
    pub mod soak;
    pub mod sqlite;
    pub mod swaps;
    pub mod sweeping;
}

/// Every case on every store.
macro_rules! suite {
    ($($file:ident: $($case:ident),+;)+) => {
        suite! { @on memory, Bench::memory(), $($file: $($case),+;)+ }
        suite! { @on memory_batching, Bench::memory().batching(), $($file: $($case),+;)+ }
        suite! { @on sqlite, Bench::sqlite().await, $($file: $($case),+;)+ }
        // What is behind a front is encrypted too: both change nothing that a caller can tell.
        suite! { @on sqlite_batching, Bench::sqlite_sealed().await.batching(), $($file: $($case),+;)+ }
        suite! { @on postgres, Bench::postgres().await, $($file: $($case),+;)+ }
        suite! { @on postgres_batching, Bench::postgres_sealed().await.batching(), $($file: $($case),+;)+ }
    };
    (@on $store:ident, $bench:expr, $($file:ident: $($case:ident),+;)+) => {
        mod $store {
            use crate::conformance::{self, bench::Bench};
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    conformance::$file::$case(&$bench).await;
                }
            )+)+
        }
    };
}

suite! {
    swaps:
        an_absent_key_is_written_once,
        a_present_key_is_written_at_its_version,
        a_stale_version_loses_and_hears_the_truth,
        what_was_won_is_what_is_loaded,
        a_purged_key_starts_again_under_a_version_of_its_own,
        a_new_generation_begins_exactly_when_the_retention_is_over,
        a_generation_keeps_its_beginning_and_its_token_through_release_and_reclaim,
        a_deadline_of_another_state_is_refused_and_nothing_is_written,
        keys_are_told_apart_by_their_bytes,
        scopes_are_worlds_of_their_own,
        fifty_at_once_on_an_absent_key_have_one_winner,
        an_audit_is_written_with_its_swap_or_not_at_all;
    answers:
        any_bytes_come_back_as_they_were,
        a_megabyte_comes_back_as_it_was,
        headers_keep_their_order_and_repetitions,
        the_first_answer_stands_until_its_retention_is_over;
    deadlines:
        a_lease_is_over_at_its_deadline_to_the_microsecond,
        a_retention_is_over_at_its_deadline_to_the_microsecond,
        durations_are_added_to_the_stores_now_to_the_microsecond,
        what_is_open_never_expires;
    sweeping:
        only_finished_records_are_purged_and_only_when_their_retention_is_over,
        a_purge_deletes_no_more_than_its_limit,
        stale_records_are_handed_out_longest_waiting_first,
        a_record_handed_out_is_hidden_and_otherwise_unchanged,
        a_record_stays_hidden_whatever_becomes_of_it_but_not_in_a_new_generation,
        only_scopes_that_were_asked_for_are_handed_out,
        a_record_is_handed_out_to_one_caller_only;
    listing:
        pages_follow_each_other_without_gaps_or_repeats,
        filters_hold_together,
        whoever_asks_again_makes_an_open_key_no_younger,
        scope_patterns_are_no_wildcards,
        listings_never_carry_bodies,
        states_are_counted,
        open_keys_are_counted_by_scope;
    batches:
        answers_come_in_the_order_asked,
        the_second_write_to_a_key_loses_to_the_first,
        the_second_write_to_a_key_wins_where_the_first_was_wrong,
        a_key_loaded_twice_is_answered_twice,
        nothing_asked_is_nothing_answered,
        batches_in_reverse_order_never_fail,
        one_key_asked_for_twice_at_once_has_one_grant_and_another_request_a_mismatch,
        one_bad_write_among_five_hundred_stays_with_its_writer,
        many_writes_are_one_batch;
    soak:
        the_table_does_not_grow_over_many_retentions;
}

mod lives {
    use crate::conformance::{bench::Bench, lives};

    #[test]
    fn memory_follows_decide() {
        lives::follows_decide(512, async { Bench::memory() });
    }

    #[test]
    fn memory_batching_follows_decide() {
        lives::follows_decide(128, async { Bench::memory().batching() });
    }

    #[test]
    fn sqlite_follows_decide() {
        lives::follows_decide(64, Bench::sqlite());
    }

    #[test]
    fn sqlite_batching_follows_decide() {
        lives::follows_decide(32, async { Bench::sqlite_sealed().await.batching() });
    }

    #[test]
    fn postgres_follows_decide() {
        lives::follows_decide(48, Bench::postgres());
    }

    #[test]
    fn postgres_batching_follows_decide() {
        lives::follows_decide(24, async { Bench::postgres_sealed().await.batching() });
    }
}
