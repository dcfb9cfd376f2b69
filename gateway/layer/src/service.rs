//! The service: what is decided before a key is reserved, and the wait for what comes of it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::extract::OriginalUri;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, request::Parts};
use http_body::Body;
use http_body_util::{Either, Full};
use idem_core::{Fingerprint, Scope};
use tokio::sync::oneshot;
use tower::Service;
use tracing::{Instrument, error, field::Empty, info_span};

use crate::{
    IdempotencyLayer, Problem, body,
    execute::{self, Execute},
    headers::{self, IDEMPOTENCY_KEY, SentKey},
    layer::Shared,
    operation::Operation,
    policy::KeyPolicy,
    ports::KeyId,
    prefer,
    replays::Known,
    tally::{Tally, Verdict, Waiting},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer: one of this layer's, or the inner service's as it is.
pub type ResponseBody<B> = Either<Full<Bytes>, B>;

/// Made by [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    layer: IdempotencyLayer,
    inner: S,
}

/// A request that may be executed if its route finds that it makes sense.
struct Admitted {
    sent: Option<SentKey>,
    body: Bytes,
    fingerprint: Fingerprint,
}

/// A request that may not, and how much of its key was understood.
struct Refusal {
    problem: Problem,
    sent: Option<SentKey>,
}

// === impl IdempotencyService ===

impl<S> IdempotencyService<S> {
    pub(crate) fn new(layer: IdempotencyLayer, inner: S) -> Self {
        Self { layer, inner }
    }
}

impl<S, B, RB> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The service that was polled ready is the one that is called; its clone waits for the next request.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(serve(self.layer.clone(), inner, request))
    }
}

async fn serve<S, B, RB>(
    IdempotencyLayer { shared, policy }: IdempotencyLayer,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<ResponseBody<RB>>, S::Error>
where
    S: Service<Request<B>, Response = Response<RB>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    RB: Body<Data = Bytes> + Send + 'static,
    RB::Error: Into<BoxError>,
{
    if !policy.is_body_read {
        return Ok(inner.call(request).await?.map(Either::Right));
    }
    let (mut parts, body) = request.into_parts();
    let is_keyed = policy.key == KeyPolicy::Required
        || (policy.key == KeyPolicy::Optional && parts.headers.contains_key(&IDEMPOTENCY_KEY));
    let tally = is_keyed.then(|| Tally::new(policy.route.clone()));
    let refuse = |Refusal { problem, sent }: Refusal, tally: Option<Tally>| {
        let mut response = shared.render(&problem);
        if let Some(tally) = tally {
            response.extensions_mut().insert(tally.count(verdict_of(&problem)));
        }
        Ok(finish(response, sent.map(|sent| sent.line), None))
    };
    let Admitted { sent, body, fingerprint } = match admit(&policy, &mut parts, body).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(refusal, tally),
    };
    let scope = parts.extensions.get::<Scope>().cloned();
    let key = scope.zip(sent.as_ref()).map(|(scope, sent)| KeyId { scope, key: sent.key.clone() });
    let known = key.as_ref().and_then(|key| shared.replays.find(key, &fingerprint));
    // What is remembered here was checked here before it was asked for, as the same request.
    if !matches!(known, Some(Known::Replay(_)))
        && let Err(problem) = policy.check(&parts, &body)
    {
        return refuse(Refusal { problem, sent }, tally);
    }
    let (Some(sent), Some(tally)) = (sent, tally) else {
        let request = Request::from_parts(parts, body.into());
        return Ok(inner.call(request).await?.map(Either::Right));
    };
    let Some(key) = key else {
        // Never executed unprotected, whatever was put together wrongly.
        error!("no scope in the request's extensions: the layer must go inside the authentication");
        let mut response = shared.render(&Problem::idempotency_unavailable());
        response.extensions_mut().insert(tally.count(Verdict::Unavailable));
        return Ok(finish(response, Some(sent.line), None));
    };
    let wait = prefer::wait(&parts.headers);
    if let Some(known) = known {
        let mut answer = match known {
            Known::Replay(replay) => shared.replay(&replay),
            Known::Mismatch => shared.refuse(&Problem::key_reuse(), Verdict::Mismatch),
        };
        answer.response.extensions_mut().insert(tally.count(answer.verdict));
        return Ok(finish(answer.response, Some(sent.line), wait));
    }
    let reservation = Reservation { key, fingerprint, wait: wait.unwrap_or_default(), tally };
    let execute = execute::once(inner, parts, body);
    let response = detach(&shared, reservation, execute, Waiting::new(policy.route.clone())).await;
    Ok(finish(response, Some(sent.line), wait))
}

