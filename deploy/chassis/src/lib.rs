//! What a process needs before it has a purpose: flags, telemetry, shutdown, listeners, health, authentication of callers.
//!
//! The only crate that names OpenTelemetry, signals, listeners, the wall clock and `tokio::spawn`. It knows nothing of
//! idempotency: everything here would serve any other set of services as well.
//!
//! A process is one straight line:
//!
//! ```no_run
//! use chassis::{admin, listen, process, serve, shutdown};
//! use std::{error::Error, process::ExitCode, time::Duration};
//!
//! fn main() -> ExitCode {
//!     process::run("example", || Ok::<_, Box<dyn Error + Send + Sync>>(()), |()| async {
//!         let readiness = admin::Readiness::new();
//!         let shutdown = shutdown::on_signals(Duration::from_secs(2), readiness.clone());
//!         let listener = listen::bind("127.0.0.1:8080".parse()?, "the example", "--listen")?;
//!         readiness.set(true);
//!         serve::http(listener, admin::router(readiness), shutdown, Duration::from_secs(30)).await;
//!         Ok::<_, Box<dyn Error + Send + Sync>>(())
//!     })
//! }
//! ```

pub mod admin;
pub mod clock;
pub mod deadline;
pub mod flags;
pub mod healthcheck;
pub mod listen;
pub mod process;
pub mod secrets;
pub mod serve;
pub mod service_auth;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod trace;

/// The allocator of every program: answers and rows are made on one thread and freed on another, which the system's own is slow at.
pub use mimalloc::MiMalloc as Allocator;
