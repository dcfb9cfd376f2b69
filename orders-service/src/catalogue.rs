//! The catalogue and the other reads.

use std::sync::Arc;

use database::Tx;

use crate::{
    error::OrdersError,
    operation_id::{OrderId, PaymentId, Tenant},
    order::Order,
    outcome::{Refusal, RefusalReason},
    payment::Payment,
    shop::Shop,
    stock::{Offer, TicketType},
    store::{orders, payments, ticket_types},
};

/// What putting a ticket type did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    /// There was none of this name.
    Created(TicketType),
    /// It is as asked now.
    Updated(TicketType),
    /// It would not go.
    Refused(Refusal),
}

impl Shop {
    /// Creates or changes a ticket type. Orders keep the price they were placed at.
    pub async fn put_ticket_type(&self, offer: Offer) -> Result<Put, OrdersError> {
        let offer = Arc::new(offer);
        self.act("put ticket type", move |tx| {
            let offer = Arc::clone(&offer);
            Box::pin(async move { put(tx, &offer).await })
        })
        .await
    }

    /// Reads a ticket type and its stock.
    pub async fn ticket_type(&self, id: String) -> Result<TicketType, OrdersError> {
        self.store
            .read("get ticket type", move |tx| {
                let id = id.clone();
                Box::pin(async move { ticket_types::view(tx, &id).await })
            })
            .await?
            .ok_or(OrdersError::NotFound("ticket type"))
    }

    /// Reads an order of the tenant.
    pub async fn order(&self, tenant: Tenant, id: OrderId) -> Result<Order, OrdersError> {
        self.store
            .read("get order", move |tx| {
                let tenant = tenant.clone();
                Box::pin(async move {
                    match orders::find_of(tx, &tenant, id).await? {
                        Some(row) => orders::view(tx, row).await.map(Some),
                        None => Ok(None),
                    }
                })
            })
            .await?
            .ok_or(OrdersError::NotFound("order"))
    }

    /// Reads a payment of the tenant.
    pub async fn payment(&self, tenant: Tenant, id: PaymentId) -> Result<Payment, OrdersError> {
        self.store
            .read("get payment", move |tx| {
                let tenant = tenant.clone();
                Box::pin(async move { payments::find_of(tx, &tenant, id).await })
            })
            .await?
            .map(|payment| payment.view())
            .ok_or(OrdersError::NotFound("payment"))
    }
}

async fn put(tx: &mut Tx<'_>, offer: &Offer) -> Result<Put, OrdersError> {
    let is_new = ticket_types::insert(tx, offer).await?;
    if !is_new {
        ticket_types::lock(tx, &offer.id).await?;
        if !ticket_types::update(tx, offer).await? {
            ticket_types::sweep_first(tx, &offer.id).await?;
            return Ok(Put::Refused(RefusalReason::CapacityInUse.plain()));
        }
    }
    let written = ticket_types::view(tx, &offer.id).await?.ok_or(OrdersError::Corrupt("a ticket type is gone"))?;
    Ok(if is_new { Put::Created(written) } else { Put::Updated(written) })
}
