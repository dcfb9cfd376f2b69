//! What a tester uses: `/sandbox`. It decides payments, repeats or loses webhooks, counts, and plays an outage.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};

use crate::acquirer::Acquirer;
use crate::error::ApiError;
use crate::ledger::Refusal;
use crate::wire::{Body, CountersAnswer, EventAnswer, Named, OutageBody, SettleBody, TotalsAnswer, WebhooksBody};

pub(crate) fn routes() -> Router<Arc<Acquirer>> {
    Router::new()
        .route("/sandbox/payments/{id}", get(counters))
        .route("/sandbox/payments/{id}/settle", post(settle))
        .route("/sandbox/totals", get(totals))
        .route("/sandbox/outage", post(outage))
        .route("/sandbox/webhooks", post(webhooks))
        .route("/sandbox/webhooks/{event_id}/redeliver", post(redeliver))
}

async fn counters(
    State(acquirer): State<Arc<Acquirer>>,
    Named(id): Named<String>,
) -> Result<Json<CountersAnswer>, ApiError> {
    let counters = acquirer.counters(&id).ok_or(Refusal::NoSuchPayment)?;
    Ok(Json(counters.into()))
}

async fn settle(
    State(acquirer): State<Arc<Acquirer>>,
    Named(id): Named<String>,
    Body(body): Body<SettleBody>,
) -> Result<Json<EventAnswer>, ApiError> {
    let event_id = acquirer.settle(&id, body.status.into())?;
    Ok(Json(EventAnswer { event_id }))
}

async fn totals(State(acquirer): State<Arc<Acquirer>>) -> Json<TotalsAnswer> {
    Json(acquirer.totals().into())
}

async fn outage(
    State(acquirer): State<Arc<Acquirer>>,
    Body(body): Body<OutageBody>,
) -> Result<Json<OutageBody>, ApiError> {
    let length = Duration::try_from_secs_f64(body.seconds).map_err(|error| ApiError::invalid(error.to_string()))?;
    let refusals = match body.status {
        None | Some(503) => false,
        Some(400) => true,
        Some(_) => return Err(ApiError::invalid("the status of an outage is 503 or 400")),
    };
    acquirer.begin_outage(length, refusals)?;
    Ok(Json(body))
}

async fn webhooks(State(acquirer): State<Arc<Acquirer>>, Body(body): Body<WebhooksBody>) -> Json<WebhooksBody> {
    acquirer.enable_webhooks(body.enabled);
    Json(body)
}

async fn redeliver(
    State(acquirer): State<Arc<Acquirer>>,
    Named(event_id): Named<String>,
) -> Result<(StatusCode, Json<EventAnswer>), ApiError> {
    acquirer.redeliver(&event_id)?;
    Ok((StatusCode::ACCEPTED, Json(EventAnswer { event_id })))
}
