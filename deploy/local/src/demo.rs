//! What a newcomer finds: three API keys and two ticket types.

use anyhow::Context;
use idem_proto::orders::v1::{
    GetTicketTypeRequest, Money, PutTicketTypeRequest, TicketType, orders_service_client::OrdersServiceClient,
};
use tonic::Code;

/// Tenant, key, and whether it is an operator's.
pub(crate) const API_KEYS: [(&str, &str, bool); 3] =
    [("demo-a", "sk_demo_a", false), ("demo-b", "sk_demo_b", false), ("demo-ops", "sk_demo_ops", true)];

/// Id, name, capacity and price in minor units EUR.
const TICKET_TYPES: [(&str, &str, i64, i64); 2] =
    [("general", "General admission", 100, 1000), ("front-row", "Front row", 4, 5000)];

/// Creates the ticket types that are not there; what somebody changed stays as it is.
pub(crate) async fn create_ticket_types(orders: std::net::SocketAddr) -> anyhow::Result<()> {
    let mut orders = OrdersServiceClient::connect(format!("http://{orders}")).await.context("the orders service")?;
    for (id, name, capacity, amount) in TICKET_TYPES {
        match orders.get_ticket_type(GetTicketTypeRequest { id: id.into() }).await {
            Ok(_) => continue,
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status).context("the demo's ticket types cannot be read"),
        }
        let ticket_type = TicketType {
            id: id.into(),
            venue_id: "demo".into(),
            name: name.into(),
            price: Some(Money { amount, currency: "EUR".into() }),
            capacity,
            ..TicketType::default()
        };
        let request = PutTicketTypeRequest { ticket_type: Some(ticket_type) };
        orders.put_ticket_type(request).await.context("the demo's ticket types cannot be created")?;
    }
    Ok(())
}
