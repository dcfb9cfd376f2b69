//! The typed client of the idempotency service, for the gateway and any other Rust service.
