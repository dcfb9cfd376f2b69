//! A small TCP balancer that does what a Kubernetes service does: it asks `/readyz`, and sends new connections only to those who
//! are ready. Connections that are there are left alone.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use chassis::tasks::Tasks;
use tokio::net::{TcpListener, TcpStream};

use crate::eventually;

/// How often everybody is asked. A process that leaves must go on serving for longer than this (`--drain-delay`).
const ASK_EVERY: Duration = Duration::from_millis(100);

/// One of those who share the load.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Where it serves.
    pub listen: SocketAddr,
    /// Where it says whether it is ready.
    pub admin: SocketAddr,
}

/// A balancer in front of several servers.
pub struct Balancer {
    address: SocketAddr,
    ready: Arc<[AtomicBool]>,
    refused: Arc<AtomicUsize>,
}

impl Balancer {
    /// Starts one. Nobody counts as ready before they have said so.
    pub async fn before(servers: &[Server]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let ready: Arc<[AtomicBool]> = servers.iter().map(|_| AtomicBool::new(false)).collect();
        let refused = Arc::new(AtomicUsize::new(0));
        let tasks = Tasks::new();
        for (at, server) in servers.iter().copied().enumerate() {
            drop(tasks.spawn("probe", probe(server, ready.clone(), at)));
        }
        let (servers, seen, counted, lines) = (servers.to_vec(), ready.clone(), refused.clone(), tasks.clone());
        drop(tasks.spawn("balancer", async move {
            let mut turn = 0;
            while let Ok((mut caller, _)) = listener.accept().await {
                let candidates: Vec<_> = (0..servers.len()).filter(|at| seen[*at].load(Ordering::SeqCst)).collect();
                turn += 1;
                let Some(chosen) = candidates.get(turn % candidates.len().max(1)).map(|at| servers[*at].listen) else {
                    counted.fetch_add(1, Ordering::SeqCst);
                    continue;
                };
                let counted = counted.clone();
                drop(lines.spawn("line", async move {
                    let Ok(mut server) = TcpStream::connect(chosen).await else {
                        counted.fetch_add(1, Ordering::SeqCst);
                        return;
                    };
                    let _ = (caller.set_nodelay(true), server.set_nodelay(true));
                    let _ = tokio::io::copy_bidirectional(&mut caller, &mut server).await;
                }));
            }
        }));
        Self { address, ready, refused }
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has heard from everybody that they are ready.
    pub async fn until_all_are_ready(&self) {
        eventually("everybody is ready", || async {
            self.ready.iter().all(|ready| ready.load(Ordering::SeqCst)).then_some(())
        })
        .await;
    }

    /// Connections that nobody was there for: a server that said it was ready did not listen, or nobody was ready.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }
}

async fn probe(server: Server, ready: Arc<[AtomicBool]>, at: usize) {
    let http = reqwest::Client::builder().timeout(Duration::from_secs(1)).build().expect("a client");
    loop {
        let answer = http.get(format!("http://{}/readyz", server.admin)).send().await;
        ready[at].store(answer.is_ok_and(|answer| answer.status().is_success()), Ordering::SeqCst);
        tokio::time::sleep(ASK_EVERY).await;
    }
}
