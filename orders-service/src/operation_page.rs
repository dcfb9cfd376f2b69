//! What became of an operation, for an operator who has its id from a log, a trace or the console of the idempotency service.
//!
//! `GET /operations/{id}` on the admin port. It reads the rows and asks nobody, so it changes nothing. Whoever may call `Lookup` may
//! see it; without service tokens, only this machine.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use chassis::{listen::check_exposure, service_auth::ServiceAuth};
use serde::Serialize;

use crate::{
    error::OrdersError,
    operation_id::OperationId,
    shop::Shop,
    store::{operations, orders, payments},
    timestamp::Timestamp,
};

/// The RPC whose grant covers the page.
const RPC: &str = "/orders.v1.OrdersService/Lookup";

/// What the page needs.
#[derive(Clone)]
pub(crate) struct OperationPage {
    shop: Shop,
    auth: ServiceAuth,
    is_open: bool,
}

/// What the rows say of an operation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    operation_id: String,
    fencing_token: i64,
    tenant: Option<String>,
    /// Which RPC; none when it was only asked about.
    kind: Option<String>,
    /// What was answered last: final, no_effect or unknown; none when nothing was.
    answer: Option<String>,
    answered_token: Option<i64>,
    order: Option<ShownOrder>,
    payment: Option<ShownPayment>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownOrder {
    id: String,
    status: String,
    created_at: String,
    hold_until: String,
    paid_by: Option<String>,
}

/// Without the payment method.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPayment {
    id: String,
    order_id: String,
    status: String,
    amount: i64,
    currency: String,
    next_ask_at: Option<String>,
    asks: u32,
    last_word: Option<String>,
}

impl OperationPage {
    /// For an admin port at `addr`, by the rule of the gRPC port: beyond this machine only with tokens, or when the operator said
    /// `--insecure`.
    pub(crate) fn new(shop: Shop, auth: ServiceAuth, addr: SocketAddr, insecure: bool) -> Self {
        let is_open = !auth.is_authenticated() && (insecure || check_exposure(addr, false, false).is_ok());
        Self { shop, auth, is_open }
    }

    /// The route of the page.
    pub(crate) fn router(self) -> Router {
        Router::new().route("/operations/{id}", get(show)).with_state(self)
    }

    fn admit(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        if self.is_open {
            return Ok(());
        }
        let caller = self.auth.authenticate(headers).map_err(|_| StatusCode::UNAUTHORIZED)?;
        // An operator sees every tenant.
        let may_see = self.auth.is_authenticated() && caller.may_call(RPC) && caller.may_use_scopes_under("rest/");
        if may_see { Ok(()) } else { Err(StatusCode::FORBIDDEN) }
    }
}

async fn show(State(page): State<OperationPage>, headers: HeaderMap, Path(id): Path<String>) -> Response {
    if let Err(refused) = page.admit(&headers) {
        return refused.into_response();
    }
    let Some(operation) = OperationId::parse(&id) else {
        return (StatusCode::BAD_REQUEST, "an operation id is a UUID\n").into_response();
    };
    match page.shop.show_operation(operation).await {
        Ok(Some(shown)) => Json(shown).into_response(),
        Ok(None) => (StatusCode::NOT_FOUND, "nothing was ever asked or done under this operation id\n").into_response(),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "an operation cannot be shown");
            (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be asked now\n").into_response()
        }
    }
}

impl Shop {
    pub(crate) async fn show_operation(&self, id: OperationId) -> Result<Option<Shown>, OrdersError> {
        self.store
            .read("show operation", move |tx| {
                Box::pin(async move {
                    let Some(operation) = operations::find(tx, id).await? else { return Ok(None) };
                    let payment = payments::find(tx, id.payment()).await?;
                    let order = payment.as_ref().map_or_else(|| id.order(), |payment| payment.order);
                    let order = orders::find(tx, order).await?;
                    Ok(Some(shown(id, &operation, order.as_ref(), payment.as_ref())))
                })
            })
            .await
    }
}

fn shown(
    id: OperationId,
    operation: &operations::Operation,
    order: Option<&orders::OrderRow>,
    payment: Option<&payments::PaymentRow>,
) -> Shown {
    let time = |Timestamp(micros): Timestamp| {
        let since = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
        chassis::clock::format_rfc3339(SystemTime::UNIX_EPOCH + since)
    };
    Shown {
        operation_id: id.to_string(),
        fencing_token: operation.token.get(),
        tenant: operation.identity.as_ref().map(|identity| identity.tenant.clone()),
        kind: operation.identity.as_ref().map(|identity| word(&identity.kind)),
        answer: operation.kept.as_ref().map(|kept| word(&kept.label)),
        answered_token: operation.kept.as_ref().map(|kept| kept.token.get()),
        order: order.map(|order| ShownOrder {
            id: order.id.to_string(),
            status: word(&order.status),
            created_at: time(order.created_at),
            hold_until: time(order.hold_until),
            paid_by: order.paid_by.map(|id| id.to_string()),
        }),
        payment: payment.map(|payment| ShownPayment {
            id: payment.id.to_string(),
            order_id: payment.order.to_string(),
            status: word(&payment.status),
            amount: payment.amount.amount,
            currency: payment.amount.currency.as_str().to_owned(),
            next_ask_at: payment.next_ask_at.map(time),
            asks: payment.asks,
            last_word: payment.last_word.as_ref().map(word),
        }),
    }
}

/// `RefundPending` as `refund_pending`.
fn word(variant: &impl std::fmt::Debug) -> String {
    let name = format!("{variant:?}");
    let mut word = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}
