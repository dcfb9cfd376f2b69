//! Holds that are over give their seats back, without anybody asking.

use crate::{
    error::OrdersError,
    operation_id::OrderId,
    shop::Shop,
    store::{orders, ticket_types},
};

/// Orders looked at in one round.
const ROUND: u32 = 200;

impl Shop {
    /// Lapses every hold that is over; returns how many were.
    pub(crate) async fn sweep_round(&self) -> Result<usize, OrdersError> {
        self.sweep(None).await
    }

    /// Lapses the holds on one ticket type that are over, because somebody needs their seats now.
    pub(crate) async fn sweep_type(&self, ticket_type: &str) -> Result<(), OrdersError> {
        self.sweep(Some(ticket_type.to_owned())).await.map(drop)
    }

    async fn sweep(&self, ticket_type: Option<String>) -> Result<usize, OrdersError> {
        let over = self
            .store
            .read("holds over", move |tx| {
                let ticket_type = ticket_type.clone();
                Box::pin(async move { orders::over(tx, ticket_type.as_deref(), ROUND).await })
            })
            .await?;
        let mut lapsed = 0;
        for batch in over.chunks(orders::LAPSE_MAX) {
            lapsed += self.lapse(batch.to_vec()).await?;
        }
        if lapsed > 0 {
            metrics::counter!("orders_holds_lapsed_total").increment(lapsed as u64);
        }
        Ok(lapsed)
    }

    /// Lapses a batch in one transaction.
    async fn lapse(&self, batch: Vec<OrderId>) -> Result<usize, OrdersError> {
        self.store
            .transact("lapse holds", move |tx| {
                let batch = batch.clone();
                Box::pin(async move {
                    ticket_types::lock_of_orders(tx, &batch).await?;
                    // Payments that begin together lock several orders too, and no ticket type before.
                    orders::lock_all(tx, &batch.iter().copied().collect()).await?;
                    let lapsed = orders::lapse(tx, &batch).await?;
                    ticket_types::free_held(tx, &lapsed).await?;
                    Ok(lapsed.len())
                })
            })
            .await
    }
}
