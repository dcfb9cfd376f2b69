//! The orders service, as the gateway calls it.
//!
//! One multiplexed connection, made when it is needed. Every call has a deadline, carries the trace and the service token,
//! and comes back as an answer or as a [`CallError`] that says whether anything can have happened.

mod gate;

use chassis::{
    deadline::Deadline,
    flags::{Endpoint, Secret},
    trace::{GrpcClientLayer, GrpcClientService},
};
use gate::{Gate, Gated};
use idem_core::{FencingToken, OperationId};
use idem_proto::orders::v1::{self as proto, orders_service_client::OrdersServiceClient};
use std::{future::Future, time::Duration};
use tonic::{
    Code, Request, Response, Status,
    metadata::{AsciiMetadataValue, MetadataValue},
    transport::Channel,
};
use tonic_types::StatusExt as _;
use tower::Layer as _;

/// A connection that does not come to be in this time will not: nothing was sent, so the caller may simply try again.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A peer that is gone without a word is noticed after the sum of these.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// A large order of 2500 seats is a few hundred KiB.
const WINDOW: u32 = 1024 * 1024;

/// How much earlier than the caller the orders service gives up, so that its answer still arrives.
const MARGIN_MAX: Duration = Duration::from_millis(200);

type Client = OrdersServiceClient<GrpcClientService<Gated<Channel>>>;

/// The client: cheap to clone, every clone uses the same connection.
#[derive(Clone)]
pub(crate) struct Orders {
    client: Client,
    authorization: Option<AsciiMetadataValue>,
    timeout: Duration,
}

/// A call that brought no answer, by what can have happened.
#[derive(Debug, thiserror::Error)]
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

// === impl Orders ===

impl Orders {
    /// Does not connect yet. `timeout` is for calls that bring no deadline of their own.
    pub(crate) fn new(
        endpoint: &Endpoint,
        token: Option<&Secret>,
        timeout: Duration,
    ) -> Result<Self, ServiceTokenError> {
        let channel = tonic::transport::Endpoint::from(endpoint.uri())
            .connect_timeout(CONNECT_LIMIT.min(timeout))
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .connect_lazy();
        let client = OrdersServiceClient::new(GrpcClientLayer.layer(Gated::new(channel)));
        let client = client.max_decoding_message_size(chassis::serve::MESSAGE_MAX);
        Ok(Self { client, authorization: token.map(authorization).transpose()?, timeout })
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
        self.call(message, self.deadline(), async |mut c, r| c.put_ticket_type(r).await).await
    }

    pub(crate) async fn get_ticket_type(&self, id: String) -> Result<proto::GetTicketTypeResponse, CallError> {
        let message = proto::GetTicketTypeRequest { id };
        self.call(message, self.deadline(), async |mut c, r| c.get_ticket_type(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn get_order(&self, tenant: &str, id: String) -> Result<proto::GetOrderResponse, CallError> {
        let message = proto::GetOrderRequest { tenant: tenant.to_owned(), id };
        self.call(message, self.deadline(), async |mut c, r| c.get_order(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn get_payment(&self, tenant: &str, id: String) -> Result<proto::GetPaymentResponse, CallError> {
        let message = proto::GetPaymentRequest { tenant: tenant.to_owned(), id };
        self.call(message, self.deadline(), async |mut c, r| c.get_payment(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn create_payment_link(
        &self,
        tenant: &str,
        order_id: String,
    ) -> Result<proto::CreatePaymentLinkResponse, CallError> {
        let message = proto::CreatePaymentLinkRequest { tenant: tenant.to_owned(), order_id };
        self.call(message, self.deadline(), async |mut c, r| c.create_payment_link(r).await)
            .await
            .map_err(CallError::without_effect)
    }

    pub(crate) async fn handle_webhook(
        &self,
        message: proto::HandleWebhookRequest,
    ) -> Result<proto::HandleWebhookResponse, CallError> {
        self.call(message, self.deadline(), async |mut c, r| c.handle_webhook(r).await).await
    }

    pub(crate) async fn place_order(
        &self,
        message: proto::PlaceOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.call(message, deadline, async |mut c, r| c.place_order(r).await).await?.answer)
    }

    pub(crate) async fn pay(
        &self,
        message: proto::PayRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.call(message, deadline, async |mut c, r| c.pay(r).await).await?.answer)
    }

    pub(crate) async fn confirm_order(
        &self,
        message: proto::ConfirmOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.call(message, deadline, async |mut c, r| c.confirm_order(r).await).await?.answer)
    }

    pub(crate) async fn cancel_order(
        &self,
        message: proto::CancelOrderRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.call(message, deadline, async |mut c, r| c.cancel_order(r).await).await?.answer)
    }

    pub(crate) async fn check_in_ticket(
        &self,
        message: proto::CheckInTicketRequest,
        deadline: Deadline,
    ) -> Result<Option<proto::Answer>, CallError> {
        Ok(self.call(message, deadline, async |mut c, r| c.check_in_ticket(r).await).await?.answer)
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
        self.call(message, deadline, async |mut c, r| c.lookup(r).await).await
    }

    /// Gives up a payment that is unknown everywhere.
    pub(crate) async fn close(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        deadline: Deadline,
    ) -> Result<proto::CloseResponse, CallError> {
        let message = proto::CloseRequest { operation_id: operation_id.to_string(), fencing_token: token.0 };
        self.call(message, deadline, async |mut c, r| c.close(r).await).await
    }

    /// One call from its first step to its answer, or to the word on what can have happened.
    async fn call<M, A, F>(
        &self,
        message: M,
        deadline: Deadline,
        send: impl FnOnce(Client, Request<M>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let gate = Gate::default();
        let mut request = Request::new(message);
        request.extensions_mut().insert(gate.clone());
        let remaining = deadline.remaining();
        request.set_timeout(remaining - MARGIN_MAX.min(remaining / 10));
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        // The channel judges the deadline only once it is connected; a call must not wait longer for that either.
        let answered = tokio::time::timeout_at(deadline.instant(), send(self.client.clone(), request)).await;
        let status = match answered {
            Ok(Ok(answer)) => return Ok(answer.into_inner()),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no answer in time"),
        };
        if gate.stop() { Err(CallError::NothingHappened(status)) } else { Err(CallError::from_answer(status)) }
    }
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
