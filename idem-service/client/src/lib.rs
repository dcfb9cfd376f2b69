//! The typed client of the idempotency service, for the gateway and any other Rust service.
//!
//! It speaks the types of [`idem_core`], repeats a call that may not have arrived (every call says how long it may take; each
//! try is short, so that one that hangs is made again under the same attempt id), and reconnects by itself.
//!
//! A service of several replicas is one endpoint: its name is resolved again and again, calls are spread over every address, and a replica
//! that fails or hangs is left out until it answers ([`dial`]).
//!
//! Reserve and Complete travel together when many are asked for at once: a lone call leaves at once as itself, and what arrives
//! while others are under way goes as one `ReserveMany` or `CompleteMany`. Nobody waits for company, every caller keeps its own
//! deadline and its own answer, and [`Builder::fold`] turns it off.
//!
//! Most callers want [`IdemClient::begin`]: it reserves a key, fences the former holder if there was one, and says what to do.
//!
//! ```no_run
//! use idem_client::{Begun, IdemClient, Intent, KeyId, ServiceToken};
//! use idem_core::{Fingerprint, IdempotencyKey, Response, Scope};
//! use std::time::Duration;
//! use tokio::time::Instant;
//!
//! # async fn charge(_: uuid::Uuid) -> String { String::new() }
//! # async fn find(_: uuid::Uuid) -> Option<String> { None }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let idem = IdemClient::connect_lazy("http://127.0.0.1:7001", Some(ServiceToken::new("token")?))?;
//! let key = KeyId { scope: Scope::new("invoices/acme")?, key: IdempotencyKey::new("invoice-7")? };
//! let intent = Intent::new(key, Fingerprint::of_request("POST", "/invoices", "", b"{\"amount\":700}")?);
//! let soon = || Instant::now() + Duration::from_secs(2);
//! match idem.begin(&intent, soon()).await? {
//!     Begun::Replay(replay) => println!("as before: {:?}", replay.response.body()),
//!     Begun::InProgress { retry_after } => println!("ask again in {retry_after:?}"),
//!     Begun::Mismatch => println!("this key was used for something else"),
//!     // Whoever held the key before may have acted: ask, under the same operation id, before acting.
//!     Begun::Held(mut reservation) => {
//!         let id = reservation.operation_id().0;
//!         let found = if reservation.must_ask() { find(id).await } else { None };
//!         let made = match found {
//!             Some(made) => made,
//!             None => charge(id).await,
//!         };
//!         reservation.complete(Response::new(201, vec![], made.into(), String::new())?, soon()).await?;
//!     }
//! }
//! # Ok(()) }
//! ```

mod admin;
mod answers;
mod client;
mod connect;
mod error;
mod fold;
mod repeat;
mod reservation;
mod wire;

pub use admin::{KeyRecord, LiveKeys};
pub use answers::{Finished, Granted, Intent, KeyId, Reclaimed, Renewed, Replay, Reserved, Stale, Superseded};
pub use client::IdemClient;
pub use dial::{ClientFiles, ClientTls, CredentialsError, EndpointError, Resolve};

pub use connect::{Builder, ConnectError, ServiceToken, TokenError};
pub use error::ClientError;
pub use reservation::{Begun, Reservation};
