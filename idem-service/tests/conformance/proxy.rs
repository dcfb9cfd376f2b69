//! A network between the store and its server that fails on demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use chassis::tasks::Tasks;
use database::StoreUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::config::Host;

const WORKS: u8 = 0;
const CUTS_THE_NEXT_REPLY: u8 = 1;
const IS_SILENT: u8 = 2;
const IS_DOWN: u8 = 3;

/// Forwards to a server, or fails.
pub struct Proxy {
    url: StoreUrl,
    fault: Arc<AtomicU8>,
}

// === impl Proxy ===

impl Proxy {
    /// Before the server of `url`.
    pub async fn before(url: &StoreUrl) -> Self {
        let StoreUrl::Postgres(config) = url else { panic!("not on Postgres") };
        let Some(Host::Tcp(host)) = config.get_hosts().first() else { panic!("a server on TCP") };
        let server = format!("{host}:{}", config.get_ports().first().unwrap_or(&5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("an IPv4 address") };
        let mut near = tokio_postgres::Config::new();
        near.host("127.0.0.1").port(address.port());
        near.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
        let fault = Arc::new(AtomicU8::new(WORKS));
        drop(Tasks::new().spawn("proxy", accept(listener, server, fault.clone())));
        Self { url: StoreUrl::Postgres(Box::new(near.into())), fault }
    }

    /// The way through this proxy.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Drops what the server says next, and the connection with it.
    pub fn cut_the_next_reply(&self) {
        self.fault.store(CUTS_THE_NEXT_REPLY, Ordering::SeqCst);
    }

    /// Whether a reply was cut.
    pub fn has_cut(&self) -> bool {
        self.fault.load(Ordering::SeqCst) == WORKS
    }

    /// Takes everything and says nothing, also on new connections.
    pub fn fall_silent(&self) {
        self.fault.store(IS_SILENT, Ordering::SeqCst);
    }

    /// Closes every connection at its next word, and new ones at once.
    pub fn go_down(&self) {
        self.fault.store(IS_DOWN, Ordering::SeqCst);
    }

    /// Works again.
    pub fn recover(&self) {
        self.fault.store(WORKS, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, server: String, fault: Arc<AtomicU8>) {
    let tasks = Tasks::new();
    while let Ok((near, _)) = listener.accept().await {
        if fault.load(Ordering::SeqCst) == IS_DOWN {
            continue;
        }
        let Ok(far) = TcpStream::connect(&server).await else { continue };
        let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
        let fault = fault.clone();
        drop(tasks.spawn("connection", async move {
            // Whichever direction ends first takes the other with it.
            tokio::select! {
                () = pump(from_near, to_far, &fault, false) => {}
                () = pump(from_far, to_near, &fault, true) => {}
            }
        }));
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, fault: &AtomicU8, are_replies: bool) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        match fault.load(Ordering::SeqCst) {
            CUTS_THE_NEXT_REPLY if are_replies => return fault.store(WORKS, Ordering::SeqCst),
            IS_SILENT => continue,
            IS_DOWN => return,
            _ => {}
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
