//! A tower layer that holds gRPC servers to `grpc-timeout`.

use super::Deadline;
use crate::service_auth::refuse;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::time::Sleep;
use tonic::Code;
use tower::{Layer, Service};

/// Notes the caller's [`Deadline`] in the request's extensions and ends the call when it is over.
///
/// A call that comes too late starts no work: it is answered DEADLINE_EXCEEDED without calling the inner service. One that
/// takes too long is answered so as well, and its handler is dropped; what must go on detaches itself with
/// [`Tasks`](crate::tasks::Tasks).
#[derive(Debug, Clone)]
pub struct DeadlineLayer {
    error_domain: &'static str,
}

/// Made by [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct DeadlineService<S> {
    inner: S,
    error_domain: &'static str,
}

pin_project! {
    /// The answer of a [`DeadlineService`].
    #[project = ResponseFutureProjection]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
        error_domain: &'static str,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Over,
        Unlimited { #[pin] inner: F },
        Limited { #[pin] inner: F, #[pin] limit: Sleep },
    }
}

// === impl DeadlineLayer ===

impl DeadlineLayer {
    /// `error_domain` is the domain of the `ErrorInfo` in refusals.
    pub fn new(error_domain: &'static str) -> Self {
        Self { error_domain }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService { inner, error_domain: self.error_domain }
    }
}

// === impl DeadlineService ===

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for DeadlineService<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let state = match Deadline::from_grpc(request.headers()) {
            None => State::Unlimited { inner: self.inner.call(request) },
            Some(deadline) if deadline.is_over() => State::Over,
            Some(deadline) => {
                request.extensions_mut().insert(deadline);
                let limit = tokio::time::sleep_until(deadline.instant());
                State::Limited { inner: self.inner.call(request), limit }
            }
        };
        ResponseFuture { state, error_domain: self.error_domain }
    }
}

// === impl ResponseFuture ===

impl<F, ResBody, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<ResBody>, E>>,
    ResBody: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.state.project() {
            StateProjection::Unlimited { inner } => return inner.poll(cx),
            StateProjection::Limited { inner, limit } => {
                if let Poll::Ready(answer) = inner.poll(cx) {
                    return Poll::Ready(answer);
                }
                ready!(limit.poll(cx));
            }
            StateProjection::Over => {}
        }
        Poll::Ready(Ok(deadline_exceeded(this.error_domain)))
    }
}

fn deadline_exceeded<B: Default>(error_domain: &str) -> Response<B> {
    refuse(Code::DeadlineExceeded, "the deadline given in grpc-timeout is over", error_domain, "DEADLINE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };
    use tonic::Status;
    use tower::{ServiceExt, service_fn};

    fn request(timeout: Option<&str>) -> Request<()> {
        let mut request = Request::new(());
        if let Some(timeout) = timeout {
            request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
        }
        request
    }

    fn code(response: &Response<String>) -> Option<Code> {
        Status::from_header_map(response.headers()).map(|status| status.code())
    }

    #[tokio::test(start_paused = true)]
    async fn late_call_starts_no_work() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let service = DeadlineLayer::new("test").layer(service_fn(move |_: Request<()>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::new("done".to_owned())) }
        }));
        let late = service.clone().oneshot(request(Some("0n"))).await.unwrap();
        assert_eq!((code(&late), calls.load(Ordering::Relaxed)), (Some(Code::DeadlineExceeded), 0));
        let timely = service.oneshot(request(Some("1S"))).await.unwrap();
        assert_eq!((code(&timely), timely.into_body().as_str()), (None, "done"));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_call_is_ended_at_its_deadline_and_others_are_not() {
        let service = DeadlineLayer::new("test").layer(service_fn(|request: Request<()>| async move {
            let noted = request.extensions().get::<Deadline>().is_some();
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok::<_, Infallible>(Response::new(noted.to_string()))
        }));
        let started = tokio::time::Instant::now();
        let slow = service.clone().oneshot(request(Some("2S"))).await.unwrap();
        assert_eq!(code(&slow), Some(Code::DeadlineExceeded));
        assert_eq!(started.elapsed(), Duration::from_secs(2));
        assert_eq!(service.clone().oneshot(request(Some("6S"))).await.unwrap().into_body(), "true");
        assert_eq!(service.oneshot(request(None)).await.unwrap().into_body(), "false");
    }
}
