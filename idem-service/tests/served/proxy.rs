//! A TCP proxy in front of Postgres that fails on demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chassis::tasks::Tasks;
use database::StoreUrl;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// What the proxy does with connections, old and new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Forwards.
    Open,
    /// Closes those that are open and refuses new ones.
    Down,
    /// Accepts and says nothing, on old connections too.
    Silent,
}

/// Between a service and its Postgres.
pub struct Proxy {
    mode: watch::Sender<Mode>,
    swallow: Arc<AtomicBool>,
    addr: SocketAddr,
    url: StoreUrl,
}

#[derive(Clone)]
struct Link {
    server: String,
    mode: watch::Receiver<Mode>,
    swallow: Arc<AtomicBool>,
}

// === impl Proxy ===

impl Proxy {
    /// In front of the server of `url`.
    pub async fn before(url: &StoreUrl) -> Self {
        let StoreUrl::Postgres(config) = url else { panic!("only Postgres is reached over TCP") };
        let [tokio_postgres::config::Host::Tcp(host)] = config.get_hosts() else { panic!("one host") };
        let server = format!("{host}:{}", config.get_ports()[0]);
        let (user, database) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        let (mode, seen) = watch::channel(Mode::Open);
        let swallow = Arc::new(AtomicBool::new(false));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let url = format!("postgres://{user}@{addr}/{database}").parse().unwrap();
        let link = Link { server, mode: seen, swallow: swallow.clone() };
        drop(Tasks::new().spawn("proxy", link.listen(listener, addr)));
        Self { mode, swallow, addr, url }
    }

    /// The store, seen through the proxy.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Changes the mode, and returns when it holds for new connections too.
    pub async fn set(&self, mode: Mode) {
        self.mode.send(mode).unwrap();
        loop {
            let is_refused = TcpStream::connect(self.addr).await.is_err();
            if is_refused == (mode == Mode::Down) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Forwards the next statement, then closes its connection instead of forwarding the reply.
    pub fn swallow_next_reply(&self) {
        self.swallow.store(true, Ordering::SeqCst);
    }

    /// Whether a reply was swallowed since it was asked for.
    pub fn has_swallowed(&self) -> bool {
        !self.swallow.load(Ordering::SeqCst)
    }
}

// === impl Link ===

impl Link {
    async fn listen(mut self, listener: TcpListener, addr: SocketAddr) {
        let mut listener = Some(listener);
        loop {
            match &listener {
                Some(open) => tokio::select! {
                    Ok((client, _)) = open.accept() => {
                        drop(Tasks::new().spawn("link", self.clone().forward(client)));
                    }
                    changed = self.mode.changed() => if changed.is_err() { return },
                },
                None => {
                    if self.mode.changed().await.is_err() {
                        return;
                    }
                }
            }
            match *self.mode.borrow_and_update() {
                Mode::Down => listener = None,
                Mode::Open | Mode::Silent if listener.is_none() => listener = Some(reopen(addr)),
                Mode::Open | Mode::Silent => {}
            }
        }
    }

    async fn forward(mut self, client: TcpStream) {
        let Ok(server) = TcpStream::connect(&self.server).await else { return };
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        let mut down = self.mode.clone();
        tokio::select! {
            _ = pipe(client_read, server_write, self.mode.clone(), None) => {}
            _ = pipe(server_read, client_write, self.mode.clone(), Some(self.swallow.clone())) => {}
            _ = down.wait_for(|mode| *mode == Mode::Down) => {}
        }
        self.mode.mark_unchanged();
    }
}

fn reopen(addr: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(addr).unwrap();
    socket.listen(64).unwrap()
}

async fn pipe(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    swallow: Option<Arc<AtomicBool>>,
) -> Option<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await.ok().filter(|read| *read > 0)?;
        mode.wait_for(|mode| *mode != Mode::Silent).await.ok()?;
        if swallow.as_ref().is_some_and(|swallow| swallow.swap(false, Ordering::SeqCst)) {
            return None;
        }
        to.write_all(&bytes[..read]).await.ok()?;
    }
}
