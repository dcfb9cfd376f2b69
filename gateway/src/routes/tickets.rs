//! Tickets: check in.

use super::{
    Answered,
    mutation::{Mutation, answered},
    path::Id,
};
use crate::orders::Orders;
use axum::extract::State;
use idem_proto::orders::v1 as proto;

/// `POST /v1/tickets/{id}/check-in`
pub(super) async fn check_in(State(orders): State<Orders>, mutation: Mutation, Id(id): Id) -> Answered {
    let message = proto::CheckInTicketRequest { operation: Some(mutation.operation), ticket_id: id };
    answered(orders.check_in_ticket(message, mutation.deadline).await)
}
