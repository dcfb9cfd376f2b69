//! What the end-to-end tests share: a running world over HTTP, its clock in the test's hand, and real processes to kill.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod balancer;
mod cluster;
mod eventually;
mod holder;
mod postgres;
mod processes;
mod proxy;
mod reply;
mod road;
mod site;
mod world;

pub use balancer::{Balancer, Server};
pub use cluster::{Cluster, PostgresServer};
pub use eventually::eventually;
pub use holder::Holder;
pub use postgres::PrivateDatabase;
pub use processes::{Fleet, FleetSettings, Process, Role, binary, free_address};
pub use proxy::{Proxy, Way};
pub use reply::Reply;
pub use road::Road;
pub use site::{API_KEY, OPERATOR_KEY, Site};
pub use world::{Ask, Store, World};

/// Runs one scenario as two tests, on SQLite and on a real Postgres.
///
/// ```ignore
/// on_both_stores! {
///     async fn a_retry_replays(world: World) { … }
///     #[settings(|s| s.lease = Duration::from_secs(2))]
///     async fn with_other_settings(world: World) { … }
/// }
/// ```
#[macro_export]
macro_rules! on_both_stores {
    ($($(#[settings($settings:expr)])? async fn $name:ident($world:ident: World) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn scenario($world: $crate::World) $body

            #[allow(unused_mut, unused_assignments)]
            async fn run(store: $crate::Store) {
                let mut settings: fn(&mut idem_local::Settings) = |_| {};
                $(settings = $settings;)?
                let world = $crate::World::start_with(store, settings).await;
                scenario(world.clone()).await;
                world.stop().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_sqlite() {
                run($crate::Store::Sqlite).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                run($crate::Store::Postgres).await;
            }
        }
    )*};
}
