//! The operator's page on the admin port: what state a key is in, why it is stuck, and how to settle it.
//!
//! Three embedded files and a small JSON API, which is the admin service in other clothes: the same validation, the same
//! grants, the same audit. It never shows a stored body.

mod access;
mod api;
mod view;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

pub(crate) use self::access::Access;
pub(crate) use self::api::Api;

const PAGE: &str = include_str!("../console/index.html");
const SCRIPT: &str = include_str!("../console/console.js");
const STYLE: &str = include_str!("../console/console.css");

/// What every answer carries. The page loads nothing from elsewhere, runs no inline script, and is not framed.
const HEADERS: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    // Ignored by browsers until the console is behind TLS.
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The page at `/` and `/console`, and its API.
pub(crate) fn router(api: Api) -> Router {
    let page = || async { file("text/html; charset=utf-8", PAGE) };
    Router::new()
        .route("/", get(page))
        .route("/console", get(page))
        .route("/console/console.js", get(|| async { file("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/console/console.css", get(|| async { file("text/css; charset=utf-8", STYLE) }))
        .nest("/console/api", api::router(api))
        .layer(from_fn(guard))
}

fn file(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, content_type)], text)
}

async fn guard(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
