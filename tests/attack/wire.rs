//! HTTP/1 by hand, since no client library would send what an attacker sends.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longer than the server waits for a head, a body, or a client that does not read.
pub const PATIENCE: Duration = Duration::from_secs(45);

/// A connection to `at`.
pub async fn connect(at: SocketAddr) -> TcpStream {
    timeout(PATIENCE, TcpStream::connect(at)).await.expect("the server accepts").unwrap()
}

/// Sends `bytes` and reads whatever comes until the server closes the connection, or has nothing more to say.
pub async fn exchange(at: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(at).await;
    // A server may close before it has read all.
    let _ = stream.write_all(bytes).await;
    let mut heard = Vec::new();
    let mut buffer = [0; 8192];
    // An answer may take a while on a busy machine; a second one on its heels does not.
    let silence = |heard: &[u8]| Duration::from_millis(if heard.is_empty() { 4000 } else { 400 });
    while let Ok(Ok(read @ 1..)) = timeout(silence(&heard), stream.read(&mut buffer)).await {
        heard.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// Reads to the end of the connection, and says what came.
pub async fn to_end(stream: &mut TcpStream) -> String {
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("the server ends the connection");
    String::from_utf8_lossy(&heard).into_owned()
}

/// The statuses of the answers in what was heard.
pub fn statuses(heard: &str) -> Vec<u16> {
    heard.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}
