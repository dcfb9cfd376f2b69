//! A keep-alive HTTP/1.1 connection with one request under way at most, and as little work for an answer as will do.

use std::{net::SocketAddr, ops::Range};

use anyhow::{Context, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// No head of an answer is longer.
const HEAD_MAX: usize = 64 * 1024;

/// Connects at its first request, and again after an error.
pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    inbox: Vec<u8>,
}

/// An answer, for as long as nothing else is asked.
#[derive(Debug)]
pub struct Reply<'c> {
    /// The status.
    pub status: u16,
    head: &'c [u8],
    /// The body.
    pub body: &'c [u8],
}

/// Where the parts of an answer are.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    status: u16,
    head: usize,
    body: Range<usize>,
}

// === impl Connection ===

impl Connection {
    /// Not connected yet.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, inbox: Vec::with_capacity(4096) }
    }

    /// Sends a whole request and reads the whole answer.
    pub async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Reply<'_>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        self.inbox.clear();
        stream.write_all(request).await.context("sending")?;
        let shape = loop {
            if let Some(shape) = shape(&self.inbox)?
                && self.inbox.len() >= shape.body.end
            {
                break shape;
            }
            ensure!(stream.read_buf(&mut self.inbox).await.context("reading")? > 0, "closed before its answer");
        };
        ensure!(self.inbox.len() == shape.body.end, "more than one answer");
        // Only a connection without an open end is used again.
        self.stream = Some(stream);
        Ok(Reply { status: shape.status, head: &self.inbox[..shape.head], body: &self.inbox[shape.body] })
    }

    async fn connect(&self) -> anyhow::Result<TcpStream> {
        let stream =
            TcpStream::connect(self.address).await.with_context(|| format!("connecting to {}", self.address))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

// === impl Reply ===

impl Reply<'_> {
    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

/// None until the whole head is there.
fn shape(bytes: &[u8]) -> anyhow::Result<Option<Shape>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        ensure!(bytes.len() < HEAD_MAX, "a head without an end");
        return Ok(None);
    };
    let head = &bytes[..end + 2];
    ensure!(head.starts_with(b"HTTP/1.1 "), "not an answer of HTTP/1.1");
    let status: u16 = std::str::from_utf8(head.get(9..12).context("no status")?)?.parse().context("no status")?;
    let Some(length) = header(head, "content-length") else { bail!("an answer of {status} without its length") };
    let length: usize = length.parse().context("the length of an answer")?;
    Ok(Some(Shape { status, head: end + 2, body: end + 4..end + 4 + length }))
}

fn header<'h>(head: &'h [u8], name: &str) -> Option<&'h str> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        if !found.eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        std::str::from_utf8(value).ok().map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_only_with_its_head_and_its_length() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nIdempotent-Replayed: true\r\n\r\n{}";
        for cut in 0..answer.len() - 2 {
            assert_eq!(shape(&answer[..cut]).unwrap(), None, "cut at {cut}");
        }
        let shape = shape(answer).unwrap().unwrap();
        assert_eq!((shape.status, &answer[shape.body.clone()]), (201, &b"{}"[..]));
        assert_eq!(header(&answer[..shape.head], "idempotent-replayed"), Some("true"));
        assert_eq!(header(&answer[..shape.head], "location"), None);
    }

    #[test]
    fn what_is_no_answer_of_a_known_length_is_refused() {
        for wrong in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 xyz\r\ncontent-length: 0\r\n\r\n"] {
            assert!(shape(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
    }
}
