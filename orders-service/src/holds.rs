//! Holds that are over give their seats back, without anybody asking.

use crate::{
    error::OrdersError,
    operation_id::OrderId,
    shop::Shop,
    store::{
        orders,
        ticket_types::{self, Move},
    },
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
        for order in over {
            lapsed += usize::from(self.lapse(order).await?);
        }
        if lapsed > 0 {
            metrics::counter!("orders_holds_lapsed_total").increment(lapsed as u64);
        }
        Ok(lapsed)
    }

    /// One order a transaction: its ticket types are locked in order, and no two orders wait for each other.
    async fn lapse(&self, order: OrderId) -> Result<bool, OrdersError> {
        self.store
            .transact("lapse hold", move |tx| {
                Box::pin(async move {
                    let locked = ticket_types::lock_of_order(tx, order).await?;
                    if !orders::lapse(tx, order).await? {
                        return Ok(false);
                    }
                    ticket_types::shift(tx, &locked, Move::FreeHeld).await?;
                    Ok(true)
                })
            })
            .await
    }
}
