//! A tower layer that makes any HTTP service safe to retry.
//!
//! A request with an `Idempotency-Key` is executed at most once to an effect, however often it is sent: its key is reserved before
//! anything runs, its answer is stored before it leaves, and every repeat gets the stored answer, byte for byte. An attempt that did
//! not finish is never repeated blindly: the next one fences it, asks the system of record what happened, and only then acts.
//!
//! The layer needs two things from outside ([`ports`]): a [`Backend`](ports::Backend) that keeps keys, which
//! [`IdemClient`](idem_client::IdemClient) is, and somebody who knows what happened ([`Recover`](ports::Recover)). The inner service
//! finds a [`Permit`](ports::Permit) in its request's extensions, carries operation id and token along, and says with an
//! [`Outcome`](ports::Outcome) in its response's extensions what its answer means:
//!
//! | label | what becomes of the key | the client gets |
//! |---|---|---|
//! | `Final` | completed, before the answer leaves | the answer |
//! | `NoEffect` | released, before the answer leaves | the answer |
//! | `Undecided` | abandoned at once | the answer, a 202 |
//! | `Unknown`, no label, an error, a panic, no answer in time | asked about once more, then completed or abandoned; never released | what was found, or 409, or 503 |
//!
//! # Example
//!
//! ```
//! use async_trait::async_trait;
//! use axum::{Extension, Router, body::Body, response::Response, routing::post};
//! use http::Request;
//! use idem_core::{FencingToken, LEASE_DEFAULT, OperationId, RETENTION_DEFAULT, Scope};
//! use idem_layer::{
//!     Hooks, Idempotency, RoutePolicy, Settings,
//!     ports::{Found, Label, Outcome, Permit, Recover, RecoverError},
//! };
//! use std::time::Duration;
//! use tokio::time::Instant;
//! use tower::ServiceExt;
//! # mod memory {
//! #     include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layer/memory.rs"));
//! # }
//! # use memory::Memory;
//!
//! /// Places an order under an id made of the operation id, so that it can be found by it.
//! async fn place_order(Extension(permit): Extension<Permit>) -> Response {
//!     let id = permit.operation_id.to_string();
//!     let mut response = Response::new(Body::from(format!("{{\"id\":\"{id}\"}}")));
//!     *response.status_mut() = http::StatusCode::CREATED;
//!     response.extensions_mut().insert(Outcome { label: Label::Final, is_replayed: false, resource_id: id });
//!     response
//! }
//!
//! /// Asks the system of record what became of an operation.
//! struct Orders;
//!
//! #[async_trait]
//! impl Recover for Orders {
//!     async fn lookup(&self, _: OperationId, _: FencingToken, _: Instant) -> Result<Found, RecoverError> {
//!         Ok(Found::Unknown)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // The operation goes on when its client is gone: it runs on a task of its own, which shutdown should wait for.
//! let hooks = Hooks::new(|operation| drop(tokio::spawn(operation)));
//! let settings = Settings::new(LEASE_DEFAULT, RETENTION_DEFAULT, Duration::from_secs(25), hooks);
//! // In earnest: `IdemClient::connect_lazy("http://127.0.0.1:7001", token)?`.
//! let backend = Memory::new();
//! let idempotency = Idempotency::new(settings, backend, Orders);
//!
//! let app = Router::new()
//!     .route("/orders", post(place_order).route_layer(idempotency.layer(RoutePolicy::required("POST /orders"))))
//!     // The place of the authentication, which knows whose keys they are.
//!     .layer(Extension(Scope::new("rest/tenant-a").unwrap()));
//!
//! let send = |key: &str| {
//!     let request = Request::post("/orders").header("idempotency-key", key);
//!     app.clone().oneshot(request.body(Body::from("{\"quantity\":2}")).unwrap())
//! };
//! let first = send("purchase-1").await.unwrap();
//! assert_eq!(first.status(), 201);
//! assert!(!first.headers().contains_key("idempotent-replayed"));
//!
//! let again = send("purchase-1").await.unwrap();
//! assert_eq!(again.status(), 201);
//! assert_eq!(again.headers()["idempotent-replayed"], "true");
//!
//! let refused = send("").await.unwrap();
//! assert_eq!(refused.status(), 400);
//! # }
//! ```
//!
//! # Before you deploy it
//!
//! - The layer goes inside whatever authenticates callers and puts their [`Scope`](idem_core::Scope) into the request's extensions,
//!   and inside whatever compresses answers.
//! - `upstream_timeout` must be shorter than the lease; look-up and execution share it.
//! - The whole request and the whole answer are held in memory: a body of at most [`BODY_MAX`] bytes, an answer of any size, of which
//!   at most 1 MiB is stored. A larger one is given once; its repeats get a *tombstone*, the same status and `Location` with a problem
//!   document `response_too_large_to_replay` as body.
//! - Shutdown should wait for what `spawn` was given. What is cut off is recovered by the next request with the key.

mod backend;
mod body;
mod capture;
mod execute;
mod headers;
mod holder;
mod layer;
mod operation;
mod policy;
pub mod ports;
mod prefer;
mod problem;
mod recovery;
mod replays;
mod service;
mod settings;
mod tally;

pub use body::{BODY_MAX, read as read_body, unread as unread_body};
pub use headers::{IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_EXPIRES, IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED};
pub use layer::{Idempotency, IdempotencyLayer};
pub use policy::RoutePolicy;
pub use problem::{PROBLEM_JSON, Problem};
pub use replays::Pace;
pub use service::{IdempotencyService, ResponseBody};
pub use settings::{Hooks, Settings};
pub use tally::Counted;
