//! A TCP proxy before Postgres that goes wrong on demand.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use database::StoreUrl;
use database::testing::Scratch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the proxy does with bytes and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Passes everything on.
    Pass,
    /// Keeps connections open, accepts new ones, and passes nothing on.
    Silent,
    /// Closes every connection at once.
    Down,
}

/// When a message with this text comes from the client, the connection is cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub text: &'static str,
    /// Whether the message still reaches the server; then the cut comes with its answer.
    pub is_forwarded: bool,
}

pub struct Proxy {
    addr: SocketAddr,
    faults: Arc<Faults>,
    _tasks: JoinSet<()>,
}

struct Faults {
    mode: watch::Sender<Mode>,
    cut: Mutex<Option<Cut>>,
    refused_option: bool,
    connections: AtomicUsize,
}

impl Proxy {
    pub async fn before(scratch: &Scratch) -> Self {
        Self::start(scratch, false).await
    }

    /// One that refuses start-up options, as pgbouncer does.
    pub async fn like_pgbouncer(scratch: &Scratch) -> Self {
        Self::start(scratch, true).await
    }

    async fn start(scratch: &Scratch, refused_option: bool) -> Self {
        let StoreUrl::Postgres(config) = scratch.url() else { panic!("not Postgres") };
        let [tokio_postgres::config::Host::Tcp(host)] = config.get_hosts() else { panic!("one TCP host") };
        let target = (host.clone(), config.get_ports()[0]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (mode, _) = watch::channel(Mode::Pass);
        let faults = Arc::new(Faults { mode, cut: Mutex::default(), refused_option, connections: AtomicUsize::new(0) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, faults.clone()));
        Self { addr, faults, _tasks: tasks }
    }

    /// The address of the database through the proxy.
    pub fn url(&self, scratch: &Scratch) -> StoreUrl {
        let StoreUrl::Postgres(config) = scratch.url() else { panic!("not Postgres") };
        let (user, name) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        format!("postgres://{user}@{}/{name}", self.addr).parse().unwrap()
    }

    pub fn set(&self, mode: Mode) {
        self.faults.mode.send_replace(mode);
    }

    pub fn cut_at(&self, cut: Cut) {
        *self.faults.cut.lock().unwrap() = Some(cut);
    }

    /// How many connections were ever accepted.
    pub fn connections(&self) -> usize {
        self.faults.connections.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, target: (String, u16), faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *faults.mode.borrow() == Mode::Down {
            continue;
        }
        faults.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(relay(client, target.clone(), faults.clone()));
    }
}

/// Passes bytes both ways until either side ends or the proxy goes down.
async fn relay(mut client: TcpStream, target: (String, u16), faults: Arc<Faults>) {
    let mut mode = faults.mode.subscribe();
    if mode.wait_for(|mode| *mode != Mode::Silent).await.is_err() {
        return;
    }
    let mut hello = Vec::new();
    if faults.refused_option {
        hello = start_up_message(&mut client).await;
        if contains(&hello, "options\0") {
            client.write_all(&refusal()).await.unwrap();
            return;
        }
    }
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    server.write_all(&hello).await.unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_cut = AtomicBool::new(false);
    tokio::select! {
        () = up(from_client, to_server, &faults, &is_cut) => {}
        () = down(from_server, to_client, &faults, &is_cut) => {}
        _ = mode.wait_for(|mode| *mode == Mode::Down) => {}
    }
}

async fn up(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults, is_cut: &AtomicBool) {
    let mut mode = faults.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let cut = {
            let mut planned = faults.cut.lock().unwrap();
            if planned.is_some_and(|cut| contains(&buffer[..count], cut.text)) { planned.take() } else { None }
        };
        if cut.is_some_and(|cut| !cut.is_forwarded) || mode.wait_for(|mode| *mode != Mode::Silent).await.is_err() {
            return;
        }
        is_cut.store(cut.is_some(), Ordering::SeqCst);
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

async fn down(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults, is_cut: &AtomicBool) {
    let mut mode = faults.mode.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if is_cut.load(Ordering::SeqCst) {
            // The server has done it, and the client will never know.
            return;
        }
        let is_passed = mode.wait_for(|mode| *mode != Mode::Silent).await.is_ok();
        if !is_passed || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn start_up_message(client: &mut TcpStream) -> Vec<u8> {
    let length = client.read_u32().await.unwrap();
    let mut message = length.to_be_bytes().to_vec();
    message.resize(length as usize, 0);
    client.read_exact(&mut message[4..]).await.unwrap();
    message
}

/// `FATAL 08P01: unsupported startup parameter: options`.
fn refusal() -> Vec<u8> {
    let fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
    let mut message = vec![b'E'];
    message.extend((fields.len() as u32 + 4).to_be_bytes());
    message.extend(fields);
    message
}
