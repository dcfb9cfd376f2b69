//! What merchants use: `/payments`. Every route answers 503 during an outage, or 400.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Extension, Json, Router};
use chassis::serve::HangUp;

use crate::acquirer::{Acquirer, Answer};
use crate::error::ApiError;
use crate::wire::{Body, ChargeBody, Named, PaymentAnswer, RefundAnswer, RefundBody};

pub(crate) fn routes(acquirer: &Arc<Acquirer>) -> Router<Arc<Acquirer>> {
    Router::new()
        .route("/payments/{id}", get(query_payment).put(put_payment))
        .route("/payments/{id}/refunds/{refund_id}", put(put_refund))
        .route_layer(from_fn_with_state(Arc::clone(acquirer), refuse_during_outage))
}

async fn put_payment(
    State(acquirer): State<Arc<Acquirer>>,
    Named(id): Named<String>,
    Body(body): Body<ChargeBody>,
) -> Result<Response, ApiError> {
    Ok(match acquirer.pay(&id, body.try_into()?).await? {
        Answer::Payment(receipt) => Json(PaymentAnswer::to_payment(id, receipt)).into_response(),
        Answer::InternalError => ApiError::internal().into_response(),
        // Never sent; the status is for traces and counters.
        Answer::Close => (StatusCode::INTERNAL_SERVER_ERROR, Extension(HangUp)).into_response(),
    })
}

async fn query_payment(
    State(acquirer): State<Arc<Acquirer>>,
    Named(id): Named<String>,
) -> Result<Json<PaymentAnswer>, ApiError> {
    let receipt = acquirer.query(&id)?;
    Ok(Json(PaymentAnswer::to_query(id, receipt)))
}

async fn put_refund(
    State(acquirer): State<Arc<Acquirer>>,
    Named((id, refund_id)): Named<(String, String)>,
    Body(body): Body<RefundBody>,
) -> Result<Json<RefundAnswer>, ApiError> {
    let refund = acquirer.refund(&id, &refund_id, body.try_into()?)?;
    Ok(Json(RefundAnswer::new(id, refund_id, refund)))
}

async fn refuse_during_outage(State(acquirer): State<Arc<Acquirer>>, request: Request, next: Next) -> Response {
    match acquirer.outage_left() {
        // As a front does that understands a request no more: what was taken before goes on behind it.
        Some((_, true)) => ApiError::invalid("the front of the acquirer refuses everything").into_response(),
        Some((left, false)) => ApiError::outage(left.as_secs_f64().ceil() as u64).into_response(),
        None => next.run(request).await,
    }
}