/// What can be said of a request before any store is touched, in the order in which it is said.
async fn admit<B>(policy: &crate::RoutePolicy, parts: &mut Parts, body: B) -> Result<Admitted, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let sent = match policy.key {
        KeyPolicy::Ignored => None,
        KeyPolicy::Required | KeyPolicy::Optional => {
            headers::sent_key(&parts.headers).map_err(|problem| Refusal { problem, sent: None })?
        }
    };
    if policy.key == KeyPolicy::Required && sent.is_none() {
        return Err(Refusal { problem: Problem::missing_key(), sent });
    }
    match read(parts, body).await {
        Ok((body, fingerprint)) => Ok(Admitted { sent, body, fingerprint }),
        Err(problem) => Err(Refusal { problem, sent }),
    }
}

async fn read<B>(parts: &mut Parts, body: B) -> Result<(Bytes, Fingerprint), Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let body = body::read(parts, body).await?;
    // A nested router strips its prefix; what was asked is the whole path.
    let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |original| &original.0);
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    // Whether the body is JSON comes out of the fingerprint, so it is made before the route's own check.
    let fingerprint = Fingerprint::of_request(parts.method.as_str(), path, query, &body)
        .map_err(|error| Problem::invalid_json(&error))?;
    Ok((body, fingerprint))
}

/// What an operation needs beside its execution.
struct Reservation {
    key: KeyId,
    fingerprint: Fingerprint,
    wait: Duration,
    tally: Tally,
}

/// Runs the operation on a task of its own; this future only waits for it, and may be dropped.
async fn detach(shared: &Arc<Shared>, it: Reservation, execute: Execute, waiting: Waiting) -> Response<Bytes> {
    let (client, answer) = oneshot::channel();
    let span = info_span!(
        "run operation",
        idem.scope = %it.key.scope,
        idem.operation_id = Empty,
        idem.fencing_token = Empty,
        idem.attempt = Empty,
        idem.outcome = Empty,
    );
    let operation = Operation {
        shared: shared.clone(),
        key: it.key,
        fingerprint: it.fingerprint,
        wait: it.wait,
        execute,
        tally: it.tally,
        client,
    };
    (shared.settings.hooks.spawn)(Box::pin(operation.run().instrument(span)));
    let response = answer.await;
    waiting.end();
    response.unwrap_or_else(|_| {
        error!("an operation ended without an answer");
        shared.render(&Problem::in_doubt())
    })
}

fn finish<RB>(
    mut response: Response<Bytes>,
    key: Option<HeaderValue>,
    wait: Option<Duration>,
) -> Response<ResponseBody<RB>> {
    if let Some(key) = key {
        response.headers_mut().insert(IDEMPOTENCY_KEY, key);
    }
    if let Some(wait) = wait {
        headers::mark_waited(response.headers_mut(), wait);
    }
    response.map(|body| Either::Left(Full::new(body)))
}

fn verdict_of(problem: &Problem) -> Verdict {
    match problem.error() {
        "missing_idempotency_key" => Verdict::KeyMissing,
        "invalid_idempotency_key" => Verdict::KeyInvalid,
        _ => Verdict::Refused,
    }
}
