//! The gRPC service: checks, grants, and then the work in a task of its own, so that a caller who goes away changes nothing.

mod many;

use std::future::Future;

use chassis::{deadline::Deadline, service_auth::Caller, tasks::Tasks, trace};
use idem_proto::orders::v1::{self as proto, orders_service_server::OrdersService};
use tonic::{Request, Response, Status};

use crate::{
    catalogue::Put,
    entry::Call,
    error::OrdersError,
    operation_id::{Grant, OrderId, PaymentId, Tenant},
    outcome::Kind,
    request::{self, Violation},
    resolve::{Closing, Found},
    shop::{Shop, within},
    signature::Rejection,
    status,
    webhook::Delivery,
    wire,
};

/// The service as tonic serves it.
#[derive(Clone)]
pub struct Rpc {
    shop: Shop,
    tasks: Tasks,
}

impl Rpc {
    /// Serves `shop`; the work of every call runs in `tasks`, which outlive the call.
    pub fn new(shop: Shop, tasks: Tasks) -> Self {
        Self { shop, tasks }
    }

    /// Runs work that must come to its end even when the caller goes away.
    fn detached<T, W>(&self, name: &'static str, work: W) -> impl Future<Output = Result<T, Status>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, OrdersError>> + Send + 'static,
    {
        // Spawned before anybody awaits: who waits for it does not carry it too.
        let done = self.tasks.spawn(name, work);
        async {
            let done = done.await.map_err(|_| status::from_panic())?;
            done.map_err(|error| status::from_error(&error))
        }
    }

    /// Runs work that is one transaction. Past the caller's deadline it is rolled back, unless its commit is on the way already:
    /// nobody waits for it, and a row that somebody holds for long must not let it through minutes later.
    fn transacted<T, W>(
        &self,
        name: &'static str,
        deadline: Option<Deadline>,
        work: W,
    ) -> impl Future<Output = Result<T, Status>> + use<T, W>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, OrdersError>> + Send + 'static,
    {
        self.detached(name, within(deadline, work))
    }

    /// Refuses a caller whose grant does not cover the tenant of the operation, once that is known.
    async fn may_resolve(&self, caller: &Caller, grant: Grant) -> Result<(), Status> {
        note(grant);
        if caller.is_anonymous() {
            return Ok(());
        }
        match self.shop.tenant_of(grant.operation).await.map_err(|error| status::from_error(&error))? {
            Some(tenant) => may_act_for(caller, &tenant),
            None => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl OrdersService for Rpc {
    async fn put_ticket_type(
        &self,
        request: Request<proto::PutTicketTypeRequest>,
    ) -> Result<Response<proto::PutTicketTypeResponse>, Status> {
        use proto::put_ticket_type_response::Outcome;
        let deadline = Deadline::of(&request);
        let offer = checked(request::put_ticket_type(request.into_inner()))?;
        let shop = self.shop.clone();
        let put =
            self.transacted("put ticket type", deadline, async move { shop.put_ticket_type(offer).await }).await?;
        let outcome = match put {
            Put::Created(created) => Outcome::Created(wire::ticket_type(&created)),
            Put::Updated(updated) => Outcome::Updated(wire::ticket_type(&updated)),
            Put::Refused(refusal) => Outcome::Refused(wire::refusal(&refusal)),
        };
        Ok(Response::new(proto::PutTicketTypeResponse { outcome: Some(outcome) }))
    }

    async fn get_ticket_type(
        &self,
        request: Request<proto::GetTicketTypeRequest>,
    ) -> Result<Response<proto::GetTicketTypeResponse>, Status> {
        let found = match request::ticket_type(request.into_inner().id) {
            Some(id) => self.shop.ticket_type(id).await,
            None => Err(OrdersError::NotFound("ticket type")),
        };
        let found = found.map_err(|error| status::from_error(&error))?;
        Ok(Response::new(proto::GetTicketTypeResponse { ticket_type: Some(wire::ticket_type(&found)) }))
    }

    async fn place_order(
        &self,
        request: Request<proto::PlaceOrderRequest>,
    ) -> Result<Response<proto::PlaceOrderResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let ask = checked(request::place_order(request))?;
        may_call(&caller, &ask.call)?;
        let shop = self.shop.clone();
        let answer = self.detached("place order", async move { shop.place_order(ask, deadline).await }).await?;
        Ok(Response::new(proto::PlaceOrderResponse { answer: Some(wire::answer(Kind::PlaceOrder, &answer)) }))
    }

    async fn place_orders(
        &self,
        request: Request<proto::PlaceOrdersRequest>,
    ) -> Result<Response<proto::PlaceOrdersResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let items = checked(request::place_orders(request))?;
        let outcomes = many::place(&self.shop, &self.tasks, &caller, deadline, items).await;
        Ok(Response::new(proto::PlaceOrdersResponse { outcomes }))
    }

    async fn get_order(
        &self,
        request: Request<proto::GetOrderRequest>,
    ) -> Result<Response<proto::GetOrderResponse>, Status> {
        let (caller, _, request) = opened(request);
        let tenant = tenant(&caller, &request.tenant)?;
        let order = match OrderId::parse(&request.id) {
            Some(id) => self.shop.order(tenant, id).await,
            None => Err(OrdersError::NotFound("order")),
        };
        Ok(Response::new(proto::GetOrderResponse { order: Some(wire::order(&found(order)?)) }))
    }

    async fn pay(&self, request: Request<proto::PayRequest>) -> Result<Response<proto::PayResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let ask = checked(request::pay(request))?;
        may_call(&caller, &ask.call)?;
        let shop = self.shop.clone();
        let answer = self.detached("pay", async move { shop.pay(ask, deadline).await }).await?;
        Ok(Response::new(proto::PayResponse { answer: Some(wire::answer(Kind::Pay, &answer)) }))
    }

    async fn get_payment(
        &self,
        request: Request<proto::GetPaymentRequest>,
    ) -> Result<Response<proto::GetPaymentResponse>, Status> {
        let (caller, _, request) = opened(request);
        let tenant = tenant(&caller, &request.tenant)?;
        let payment = match PaymentId::parse(&request.id) {
            Some(id) => self.shop.payment(tenant, id).await,
            None => Err(OrdersError::NotFound("payment")),
        };
        Ok(Response::new(proto::GetPaymentResponse { payment: Some(wire::payment(&found(payment)?)) }))
    }

    async fn confirm_order(
        &self,
        request: Request<proto::ConfirmOrderRequest>,
    ) -> Result<Response<proto::ConfirmOrderResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let ask = checked(request::confirm_order(request))?;
        may_call(&caller, &ask.call)?;
        let shop = self.shop.clone();
        let answer = self.transacted("confirm order", deadline, async move { shop.confirm_order(ask).await }).await?;
        Ok(Response::new(proto::ConfirmOrderResponse { answer: Some(wire::answer(Kind::ConfirmOrder, &answer)) }))
    }

