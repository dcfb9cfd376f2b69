//! Orders a second on hot ticket types, over gRPC, callers and service in one process:
//! `cargo run --release -p orders-service --example hot_type -- STORE CALLERS SECONDS [TYPES [ORDERS]]`, each caller with one order at
//! a time, or with so many in one call.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot go on says so")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::{shutdown::Shutdown, tasks::Tasks};
use database::Clock;
use idem_proto::orders::v1::{
    Label, Money, Operation, PlaceOrderItem, PlaceOrderRequest, PlaceOrdersItem, PlaceOrdersRequest,
    PutTicketTypeRequest, TicketType, orders_service_client::OrdersServiceClient, place_orders_outcome::Outcome,
};
use orders_service::{Config, OrdersService};
use tokio::time::Instant;
use tonic::transport::Channel;
use uuid::Uuid;

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let store = args.next().expect("STORE").parse().unwrap();
    let callers: u32 = args.next().expect("CALLERS").parse().unwrap();
    let seconds: u64 = args.next().expect("SECONDS").parse().unwrap();
    let types: u32 = args.next().map_or(1, |types| types.parse().unwrap());
    let together: u32 = args.next().map_or(1, |orders| orders.parse().unwrap());

    let any = ([127, 0, 0, 1], 0).into();
    let config = Config { store, listen: any, admin_listen: any, ..Config::default() };
    let service = OrdersService::bind(config, Clock::system()).await.unwrap();
    let address = format!("http://{}", service.local_addr().unwrap());
    let ((trigger, shutdown), tasks) = (Shutdown::new(), Tasks::new());
    let serving = tasks.spawn("orders", service.serve(shutdown, Duration::from_secs(5)));
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut client = OrdersServiceClient::new(channel);
    for at in 0..types {
        let ticket_type = TicketType {
            id: format!("hot-{at}"),
            venue_id: "demo".into(),
            name: "Hot".into(),
            price: Some(Money { amount: 1000, currency: "EUR".into() }),
            capacity: 1_000_000_000,
            ..Default::default()
        };
        client.put_ticket_type(PutTicketTypeRequest { ticket_type: Some(ticket_type) }).await.unwrap();
    }

    let (is_measured, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..callers)
        .map(|caller| {
            let (mut client, is_measured, is_over) = (client.clone(), is_measured.clone(), is_over.clone());
            tasks.spawn("caller", async move {
                let mut took = Vec::new();
                for at in caller.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let asked = Instant::now();
                    if together == 1 {
                        let answer = client.place_order(order(at % types)).await.unwrap().into_inner().answer;
                        assert_eq!(answer.unwrap().label(), Label::Final);
                    } else {
                        let items = (0..together).map(|nth| PlaceOrdersItem {
                            order: Some(order((at + nth) % types)),
                            ..Default::default()
                        });
                        let request = PlaceOrdersRequest { items: items.collect() };
                        let outcomes = client.place_orders(request).await.unwrap().into_inner().outcomes;
                        assert!(outcomes.iter().all(|it| matches!(it.outcome, Some(Outcome::Response(_)))));
                    }
                    if is_measured.load(Ordering::Relaxed) {
                        took.extend((0..together).map(|_| asked.elapsed()));
                    }
                }
                took
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    is_measured.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await.unwrap());
    }
    took.sort();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "{} orders in {seconds} s: {} a second, p50 {:?}, p99 {:?}",
        took.len(),
        took.len() as u64 / seconds,
        at(0.5),
        at(0.99)
    );
    trigger.begin();
    serving.await.unwrap();
}

fn order(ticket_type: u32) -> PlaceOrderRequest {
    let operation = Operation { tenant: "demo-a".into(), operation_id: Uuid::new_v4().to_string(), fencing_token: 1 };
    PlaceOrderRequest {
        operation: Some(operation),
        venue_id: "demo".into(),
        items: vec![PlaceOrderItem { ticket_type_id: format!("hot-{ticket_type}"), quantity: 1 }],
    }
}
