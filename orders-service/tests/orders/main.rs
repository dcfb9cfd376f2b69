//! The orders service over its gRPC interface: every scenario on both stores, with the clock moved by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod buying;
mod deadlines;
mod entrance;
mod fences;
mod late_money;
mod lifecycle;
mod messages;
mod money;
mod outage;
mod paid_together;
mod payments;
mod resolving;
mod sandbox;
mod sandbox_tls;
mod script;
mod stock;
mod together;
mod webhooks;
mod world;

/// Runs scenarios on SQLite and on a real Postgres.
#[macro_export]
macro_rules! on_both_stores {
    ($($scenario:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario($crate::world::World::on_sqlite().await).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $scenario() {
                    super::$scenario($crate::world::World::on_postgres(stringify!($scenario)).await).await;
                }
            )*
        }
    };
}