    async fn cancel_order(
        &self,
        request: Request<proto::CancelOrderRequest>,
    ) -> Result<Response<proto::CancelOrderResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let ask = checked(request::cancel_order(request))?;
        may_call(&caller, &ask.call)?;
        let shop = self.shop.clone();
        let answer = self.transacted("cancel order", deadline, async move { shop.cancel_order(ask).await }).await?;
        Ok(Response::new(proto::CancelOrderResponse { answer: Some(wire::answer(Kind::CancelOrder, &answer)) }))
    }

    async fn check_in_ticket(
        &self,
        request: Request<proto::CheckInTicketRequest>,
    ) -> Result<Response<proto::CheckInTicketResponse>, Status> {
        let (caller, deadline, request) = opened(request);
        let ask = checked(request::check_in(request))?;
        may_call(&caller, &ask.call)?;
        let shop = self.shop.clone();
        let answer = self.transacted("check in ticket", deadline, async move { shop.check_in(ask).await }).await?;
        Ok(Response::new(proto::CheckInTicketResponse { answer: Some(wire::answer(Kind::CheckInTicket, &answer)) }))
    }

    async fn create_payment_link(
        &self,
        request: Request<proto::CreatePaymentLinkRequest>,
    ) -> Result<Response<proto::CreatePaymentLinkResponse>, Status> {
        use proto::create_payment_link_response::Outcome;
        let (caller, _, request) = opened(request);
        let tenant = tenant(&caller, &request.tenant)?;
        let outcome = match found(self.shop.payment_link(tenant, OrderId::parse(&request.order_id)).await)? {
            Ok(link) => {
                let expires_at = Some(wire::timestamp(link.expires_at));
                Outcome::Link(proto::PaymentLink { url: link.url, expires_at })
            }
            Err(refusal) => Outcome::Refused(wire::refusal(&refusal)),
        };
        Ok(Response::new(proto::CreatePaymentLinkResponse { outcome: Some(outcome) }))
    }

    async fn handle_webhook(
        &self,
        request: Request<proto::HandleWebhookRequest>,
    ) -> Result<Response<proto::HandleWebhookResponse>, Status> {
        use proto::handle_webhook_response::Outcome;
        let deadline = Deadline::of(&request);
        let proto::HandleWebhookRequest { body, signature } = request.into_inner();
        let shop = self.shop.clone();
        let received = async move { shop.receive(body, &signature, deadline).await };
        let delivery = self.transacted("handle webhook", deadline, received).await?;
        let outcome = match delivery {
            Delivery::Accepted { is_duplicate } => {
                Outcome::Accepted(proto::WebhookAccepted { duplicate: is_duplicate })
            }
            Delivery::Rejected(rejection) => Outcome::Rejected(proto::WebhookRejected { reason: reason(rejection) }),
        };
        Ok(Response::new(proto::HandleWebhookResponse { outcome: Some(outcome) }))
    }

    async fn lookup(&self, request: Request<proto::LookupRequest>) -> Result<Response<proto::LookupResponse>, Status> {
        use proto::lookup_response::Outcome;
        let (caller, deadline, request) = opened(request);
        let grant = checked(request::grant(&request.operation_id, request.fencing_token))?;
        self.may_resolve(&caller, grant).await?;
        let shop = self.shop.clone();
        let is_background = request.background;
        let found = self.detached("lookup", async move { shop.lookup(grant, is_background, deadline).await }).await?;
        let outcome = match found {
            Found::Settled { kind, outcome, label } => Outcome::Settled(proto::Settled {
                result: Some(wire::result(kind, &outcome)),
                label: wire::label(label).into(),
            }),
            Found::Pending => Outcome::Pending(proto::Pending {}),
            Found::Unknown => Outcome::Unknown(proto::Unknown {}),
        };
        Ok(Response::new(proto::LookupResponse { outcome: Some(outcome) }))
    }

    async fn close(&self, request: Request<proto::CloseRequest>) -> Result<Response<proto::CloseResponse>, Status> {
        use proto::close_response::Outcome;
        let (caller, deadline, request) = opened(request);
        let grant = checked(request::grant(&request.operation_id, request.fencing_token))?;
        self.may_resolve(&caller, grant).await?;
        let shop = self.shop.clone();
        let closing = self.detached("close", async move { shop.close(grant, deadline).await }).await?;
        let outcome = match closing {
            Closing::Closed => Outcome::Closed(proto::Closed {}),
            Closing::Pending => Outcome::Pending(proto::Pending {}),
            Closing::Settled(kind, outcome) => Outcome::Settled(proto::Settled {
                result: Some(wire::result(kind, &outcome)),
                label: proto::Label::Final.into(),
            }),
        };
        Ok(Response::new(proto::CloseResponse { outcome: Some(outcome) }))
    }
}

