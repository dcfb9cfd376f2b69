//! The orders service, as the gateway calls it.
//!
//! One multiplexed connection to each replica, made when it is needed. Every call has a deadline, carries the trace and the service token,
//! and comes back as an answer or as a [`CallError`] that says whether anything can have happened.

mod gate;
mod placing;
#[cfg(test)]
mod tests;
mod wire;

use chassis::{
    deadline::Deadline,
    flags::{Endpoint, Secret},
    trace::GrpcClientLayer,
};
use dial::{Channel, ClientTls, EndpointError, Settings};
use gate::{Gate, Gated};
use idem_core::{FencingToken, OperationId};
use idem_proto::orders::v1::{self as proto, orders_service_client::OrdersServiceClient};
use placing::Placing;
use std::time::Duration;
use tonic::{
    Code, Status,
    metadata::{AsciiMetadataValue, MetadataValue},
};
use tonic_types::StatusExt as _;
use tower::Layer as _;
use wire::Wire;

/// A connection that does not come to be in this time will not: nothing was sent, so the caller may simply try again.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A peer that is gone without a word is noticed after the sum of these.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// A large order of 2500 seats is a few hundred KiB.
const WINDOW: u32 = 1024 * 1024;

/// How much earlier than the caller the orders service gives up, so that its answer still arrives.
const MARGIN_MAX: Duration = Duration::from_millis(200);

/// The client: cheap to clone, every clone uses the same connection.
#[derive(Clone)]
pub(crate) struct Orders {
    wire: Wire,
    placing: Placing,
    timeout: Duration,
}

