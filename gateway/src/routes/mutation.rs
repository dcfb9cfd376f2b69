//! What every mutation has in common: under which operation it runs, until when, and how its answer becomes a response.

use super::Answered;
use crate::{
    auth::Principal,
    error::Failure,
    orders::{CallError, Orders},
    wire,
};
use axum::{body::Body, extract::FromRequestParts, response::Response};
use bytes::Bytes;
use chassis::deadline::Deadline;
use http::request::Parts;
use idem_layer::ports::Permit;
use idem_proto::orders::v1 as proto;
use std::convert::Infallible;

/// How a mutation is to be carried out.
pub(super) struct Mutation {
    /// On whose behalf, and under which grant; without a key, none.
    pub(super) operation: proto::Operation,
    /// When it must be done.
    pub(super) deadline: Deadline,
}

impl FromRequestParts<Orders> for Mutation {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, orders: &Orders) -> Result<Self, Infallible> {
        let principal = Principal::from_request_parts(parts, orders).await?;
        let tenant = principal.tenant.as_str().to_owned();
        Ok(match parts.extensions.get::<Permit>() {
            Some(permit) => Self {
                operation: proto::Operation {
                    tenant,
                    operation_id: permit.operation_id.to_string(),
                    fencing_token: permit.token.0,
                },
                // It lies inside the lease: what comes later would be another holder's to judge.
                deadline: Deadline::at(permit.deadline),
            },
            None => Self { operation: proto::Operation { tenant, ..Default::default() }, deadline: orders.deadline() },
        })
    }
}

/// The response for what the orders service answered, with its outcome for the layer.
pub(super) fn answered(answer: Result<Option<proto::Answer>, CallError>) -> Answered {
    let answer = answer?.ok_or(wire::Unreadable("an answer without a body"))?;
    let label = answer.label();
    let Some(result) = answer.result else { return Err(Failure::unknown()) };
    let (response, outcome) = wire::render(result, label, answer.replayed, &chassis::trace::current_trace_id())?;
    let mut response = sent(response);
    response.extensions_mut().insert(outcome);
    Ok(response)
}

/// A rendered answer as axum sends it.
pub(super) fn sent(response: http::Response<Bytes>) -> Response {
    response.map(Body::from)
}
