//! What the acquirer tells us. The orders service holds the secret, so the bytes go there as they came.

use super::{Answered, mutation::sent};
use crate::{
    error::{Failure, bad_signature},
    limits::{self, Limiter},
    orders::Orders,
    wire,
};
use axum::{Router, body::Body, extract::State, routing::post};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use idem_layer::{BODY_MAX, Problem, unread_body};
use idem_proto::orders::v1::{self as proto, WebhookRejection, handle_webhook_response::Outcome};
use serde::Serialize;

const SIGNATURE: &str = "acquirer-signature";

#[derive(Serialize)]
struct Accepted {
    duplicate: bool,
}

/// `POST /webhooks/acquirer`
pub(super) fn router(orders: Orders, limiter: Option<Limiter>) -> Router {
    Router::new().route("/webhooks/acquirer", post(receive)).with_state((orders, limiter))
}

async fn receive(
    State((orders, limiter)): State<(Orders, Option<Limiter>)>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    let body = read(body).await?;
    let handling = orders.handle_webhook(proto::HandleWebhookRequest { body, signature: signature(&headers) });
    let answer = match limiter {
        Some(limiter) => limits::admit_stranger(&limiter, handling).await??,
        None => handling.await?,
    };
    match answer.outcome.ok_or(wire::Unreadable("no word on a webhook"))? {
        Outcome::Accepted(accepted) => {
            Ok(sent(wire::body(StatusCode::OK, &Accepted { duplicate: accepted.duplicate })))
        }
        Outcome::Rejected(rejected) => Err(rejection(rejected.reason())),
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::payload_too_large()),
        Err(error) => Err(unread_body(error.as_ref())),
    }
}

/// Empty, which is no signature, unless there is exactly one.
fn signature(headers: &HeaderMap) -> String {
    let mut lines = headers.get_all(SIGNATURE).iter();
    match (lines.next(), lines.next()) {
        (Some(line), None) => String::from_utf8_lossy(line.as_bytes()).into_owned(),
        _ => String::new(),
    }
}

fn rejection(reason: WebhookRejection) -> Failure {
    match reason {
        WebhookRejection::BadSignature => bad_signature("the signature does not match the body"),
        WebhookRejection::TooOld => bad_signature("the signature is more than five minutes from now"),
        WebhookRejection::Malformed | WebhookRejection::Unspecified => {
            Problem::invalid_request("the Acquirer-Signature header or the event cannot be read").into()
        }
    }
}
