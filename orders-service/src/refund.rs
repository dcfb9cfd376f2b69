//! The refund outbox: what the rows promise to give back is sent, under the same refund id, until the acquirer has acknowledged it.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use tracing::Instrument as _;

use crate::{
    acquirer::RefundReply,
    error::OrdersError,
    payment::PaymentStatus,
    shop::{Shop, alert},
    store::{
        orders, payments,
        refunds::{self, RefundRow},
    },
    timestamp::Timestamp,
    watch::backoff,
};

/// Between two tries, at most.
const TRY_MAX: Duration = Duration::from_secs(60);

/// Refunds taken in one round, and sent side by side.
const ROUND: u32 = 16;

impl Shop {
    /// Sends every refund whose time has come; returns how many were sent.
    pub(crate) async fn refund_round(&self) -> Result<usize, OrdersError> {
        let due = self.store.read("due refunds", |tx| Box::pin(async move { refunds::due(tx, ROUND).await })).await?;
        let sent = stream::iter(due).map(|refund| async move {
            let (id, payment) = (refund.back.refund, refund.back.payment);
            let span = tracing::info_span!("send refund", refund.id = %id, payment.id = %payment);
            match self.send_refund(&refund).instrument(span).await {
                Ok(sent) => usize::from(sent),
                Err(error) => {
                    tracing::warn!(refund.id = %refund.back.refund, error = &error as &dyn std::error::Error, "a refund could not be sent");
                    0
                }
            }
        });
        Ok(sent.buffer_unordered(ROUND as usize).fold(0, |sum, sent| async move { sum + sent }).await)
    }

    async fn send_refund(&self, refund: &RefundRow) -> Result<bool, OrdersError> {
        let claimed = refund.clone();
        let is_ours = self
            .act("claim refund", move |tx| {
                let refund = claimed.clone();
                Box::pin(async move {
                    let next = Timestamp(tx.now()).plus(backoff(refund.tries, TRY_MAX));
                    refunds::claim(tx, &refund, next).await
                })
            })
            .await?;
        if !is_ours {
            return Ok(false);
        }
        match self.acquirer.refund(&refund.back, self.settings.acquirer_timeout).await {
            RefundReply::Acknowledged => self.acknowledge(refund).await?,
            RefundReply::Unreachable(cause) => {
                tracing::warn!(refund.id = %refund.back.refund, cause, "a refund was not acknowledged; it is sent again");
            }
            RefundReply::Refused(cause) => {
                alert(
                    "refund_refused",
                    &format!("refund {} of payment {}: {cause}", refund.back.refund, refund.back.payment),
                );
            }
        }
        Ok(true)
    }

    async fn acknowledge(&self, refund: &RefundRow) -> Result<(), OrdersError> {
        let (id, payment) = (refund.back.refund, refund.back.payment);
        self.act("acknowledge refund", move |tx| {
            Box::pin(async move {
                let order = payments::find(tx, payment).await?.ok_or(OrdersError::Corrupt("a payment is gone"))?.order;
                orders::lock(tx, order).await?;
                let mut row = payments::lock(tx, payment).await?;
                if refunds::acknowledge(tx, id).await? {
                    payments::decide(tx, &mut row, PaymentStatus::Refunded).await?;
                    orders::refunded(tx, order, payment).await?;
                }
                Ok(())
            })
        })
        .await
    }
}
