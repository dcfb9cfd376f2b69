//! What the product is compared with: each a process of its own, of this same program.

use std::net::SocketAddr;

use anyhow::Context as _;
use chassis::tasks::Tasks;
use clap::Subcommand;
use tokio::{net::TcpListener, sync::oneshot};

pub mod bare;
pub mod echo;
pub mod hop;
pub mod hot_row;
pub mod naive;
pub mod rows;

/// One of them.
#[derive(Clone, Debug, Subcommand)]
pub enum Baseline {
    /// (a) Reserve and complete as two statements, one row a time.
    Rows(rows::Rows),
    /// (b) One order a transaction on one hot row of stock.
    HotRow(hot_row::HotRow),
    /// (c) An HTTP handler that answers what it always answers.
    Bare(bare::Bare),
    /// (d) An HTTP handler that asks over gRPC, and is answered what is always answered.
    Hop(hop::Hop),
    /// (e) An HTTP handler that inserts the key and updates it with the answer.
    Naive(naive::Naive),
    /// (f) A gRPC service that answers what it always answers.
    Echo(echo::Echo),
}

// === impl Baseline ===

impl Baseline {
    /// Measures and says so, or serves until whoever started it has gone.
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Rows(rows) => return rows.run().await,
            Self::HotRow(hot_row) => return hot_row.run().await,
            Self::Bare(bare) => bare.serve().await?,
            Self::Hop(hop) => hop.serve().await?,
            Self::Naive(naive) => naive.serve().await?,
            Self::Echo(echo) => echo.serve().await?,
        }
        until_left_alone().await;
        Ok(())
    }
}

/// Its standard input is closed when whoever started it ends, in whatever way.
async fn until_left_alone() {
    let reading = tokio::task::spawn_blocking(|| {
        let mut nothing = String::new();
        // An error is an end too.
        let _ = std::io::stdin().read_line(&mut nothing);
    });
    let _ = reading.await;
}

/// On a runtime of one thread: between a statement and its connection no thread has to wake another, which is the fastest way.
async fn on_one_thread(work: impl AsyncFnOnce() -> anyhow::Result<()> + Send + 'static) -> anyhow::Result<()> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = tell.send(runtime.context("a runtime").and_then(|runtime| runtime.block_on(work())));
    });
    told.await.context("the thread ended without a result")?
}

/// Serves in the background.
async fn serve_http(listen: SocketAddr, routes: axum::Router) -> anyhow::Result<()> {
    use axum::serve::ListenerExt as _;
    let listener = TcpListener::bind(listen).await?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Tasks::new().spawn("baseline", async move { axum::serve(listener, routes).await });
    Ok(())
}

/// An answer of JSON with so many bytes.
fn answer_of(bytes: usize) -> bytes::Bytes {
    const FRAME: &str = r#"{"answer":""}"#;
    let filling = "x".repeat(bytes.saturating_sub(FRAME.len()));
    format!(r#"{{"answer":"{filling}"}}"#).into()
}
