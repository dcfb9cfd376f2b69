//! A keyed request, broken once at each point on its way through gateway, idempotency service and orders service.
//!
//! A scenario is played once untouched, which tells the points that it crosses: those of the operation task, of the engine, and of the
//! use case behind them. Then it is played again for each, with the call failing there and with the task dying there. The client tries
//! again and the lease passes; wherever it broke, the end is the scenario's own, and the answer replays byte for byte. (The use cases
//! by themselves, and what goes on behind them, are broken in the same way by the orders service's own tests.)
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::print_stdout, reason = "it says how much was played")]

mod coverage;
mod every;
mod keyed;
mod stage;

use fault_point::Plan;
use futures::future::BoxFuture;

use stage::Stage;

/// What is played.
#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    play: for<'s> fn(&'s Stage<'s>) -> BoxFuture<'s, ()>,
    /// What is broken anyway, so that what follows a fault is on the way.
    given: &'static [&'static str],
}

impl Scenario {
    fn given(&self) -> Vec<Plan> {
        self.given.iter().map(|plan| plan.parse().expect("a plan")).collect()
    }
}

/// Makes a test on SQLite of every scenario, and one on Postgres of those that say so.
macro_rules! scenarios {
    ($($name:ident $(given $($given:literal),+)? $(and $store:ident)?;)*) => {
        /// Every scenario.
        const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            play: |stage| Box::pin(keyed::$name(stage)),
            given: &[$($($given),+)?],
        }),*];

        $(mod $name {
            use crate::every;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                every::point(e2e::Store::Sqlite, stringify!($name)).await;
            }

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                every::point(e2e::Store::$store, stringify!($name)).await;
            })?
        })*
    };
}

scenarios! {
    an_order_is_placed and Postgres;
    an_order_is_replayed;
    an_order_is_refused given "release: call#1=fail";
    a_payment_is_approved and Postgres;
    a_pending_payment_is_settled given "abandon: call#1=fail";
    an_answer_is_stored_at_the_second_try given "complete: call#1=fail";
    an_answer_is_lost_and_asked_for given "execute: answered#1=fail";
    a_dead_holder_had_done_nothing and Postgres;
    a_dead_holder_had_placed_the_order;
    a_retry_waits_for_the_holder;
    the_store_hiccups given "idem swap: answered#1=fail";
}
