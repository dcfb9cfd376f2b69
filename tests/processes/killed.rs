//! `kill -9` of each process at each point of a purchase. Every key ends in one answer after a retry, and completed or
//! released without one; never more than one order, never more than one charge.
//!
//! A point is reached by freezing a road between two processes and watching what has become durable, so that no timing decides.

use e2e::{Fleet, FleetSettings, Role, Way, eventually};
use serde_json::{Value, json};

/// Where in a purchase somebody dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    /// The key is reserved; nothing was forwarded.
    AfterReserve,
    /// The orders service has committed; its answer is on its way.
    AfterTheHold,
    /// The acquirer is at it.
    DuringASlowCharge,
    /// The acquirer has charged; its answer is on its way.
    AfterTheCharge,
    /// The gateway has the answer; its Complete is on its way.
    BeforeComplete,
}

/// What is bought when somebody dies: an order, or a payment of one.
struct Purchase {
    path: &'static str,
    body: Value,
    key: &'static str,
}

impl Point {
    fn concerns_a_payment(self) -> bool {
        matches!(self, Point::DuringASlowCharge | Point::AfterTheCharge | Point::BeforeComplete)
    }

    fn method(self) -> &'static str {
        if self == Point::DuringASlowCharge { "pm_slow_1500" } else { "pm_approved" }
    }

    /// Sends the request and returns once the point is reached.
    async fn reach(self, fleet: &Fleet, purchase: &Purchase, charges_before: u64) {
        match self {
            Point::AfterReserve => fleet.to_orders.freeze(Way::Request),
            Point::AfterTheHold => fleet.to_orders.freeze(Way::Answer),
            Point::DuringASlowCharge => {}
            Point::AfterTheCharge => fleet.to_acquirer.freeze(Way::Answer),
            Point::BeforeComplete => fleet.to_orders.freeze(Way::Answer),
        }
        let observed = async {
            match self {
                Point::AfterReserve => until_reserved(fleet, purchase).await,
                Point::AfterTheHold => until_held(fleet, 1).await,
                Point::DuringASlowCharge => until_acquirer_is_asked(fleet).await,
                Point::AfterTheCharge => until_charged(fleet, charges_before + 1).await,
                Point::BeforeComplete => {
                    eventually("the order is paid in the rows", || async {
                        (fleet.sold_in_database().await == 1).then_some(())
                    })
                    .await;
                }
            }
            if self == Point::BeforeComplete {
                fleet.to_idem.freeze(Way::Request);
                fleet.to_orders.thaw();
                // The answer passes the thawed road; what the gateway then sends to the idempotency service waits at the frozen one.
                fleet.to_idem.until_held_back(Way::Request).await;
            }
        };
        tokio::select! {
            _ = fleet.post(purchase.path, purchase.key, &purchase.body) => panic!("{self:?}: answered before anybody died"),
            () = observed => {}
        }
    }
}

async fn until_reserved(fleet: &Fleet, purchase: &Purchase) {
    eventually("the key is reserved", || async {
        (fleet.key_state(purchase.key).await? == "in_progress").then_some(())
    })
    .await;
}

async fn until_held(fleet: &Fleet, seats: i64) {
    eventually("the seats are held", || async { (fleet.held_in_database().await == seats).then_some(()) }).await;
}

async fn until_acquirer_is_asked(fleet: &Fleet) {
    eventually("a payment is begun at the acquirer", || async {
        (fleet.payments_at_acquirer().await > 0).then_some(())
    })
    .await;
}

async fn until_charged(fleet: &Fleet, charges: u64) {
    eventually("the acquirer has charged", || async {
        (fleet.acquirer_totals().await["charges"].as_u64()? == charges).then_some(())
    })
    .await;
}

/// One purchase, one death, and what becomes of it.
async fn survive(victim: Role, point: Point, with_retry: bool) {
    let mut fleet = Fleet::start(FleetSettings::default()).await;
    let order_body = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]});
    let purchase = if point.concerns_a_payment() {
        let order = fleet.until_answered("/v1/orders", "first", &order_body).await.expect(201).text("id");
        let body = json!({"orderId": order, "paymentMethod": point.method()});
        Purchase { path: "/v1/payments", body, key: "purchase" }
    } else {
        Purchase { path: "/v1/orders", body: order_body, key: "purchase" }
    };
    point.reach(&fleet, &purchase, 0).await;
    fleet.process(victim).kill();
    for road in [&fleet.to_idem, &fleet.to_orders, &fleet.to_acquirer] {
        road.thaw();
    }
    fleet.process(victim).restart();
    fleet.until_ready().await;

    if with_retry {
        let answer = fleet.until_answered(purchase.path, purchase.key, &purchase.body).await.expect(201);
        let replay = fleet.until_answered(purchase.path, purchase.key, &purchase.body).await;
        assert!(replay.expect_same_as(&answer).is_replay());
        assert_eq!(fleet.key_state(purchase.key).await.as_deref(), Some("completed"));
    } else {
        eventually("the key is settled by the reconciler", || async {
            let state = fleet.key_state(purchase.key).await?;
            ["completed", "released"].contains(&state.as_str()).then_some(())
        })
        .await;
    }
    let (held, sold) = fleet.taken().await.expect("stock can be read");
    assert!(held + sold <= 1, "one order at most: {held} held, {sold} sold");
    let totals = fleet.acquirer_totals().await;
    assert!(totals["charges"].as_u64().unwrap() <= 1, "{totals}");
    match (with_retry, point.concerns_a_payment()) {
        (true, true) => {
            assert_eq!((held, sold), (0, 1));
            assert_eq!(totals, json!({"charges": 1, "captured": 1000, "refunded": 0}));
        }
        (true, false) => assert_eq!((held, sold), (1, 0)),
        (false, _) => {}
    }
}

macro_rules! deaths {
    ($($name:ident: $victim:ident, $point:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn and_retried_on_postgres() {
                survive(Role::$victim, Point::$point, true).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn and_left_alone_on_postgres() {
                survive(Role::$victim, Point::$point, false).await;
            }
        }
    )*};
}

deaths! {
    gateway_killed_after_reserve: Gateway, AfterReserve;
    gateway_killed_after_the_hold: Gateway, AfterTheHold;
    gateway_killed_during_a_slow_charge: Gateway, DuringASlowCharge;
    gateway_killed_after_the_charge: Gateway, AfterTheCharge;
    gateway_killed_before_complete: Gateway, BeforeComplete;
    orders_killed_after_reserve: Orders, AfterReserve;
    orders_killed_after_the_hold: Orders, AfterTheHold;
    orders_killed_during_a_slow_charge: Orders, DuringASlowCharge;
    orders_killed_after_the_charge: Orders, AfterTheCharge;
    orders_killed_before_complete: Orders, BeforeComplete;
    idem_killed_after_reserve: Idem, AfterReserve;
    idem_killed_after_the_hold: Idem, AfterTheHold;
    idem_killed_during_a_slow_charge: Idem, DuringASlowCharge;
    idem_killed_after_the_charge: Idem, AfterTheCharge;
    idem_killed_before_complete: Idem, BeforeComplete;
}
