//! The inner service, as something that can be executed at most once.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use fault_point::fault_point;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response, request::Parts};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout_at;
use tower::Service;
use tracing::{error, warn};

use crate::ports::{Outcome, Permit};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Executes the request, if it is called: once, since a request is made of it.
pub(crate) type Execute = Box<dyn FnOnce(Permit) -> BoxFuture<'static, Option<Executed>> + Send>;

/// An answer of the inner service, and its word on it. Without that word the outcome is unknown.
pub(crate) struct Executed {
    pub(crate) response: Response<Bytes>,
    pub(crate) outcome: Option<Outcome>,
}

/// Executes. None when what came of it is not known.
pub(crate) async fn run(execute: Execute, permit: Permit) -> Option<Executed> {
    fault_point!("execute: call" => None);
    let executed = execute(permit).await;
    fault_point!("execute: answered" => None);
    executed
}

/// `inner`, which was polled ready, with the request that it is to execute. None when it fails, panics or takes longer than the
/// permit: whatever it began may still be going on.
pub(crate) fn once<S, B, RB>(inner: S, parts: Parts, body: Bytes) -> Execute
where
    S: Service<Request<B>, Response = Response<RB>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: From<Bytes> + Send + 'static,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    Box::new(move |permit: Permit| {
        async move {
            match timeout_at(permit.deadline, AssertUnwindSafe(call(inner, parts, body, permit)).catch_unwind()).await {
                Ok(Ok(Ok(executed))) => return Some(executed),
                Ok(Ok(Err(error))) => warn!(error = &*error as &dyn std::error::Error, "the inner service failed"),
                Ok(Err(_)) => error!("the inner service panicked"),
                Err(_) => warn!("the inner service did not answer in time"),
            }
            None
        }
        .boxed()
    })
}

async fn call<S, B, RB>(mut inner: S, mut parts: Parts, body: Bytes, permit: Permit) -> Result<Executed, BoxError>
where
    S: Service<Request<B>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: From<Bytes>,
    RB: Body<Data = Bytes>,
    RB::Error: Into<BoxError>,
{
    parts.extensions.insert(permit);
    let response = inner.call(Request::from_parts(parts, body.into())).await.map_err(Into::into)?;
    let (mut head, body) = response.into_parts();
    let outcome = head.extensions.remove::<Outcome>();
    // The whole body, before anything is decided: an answer that breaks off is no answer.
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Executed { response: Response::from_parts(head, body), outcome })
}
