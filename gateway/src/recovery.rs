//! What happened to an operation, asked of the orders service.

use crate::{
    orders::{CallError, Orders},
    wire::{self, Unreadable},
};
use async_trait::async_trait;
use chassis::deadline::Deadline;
use idem_core::{FencingToken, OperationId};
use idem_layer::ports::{Found, Recover, RecoverError};
use idem_proto::orders::v1::{self as proto, close_response, lookup_response};
use tokio::time::Instant;

/// The orders service as the system of record.
#[derive(Clone)]
pub(crate) struct Recovery {
    orders: Orders,
}

/// Whether somebody waits for the answer of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    /// A client does: the acquirer is asked now.
    Client,
    /// Nobody: the acquirer is asked when its growing interval is due.
    Nobody,
}

/// What came of giving up a payment that is unknown everywhere.
#[derive(Debug)]
pub(crate) enum Closing {
    /// The key can be released.
    Closed,
    /// It was decided, or is being decided, meanwhile.
    Found(Found),
}

// === impl Recovery ===

impl Recovery {
    pub(crate) fn new(orders: Orders) -> Self {
        Self { orders }
    }

    /// What happened to this operation? Raises the fence first: after the answer no older holder can act.
    pub(crate) async fn find(
        &self,
        held: (OperationId, FencingToken),
        waiting: Waiting,
        deadline: Instant,
    ) -> Result<Found, RecoverError> {
        let answer = self.orders.lookup(held.0, held.1, waiting == Waiting::Nobody, Deadline::at(deadline)).await;
        match answer.map_err(unreachable)?.outcome {
            Some(lookup_response::Outcome::Settled(settled)) => found(settled),
            Some(lookup_response::Outcome::Pending(_)) => Ok(Found::Pending),
            Some(lookup_response::Outcome::Unknown(_)) => Ok(Found::Unknown),
            None => Err(RecoverError::Unreachable(Unreadable("no word on an operation").into())),
        }
    }

    /// Gives up what is unknown everywhere, just before its key is released.
    pub(crate) async fn close(
        &self,
        held: (OperationId, FencingToken),
        deadline: Instant,
    ) -> Result<Closing, RecoverError> {
        let answer = self.orders.close(held.0, held.1, Deadline::at(deadline)).await;
        match answer.map_err(unreachable)?.outcome {
            Some(close_response::Outcome::Closed(_)) => Ok(Closing::Closed),
            Some(close_response::Outcome::Settled(settled)) => found(settled).map(Closing::Found),
            Some(close_response::Outcome::Pending(_)) => Ok(Closing::Found(Found::Pending)),
            None => Err(RecoverError::Unreachable(Unreadable("no word on a payment to give up").into())),
        }
    }
}

#[async_trait]
impl Recover for Recovery {
    async fn lookup(
        &self,
        operation_id: OperationId,
        token: FencingToken,
        deadline: Instant,
    ) -> Result<Found, RecoverError> {
        self.find((operation_id, token), Waiting::Client, deadline).await
    }
}

/// The kept result, rendered as the handler rendered it when it was made.
fn found(settled: proto::Settled) -> Result<Found, RecoverError> {
    let label = settled.label();
    let unreadable = |error: Unreadable| RecoverError::Unreachable(error.into());
    let result = settled.result.ok_or(Unreadable("a settled operation without a result")).map_err(unreadable)?;
    let (response, outcome) =
        wire::render(result, label, true, &chassis::trace::current_trace_id()).map_err(unreadable)?;
    Ok(Found::Settled(response, outcome))
}

fn unreachable(error: CallError) -> RecoverError {
    match error {
        CallError::Fenced => RecoverError::Fenced,
        other => RecoverError::Unreachable(other.into()),
    }
}
