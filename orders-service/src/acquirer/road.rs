//! The one road from the shop to its acquirer, with a fault point before and after each call.

use std::{sync::Arc, time::Duration};

use fault_point::fault_point;

use super::{Acquirer, Charge, RefundReply, Reply, Return};
use crate::operation_id::PaymentId;

/// What the use cases hold instead of the acquirer itself, so that none of their calls can go around a fault point.
#[derive(Clone)]
pub(crate) struct Road {
    acquirer: Arc<dyn Acquirer>,
}

// === impl Road ===

impl Road {
    pub(crate) fn to(acquirer: Arc<dyn Acquirer>) -> Self {
        Self { acquirer }
    }

    /// [`Acquirer::charge`].
    pub(crate) async fn charge(&self, charge: &Charge, patience: Duration) -> Reply {
        fault_point!("acquirer charge: send" => Reply::Unreachable(cut()));
        let reply = self.acquirer.charge(charge, patience).await;
        fault_point!("acquirer charge: answered" => Reply::Unreachable(cut()));
        reply
    }

    /// [`Acquirer::find`].
    pub(crate) async fn find(&self, payment: PaymentId, patience: Duration) -> Reply {
        fault_point!("acquirer find: send" => Reply::Unreachable(cut()));
        let reply = self.acquirer.find(payment, patience).await;
        fault_point!("acquirer find: answered" => Reply::Unreachable(cut()));
        reply
    }

    /// [`Acquirer::refund`].
    pub(crate) async fn refund(&self, back: &Return, patience: Duration) -> RefundReply {
        fault_point!("acquirer refund: send" => RefundReply::Unreachable(cut()));
        let reply = self.acquirer.refund(back, patience).await;
        fault_point!("acquirer refund: answered" => RefundReply::Unreachable(cut()));
        reply
    }
}

fn cut() -> String {
    "the road is cut at a fault point".to_owned()
}
