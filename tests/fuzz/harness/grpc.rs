//! gRPC by hand: any bytes as a call, on one connection that must outlive them all.

use std::{net::SocketAddr, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use chassis::tasks::Tasks;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// An answer that takes longer is a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// The status codes of gRPC by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "they are those of the specification")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

const CODES: [Code; 17] = [
    Code::Ok,
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// One HTTP/2 connection to a gRPC server.
pub struct GrpcWire {
    requests: SendRequest<Full<Bytes>>,
    authority: String,
}

/// What a call came to.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Of HTTP; 200 unless the request was no gRPC.
    pub http_status: u16,
    /// None when there was none, which is a fault.
    pub code: Option<Code>,
    /// The sentence, still percent-encoded.
    pub message: String,
    /// Whether the refusal has details.
    pub has_details: bool,
    /// The frames of the answer.
    pub body: Bytes,
}

impl GrpcWire {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts");
        stream.set_nodelay(true).unwrap();
        let (requests, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        drop(Tasks::new().spawn("grpc wire", connection));
        Self { requests, authority: address.to_string() }
    }

    /// Calls `path` with these bytes as the body, framed or not.
    ///
    /// # Panics
    /// When no answer comes in time, or the connection is gone.
    pub async fn call(&self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Reply {
        let mut requests = self.requests.clone();
        let uri = format!("http://{}{path}", self.authority);
        let mut request = Request::post(uri).header("te", "trailers");
        if !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let answer = async {
            requests.ready().await.expect("the connection lives on");
            let response = requests.send_request(request).await.expect("an answer, not a reset");
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("the answer arrives whole");
            let trailers = body.trailers().cloned().unwrap_or_default();
            let body = body.to_bytes();
            let all = if parts.headers.contains_key("grpc-status") { &parts.headers } else { &trailers };
            Reply::read(parts.status.as_u16(), all, body)
        };
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{path} hangs"))
    }

    /// Whether the server still holds the connection.
    pub fn is_alive(&self) -> bool {
        !self.requests.is_closed()
    }
}

impl Reply {
    fn read(http_status: u16, headers: &HeaderMap, body: Bytes) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let code = text("grpc-status").parse::<usize>().ok().and_then(|number| CODES.get(number).copied());
        let has_details = headers.contains_key("grpc-status-details-bin");
        Self { http_status, code, message: text("grpc-message").to_owned(), has_details, body }
    }

    /// The message in the answer's only frame.
    pub fn message_bytes(&self) -> Bytes {
        assert!(self.body.len() >= 5 && self.body[0] == 0, "{self:?}");
        self.body.slice(5..)
    }
}

/// A message in its frame: a flag, the length, the bytes.
pub fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}
