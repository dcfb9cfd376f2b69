//! A gateway that dies half-way: it reserves as the real one does, goes as far as the test says, and is never heard of again.

use std::time::Duration;

use idem_core::Fingerprint;
use idem_proto::{
    idem::v1::{
        CompleteRequest, CompleteResponse, ReleaseRequest, ReleaseResponse, ReserveRequest, StoredResponse,
        idempotency_service_client::IdempotencyServiceClient, release_response, reserve_response,
    },
    orders::v1::{
        Answer, Operation, PayRequest, PlaceOrderItem, PlaceOrderRequest, orders_service_client::OrdersServiceClient,
    },
};
use serde_json::Value;
use tonic::{Code, transport::Channel};

use crate::World;

/// Holds a key as the gateway would, for tenant `demo-a`.
pub struct Holder {
    idem: IdempotencyServiceClient<Channel>,
    orders: OrdersServiceClient<Channel>,
    key: String,
    /// From the grant.
    pub operation_id: String,
    /// From the grant.
    pub fencing_token: i64,
}

const SCOPE: &str = "rest/demo-a";

impl Holder {
    /// Reserves `key` for `POST path` with `body`.
    pub async fn reserve(world: &World, key: &str, path: &str, body: &Value) -> Self {
        let addresses = world.addresses();
        let mut idem = IdempotencyServiceClient::connect(format!("http://{}", addresses.idem)).await.unwrap();
        let orders = OrdersServiceClient::connect(format!("http://{}", addresses.orders)).await.unwrap();
        let fingerprint = Fingerprint::of_request("POST", path, "", body.to_string().as_bytes()).unwrap();
        let request = ReserveRequest {
            scope: SCOPE.into(),
            key: key.into(),
            fingerprint: fingerprint.as_bytes().to_vec().into(),
            attempt_id: uuid::Uuid::new_v4().to_string(),
            lease: Some(proto_duration(world.settings().lease)),
            retention: Some(proto_duration(world.settings().retention)),
            ..ReserveRequest::default()
        };
        match idem.reserve(request).await.unwrap().into_inner().outcome {
            Some(reserve_response::Outcome::Granted(granted)) => Self {
                idem,
                orders,
                key: key.into(),
                operation_id: granted.operation_id,
                fencing_token: granted.fencing_token,
            },
            other => panic!("Reserve answered {other:?}"),
        }
    }

    /// The same holder, calling the services of another world on the same stores.
    pub async fn of(self, world: &World) -> Self {
        let addresses = world.addresses();
        let idem = IdempotencyServiceClient::connect(format!("http://{}", addresses.idem)).await.unwrap();
        let orders = OrdersServiceClient::connect(format!("http://{}", addresses.orders)).await.unwrap();
        Self { idem, orders, ..self }
    }

    fn operation(&self) -> Option<Operation> {
        Some(Operation {
            tenant: "demo-a".into(),
            operation_id: self.operation_id.clone(),
            fencing_token: self.fencing_token,
        })
    }

    /// Places the order of the key's body.
    pub async fn place(&mut self, quantity: u32) -> Result<Answer, Code> {
        self.place_of("general", quantity).await
    }

    /// Places the order of the key's body, which is of another ticket type.
    pub async fn place_of(&mut self, ticket_type: &str, quantity: u32) -> Result<Answer, Code> {
        let items = vec![PlaceOrderItem { ticket_type_id: ticket_type.into(), quantity }];
        let request = PlaceOrderRequest { operation: self.operation(), venue_id: "demo".into(), items };
        let answer = self.orders.place_order(request).await.map_err(|status| status.code())?;
        Ok(answer.into_inner().answer.unwrap())
    }

    /// Pays the order.
    pub async fn pay(&mut self, order: &str, method: &str) -> Result<Answer, Code> {
        let request = PayRequest { operation: self.operation(), order_id: order.into(), payment_method: method.into() };
        let answer = self.orders.pay(request).await.map_err(|status| status.code())?;
        Ok(answer.into_inner().answer.unwrap())
    }

    /// Completes the key, late or not.
    pub async fn complete(&mut self, status: u32, body: &str) -> CompleteResponse {
        self.try_complete(status, body).await.unwrap()
    }

    /// Completes the key if the idempotency service answers.
    pub async fn try_complete(&mut self, status: u32, body: &str) -> Result<CompleteResponse, Code> {
        let response = StoredResponse { status, body: body.to_owned().into(), ..StoredResponse::default() };
        let request = CompleteRequest {
            scope: SCOPE.into(),
            key: self.key.clone(),
            operation_id: self.operation_id.clone(),
            fencing_token: self.fencing_token,
            response: Some(response),
            ..CompleteRequest::default()
        };
        Ok(self.idem.complete(request).await.map_err(|status| status.code())?.into_inner())
    }

    /// Releases the key; true when it was released.
    pub async fn release(&mut self) -> bool {
        let request = ReleaseRequest {
            scope: SCOPE.into(),
            key: self.key.clone(),
            operation_id: self.operation_id.clone(),
            fencing_token: self.fencing_token,
        };
        let ReleaseResponse { outcome } = self.idem.release(request).await.unwrap().into_inner();
        matches!(outcome, Some(release_response::Outcome::Released(_)))
    }
}

fn proto_duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap()
}
