//! HTTP/1 by hand: a client library would refuse to send most of what a stranger sends.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// An answer that takes longer is a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to a server, made anew when the server has closed it.
pub struct Http1Wire {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// How often it was connected.
    pub connections: usize,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Names in lower case, and values as they came.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header, if it is there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http1Wire {
    /// To the server at `address`; connects when it is needed.
    pub fn to(address: SocketAddr) -> Self {
        Self { address, stream: None, connections: 0 }
    }

    /// Sends a request with these header lines and waits for its answer. Names and values go out as they are.
    ///
    /// # Panics
    /// When the answer does not come in time, or the server closes the connection without one.
    pub async fn send(&mut self, method: &str, target: &str, lines: &[(&str, &[u8])], body: &[u8]) -> Answer {
        let mut request = format!("{method} {target} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
        for (name, value) in lines {
            request.extend_from_slice(name.as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value);
            request.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() || method != "GET" {
            request.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
        self.raw(&request).await
    }

    /// Sends these bytes and waits for an answer.
    ///
    /// # Panics
    /// As [`send`](Self::send).
    pub async fn raw(&mut self, request: &[u8]) -> Answer {
        let exchange = async {
            // A connection that was kept may be closed by now; a fresh one may not.
            if let Some(mut kept) = self.stream.take()
                && let Ok(answer) = exchange(&mut kept, request).await
            {
                return (kept, answer);
            }
            self.connections += 1;
            let mut stream = TcpStream::connect(self.address).await.expect("the server accepts");
            stream.set_nodelay(true).unwrap();
            let answer = exchange(&mut stream, request).await;
            (stream, answer.unwrap_or_else(|why| panic!("{why}: no answer to {}", request.escape_ascii())))
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let (stream, answer) =
            answered.unwrap_or_else(|_| panic!("no answer in {PATIENCE:?} to {}", request.escape_ascii()));
        if answer.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        answer
    }
}

async fn exchange(stream: &mut TcpStream, request: &[u8]) -> io::Result<Answer> {
    // A server that has seen enough answers and closes; then the rest cannot be written, and the answer counts.
    let written = stream.write_all(request).await;
    let mut read = Vec::new();
    let head = loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut read).await? == 0 {
            written?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let text = String::from_utf8_lossy(&read[..head]).into_owned();
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer { status: status.expect("a status line"), headers, body: read.split_off(head) };
    assert_eq!(answer.header("transfer-encoding"), None, "this client reads no chunks");
    let length: usize = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
    while answer.body.len() < length {
        if stream.read_buf(&mut answer.body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(answer)
}