/// What a handler needs of a request beside its message.
fn opened<T>(request: Request<T>) -> (Caller, Option<Deadline>, T) {
    (Caller::from_request(&request), Deadline::of(&request), request.into_inner())
}

fn checked<T>(checked: Result<T, Violation>) -> Result<T, Status> {
    checked.map_err(|violation| status::from_violation(&violation))
}

fn found<T>(found: Result<T, OrdersError>) -> Result<T, Status> {
    found.map_err(|error| status::from_error(&error))
}

/// Refuses a caller whose grant does not cover the tenant of a call, and notes for the trace which operation it is about.
fn may_call(caller: &Caller, call: &Call) -> Result<(), Status> {
    call.grant.into_iter().for_each(note);
    may_act_for(caller, call.tenant.as_str())
}

fn note(grant: Grant) {
    trace::note("idem.operation_id", &grant.operation);
    trace::note("idem.fencing_token", &grant.token.get());
}

fn may_act_for(caller: &Caller, tenant: &str) -> Result<(), Status> {
    if caller.may_use_scope(&format!("rest/{tenant}")) {
        return Ok(());
    }
    tracing::info!(caller = caller.service(), tenant, "caller has no grant for this tenant");
    Err(status::from_error(&OrdersError::ScopeNotGranted))
}

fn tenant(caller: &Caller, name: &str) -> Result<Tenant, Status> {
    let tenant = checked(request::tenant(name))?;
    may_act_for(caller, tenant.as_str()).map(|()| tenant)
}

fn reason(rejection: Rejection) -> i32 {
    let reason = match rejection {
        Rejection::Malformed => proto::WebhookRejection::Malformed,
        Rejection::BadSignature => proto::WebhookRejection::BadSignature,
        Rejection::TooOld => proto::WebhookRejection::TooOld,
    };
    reason.into()
}
