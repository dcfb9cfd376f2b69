//! What a session says over HTTP, and what it expects to hear.

use std::net::SocketAddr;

use super::{
    Answer, Session,
    connection::{Connection, Reply},
};

/// How much of an unexpected body is shown.
const SHOWN: usize = 160;

/// Writes one request after the other.
pub trait Script {
    /// The next request, whole; none when there is nothing left to ask for.
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Expected>;

    /// The answer, once it was as expected.
    fn heard(&mut self, _reply: &Reply<'_>) {}
}

/// What makes an answer right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its status.
    pub status: u16,
    /// Whether it says that it is a replay; none when it does not matter.
    pub is_replay: Option<bool>,
}

/// A script over a connection of its own.
pub struct HttpSession<S> {
    connection: Connection,
    script: S,
    request: Vec<u8>,
}

// === impl HttpSession ===

impl<S: Script> HttpSession<S> {
    /// Connects when it begins.
    pub fn new(address: SocketAddr, script: S) -> Self {
        Self { connection: Connection::new(address), script, request: Vec::with_capacity(1024) }
    }
}

impl<S: Script> Session for HttpSession<S> {
    async fn once(&mut self) -> Answer {
        self.request.clear();
        let Some(expected) = self.script.next(&mut self.request) else { return Answer::Exhausted };
        match self.connection.exchange(&self.request).await {
            Ok(reply) if expected.is_met_by(&reply) => {
                self.script.heard(&reply);
                Answer::Expected
            }
            Ok(reply) => Answer::Unexpected(shown(&reply)),
            Err(error) => Answer::Unexpected(format!("{error:#}")),
        }
    }
}

// === impl Expected ===

impl Expected {
    fn is_met_by(self, reply: &Reply<'_>) -> bool {
        reply.status == self.status
            && self.is_replay.is_none_or(|is| is == (reply.header("idempotent-replayed") == Some("true")))
    }
}

/// Alike answers are counted together, so what differs from one to the next is left out.
fn shown(reply: &Reply<'_>) -> String {
    let text = String::from_utf8_lossy(&reply.body[..reply.body.len().min(SHOWN)]);
    let text = text.split("\"traceId\"").next().unwrap_or_default();
    let replayed = if reply.header("idempotent-replayed").is_some() { " (replayed)" } else { "" };
    format!("{}{replayed} {text}", reply.status)
}
