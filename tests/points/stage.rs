//! One play in a running world: its own keys and ticket type, a client that does not give up, and the check of the end.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use e2e::{Ask, Reply, World};
use fault_point::{Crossing, Plan, Watch};
use http::Method;
use idem_proto::idem::v1::{GetRequest, idempotency_service_client::IdempotencyServiceClient};
use serde_json::{Value, json};
use uuid::Uuid;

/// The point lay on another way this time: somebody in the background was faster.
pub const NOT_REACHED: &str = "the point was not reached";

/// More tries than any single fault can use up.
const TRIES: usize = 20;

/// The namespace of payment ids.
const PAYMENTS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a02);

/// What goes on in the background whenever it likes: not on the way of a request.
const BACKGROUND: [&str; 7] =
    ["look: ", "holds over", "due payments", "claim payment", "note payment", "due refunds", "waiting events"];

/// One play of a scenario.
pub struct Stage<'w> {
    pub world: &'w World,
    pub ticket_type: String,
    watch: &'w Watch,
    plans: Vec<Plan>,
    is_open: AtomicBool,
    is_closed: AtomicBool,
    /// Seats that are held and sold at the end.
    seats: Mutex<(i64, i64)>,
    charges_before: u64,
}

impl<'w> Stage<'w> {
    pub async fn set(world: &'w World, watch: &'w Watch, plans: Vec<Plan>) -> Self {
        let ticket_type = format!("type-{}", Uuid::new_v4().simple());
        world.put_ticket_type(&ticket_type, 3).await.expect(201);
        let charges_before = charges(world).await;
        Self {
            world,
            ticket_type,
            watch,
            plans,
            is_open: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            seats: Mutex::new((0, 0)),
            charges_before,
        }
    }

    /// From now on points count, and what is planned happens.
    pub fn open(&self) {
        assert!(!self.is_open.swap(true, Ordering::SeqCst), "a stage opens once");
        self.watch.arm(self.plans.clone());
    }

    /// What comes now only looks at the end. Nothing happens any more, and what was planned must have happened.
    pub fn close(&self) {
        assert!(self.is_open.load(Ordering::SeqCst), "a stage is opened first");
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            assert!(self.watch.stop().is_spent, "{NOT_REACHED}");
        }
    }

    /// Points that a request has crossed, in order.
    pub fn crossed(&self) -> Vec<Crossing> {
        crossed(self.watch)
    }

    pub fn key(&self, word: &str) -> String {
        format!("{word}-{}", self.ticket_type)
    }

    pub fn order_body(&self, quantity: u32) -> Value {
        World::order_body_of(&self.ticket_type, quantity)
    }

    /// An order that nothing goes wrong with.
    pub async fn placed(&self, quantity: u32) -> String {
        let key = self.key(&format!("placed-{}", Uuid::new_v4().simple()));
        self.world.post("/v1/orders", &key, self.order_body(quantity)).await.expect(201).text("id")
    }

    pub fn pay_body(order: &str, method: &str) -> Value {
        json!({"orderId": order, "paymentMethod": method})
    }

    /// Sends a keyed request as often as it takes; the lease of whoever is gone passes meanwhile.
    pub async fn until_answered(&self, path: &str, key: &str, body: &Value, is_answer: fn(&Reply) -> bool) -> Reply {
        self.until(|| self.world.ask(Method::POST, path).key(key).json(body), is_answer).await
    }

    pub async fn until(&self, ask: impl Fn() -> Ask, is_answer: fn(&Reply) -> bool) -> Reply {
        let mut last = None;
        for _ in 0..TRIES {
            match ask().try_send().await {
                Ok(reply) if is_answer(&reply) => return reply,
                reply => last = Some(reply.map(|reply| (reply.status, reply.body))),
            }
            self.world.let_leases_run_out();
        }
        panic!("no answer after {TRIES} tries, at last {last:?}");
    }

    /// The id of the payment that is made under a key: it follows from the operation, as published.
    pub async fn payment_of(&self, key: &str) -> String {
        let idem = format!("http://{}", self.world.addresses().idem);
        let idem = IdempotencyServiceClient::connect(idem).await.unwrap();
        let record = e2e::eventually("the key is there", || {
            let mut idem = idem.clone();
            async move {
                let request = GetRequest { scope: "rest/demo-a".into(), key: key.into() };
                idem.get(request).await.ok()?.into_inner().record
            }
        });
        let operation: Uuid = record.await.operation_id.parse().unwrap();
        Uuid::new_v5(&PAYMENTS, operation.as_bytes()).to_string()
    }

    /// What the seats of this play's ticket type are to be at the end.
    pub fn expect_seats(&self, held: i64, sold: i64) {
        *self.seats.lock().unwrap() = (held, sold);
    }

    /// The key is completed with this answer, which replays; or it was released after a refusal.
    pub async fn check_key(&self, path: &str, key: &str, body: &Value, answer: &Reply) {
        self.close();
        let state = self.world.key_state(key).await.expect(200).text("state");
        if state == "released" {
            assert!(answer.status == 409 && answer.json()["retryable"] == true, "{} and released", answer.status);
            return;
        }
        assert_eq!(state, "completed", "the key of an answer {}", answer.status);
        let replay = self.world.post(path, key, body.clone()).await;
        assert!(replay.is_replay(), "{}", replay.status);
        assert_eq!((replay.status, &replay.body), (answer.status, &answer.body), "a replay is the same, byte for byte");
        assert_eq!(replay.header("location"), answer.header("location"));
    }

    /// Seats are counted right, no more was charged than is paid, and no session is left in a transaction.
    pub async fn check_end(&self) {
        let (held, sold) = *self.seats.lock().unwrap();
        let ticket_type = self.world.ticket_type(&self.ticket_type).await;
        assert_eq!((&ticket_type["held"], &ticket_type["sold"]), (&json!(held), &json!(sold)), "held and sold");
        // Every seat here is one order, paid by one charge.
        assert_eq!(charges(self.world).await - self.charges_before, u64::try_from(sold).unwrap(), "charges");
        if let idem_local::Data::Postgres(url) = &self.world.settings().data {
            let database = e2e::PrivateDatabase::of(url);
            let idle = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
            e2e::eventually("no session is in a transaction", || async {
                (database.number(idle).await == 0).then_some(())
            })
            .await;
        }
    }
}

/// Points that requests have crossed, in order.
pub fn crossed(watch: &Watch) -> Vec<Crossing> {
    let on_the_way = |it: &Crossing| !BACKGROUND.iter().any(|name| it.point.starts_with(name));
    watch.seen().crossed.into_iter().filter(on_the_way).collect()
}

async fn charges(world: &World) -> u64 {
    world.acquirer_totals().await["charges"].as_u64().unwrap()
}
