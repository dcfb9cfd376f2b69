//! Making a connection, and finding out whether anybody is at its other end.

use crate::{Place, Settings, line::Sender};
use bytes::Bytes;
use credentials::ClientTls;
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{error::Error, future::Future, io, net::SocketAddr, pin::Pin};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tonic::body::Body;

type BoxError = Box<dyn Error + Send + Sync>;

/// Runs a connection to its end.
pub(crate) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Any server that is there answers it, if only by saying that it has no such thing.
const PROBE: &str = "/grpc.health.v1.Health/Check";

/// An empty message: no compression, no bytes.
const EMPTY_MESSAGE: &[u8] = &[0; 5];

/// A connection whose other end has answered a probe. Its driver must be spawned by then, so `spawn` is handed it half-way.
pub(crate) async fn connect(
    address: SocketAddr,
    place: &Place,
    settings: &Settings,
    spawn: impl FnOnce(Driver),
) -> Result<Sender, String> {
    let connecting = async {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let mut sender = match &settings.tls {
            Some(tls) => {
                let name = ClientTls::server_name(&place.host).map_err(io::Error::other)?;
                handshake(tls.connect(name, tcp).await?, settings, spawn).await?
            }
            None => handshake(tcp, settings, spawn).await?,
        };
        probe(&mut sender, place).await?;
        Ok::<_, BoxError>(sender)
    };
    match tokio::time::timeout(settings.connect_timeout, connecting).await {
        Ok(Ok(sender)) => Ok(sender),
        Ok(Err(error)) => Err(sentence(error.as_ref())),
        Err(_) => Err(format!("no answer within {:?}", settings.connect_timeout)),
    }
}

async fn handshake<T>(stream: T, settings: &Settings, spawn: impl FnOnce(Driver)) -> Result<Sender, BoxError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (interval, timeout) = settings.ping;
    let (of_stream, of_connection) = settings.windows;
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(interval)
        .keep_alive_timeout(timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(of_stream)
        .initial_connection_window_size(of_connection)
        .handshake(TokioIo::new(stream));
    let (sender, connection): (Sender, Connection<_, Body, _>) = handshake.await?;
    // How it ends is told to whoever calls over it.
    spawn(Box::pin(async move { drop(connection.await) }));
    Ok(sender)
}

async fn probe(sender: &mut Sender, place: &Place) -> Result<(), BoxError> {
    let mut request = Request::post(place.address(&http::Uri::from_static(PROBE)))
        .body(Body::new(Full::new(Bytes::from_static(EMPTY_MESSAGE))))?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    sender.send_request(request).await?;
    Ok(())
}

/// The error and its causes, joined with `: `.
pub(crate) fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut sentence = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !sentence.ends_with(&text) {
            sentence = format!("{sentence}: {text}");
        }
        cause = error.source();
    }
    sentence
}
