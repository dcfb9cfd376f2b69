//! The promises of the crate, held against the real engines.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "clippy sees helpers of tests as no tests")]

/// Each of these functions, over a store of its own in each engine.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(super::Store::sqlite().await).await;
            })*
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(super::Store::postgres(stringify!($test)).await).await;
            })*
        }
    };
}

mod conformance;
mod migrating;
mod postgres;
mod postgres_faults;
mod postgres_tls;
mod proxy;
mod rows;
mod sqlite;
mod store;
