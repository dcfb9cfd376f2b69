//! One call: a replica is picked, the message leaves, and what comes of it is noted.

use crate::{
    Channel,
    connect::sentence,
    pool::{Picked, Pool},
};
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::Instant;
use tonic::{Code, Status, body::Body};
use tower::Service;

/// A caller that gives up sooner than this has its own reasons.
const PATIENCE: Duration = Duration::from_millis(500);

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Response<Body>, Status>>;

    /// Always: who may not wait for a connection says so by a timeout around the call.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = self.pool.clone();
        Box::pin(async move { call(&pool, request).await })
    }
}

async fn call(pool: &Arc<Pool>, mut request: Request<Body>) -> Result<Response<Body>, Status> {
    *request.uri_mut() = pool.place.address(request.uri());
    loop {
        let Picked { line, mut sender, generation } = pool.ready().await?;
        let mut given_up = GivenUp { pool, address: line.address, began: Instant::now(), is_answered: false };
        let flight = line.begin();
        let answer = sender.try_send_request(request).await;
        given_up.is_answered = true;
        match answer {
            Ok(response) => {
                flight.answered(is_unavailable(response.headers()));
                return Ok(response.map(Body::new));
            }
            Err(mut failure) => {
                if sender.is_closed() && line.lost(generation) {
                    pool.changed();
                }
                match failure.take_message() {
                    // It has not left: another connection may carry it.
                    Some(unsent) => {
                        line.lost(generation);
                        request = unsent;
                    }
                    None => return Err(broken(failure.into_error())),
                }
            }
        }
    }
}

/// A refusal that came alone has its code in the head.
fn is_unavailable(headers: &HeaderMap) -> bool {
    headers.get("grpc-status").is_some_and(|status| status == "14")
}

fn broken(error: hyper::Error) -> Status {
    let message = format!("the connection broke under the call: {}", sentence(&error));
    let mut status = Status::new(Code::Unavailable, message);
    status.set_source(Arc::new(error));
    status
}

/// Notices, by being dropped, that nobody waits for the answer any more.
struct GivenUp<'p> {
    pool: &'p Pool,
    address: std::net::SocketAddr,
    began: Instant,
    is_answered: bool,
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.began.elapsed() >= PATIENCE {
            self.pool.strike(self.address, self.began);
        }
    }
}
