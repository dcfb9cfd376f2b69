//! (f) The floor of gRPC: a unary call that is answered with what is always answered.
//!
//! It speaks the messages of Reserve, so that the same client can drive it, and knows nothing of keys.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    task::{Context, Poll},
};

use chassis::tasks::Tasks;
use clap::Args;
use futures::future::BoxFuture;
use idem_proto::idem::v1 as proto;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{Service, http},
    server::{Grpc, NamedService, UnaryService},
    transport::{Server, server::TcpIncoming},
};

/// A unary echo.
#[derive(Clone, Debug, Args)]
pub struct Echo {
    /// Where it listens.
    #[arg(long)]
    listen: SocketAddr,
    /// How long the body in its answer is.
    #[arg(long)]
    answer_bytes: usize,
}

/// The one answer, for every call.
#[derive(Clone)]
struct Always(proto::ReserveResponse);

// === impl Echo ===

impl Echo {
    pub(super) async fn serve(self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.listen).await?;
        let service = Always(answer(self.answer_bytes));
        // Without it answers wait for the acknowledgement of those before them, forty milliseconds.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let serving = Server::builder().add_service(service).serve_with_incoming(incoming);
        Tasks::new().spawn("echo", serving);
        Ok(())
    }
}

fn answer(body_bytes: usize) -> proto::ReserveResponse {
    let header = proto::Header { name: "content-type".to_owned(), value: "application/json".to_owned() };
    let response = proto::StoredResponse {
        status: 201,
        headers: vec![header],
        body: super::answer_of(body_bytes),
        resource_id: uuid::Uuid::nil().to_string(),
    };
    let replay = proto::Replay {
        response: Some(response),
        completed_at: Some(std::time::SystemTime::UNIX_EPOCH.into()),
        expires_at: Some(std::time::SystemTime::UNIX_EPOCH.into()),
        expires_in: std::time::Duration::from_secs(3600).try_into().ok(),
        trace_context: String::new(),
    };
    proto::ReserveResponse { outcome: Some(proto::reserve_response::Outcome::Replay(replay)) }
}

// === impl Always ===

impl NamedService for Always {
    const NAME: &'static str = "idem.v1.IdempotencyService";
}

impl UnaryService<proto::ReserveRequest> for Always {
    type Response = proto::ReserveResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _request: Request<proto::ReserveRequest>) -> Self::Future {
        ready(Ok(Response::new(self.0.clone())))
    }
}

impl Service<http::Request<Body>> for Always {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let always = self.clone();
        Box::pin(async move { Ok(Grpc::new(tonic_prost::ProstCodec::default()).unary(always, request).await) })
    }
}
