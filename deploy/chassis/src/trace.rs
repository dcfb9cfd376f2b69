//! W3C trace context: one request keeps one trace id through every process it touches.
//!
//! Spans are made with the `tracing` macros; this module continues and hands on their context. The current context is kept
//! in a thread-local while a span is entered, so asking for it costs neither a lock nor an allocation.

mod context;
mod grpc_client;
mod grpc_server;
mod http_server;
mod record;
mod shared;

pub use context::{Parent, current_trace_id, current_traceparent, inject, link_to, set_parent_from};
pub use grpc_client::{ClientInterceptor, GrpcClientLayer, GrpcClientService};
pub use grpc_server::{GrpcServerLayer, GrpcServerService};
pub use http_server::{HttpServerLayer, HttpServerService};
pub use record::{Note, ResponseFuture};
pub use shared::{connect, host_of, note};

#[cfg(test)]
mod tests;
