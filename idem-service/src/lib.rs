//! The idempotency service: reserve, complete, release, abandon, reclaim and renew over gRPC.

pub mod batch;
pub mod store;
