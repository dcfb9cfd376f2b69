//! What belongs to another tenant does not exist: not in what is said, and not in how long it takes to say.

use std::{pin::pin, time::Duration};

use e2e::{Ask, PrivateDatabase, Reply, Store, World, on_both_stores};
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Everything by which one tenant could reach for another's things: `id` is an order, a payment, a ticket or a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    Order,
    Payment,
    Ticket,
    Key,
}

type Reach = fn(&World, &str, usize) -> Ask;

fn reaches() -> Vec<(&'static str, Thing, Reach)> {
    vec![
        ("read an order", Thing::Order, |w, id, _| w.ask(Method::GET, &format!("/v1/orders/{id}"))),
        ("confirm", Thing::Order, |w, id, _| w.ask(Method::POST, &format!("/v1/orders/{id}/confirm"))),
        ("confirm, keyed", Thing::Order, |w, id, n| {
            w.ask(Method::POST, &format!("/v1/orders/{id}/confirm")).key(&format!("confirm-{n}"))
        }),
        ("cancel", Thing::Order, |w, id, _| w.ask(Method::POST, &format!("/v1/orders/{id}/cancel"))),
        ("cancel, keyed", Thing::Order, |w, id, n| {
            w.ask(Method::POST, &format!("/v1/orders/{id}/cancel")).key(&format!("cancel-{n}"))
        }),
        ("link", Thing::Order, |w, id, _| w.ask(Method::POST, &format!("/v1/orders/{id}/payment-link"))),
        ("pay", Thing::Order, |w, id, n| {
            let body = json!({"orderId": id, "paymentMethod": "pm_approved"});
            w.ask(Method::POST, "/v1/payments").key(&format!("pay-{n}")).json(&body)
        }),
        ("read a payment", Thing::Payment, |w, id, _| w.ask(Method::GET, &format!("/v1/payments/{id}"))),
        ("check in", Thing::Ticket, |w, id, _| w.ask(Method::POST, &format!("/v1/tickets/{id}/check-in"))),
        ("check in, keyed", Thing::Ticket, |w, id, n| {
            w.ask(Method::POST, &format!("/v1/tickets/{id}/check-in")).key(&format!("check-in-{n}"))
        }),
        ("look at a key", Thing::Key, |w, id, _| w.ask(Method::GET, &format!("/v1/idempotency-keys/{id}"))),
    ]
}

/// What tenant B has: an order that is paid, its payment, one of its tickets, its key.
async fn things(world: &World) -> impl Fn(Thing) -> String + use<> {
    let as_b = |method, path: &str| world.ask(method, path).api_key("sk_demo_b");
    let order = as_b(Method::POST, "/v1/orders").key("key-of-b").json(&World::order_body(2)).send().await.expect(201);
    let (order, ticket) = (order.text("id"), order.json()["tickets"][0]["id"].as_str().unwrap().to_owned());
    let pay = json!({"orderId": order, "paymentMethod": "pm_approved"});
    let payment = as_b(Method::POST, "/v1/payments").key("pay-of-b").json(&pay).send().await.expect(201).text("id");
    move |thing| match thing {
        Thing::Order => order.clone(),
        Thing::Payment => payment.clone(),
        Thing::Ticket => ticket.clone(),
        Thing::Key => "key-of-b".to_owned(),
    }
}

fn unknown(thing: Thing) -> String {
    match thing {
        // The same length as a key that is there.
        Thing::Key => "key-of-x".to_owned(),
        _ => uuid::Uuid::new_v4().to_string(),
    }
}

/// What an answer tells, apart from which request it was.
fn told(reply: &Reply) -> (u16, Vec<(String, String)>, Value) {
    let mut body = reply.json();
    body.as_object_mut().unwrap().remove("traceId");
    let mut headers: Vec<(String, String)> =
        reply.headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    headers.retain(|(name, _)| !["date", "idempotency-key", "content-length"].contains(&name.as_str()));
    headers.sort();
    (reply.status.as_u16(), headers, body)
}

