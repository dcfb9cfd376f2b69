//! One connection through a proxy. Bytes are carried in order, or not at all: a connection that has lost some is reset.

use std::{
    future::{Future, pending},
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::future::join;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::Trouble;

/// How long requests still pass after the first answer was dropped, so that what was asked is carried out.
const AFTER_DROPPED_REPLY: Duration = Duration::from_millis(200);

/// How many pieces may be on their way in one direction; then the sender waits, as before a full socket.
const ON_THE_WAY: usize = 64;

const PIECE: usize = 64 * 1024;

/// A connection that somebody has made to the proxy.
pub(super) struct Connection {
    caller: TcpStream,
    trouble: watch::Receiver<Trouble>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Request,
    Answer,
}

/// What both directions and the watcher of one connection share.
struct Shared {
    trouble: watch::Receiver<Trouble>,
    /// Bytes were lost: nothing more may arrive, and when the trouble ends the connection does.
    has_lost: AtomicBool,
    answer_dropped: Notify,
}

struct Piece {
    due: Instant,
    bytes: Bytes,
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(caller: TcpStream, trouble: watch::Receiver<Trouble>) -> Self {
        Self { caller, trouble }
    }

    /// Carries bytes to the server and back until either has ended or trouble resets both.
    pub(super) async fn carry<F: Future<Output = Option<TcpStream>>>(mut self, connect: impl FnOnce() -> F) {
        if !self.may_begin().await {
            return reset(&self.caller);
        }
        let Some(mut server) = connect().await else { return reset(&self.caller) };
        // Neither side of the road waits for the other's acknowledgements.
        let _ = (self.caller.set_nodelay(true), server.set_nodelay(true));
        let shared =
            Shared { trouble: self.trouble.clone(), has_lost: AtomicBool::new(false), answer_dropped: Notify::new() };
        let is_clean = {
            let (from_caller, to_caller) = self.caller.split();
            let (from_server, to_server) = server.split();
            tokio::select! {
                (request, answer) = join(
                    one_way(Way::Request, from_caller, to_server, &shared),
                    one_way(Way::Answer, from_server, to_caller, &shared),
                ) => request.is_ok() && answer.is_ok() && !shared.has_lost(),
                () = shared.until_reset() => false,
            }
        };
        if !is_clean {
            reset(&self.caller);
            reset(&server);
        }
    }

    /// Waits while nobody would answer. Nothing is connected meanwhile.
    async fn may_begin(&mut self) -> bool {
        loop {
            let trouble = *self.trouble.borrow_and_update();
            match trouble {
                Trouble::Cut => return false,
                Trouble::None | Trouble::Delay(_) | Trouble::DropReply => return true,
                Trouble::Stall => {
                    if self.trouble.changed().await.is_err() {
                        return false;
                    }
                }
                Trouble::HalfOpen => {
                    swallow(&mut self.caller, &mut self.trouble).await;
                    return false;
                }
            }
        }
    }
}

// === impl Shared ===

impl Shared {
    fn trouble(&self) -> Trouble {
        *self.trouble.borrow()
    }

    /// Are these bytes lost? Then so are all that follow.
    fn loses(&self, way: Way) -> bool {
        let loses = match self.trouble() {
            Trouble::HalfOpen => true,
            Trouble::DropReply => way == Way::Answer,
            Trouble::None | Trouble::Cut | Trouble::Delay(_) | Trouble::Stall => false,
        };
        if loses && !self.has_lost.swap(true, Ordering::SeqCst) && self.trouble() == Trouble::DropReply {
            self.answer_dropped.notify_one();
        }
        loses || (self.has_lost() && way == Way::Answer)
    }

    fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::SeqCst)
    }

    async fn while_stalled(&self) {
        let mut trouble = self.trouble.clone();
        // An error means that the campaign is over.
        let _ = trouble.wait_for(|trouble| *trouble != Trouble::Stall).await;
    }

    /// Resolves when the connection is to be reset.
    async fn until_reset(&self) {
        let mut trouble = self.trouble.clone();
        loop {
            if self.trouble() == Trouble::Cut {
                return;
            }
            tokio::select! {
                changed = trouble.changed() => {
                    if changed.is_err() || self.has_lost() {
                        return;
                    }
                }
                () = self.until_answer_was_dropped() => return,
            }
        }
    }

    async fn until_answer_was_dropped(&self) {
        self.answer_dropped.notified().await;
        sleep(AFTER_DROPPED_REPLY).await;
    }
}

// === helpers ===

/// What a sender has sent arrives although the sender is gone by then, as it does on a real road.
async fn one_way(
    way: Way,
    from: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin,
    shared: &Shared,
) -> io::Result<()> {
    let (departures, arrivals) = mpsc::channel(ON_THE_WAY);
    let (departed, arrived) = join(depart(way, from, departures, shared), arrive(way, to, arrivals, shared)).await;
    departed.and(arrived)
}

/// Reads until the sender has ended, or the receiver has. The end travels with the pieces: the channel closes behind the last.
async fn depart(
    way: Way,
    mut from: impl AsyncRead + Unpin,
    departures: mpsc::Sender<Piece>,
    shared: &Shared,
) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        let n = from.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        if shared.loses(way) {
            continue;
        }
        let late = match shared.trouble() {
            Trouble::Delay(by) => by,
            _ => Duration::ZERO,
        };
        let piece = Piece { due: Instant::now() + late, bytes: Bytes::copy_from_slice(&buffer[..n]) };
        if departures.send(piece).await.is_err() {
            return Ok(());
        }
    }
}

async fn arrive(
    way: Way,
    mut to: impl AsyncWrite + Unpin,
    mut arrivals: mpsc::Receiver<Piece>,
    shared: &Shared,
) -> io::Result<()> {
    while let Some(piece) = arrivals.recv().await {
        sleep_until(piece.due).await;
        shared.while_stalled().await;
        if !shared.loses(way) {
            to.write_all(&piece.bytes).await?;
        }
    }
    shared.while_stalled().await;
    // Behind lost bytes an orderly end would be a lie.
    if shared.loses(way) || shared.has_lost() {
        return pending().await;
    }
    to.shutdown().await
}

async fn swallow(caller: &mut TcpStream, trouble: &mut watch::Receiver<Trouble>) {
    let mut buffer = vec![0; PIECE];
    loop {
        tokio::select! {
            changed = trouble.changed() => {
                if changed.is_err() || *trouble.borrow() != Trouble::HalfOpen {
                    return;
                }
            }
            read = caller.read(&mut buffer) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
        }
    }
}

/// Makes the drop of the stream a reset.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}
