//! An orders service that says what a test tells it to.

use idem_proto::orders::v1::{
    self as proto,
    orders_service_server::{OrdersService, OrdersServiceServer},
};
use std::{
    any::Any,
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};
use tonic::{Request, Response, Status, metadata::MetadataMap};

type Message = Box<dyn Any + Send>;
type Handler = Arc<dyn Fn(Message) -> Pin<Box<dyn Future<Output = Result<Message, Status>> + Send>> + Send + Sync>;

/// The service, and what it was asked. Cheap to clone.
#[derive(Clone, Default)]
pub struct FakeOrders {
    handlers: Arc<Mutex<HashMap<&'static str, Handler>>>,
    calls: Arc<Mutex<Vec<(&'static str, MetadataMap)>>>,
}

impl FakeOrders {
    /// How calls of `rpc` are answered from now on.
    pub fn on<Q, A, F>(&self, rpc: &'static str, answer: impl Fn(Q) -> F + Send + Sync + 'static)
    where
        Q: Send + 'static,
        A: Send + 'static,
        F: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |message| {
            let answer = answer(*message.downcast::<Q>().expect("the request of this rpc"));
            Box::pin(async move { answer.await.map(|answer| Box::new(answer) as Message) })
        });
        self.handlers.lock().unwrap().insert(rpc, handler);
    }

    /// How calls of `rpc` are answered from now on, whatever they ask.
    pub fn always<Q, A>(&self, rpc: &'static str, answer: Result<A, Status>)
    where
        Q: Send + 'static,
        A: Clone + Send + Sync + 'static,
    {
        self.on(rpc, move |_: Q| {
            let answer = answer.clone();
            async move { answer }
        });
    }

    /// The names of the calls so far.
    pub fn calls(&self) -> Vec<&'static str> {
        self.calls.lock().unwrap().iter().map(|(rpc, _)| *rpc).collect()
    }

    /// What the latest call carried beside its message.
    pub fn metadata(&self) -> MetadataMap {
        self.calls.lock().unwrap().last().expect("a call").1.clone()
    }

    pub fn server(&self) -> OrdersServiceServer<Self> {
        OrdersServiceServer::new(self.clone())
    }

    /// Unless a test says otherwise: each as if it had come alone.
    async fn place_each(&self, request: Request<proto::PlaceOrdersRequest>) -> proto::PlaceOrdersResponse {
        use proto::place_orders_outcome::Outcome;
        let (metadata, _, request) = request.into_parts();
        let placed = request.items.into_iter().map(|item| {
            let alone = Request::from_parts(metadata.clone(), Default::default(), item.order.unwrap());
            self.answer::<_, proto::PlaceOrderResponse>("place_order", alone)
        });
        let outcomes = futures::future::join_all(placed).await.into_iter().map(|placed| {
            let outcome = match placed {
                Ok(response) => Outcome::Response(response.into_inner()),
                Err(status) => Outcome::Failure(proto::Failure {
                    code: status.code().into(),
                    message: status.message().to_owned(),
                    details: status.details().to_vec().into(),
                    ..Default::default()
                }),
            };
            proto::PlaceOrdersOutcome { outcome: Some(outcome) }
        });
        proto::PlaceOrdersResponse { outcomes: outcomes.collect() }
    }

    async fn answer<Q: Send + 'static, A: Send + 'static>(
        &self,
        rpc: &'static str,
        request: Request<Q>,
    ) -> Result<Response<A>, Status> {
        self.calls.lock().unwrap().push((rpc, request.metadata().clone()));
        let handler = self.handlers.lock().unwrap().get(rpc).cloned();
        let handler = handler.ok_or_else(|| Status::internal(format!("the test says nothing about {rpc}")))?;
        let answer = handler(Box::new(request.into_inner())).await?;
        Ok(Response::new(*answer.downcast::<A>().expect("the answer of this rpc")))
    }
}

macro_rules! answers {
    ($($rpc:ident: $request:ident => $response:ident;)+) => {
        #[tonic::async_trait]
        impl OrdersService for FakeOrders {
            $(async fn $rpc(&self, request: Request<proto::$request>) -> Result<Response<proto::$response>, Status> {
                self.answer(stringify!($rpc), request).await
            })+

            async fn place_orders(
                &self,
                request: Request<proto::PlaceOrdersRequest>,
            ) -> Result<Response<proto::PlaceOrdersResponse>, Status> {
                if self.handlers.lock().unwrap().contains_key("place_orders") {
                    return self.answer("place_orders", request).await;
                }
                Ok(Response::new(self.place_each(request).await))
            }
        }
    };
}

answers! {
    put_ticket_type: PutTicketTypeRequest => PutTicketTypeResponse;
    get_ticket_type: GetTicketTypeRequest => GetTicketTypeResponse;
    place_order: PlaceOrderRequest => PlaceOrderResponse;
    get_order: GetOrderRequest => GetOrderResponse;
    pay: PayRequest => PayResponse;
    get_payment: GetPaymentRequest => GetPaymentResponse;
    confirm_order: ConfirmOrderRequest => ConfirmOrderResponse;
    cancel_order: CancelOrderRequest => CancelOrderResponse;
    check_in_ticket: CheckInTicketRequest => CheckInTicketResponse;
    create_payment_link: CreatePaymentLinkRequest => CreatePaymentLinkResponse;
    handle_webhook: HandleWebhookRequest => HandleWebhookResponse;
    lookup: LookupRequest => LookupResponse;
    close: CloseRequest => CloseResponse;
}
