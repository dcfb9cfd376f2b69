//! A TCP proxy that a test can freeze in either direction: what was sent is on its way and does not arrive.

use std::{net::SocketAddr, sync::Arc};

use chassis::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the caller to the server.
    Request,
    /// Back.
    Answer,
}

/// A proxy in front of one server.
#[derive(Clone)]
pub struct Proxy {
    address: SocketAddr,
    frozen: Arc<[watch::Sender<bool>; 2]>,
    /// Something waits at a frozen gate.
    waiting: Arc<[watch::Sender<bool>; 2]>,
}

impl Proxy {
    /// Starts one in front of `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let frozen = Arc::new([watch::Sender::new(false), watch::Sender::new(false)]);
        let waiting = Arc::new([watch::Sender::new(false), watch::Sender::new(false)]);
        let (tasks, gates, bells) = (Tasks::new(), frozen.clone(), waiting.clone());
        tasks.clone().spawn("proxy", async move {
            while let Ok((caller, _)) = listener.accept().await {
                let (gates, bells) = (gates.clone(), bells.clone());
                tasks.spawn("proxied connection", async move {
                    // A server that is down closes its callers' connections.
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    let (from_caller, to_caller) = caller.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::select! {
                        () = carry(from_caller, to_server, gates[0].subscribe(), &bells[0]) => {}
                        () = carry(from_server, to_caller, gates[1].subscribe(), &bells[1]) => {}
                    }
                });
            }
        });
        Self { address, frozen, waiting }
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nothing through that way until it is thawed.
    pub fn freeze(&self, way: Way) {
        self.waiting[way as usize].send_replace(false);
        self.frozen[way as usize].send_replace(true);
    }

    /// Returns once something that was sent that way waits because it is frozen.
    pub async fn until_held_back(&self, way: Way) {
        let mut waiting = self.waiting[way as usize].subscribe();
        waiting.wait_for(|waiting| *waiting).await.expect("the proxy is there");
    }

    /// Lets through what waited.
    pub fn thaw(&self) {
        self.frozen.iter().for_each(|gate| {
            gate.send_replace(false);
        });
    }
}

async fn carry(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut frozen: watch::Receiver<bool>,
    waiting: &watch::Sender<bool>,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if *frozen.borrow() {
            waiting.send_replace(true);
        }
        if frozen.wait_for(|frozen| !frozen).await.is_err() || to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
