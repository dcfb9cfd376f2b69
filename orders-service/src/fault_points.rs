//! Every use case, broken once at each point on its way, and its end checked.
//!
//! A scenario is played once untouched, which tells the points it crosses. Then it is played again for each of them, with the call
//! failing there and with the task dying there; whoever is concerned goes on as in real life: the client tries again under its key,
//! or the reconciler settles the key and the client comes back later; the acquirer delivers again; background rounds come round.
//! Wherever it broke, the end is the scenario's own: one order, one charge, the money where it belongs, nothing left open.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "it says how much was played")]

mod bench;
mod coverage;
mod end;
mod every;
mod later;
mod paid_together;
mod purchases;
mod rounds;
mod stage;
mod together;
mod upkeep;

/// The acquirer that does what a test says, shared with the tests over gRPC.
#[path = "../tests/orders/script.rs"]
#[allow(dead_code, reason = "those tests use the rest of it")]
mod script;

use futures::future::BoxFuture;

use self::stage::Stage;

/// What is played.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    play: for<'s> fn(&'s Stage<'s>) -> BoxFuture<'s, ()>,
    /// Only points of this transaction are broken: the others on its way are those of another scenario.
    only: Option<&'static str>,
}

/// Makes a test on SQLite of every scenario, and one on Postgres of those that say so.
macro_rules! scenarios {
    ($($room:ident::$name:ident $(only $only:literal)? $(and $on_postgres:ident)?;)*) => {
        /// Every scenario.
        const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            play: |stage| Box::pin($room::$name(stage)),
            only: [$($only)?].first().copied(),
        }),*];

        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::every::point_on_sqlite(stringify!($name)).await;
            })*
        }

        mod on_postgres {
            $($(#[tokio::test]
            async fn $name() {
                super::every::point_on_postgres(stringify!($name), stringify!($on_postgres)).await;
            })?)*
        }
    };
}

scenarios! {
    purchases::an_order_is_placed and postgres;
    purchases::an_order_finds_nothing_left;
    purchases::an_order_takes_seats_whose_hold_is_over;
    together::three_orders_are_placed_together and postgres;
    together::odd_orders_are_placed_together and postgres;
    purchases::a_payment_is_approved and postgres;
    purchases::a_payment_is_declined;
    purchases::a_payment_is_refused_while_another_is_open;
    purchases::a_payment_loses_its_answer;
    purchases::a_repeat_waits_for_the_answer only "wait for answer";
    paid_together::three_payments_are_made_together and postgres;
    paid_together::odd_payments_are_made_together;
    purchases::an_order_is_confirmed;
    purchases::an_order_without_a_payment_is_cancelled;
    purchases::a_paid_order_is_cancelled_and_refunded and postgres;
    purchases::a_ticket_is_checked_in;
    later::a_pending_payment_is_approved_by_webhook and postgres;
    later::a_webhook_comes_before_its_payment;
    later::a_webhook_of_a_later_kind_is_kept;
    later::a_pending_payment_is_found_by_the_watch;
    later::a_pending_payment_is_declined_late;
    later::a_payment_is_given_up_and_its_charge_comes_back;
    later::a_payment_that_was_given_up_is_opened_again;
    later::a_late_approval_takes_the_seats_again;
    later::a_late_approval_finds_the_seats_taken;
    upkeep::a_ticket_type_is_put_and_changed;
    upkeep::a_capacity_stays_above_what_is_held;
    upkeep::everything_is_read;
    upkeep::a_hold_that_is_over_is_swept and postgres;
}
