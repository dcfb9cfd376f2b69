//! Many purchases of which some go wrong half-way: whoever retries with his key gets an answer soon, and buys once.

use std::{collections::BTreeMap, time::Duration};

use e2e::{Holder, Reply, World, eventually, on_both_stores};
use idem_local::Settings;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

fn short(settings: &mut Settings) {
    settings.acquirer_timeout = Duration::from_secs(1);
    settings.upstream_timeout = Duration::from_secs(2);
    settings.lease = Duration::from_secs(4);
}

/// A request as bytes, so that its connection can be broken anywhere.
fn raw(path: &str, key: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: idem\r\nauthorization: Bearer sk_demo_a\r\ncontent-type: application/json\r\n\
         idempotency-key: {key}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Retries as a client does until the answer is final.
async fn until_placed(world: &World, path: &str, key: &str, body: &Value) -> Reply {
    eventually(&format!("{key} is answered"), || async {
        let reply = world.post(path, key, body.clone()).await;
        assert!(reply.status == 201 || reply.json()["retryable"] == true, "{key}: {}", reply.status);
        (reply.status == 201).then_some(reply)
    })
    .await
}

/// Reproducible chance: xorshift.
struct Dice(u64);

impl Dice {
    #[allow(clippy::print_stderr, reason = "shown when the test fails")]
    fn new() -> Self {
        let seed = uuid::Uuid::new_v4().as_u64_pair().0 | 1;
        eprintln!("seed {seed}");
        Self(seed)
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// What a proxy that repeats requests by itself makes of one: it arrives again and again, and only the last connection is read.
async fn through_a_repeating_proxy(world: &World, request: &str, times: usize) -> String {
    for _ in 1..times {
        let mut broken = TcpStream::connect(world.addresses().rest).await.unwrap();
        broken.write_all(request.as_bytes()).await.unwrap();
    }
    let mut read = TcpStream::connect(world.addresses().rest).await.unwrap();
    read.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    read.read_to_string(&mut answer).await.unwrap();
    answer
}

on_both_stores! {
    #[settings(short)]
    async fn of_two_hundred_checkouts_those_that_die_half_way_are_answered_after_their_lease(world: World) {
        world.put_ticket_type("general", 1000).await.expect(200);
        let body = World::order_body(1);
        let (mut answers, mut open) = (BTreeMap::new(), Vec::new());
        for n in 0..200 {
            let key = format!("checkout-{n}");
            if n % 10 == 0 {
                // The one dies before it acts, the next after it did.
                let mut dies = Holder::reserve(&world, &key, "/v1/orders", &body).await;
                if n % 20 == 0 {
                    dies.place(1).await.unwrap();
                }
                open.push(key);
            } else {
                answers.insert(key.clone(), world.post("/v1/orders", &key, body.clone()).await.expect(201));
            }
        }
        // Every second one retry each, for a lease and five seconds.
        for _ in 0..9 {
            world.advance(Duration::from_secs(1));
            for key in std::mem::take(&mut open) {
                let reply = world.post("/v1/orders", &key, body.clone()).await;
                if reply.status == 201 {
                    answers.insert(key, reply);
                } else {
                    reply.expect_problem(409, "conflict", Some("request_in_progress"), true);
                    open.push(key);
                }
            }
        }
        // Whoever is at it still (a busy machine's reconciler) needs no more of the stores' time.
        for key in open {
            answers.insert(key.clone(), until_placed(&world, "/v1/orders", &key, &body).await);
        }
        assert_eq!(answers.len(), 200);
        for (key, answer) in &answers {
            let again = world.post("/v1/orders", key, body.clone()).await.expect(201);
            assert!(again.is_replay() && again.body == answer.body, "{key}: never in progress again");
        }
        assert_eq!(world.ticket_type("general").await["held"], 200);
    }

    #[settings(short)]
    async fn clients_that_leave_while_they_pay_are_charged_once(world: World) {
        let mut dice = Dice::new();
        let mut bodies = Vec::new();
        for n in 0..60 {
            let order = world.place(&format!("o{n}"), 1).await;
            bodies.push(json!({"orderId": order, "paymentMethod": format!("pm_slow_{}", dice.roll(60))}));
        }
        let leaving = bodies.iter().enumerate().map(|(n, body)| {
            let request = raw("/v1/payments", &format!("leaver-{n}"), body);
            let sent = if dice.roll(4) == 0 { dice.roll(request.len() as u64) as usize } else { request.len() };
            let (world, patience) = (&world, Duration::from_micros(dice.roll(100_000)));
            async move {
                let mut socket = TcpStream::connect(world.addresses().rest).await.unwrap();
                socket.write_all(&request.as_bytes()[..sent]).await.unwrap();
                tokio::time::sleep(patience).await;
            }
        });
        futures::future::join_all(leaving).await;
        for (n, body) in bodies.iter().enumerate() {
            let key = format!("leaver-{n}");
            let paid = until_placed(&world, "/v1/payments", &key, body).await;
            assert_eq!(world.acquirer_payment(&paid.text("id")).await["charges"], 1);
            assert_eq!(world.key_state(&key).await.expect(200).json()["state"], "completed");
        }
        assert_eq!(world.acquirer_totals().await, json!({"charges": 60, "captured": 60_000, "refunded": 0}));
        let general = world.ticket_type("general").await;
        assert_eq!((&general["sold"], &general["held"]), (&json!(60), &json!(0)));
    }

    async fn a_proxy_that_repeats_requests_by_itself_buys_once(world: World) {
        let body = World::order_body(2);
        let answer = through_a_repeating_proxy(&world, &raw("/v1/orders", "k1", &body), 3).await;
        assert!(answer.starts_with("HTTP/1.1 201") || answer.starts_with("HTTP/1.1 409"), "{answer}");
        let order = until_placed(&world, "/v1/orders", "k1", &body).await.text("id");
        assert_eq!(world.ticket_type("general").await["held"], 2);
        let body = json!({"orderId": order, "paymentMethod": "pm_slow_200"});
        through_a_repeating_proxy(&world, &raw("/v1/payments", "k2", &body), 3).await;
        until_placed(&world, "/v1/payments", "k2", &body).await;
        assert_eq!(world.acquirer_totals().await["charges"], 1);
        // Between the gateway and the orders service: the same call, with the same operation and token.
        let body = World::order_body(3);
        let mut holder = Holder::reserve(&world, "k3", "/v1/orders", &body).await;
        let first = holder.place(3).await.unwrap();
        for _ in 0..2 {
            assert_eq!(holder.place(3).await.unwrap(), first);
        }
        assert_eq!(world.ticket_type("general").await["held"], 3);
    }

    async fn webhooks_that_race_the_answer_pay_each_order_once(world: World) {
        // Each approval is told twice at about the same moment: as the answer to the charge, and as an event.
        let mut dice = Dice::new();
        let mut orders = Vec::new();
        for n in 0..40 {
            orders.push((world.place(&format!("o{n}"), 1).await, format!("pm_slow_{}", dice.roll(500))));
        }
        let paying = orders.iter().enumerate().map(|(n, (order, method))| {
            let world = &world;
            async move { world.pay(&format!("p{n}"), order, method).await.expect(201) }
        });
        for paid in futures::future::join_all(paying).await {
            assert!(!paid.is_replay());
            let payment = world.acquirer_payment(&paid.text("id")).await;
            assert_eq!((&payment["charges"], &payment["refunds"]), (&json!(1), &json!(0)));
        }
        for (order, _) in &orders {
            assert_eq!(world.order_status(order).await, "paid");
        }
        let general = world.ticket_type("general").await;
        assert_eq!((&general["sold"], &general["held"]), (&json!(40), &json!(0)));
        assert_eq!(world.acquirer_totals().await, json!({"charges": 40, "captured": 40_000, "refunded": 0}));
    }
}
