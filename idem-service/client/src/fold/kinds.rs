//! The calls that can travel together.

use std::future::Future;

use dial::Channel;
use idem_proto::idem::v1 as proto;
use tonic::{Request, Response, Status};

use crate::connect::{keys, many_keys};

type Answered<A> = Result<Response<A>, Status>;

/// A request of which several make one.
pub(crate) trait Foldable: Clone + Send + Sync + 'static {
    type Answer: Send + 'static;
    type Many: Clone + Send + 'static;

    /// Names the RPC of one, `Service/Method`.
    const ALONE: &'static str;
    /// Names the RPC of many.
    const TOGETHER: &'static str;

    /// What is large about it, in bytes.
    fn weight(&self) -> usize;
    fn trace_context(&mut self) -> &mut String;
    fn fold(items: Vec<Self>) -> Self::Many;
    fn ask(channel: Channel, request: Request<Self>) -> impl Future<Output = Answered<Self::Answer>> + Send;
    fn ask_many(
        channel: Channel,
        request: Request<Self::Many>,
    ) -> impl Future<Output = Answered<Vec<Self::Answer>>> + Send;
}

impl Foldable for proto::ReserveRequest {
    type Answer = proto::ReserveResponse;
    type Many = proto::ReserveManyRequest;

    const ALONE: &'static str = "IdempotencyService/Reserve";
    const TOGETHER: &'static str = "IdempotencyService/ReserveMany";

    fn weight(&self) -> usize {
        0
    }

    fn trace_context(&mut self) -> &mut String {
        &mut self.trace_context
    }

    fn fold(items: Vec<Self>) -> Self::Many {
        proto::ReserveManyRequest { items }
    }

    async fn ask(channel: Channel, request: Request<Self>) -> Answered<Self::Answer> {
        keys(channel).reserve(request).await
    }

    async fn ask_many(channel: Channel, request: Request<Self::Many>) -> Answered<Vec<Self::Answer>> {
        Ok(many_keys(channel).reserve_many(request).await?.map(|answer| answer.outcomes))
    }
}

impl Foldable for proto::CompleteRequest {
    type Answer = proto::CompleteResponse;
    type Many = proto::CompleteManyRequest;

    const ALONE: &'static str = "IdempotencyService/Complete";
    const TOGETHER: &'static str = "IdempotencyService/CompleteMany";

    fn weight(&self) -> usize {
        let Some(response) = &self.response else { return 0 };
        response.headers.iter().map(|it| it.name.len() + it.value.len()).sum::<usize>() + response.body.len()
    }

    fn trace_context(&mut self) -> &mut String {
        &mut self.trace_context
    }

    fn fold(items: Vec<Self>) -> Self::Many {
        proto::CompleteManyRequest { items }
    }

    async fn ask(channel: Channel, request: Request<Self>) -> Answered<Self::Answer> {
        keys(channel).complete(request).await
    }

    async fn ask_many(channel: Channel, request: Request<Self::Many>) -> Answered<Vec<Self::Answer>> {
        Ok(many_keys(channel).complete_many(request).await?.map(|answer| answer.outcomes))
    }
}