on_both_stores! {
    async fn what_another_tenant_has_is_not_there_on_any_route(world: World) {
        let of_b = things(&world).await;
        for (n, (name, thing, reach)) in reaches().into_iter().enumerate() {
            let theirs = reach(&world, &of_b(thing), 2 * n).send().await.expect_problem(404, "not_found", None, false);
            let nobodys = reach(&world, &unknown(thing), 2 * n + 1).send().await.expect(404);
            assert_eq!(told(&theirs), told(&nobodys), "{name}");
        }
        // And nothing has come of it.
        let order = world.ask(Method::GET, &format!("/v1/orders/{}", of_b(Thing::Order))).api_key("sk_demo_b").send().await;
        assert_eq!(order.expect(200).text("status"), "paid");
        let ticket = world.ask(Method::POST, &format!("/v1/tickets/{}/check-in", of_b(Thing::Ticket)));
        assert_eq!(ticket.api_key("sk_demo_b").send().await.expect(200).json()["alreadyUsed"], false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_what_another_tenant_is_doing_on_postgres() {
    let database = PrivateDatabase::create().await;
    let url = database.url.clone();
    let world = World::start_with(Store::Sqlite, |settings| settings.data = idem_local::Data::Postgres(url)).await;
    let of_b = things(&world).await;
    // In the order in which the orders service takes its own, and of the ids: the payment's webhook may be on its way.
    let tables = ["acquirer_events", "operations", "ticket_types", "orders", "payments", "tickets"];
    let locks = tables.map(|table| format!("SELECT id FROM {table} ORDER BY id FOR UPDATE;")).concat();
    let others = "SELECT 1 FROM order_items FOR UPDATE; SELECT 1 FROM idem_keys FOR UPDATE;";
    let held = database.hold(&(locks + others)).await;
    for (n, (name, thing, reach)) in reaches().into_iter().enumerate() {
        let reply = reach(&world, &of_b(thing), n).send().await;
        assert_eq!(reply.status, 404, "{name}: {}", reply.json());
    }
    // Who owns them does wait, so they were held.
    let ticket = of_b(Thing::Ticket);
    let check_in = world.ask(Method::POST, &format!("/v1/tickets/{ticket}/check-in")).api_key("sk_demo_b");
    let mut own = pin!(check_in.send());
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut own).await.is_err());
    drop(held);
    own.await.expect(200);
    world.stop().await;
}

/// The share of pairs in which the one took longer than the other: a half when time tells nothing.
fn advantage(theirs: &[u128], nobodys: &[u128]) -> f64 {
    let wins = theirs.iter().flat_map(|a| {
        nobodys.iter().map(move |b| {
            if a > b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            }
        })
    });
    wins.sum::<f64>() / (theirs.len() * nobodys.len()) as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_does_not_tell_what_another_tenant_has_from_what_nobody_has_on_postgres() {
    const PAIRS: usize = 200;
    let world = World::start(Store::Postgres).await;
    let of_b = things(&world).await;
    for (name, thing, reach) in reaches().into_iter().filter(|(name, ..)| !name.contains("keyed")) {
        let (mut theirs, mut nobodys) = (Vec::new(), Vec::new());
        // Turn about, so that whatever else the machine does falls on both alike.
        for n in 0..2 * PAIRS {
            let (id, times) = if n % 2 == 0 { (of_b(thing), &mut theirs) } else { (unknown(thing), &mut nobodys) };
            let ask = reach(&world, &id, 1000 + n);
            let begun = Instant::now();
            ask.send().await.expect(404);
            times.push(begun.elapsed().as_nanos());
        }
        let advantage = advantage(&theirs, &nobodys);
        // Chance alone stays within 0.15 of a half at five standard deviations of 200 pairs.
        assert!((0.35..0.65).contains(&advantage), "{name}: {advantage:.3} of the pairs tell them apart");
    }
    world.stop().await;
}
