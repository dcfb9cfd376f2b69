//! The REST table: every path of the API, who may call it, and what it does with `Idempotency-Key`.

mod keys;
mod message;
mod mutation;
mod orders;
mod path;
mod payments;
mod ticket_types;
mod tickets;
mod webhooks;

use crate::{
    auth::{self, ApiKeys},
    body,
    cors::{self, Origin},
    error::{self, Failure},
    limits::{self, Limiter},
    orders::Orders,
    pages,
};
use axum::{
    Router, middleware,
    response::Response,
    routing::{any, get, post, put},
};
use bytes::Bytes;
use http::{
    HeaderValue,
    header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS},
    request,
};
use idem_client::IdemClient;
use idem_layer::{Counted, Idempotency, IdempotencyLayer, Problem, RoutePolicy};
use tower::{
    ServiceBuilder,
    util::{MapResponseLayer, option_layer},
};
use tower_http::{catch_panic::CatchPanicLayer, set_header::SetResponseHeaderLayer};

#[cfg(test)]
pub(crate) use {orders::COUNT_MAX, ticket_types::AMOUNT_MAX};

/// What handlers answer.
type Answered = Result<Response, Failure>;

/// What the routes are made of.
pub(crate) struct Parts {
    pub(crate) api_keys: ApiKeys,
    /// None when nothing is limited.
    pub(crate) limiter: Option<Limiter>,
    pub(crate) cors_origins: Vec<Origin>,
    pub(crate) idempotency: Idempotency,
    pub(crate) orders: Orders,
    pub(crate) idem: IdemClient,
}

/// The whole API.
pub(crate) fn router(parts: Parts) -> Router {
    let Parts { api_keys, limiter, cors_origins, idempotency, orders, idem } = parts;
    // Paths are written out rather than nested: nesting would hide their beginning from the fingerprint.
    let v1 = keyed(&idempotency, orders.clone())
        .merge(read_only(orders.clone()))
        .merge(catalogue(&idempotency, orders.clone()))
        .merge(keys::router(idem))
        .route("/v1", any(error::not_found))
        .route("/v1/", any(error::not_found))
        .route("/v1/{*rest}", any(error::not_found))
        .method_not_allowed_fallback(error::method_not_allowed)
        // Around the fallbacks too: what exists under /v1 is for callers we know.
        .layer(
            // One stack a level: axum boxes the future and the body of each layer that it is given, and of each clone of it.
            ServiceBuilder::new()
                // Orders and money of one tenant: for the caller, and for no cache on the way.
                .layer(SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store")))
                .layer(middleware::from_fn_with_state(api_keys, auth::authenticate))
                // Refuses before a body is read or a key reserved, and knows whom it refuses.
                .layer(option_layer(
                    limiter.clone().map(|limiter| middleware::from_fn_with_state(limiter, limits::admit)),
                )),
        );
    let open =
        pages::router().merge(webhooks::router(orders, limiter)).method_not_allowed_fallback(error::method_not_allowed);
    v1.merge(open).fallback(error::not_found).layer(
        // The innermost is last: from it outwards every answer, refusals, panics and preflights included, is traced, and readable by
        // allowed pages.
        ServiceBuilder::new()
            .layer(chassis::trace::HttpServerLayer)
            .layer(cors::layer(&cors_origins))
            .layer(middleware::from_fn(message::refuse_ambiguous))
            .layer(MapResponseLayer::new(noted))
            .layer(SetResponseHeaderLayer::if_not_present(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
            .layer(CatchPanicLayer::custom(error::panicked)),
    )
}

/// What became of a keyed request belongs on its span, and into its line of the log.
fn noted<B>(mut response: http::Response<B>) -> http::Response<B> {
    if let Some(&Counted(outcome)) = response.extensions().get::<Counted>() {
        response.extensions_mut().insert(chassis::trace::Note { attribute: "idem.outcome", outcome });
    }
    response
}

/// The mutations that a key may protect.
fn keyed(idempotency: &Idempotency, orders: Orders) -> Router {
    let required = |route, check: Check| layer(idempotency, RoutePolicy::required(route), check);
    let optional = |route| layer(idempotency, RoutePolicy::optional(route), check_bare);
    let place = required("POST /v1/orders", orders::check);
    let pay = required("POST /v1/payments", payments::check);
    let confirm = optional("POST /v1/orders/{id}/confirm");
    let cancel = optional("POST /v1/orders/{id}/cancel");
    let check_in = optional("POST /v1/tickets/{id}/check-in");
    Router::new()
        .route("/v1/orders", post(orders::place).route_layer(place))
        .route("/v1/payments", post(payments::pay).route_layer(pay))
        .route("/v1/orders/{id}/confirm", post(orders::confirm).route_layer(confirm))
        .route("/v1/orders/{id}/cancel", post(orders::cancel).route_layer(cancel))
        .route("/v1/tickets/{id}/check-in", post(tickets::check_in).route_layer(check_in))
        .with_state(orders)
}

/// What changes nothing.
fn read_only(orders: Orders) -> Router {
    Router::new()
        .route("/v1/orders/{id}", get(orders::get))
        .route("/v1/payments/{id}", get(payments::get))
        .with_state(orders)
}

/// What is safe to repeat by itself; the layer only reads and checks the body.
fn catalogue(idempotency: &Idempotency, orders: Orders) -> Router {
    let unkeyed = |route, check: Check| layer(idempotency, RoutePolicy::unkeyed(route), check);
    let write = put(ticket_types::put)
        .route_layer(unkeyed("PUT /v1/ticket-types/{id}", ticket_types::check))
        .route_layer(middleware::from_fn(auth::require_operator));
    let payment_link = unkeyed("POST /v1/orders/{id}/payment-link", check_bare);
    Router::new()
        .route("/v1/ticket-types/{id}", write.get(ticket_types::get))
        .route("/v1/orders/{id}/payment-link", post(orders::payment_link).route_layer(payment_link))
        .with_state(orders)
}

type Check = fn(&request::Parts, &Bytes) -> Result<(), Problem>;

fn layer(idempotency: &Idempotency, policy: RoutePolicy, check: Check) -> IdempotencyLayer {
    idempotency.layer(policy.validate(check))
}

/// A mutation that is all in its path.
fn check_bare(parts: &request::Parts, body: &Bytes) -> Result<(), Problem> {
    path::check(parts)?;
    body::expect_empty(body)
}

#[cfg(test)]
mod tests;
