//! Many orders in one call: each is checked, traced, placed and answered as if it had come alone.

use chassis::{
    deadline::Deadline,
    service_auth::Caller,
    tasks::Tasks,
    trace::{self, Parent},
};
use idem_proto::orders::v1::{self as proto, place_orders_outcome::Outcome};
use tonic::Status;
use tracing::Span;

use super::{checked, may_call};
use crate::{
    outcome::{Answer, Kind},
    place_order::Waiting,
    request,
    shop::Shop,
    status, wire,
};

/// Places the items of a call, and answers each.
pub(super) async fn place(
    shop: &Shop,
    tasks: &Tasks,
    caller: &Caller,
    deadline: Option<Deadline>,
    items: Vec<proto::PlaceOrdersItem>,
) -> Vec<proto::PlaceOrdersOutcome> {
    let (mut outcomes, mut waiting) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for item in items {
        match opened(caller, deadline, item) {
            Ok(order) => {
                outcomes.push(None);
                waiting.push(order);
            }
            Err(status) => outcomes.push(Some(Outcome::Failure(status::to_failure(&status)))),
        }
    }
    let mut placed = place_all(shop, tasks, waiting).await.into_iter();
    let outcomes = outcomes.into_iter().map(|outcome| outcome.or_else(|| placed.next()));
    outcomes.map(|outcome| proto::PlaceOrdersOutcome { outcome }).collect()
}

/// One item, as far as it goes without the store.
fn opened(caller: &Caller, deadline: Option<Deadline>, item: proto::PlaceOrdersItem) -> Result<Waiting, Status> {
    let carrier = trace::current_traceparent();
    let span = span(&item.trace_context);
    span.in_scope(|| carrier.iter().for_each(|carrier| trace::link_to(carrier)));
    let own = item.timeout.map(|timeout| checked(request::timeout(timeout)).map(Deadline::after)).transpose()?;
    let deadline = deadline.into_iter().chain(own).min();
    span.in_scope(|| {
        let ask = checked(request::place_order(item.order.unwrap_or_default()))?;
        may_call(caller, &ask.call)?;
        Ok(Waiting::new(ask, deadline))
    })
}

/// Like the span of a call of its own, under the one who asks for this order.
fn span(trace_context: &str) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "rpc",
        otel.name = "rpc OrdersService/PlaceOrder",
        otel.kind = "server",
        rpc.system = "grpc",
        rpc.service = "orders.v1.OrdersService",
        rpc.method = "PlaceOrder",
    );
    if let Some(parent) = Parent::from_traceparent(trace_context) {
        parent.adopt(&span);
    }
    span
}

/// Places orders in a task of their own, which ends whether the caller waits or not.
async fn place_all(shop: &Shop, tasks: &Tasks, waiting: Vec<Waiting>) -> Vec<Outcome> {
    let (shop, count) = (shop.clone(), waiting.len());
    let placing = async move {
        let placed = shop.place_orders(waiting).await;
        let answered = |answer: &Answer| wire::answer(Kind::PlaceOrder, answer);
        let outcome = |placed: &Result<Answer, _>| match placed {
            Ok(answer) => Outcome::Response(proto::PlaceOrderResponse { answer: Some(answered(answer)) }),
            Err(error) => Outcome::Failure(status::to_failure(&status::from_error(error))),
        };
        placed.iter().map(outcome).collect()
    };
    match tasks.spawn("place orders", placing).await {
        Ok(outcomes) => outcomes,
        Err(_) => vec![Outcome::Failure(status::to_failure(&status::from_panic())); count],
    }
}
