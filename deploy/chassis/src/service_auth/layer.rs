//! The layer that asks every caller of a gRPC server who it is.

use super::{Caller, PeerNames, ServiceAuth};
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service};

/// Notes the [`Caller`] in the request's extensions, or refuses the call.
///
/// Without a valid token or certificate the answer is UNAUTHENTICATED, without a grant for the RPC it is PERMISSION_DENIED. gRPC health is
/// open to everybody, reflection to everybody with a valid token. Which scopes a caller may use is for the service to
/// judge, since only it knows where a request names them.
#[derive(Debug, Clone)]
pub struct ServiceAuthLayer {
    auth: ServiceAuth,
    error_domain: &'static str,
}

/// Made by [`ServiceAuthLayer`].
#[derive(Debug, Clone)]
pub struct ServiceAuthService<S> {
    inner: S,
    auth: ServiceAuth,
    error_domain: &'static str,
}

pin_project! {
    /// The answer of a [`ServiceAuthService`].
    #[project = ResponseFutureProjection]
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Refused { refusal: Refusal },
        Passed { #[pin] inner: F },
    }
}

#[derive(Debug, Clone, Copy)]
struct Refusal {
    code: Code,
    message: &'static str,
    reason: &'static str,
    error_domain: &'static str,
}

/// What a path asks of its caller.
enum Guard {
    Open,
    AnyToken,
    Grant,
}

// === impl ServiceAuthLayer ===

impl ServiceAuthLayer {
    pub(super) fn new(auth: ServiceAuth, error_domain: &'static str) -> Self {
        Self { auth, error_domain }
    }
}

impl<S> Layer<S> for ServiceAuthLayer {
    type Service = ServiceAuthService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ServiceAuthService { inner, auth: self.auth.clone(), error_domain: self.error_domain }
    }
}

// === impl ServiceAuthService ===

impl<S> ServiceAuthService<S> {
    fn judge<B>(&self, request: &Request<B>) -> Result<Caller, Refusal> {
        let path = request.uri().path();
        let guard = guard_of(path);
        if matches!(guard, Guard::Open) {
            return Ok(Caller::anonymous());
        }
        let names = request.extensions().get::<PeerNames>();
        let caller = self.auth.authenticate_call(request.headers(), names).map_err(|why| Refusal {
            code: Code::Unauthenticated,
            message: why.message(),
            reason: "UNAUTHENTICATED",
            error_domain: self.error_domain,
        })?;
        if matches!(guard, Guard::AnyToken) || caller.may_call(path) {
            return Ok(caller);
        }
        tracing::info!(caller = caller.service(), path, "caller has no grant for this RPC");
        Err(Refusal {
            code: Code::PermissionDenied,
            message: "the caller has no grant for this RPC",
            reason: "RPC_NOT_GRANTED",
            error_domain: self.error_domain,
        })
    }
}

fn guard_of(path: &str) -> Guard {
    if path.starts_with("/grpc.health.v1.Health/") {
        Guard::Open
    } else if path.starts_with("/grpc.reflection.v1.ServerReflection/")
        || path.starts_with("/grpc.reflection.v1alpha.ServerReflection/")
    {
        Guard::AnyToken
    } else {
        Guard::Grant
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for ServiceAuthService<S>
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
        let state = match self.judge(&request) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                State::Passed { inner: self.inner.call(request) }
            }
            Err(refusal) => State::Refused { refusal },
        };
        ResponseFuture { state }
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
        match self.project().state.project() {
            StateProjection::Passed { inner } => inner.poll(cx),
            StateProjection::Refused { refusal: Refusal { code, message, reason, error_domain } } => {
                Poll::Ready(Ok(refuse(*code, message, error_domain, reason)))
            }
        }
    }
}

/// A gRPC answer without a body, with an `ErrorInfo` that says why.
pub(crate) fn refuse<B: Default>(code: Code, message: &str, error_domain: &str, reason: &str) -> Response<B> {
    refuse_with(code, message, error_domain, reason, ErrorDetails::new())
}

/// The same with more details than the reason.
pub(crate) fn refuse_with<B: Default>(
    code: Code,
    message: &str,
    error_domain: &str,
    reason: &str,
    mut details: ErrorDetails,
) -> Response<B> {
    details.set_error_info(reason, error_domain, HashMap::new());
    Status::with_error_details(code, message, details).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_auth::file;
    use credentials::Watched;
    use http::header::AUTHORIZATION;
    use std::convert::Infallible;
    use tower::{ServiceExt, service_fn};

    const RESERVE: &str = "/idem.v1.IdempotencyService/Reserve";
    const LIST: &str = "/idem.v1.AdminService/List";
    const HEALTH: &str = "/grpc.health.v1.Health/Check";
    const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

    async fn call(auth: &ServiceAuth, path: &str, token: Option<&str>) -> Result<String, (Code, String)> {
        let mut request = Request::new(());
        *request.uri_mut() = path.parse().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let inner = service_fn(|request: Request<()>| async move {
            let caller = request.extensions().get::<Caller>().cloned().unwrap();
            Ok::<_, Infallible>(Response::new(caller.service().to_owned()))
        });
        let response: Response<String> = auth.layer("idem").layer(inner).oneshot(request).await.unwrap();
        match Status::from_header_map(response.headers()) {
            None => Ok(response.into_body()),
            Some(status) => {
                assert_eq!(response.headers()["content-type"], "application/grpc");
                let info = status.get_error_details().error_info().cloned().unwrap();
                assert_eq!(info.domain, "idem");
                Err((status.code(), info.reason))
            }
        }
    }

    #[tokio::test]
    async fn each_path_asks_for_what_it_guards() {
        let tokens =
            r#"[{"service": "gateway", "token": "all", "scopes": ["rest/*"], "rpcs": ["IdempotencyService/*"]}]"#;
        let auth =
            ServiceAuth { grants: Some(Watched::fixed(file::parse(tokens.as_bytes()).unwrap())), certificates: false };
        let unauthenticated = || Err((Code::Unauthenticated, "UNAUTHENTICATED".to_owned()));
        let denied = || Err((Code::PermissionDenied, "RPC_NOT_GRANTED".to_owned()));
        let table = [
            (RESERVE, Some("all"), Ok("gateway".to_owned())),
            (RESERVE, Some("wrong"), unauthenticated()),
            (RESERVE, None, unauthenticated()),
            (LIST, Some("all"), denied()),
            (LIST, None, unauthenticated()),
            (HEALTH, None, Ok("anonymous".to_owned())),
            (HEALTH, Some("wrong"), Ok("anonymous".to_owned())),
            (REFLECTION, Some("all"), Ok("gateway".to_owned())),
            (REFLECTION, None, unauthenticated()),
            ("/grpc.health.v1.HealthFake/Check", None, unauthenticated()),
            ("/", Some("all"), denied()),
        ];
        for (path, token, expected) in table {
            assert_eq!(call(&auth, path, token).await, expected, "{path} {token:?}");
        }
    }

    #[tokio::test]
    async fn open_server_lets_everybody_in_as_anonymous() {
        for (path, token) in [(RESERVE, None), (LIST, Some("anything")), (REFLECTION, None)] {
            assert_eq!(call(&ServiceAuth::open(), path, token).await, Ok("anonymous".to_owned()));
        }
    }
}
