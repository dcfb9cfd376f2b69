//! The JSON bodies, in and out, and the way between them and the ledger.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use http::request::Parts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::ledger::{Charge, Counters, Decision, Receipt, Refund, Status, Totals};

/// The path's parameters; a malformed one is refused in JSON like everything else.
pub(crate) struct Named<T>(pub(crate) T);

/// A JSON body. Its content type is not asked for, so that a bare `curl -d` works.
pub(crate) struct Body<T>(pub(crate) T);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChargeBody {
    amount: u64,
    currency: String,
    method: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefundBody {
    amount: u64,
    currency: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettleBody {
    pub(crate) status: DecisionName,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DecisionName {
    Approved,
    Declined,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutageBody {
    pub(crate) seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhooksBody {
    pub(crate) enabled: bool,
}

#[derive(Serialize)]
pub(crate) struct PaymentAnswer {
    id: String,
    status: &'static str,
    amount: u64,
    currency: String,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refunds: Option<Vec<PaymentRefund>>,
}

#[derive(Serialize)]
struct PaymentRefund {
    id: String,
    amount: u64,
    currency: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RefundAnswer {
    id: String,
    payment_id: String,
    status: &'static str,
    amount: u64,
    currency: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventAnswer {
    pub(crate) event_id: String,
}

#[derive(Serialize)]
pub(crate) struct CountersAnswer {
    status: &'static str,
    charges: u64,
    queries: u64,
    refunds: usize,
}

#[derive(Serialize)]
pub(crate) struct TotalsAnswer {
    charges: u64,
    captured: u128,
    refunded: u128,
}

// === extracting ===

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(name) = Path::<T>::from_request_parts(parts, state).await?;
        Ok(Named(name))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await?;
        serde_json::from_slice(&bytes).map(Body).map_err(|error| ApiError::invalid(error.to_string()))
    }
}

// === in ===

impl TryFrom<ChargeBody> for Charge {
    type Error = ApiError;

    fn try_from(body: ChargeBody) -> Result<Self, ApiError> {
        Ok(Charge { amount: body.amount, currency: currency(body.currency)?, method: body.method.parse()? })
    }
}

impl TryFrom<RefundBody> for Refund {
    type Error = ApiError;

    fn try_from(body: RefundBody) -> Result<Self, ApiError> {
        Ok(Refund { amount: body.amount, currency: currency(body.currency)? })
    }
}

impl From<DecisionName> for Decision {
    fn from(name: DecisionName) -> Self {
        match name {
            DecisionName::Approved => Decision::Approved,
            DecisionName::Declined => Decision::Declined,
        }
    }
}

// === out ===

impl PaymentAnswer {
    /// The answer to a payment: what was asked, and where it stands.
    pub(crate) fn to_payment(id: String, receipt: Receipt) -> Self {
        PaymentAnswer {
            id,
            status: status_name(receipt.status),
            amount: receipt.charge.amount,
            currency: receipt.charge.currency,
            method: receipt.charge.method.to_string(),
            refunds: None,
        }
    }

    /// The answer to a question: the same, and what went back of it.
    pub(crate) fn to_query(id: String, mut receipt: Receipt) -> Self {
        let refunds = std::mem::take(&mut receipt.refunds)
            .into_iter()
            .map(|(id, Refund { amount, currency })| PaymentRefund { id, amount, currency })
            .collect();
        PaymentAnswer { refunds: Some(refunds), ..PaymentAnswer::to_payment(id, receipt) }
    }
}

impl RefundAnswer {
    pub(crate) fn new(payment_id: String, id: String, refund: Refund) -> Self {
        RefundAnswer { id, payment_id, status: "refunded", amount: refund.amount, currency: refund.currency }
    }
}

impl From<Counters> for CountersAnswer {
    fn from(counters: Counters) -> Self {
        CountersAnswer {
            status: counters.status.map_or("none", status_name),
            charges: counters.charges,
            queries: counters.queries,
            refunds: counters.refunds,
        }
    }
}

impl From<Totals> for TotalsAnswer {
    fn from(totals: Totals) -> Self {
        TotalsAnswer { charges: totals.charges, captured: totals.captured, refunded: totals.refunded }
    }
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Decided(Decision::Approved) => "approved",
        Status::Decided(Decision::Declined) => "declined",
    }
}

fn currency(code: String) -> Result<String, ApiError> {
    if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase()) {
        Ok(code)
    } else {
        Err(ApiError::invalid("currency is an ISO 4217 code: three capital letters"))
    }
}
