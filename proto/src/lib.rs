//! The wire contract of Idem, generated from the `.proto` files beside this crate, and nothing else.

/// Every message and service, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The idempotency service.
pub mod idem {
    /// Version 1.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("idem.v1");
    }
}

/// The orders service.
pub mod orders {
    /// Version 1.
    #[allow(missing_docs, clippy::all)]
    pub mod v1 {
        tonic::include_proto!("orders.v1");
    }
}
