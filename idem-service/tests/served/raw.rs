//! A call as bytes: the generated client would judge its deadline and its size itself.

use axum::http;
use chassis::tasks::Tasks;
use prost::Message;
use tonic::Status;

use crate::server::Server;

/// An RPC by its path, and its message.
pub struct RawCall {
    pub path: &'static str,
    message: Vec<u8>,
}

impl RawCall {
    pub fn new(path: &'static str, message: &impl Message) -> Self {
        Self { path, message: message.encode_to_vec() }
    }

    /// Sends it on a connection of its own; none when it was carried out.
    pub async fn send(&self, server: &Server, timeout: &str) -> Option<Status> {
        let stream = tokio::net::TcpStream::connect(server.grpc).await.unwrap();
        let (mut h2, connection) = h2::client::handshake(stream).await.unwrap();
        drop(Tasks::new().spawn("h2 client", connection));
        let uri = format!("http://{}{}", server.grpc, self.path);
        let request = http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let request = request.header("grpc-timeout", timeout).body(()).unwrap();
        let (response, mut body) = h2.send_request(request, false).unwrap();
        let mut frame = vec![0];
        frame.extend(u32::try_from(self.message.len()).unwrap().to_be_bytes());
        frame.extend(&self.message);
        // A refusal may close the stream before the message is on it; the answer tells.
        drop(body.send_data(frame.into(), true));
        Status::from_header_map(response.await.unwrap().headers())
    }
}
