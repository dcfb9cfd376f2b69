//! What the API says about itself: its description, a readable page of it, the idempotency policy, every error.
//!
//! The description is kept as JSON rather than YAML: it is served as it is, and nothing has to convert it. Pages are made
//! once, carry their style with them and load nothing from anywhere.

mod document;
mod errors;
mod html;
mod reference;

use axum::{
    Router,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use document::Node;
use http::{HeaderName, HeaderValue, header};
use std::sync::LazyLock;

/// The API description.
pub(crate) const OPENAPI: &str = include_str!("../openapi.json");

/// No scripts, no frames, nothing from elsewhere.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Whoever has come by TLS comes by TLS for a year. Browsers ignore it without TLS, as on a laptop; other names of the domain are
/// not ours to bind.
const STRICT_TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");

static REFERENCE: LazyLock<String> = LazyLock::new(|| html::page("API", &reference::render(&Node::parse(OPENAPI))));
static POLICY: LazyLock<String> =
    LazyLock::new(|| html::page("Idempotency", include_str!("../pages/idempotency.html")));
static ERRORS: LazyLock<String> = LazyLock::new(|| html::page("Errors", &errors::render()));

/// The pages.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/docs", get(async || page(&REFERENCE)))
        .route("/docs/idempotency", get(async || page(&POLICY)))
        .route("/docs/errors", get(async || page(&ERRORS)))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], OPENAPI).into_response()
}

fn page(html: &'static LazyLock<String>) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // For browsers that do not know frame-ancestors.
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        (header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT_SECURITY),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, Html(html.as_str())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catalogue;

    #[test]
    fn every_error_has_an_anchor() {
        for kind in catalogue::ALL {
            assert!(ERRORS.contains(&format!("<section id=\"{}\">", kind.error)), "{}", kind.error);
            if let Some(code) = kind.code {
                assert!(ERRORS.contains(&format!("id=\"{}-{code}\"", kind.error)), "{} {code}", kind.error);
            }
        }
    }

    #[test]
    fn description_names_every_error_and_nothing_else() {
        let document = Node::parse(OPENAPI);
        let listed = document.pointer("#/components/schemas/Problem/properties/error/enum").unwrap();
        let mut listed: Vec<String> = listed.elements().map(|name| name.pretty().replace('"', "")).collect();
        let mut known: Vec<String> = catalogue::ALL.iter().map(|kind| kind.error.to_owned()).collect();
        listed.sort();
        known.sort();
        known.dedup();
        assert_eq!(listed, known);
    }

    #[test]
    fn amounts_are_bounded_as_the_product_bounds_them() {
        use crate::routes::{AMOUNT_MAX, COUNT_MAX};
        let document = Node::parse(OPENAPI);
        let maximum = |schema: &str, member: &str| {
            let property = document.pointer(&format!("#/components/schemas/{schema}/properties/{member}")).unwrap();
            property.get("maximum").unwrap().pretty().parse::<i64>().unwrap()
        };
        let total = COUNT_MAX * COUNT_MAX * AMOUNT_MAX;
        // JSON readers take numbers for doubles.
        assert!(total < 1 << 53);
        assert_eq!((maximum("Money", "amount"), maximum("OrderItem", "quantity")), (AMOUNT_MAX, COUNT_MAX));
        for schema in ["Total", "Payment", "AcquirerEvent"] {
            assert_eq!(maximum(schema, "amount"), total, "{schema}");
        }
        for (schema, member, money) in
            [("TicketType", "price", "Money"), ("OrderItem", "unitPrice", "Money"), ("Order", "total", "Total")]
        {
            let property = document.pointer(&format!("#/components/schemas/{schema}/properties/{member}")).unwrap();
            assert_eq!(property.text("$ref"), format!("#/components/schemas/{money}"), "{schema}.{member}");
        }
    }

    #[test]
    fn what_can_be_limited_lists_429() {
        for (path, item) in Node::parse(OPENAPI).get("paths").unwrap().members() {
            let is_limited = path.starts_with("/v1/") || path.starts_with("/webhooks/");
            for (method, operation) in item.members() {
                let listed = operation.get("responses").unwrap().get("429").is_some();
                assert_eq!(listed, is_limited, "{method} {path}");
            }
        }
    }

    #[test]
    fn every_reference_of_the_description_leads_somewhere() {
        fn check(document: &Node, node: &Node) {
            if !node.text("$ref").is_empty() {
                assert!(document.pointer(node.text("$ref")).is_some(), "{}", node.text("$ref"));
            }
            node.members().for_each(|(_, value)| check(document, value));
            node.elements().for_each(|value| check(document, value));
        }
        let document = Node::parse(OPENAPI);
        check(&document, &document);
    }

    #[test]
    fn published_fingerprint_example_holds() {
        let body = br#"{"venueId":"demo","items":[{"quantity":2.0}]}"#;
        let fingerprint = idem_core::Fingerprint::of_request("POST", "/v1/orders", "a=b", body).unwrap();
        assert!(POLICY.contains(&hex::encode(fingerprint.as_bytes())));
    }

    #[test]
    fn pages_show_every_operation_and_link_only_to_what_is_there() {
        let document = Node::parse(OPENAPI);
        for (path, item) in document.get("paths").unwrap().members() {
            for (method, _) in item.members() {
                let heading = format!("<h3><code>{} {path}</code></h3>", method.to_uppercase());
                assert!(REFERENCE.contains(&heading), "{heading}");
            }
        }
        for page in [&*REFERENCE, &*POLICY, &*ERRORS] {
            for target in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(page.contains(&format!("id=\"{target}\"")), "#{target}");
            }
            for target in page.split("href=\"/").skip(1).filter_map(|rest| rest.split('"').next()) {
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let known = ["openapi.json", "docs", "docs/idempotency", "docs/errors"].contains(&path);
                assert!(known && (anchor.is_empty() || ERRORS.contains(&format!("id=\"{anchor}\""))), "/{target}");
            }
            assert!(!page.contains("href=\"http") && !page.contains("src=") && !page.contains("<script"));
        }
    }
}
