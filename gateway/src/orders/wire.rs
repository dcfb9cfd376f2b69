//! One call from its first step to its answer, or to the word on what can have happened.

use chassis::{deadline::Deadline, trace::GrpcClientService};
use dial::Channel;
use idem_proto::orders::v1::orders_service_client::OrdersServiceClient;
use std::future::Future;
use tonic::{Request, Response, Status, metadata::AsciiMetadataValue};

use super::{
    CallError,
    gate::{Gate, Gated},
    unanswered, with_margin,
};

pub(super) type Client = OrdersServiceClient<GrpcClientService<Gated<Channel>>>;

/// The connection, and what every call over it carries. Cheap to clone.
#[derive(Clone)]
pub(super) struct Wire {
    pub(super) client: Client,
    pub(super) authorization: Option<AsciiMetadataValue>,
}

impl Wire {
    /// Makes a call by its deadline.
    pub(super) async fn call<M, A, F>(
        &self,
        message: M,
        deadline: Deadline,
        send: impl FnOnce(Client, Request<M>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.call_through(Gate::default(), message, deadline, send).await
    }

    /// Makes a call whose message leaves through this gate.
    pub(super) async fn call_through<M, A, F>(
        &self,
        gate: Gate,
        message: M,
        deadline: Deadline,
        send: impl FnOnce(Client, Request<M>) -> F,
    ) -> Result<A, CallError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(message);
        request.extensions_mut().insert(gate.clone());
        request.set_timeout(with_margin(deadline.remaining()));
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        // The channel judges the deadline only once it is connected; a call must not wait longer for that either.
        let answered = tokio::time::timeout_at(deadline.instant(), send(self.client.clone(), request)).await;
        match answered {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(unanswered(&gate, status)),
            Err(_) => Err(unanswered(&gate, Status::deadline_exceeded("no answer in time"))),
        }
    }
}