/// A call that brought no answer, by what can have happened.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The call never left this process, or was refused before it did anything.
    #[error("the orders service did nothing: {}", .0.message())]
    NothingHappened(#[source] Status),
    /// There is nothing under this id.
    #[error("the orders service knows nothing under this id")]
    NotFound,
    /// The orders service takes the request for nonsense; nothing happened.
    #[error("the orders service refused the request: {0}")]
    Invalid(String),
    /// A later holder of the key has taken over; nothing happened under this token.
    #[error("a later holder has taken over")]
    Fenced,
    /// It was sent, and may or may not have been done.
    #[error("the outcome is not known: {}: {}", .0.code(), .0.message())]
    Unknown(#[source] Status),
}

/// The token is not something that a header can carry.
#[derive(Debug, thiserror::Error)]
#[error("--service-token must be printable ASCII")]
pub struct ServiceTokenError;

/// The orders service cannot be called like this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrdersError {
    #[error(transparent)]
    Token(#[from] ServiceTokenError),
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

// === impl Orders ===

impl Orders {
    /// Does not connect yet. `timeout` is for calls that bring no deadline of their own.
    pub(crate) fn new(
        endpoint: &Endpoint,
        token: Option<&Secret>,
        tls: Option<ClientTls>,
        timeout: Duration,
    ) -> Result<Self, OrdersError> {
        let settings = Settings {
            tls,
            connect_timeout: CONNECT_LIMIT.min(timeout),
            ping: (PING_EVERY, PING_LIMIT),
            windows: (WINDOW, 4 * WINDOW),
            ..Settings::default()
        };
        let channel = Channel::new(&endpoint.to_string(), settings)?;
        let client = OrdersServiceClient::new(GrpcClientLayer.layer(Gated::new(channel)));
        let client = client.max_decoding_message_size(chassis::serve::MESSAGE_MAX);
        let authorization = token.map(authorization).transpose().map_err(|_| OrdersError::Token(ServiceTokenError))?;
        let wire = Wire { client, authorization };
        Ok(Self { placing: Placing::new(wire.clone()), wire, timeout })
    }

    /// When a call that starts now and brings no deadline must be done.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    pub(crate) async fn put_ticket_type(
        &self,
        ticket_type: proto::TicketType,
    ) -> Result<proto::PutTicketTypeResponse, CallError> {
        let message = proto::PutTicketTypeRequest { ticket_type: Some(ticket_type) };
        self.wire.call(message, self.deadline(), async |mut c, r| c.put_ticket_type(r).await).await
    }

    pub(crate) async fn get_ticket_type(&self, id: String) -> Result<proto::GetTicketTypeResponse, CallError> {
        let message = proto::GetTicketTypeRequest { id };
        self.wire
            .call(message, self.deadline(), async |mut c, r| c.get_ticket_type(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn get_order(&self, tenant: &str, id: String) -> Result<proto::GetOrderResponse, CallError> {
        let message = proto::GetOrderRequest { tenant: tenant.to_owned(), id };
        self.wire
            .call(message, self.deadline(), async |mut c, r| c.get_order(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn get_payment(&self, tenant: &str, id: String) -> Result<proto::GetPaymentResponse, CallError> {
        let message = proto::GetPaymentRequest { tenant: tenant.to_owned(), id };
        self.wire
            .call(message, self.deadline(), async |mut c, r| c.get_payment(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn create_payment_link(
        &self,
        tenant: &str,
        order_id: String,
    ) -> Result<proto::CreatePaymentLinkResponse, CallError> {
        let message = proto::CreatePaymentLinkRequest { tenant: tenant.to_owned(), order_id };
        self.wire
            .call(message, self.deadline(), async |mut c, r| c.create_payment_link(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn handle_webhook(
        &self,
        message: proto::HandleWebhookRequest,
    ) -> Result<proto::HandleWebhookResponse, CallError> {
        self.wire.call(message, self.deadline(), async |mut c, r| c.handle_webhook(r).await).await
    }

    pub(crate) async fn place_order(
        &self,
        message: proto::PlaceOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        self.placing.place(message, deadline).await
    }

    pub(crate) async fn pay(
        &self,
        message: proto::PayRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.wire.call(message, deadline, async |mut c, r| c.pay(r).await).await?.answer)
    }

    pub(crate) async fn confirm_order(
        &self,
        message: proto::ConfirmOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.wire.call(message, deadline, async |mut c, r| c.confirm_order(r).await).await?.answer)
    }

    pub(crate) async fn cancel_order(
        &self,
        message: proto::CancelOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.wire.call(message, deadline, async |mut c, r| c.cancel_order(r).await).await?.answer)
    }

    pub(crate) async fn check_in_ticket(
        &self,
        message: proto::CheckInTicketRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.wire.call(message, deadline, async |mut c, r| c.check_in_ticket(r).await).await?.answer)
    }

    /// What happened to this operation? `background` when no client waits for the answer.
    pub(crate) async fn lookup(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        background: bool,
        deadline: Deadline,
    ) -> Result<proto::LookupResponse, CallError> {
        let message =
            proto::LookupRequest { operation_id: operation_id.to_string(), fencing_token: token.0, background };
        self.wire.call(message, deadline, async |mut c, r| c.lookup(r).await).await
    }

    /// Gives up a payment that is unknown everywhere.
    pub(crate) async fn close(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        deadline: Deadline,
    ) -> Result<proto::CloseResponse, CallError> {
        let message = proto::CloseRequest { operation_id: operation_id.to_string(), fencing_token: token.0 };
        self.wire.call(message, deadline, async |mut c, r| c.close(r).await).await
    }
}

/// What a caller who has no answer is told: whatever has not left by now never will.
fn unanswered(gate: &Gate, status: Status) -> CallError {
    if gate.stop() { CallError::NothingHappened(status) } else { CallError::from_answer(status) }
}

/// What the orders service is told of the time that is left: less, so that its answer still arrives.
fn with_margin(remaining: Duration) -> Duration {
    remaining - MARGIN_MAX.min(remaining / 10)
}

fn authorization(token: &Secret) -> Result<AsciiMetadataValue, ServiceTokenError> {
    let mut value = MetadataValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| ServiceTokenError)?;
    value.set_sensitive(true);
    Ok(value)
}

// === impl CallError ===

impl CallError {
    /// Of a call that only reads, nothing can have happened.
    fn without_effect(self) -> Self {
        match self {
            Self::Unknown(status) => Self::NothingHappened(status),
            other => other,
        }
    }

    /// Judges a status that came after the message was sent.
    fn from_answer(status: Status) -> Self {
        match status.code() {
            Code::NotFound => Self::NotFound,
            Code::InvalidArgument => Self::Invalid(violation(&status)),
            Code::FailedPrecondition if has_reason(&status, proto::ErrorReason::StaleFencingToken) => Self::Fenced,
            // Judged before the call reaches its handler.
            Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => Self::NothingHappened(status),
            _ => Self::Unknown(status),
        }
    }
}

fn has_reason(status: &Status, reason: proto::ErrorReason) -> bool {
    let name = reason.as_str_name().trim_start_matches("ERROR_REASON_");
    status.get_details_error_info().is_some_and(|info| info.reason == name)
}

/// The first thing that is wrong, as a sentence.
fn violation(status: &Status) -> String {
    let details = status.get_details_bad_request();
    match details.as_ref().and_then(|details| details.field_violations.first()) {
        Some(violation) if !violation.field.is_empty() => format!("`{}`: {}", violation.field, violation.description),
        Some(violation) => violation.description.clone(),
        None => status.message().to_owned(),
    }
}
