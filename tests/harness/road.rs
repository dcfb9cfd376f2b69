//! A TCP road to one server that can lose the answer to one message, or be closed.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use chassis::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
};

/// A road to one server.
#[derive(Clone)]
pub struct Road {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// The answer to the message with this text is lost.
    marked: Mutex<Option<Vec<u8>>>,
    lost: AtomicUsize,
    is_closed: watch::Sender<bool>,
}

impl Road {
    /// Opens one to `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let (is_closed, _) = watch::channel(false);
        let state = Arc::new(State { marked: Mutex::default(), lost: AtomicUsize::new(0), is_closed });
        let (tasks, shared) = (Tasks::new(), state.clone());
        tasks.clone().spawn("road", async move {
            while let Ok((caller, _)) = listener.accept().await {
                if !*shared.is_closed.borrow() {
                    drop(tasks.spawn("traveller", carry(caller, server, shared.clone())));
                }
            }
        });
        Self { address, state }
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next message that has `text` in it arrives; its connection breaks when the answer is on its way.
    pub fn lose_the_answer_to(&self, text: &str) {
        *self.state.marked.lock().unwrap() = Some(text.as_bytes().to_vec());
    }

    /// How many answers were lost so far.
    pub fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }

    /// Breaks every connection and takes no new one, until it is opened again.
    pub fn set_closed(&self, is_closed: bool) {
        self.state.is_closed.send_replace(is_closed);
    }
}

async fn carry(caller: TcpStream, server: SocketAddr, state: Arc<State>) {
    let mut is_closed = state.is_closed.subscribe();
    // A server that is down closes its callers' connections.
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_caller, to_caller) = caller.into_split();
    let (from_server, to_server) = server.into_split();
    let is_marked = AtomicBool::new(false);
    tokio::select! {
        () = there(from_caller, to_server, &state, &is_marked) => {}
        () = back(from_server, to_caller, &state, &is_marked) => {}
        _ = is_closed.wait_for(|is_closed| *is_closed) => {}
    }
}

async fn there(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, state: &State, is_marked: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let has = |text: &Vec<u8>| buffer[..n].windows(text.len()).any(|window| window == text);
        if state.marked.lock().unwrap().take_if(|text| has(text)).is_some() {
            is_marked.store(true, Ordering::SeqCst);
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, state: &State, is_marked: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if is_marked.load(Ordering::SeqCst) {
            state.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
