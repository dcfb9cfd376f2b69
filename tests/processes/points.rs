//! Real processes that kill themselves at one exact place: between two statements, after a commit, before an answer is believed.
//!
//! The place is armed by the environment of the process, so no timing decides. Killed there, started again without it, and the end is
//! the same: one answer under the key, one order, one charge, or the money back once.

use std::{os::unix::process::ExitStatusExt as _, time::Duration};

use e2e::{Fleet, FleetSettings, Role, eventually};
use serde_json::{Value, json};
use tokio::time::Instant;

/// What a buyer is in the middle of when somebody dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purchase {
    /// An order is being placed.
    Order,
    /// An order is being paid.
    Payment,
    /// A paid order is being cancelled, which sends the money back.
    Refund,
}

struct Asked {
    path: String,
    body: Value,
}

const KEY: &str = "purchase";

fn order_body() -> Value {
    json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]})
}

impl Purchase {
    /// Everything that comes before it, with nobody dying.
    async fn prepare(self, fleet: &Fleet) -> Asked {
        if self == Self::Order {
            return Asked { path: "/v1/orders".into(), body: order_body() };
        }
        let order = fleet.until_answered("/v1/orders", "first", &order_body()).await.expect(201).text("id");
        let body = json!({"orderId": order, "paymentMethod": "pm_approved"});
        if self == Self::Payment {
            return Asked { path: "/v1/payments".into(), body };
        }
        fleet.until_answered("/v1/payments", "second", &body).await.expect(201);
        Asked { path: format!("/v1/orders/{order}/cancel"), body: json!({}) }
    }

    /// (held, sold) and the acquirer's totals when all is done.
    fn end(self) -> ((u64, u64), Value) {
        match self {
            Self::Order => ((1, 0), json!({"charges": 0, "captured": 0, "refunded": 0})),
            Self::Payment => ((0, 1), json!({"charges": 1, "captured": 1000, "refunded": 0})),
            Self::Refund => ((0, 0), json!({"charges": 1, "captured": 1000, "refunded": 1000})),
        }
    }
}

async fn survive(victim: Role, point: &str, purchase: Purchase) {
    let mut fleet = Fleet::start(FleetSettings::default()).await;
    let asked = purchase.prepare(&fleet).await;
    fleet.process(victim).restart_with(&[("IDEM_FAULT_POINT", &format!("{point}=kill"))]);
    fleet.until_ready().await;
    until_killed(&mut fleet, victim, point, &asked).await;
    fleet.process(victim).restart();
    fleet.until_ready().await;

    let answer = fleet.until_answered(&asked.path, KEY, &asked.body).await;
    assert!(answer.status.is_success(), "{point}: {}", answer.status);
    let replay = fleet.until_answered(&asked.path, KEY, &asked.body).await;
    assert!(replay.expect_same_as(&answer).is_replay());
    assert_eq!(fleet.key_state(KEY).await.as_deref(), Some("completed"));
    let (seats, totals) = purchase.end();
    eventually(&format!("{point}: everything is where it belongs"), || async {
        (fleet.taken().await? == seats && fleet.acquirer_totals().await == totals).then_some(())
    })
    .await;
}

/// Sends, and sees its connection break or an answer that promises nothing, until the victim is gone.
async fn until_killed(fleet: &mut Fleet, victim: Role, point: &str, asked: &Asked) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        fleet.post(&asked.path, KEY, &asked.body).await;
        if let Some(status) = fleet.process(victim).ended() {
            // Not by a panic, and not by an exit: it killed itself.
            assert_eq!(status.signal(), Some(6), "{point}: {status}");
            return;
        }
        assert!(Instant::now() < end, "{point} was not reached");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

macro_rules! deaths {
    ($($name:ident: $victim:ident at $point:literal in $purchase:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            survive(Role::$victim, $point, Purchase::$purchase).await;
        }
    )*};
}

deaths! {
    orders_dies_once_the_hold_is_committed_on_postgres: Orders at "place orders: committed#1" in Order;
    orders_dies_before_the_charge_is_sent_on_postgres: Orders at "acquirer charge: send#1" in Payment;
    orders_dies_once_the_charge_is_made_on_postgres: Orders at "acquirer charge: answered#1" in Payment;
    orders_dies_before_the_settlement_commits_on_postgres: Orders at "settle payments: commit#1" in Payment;
    orders_dies_once_the_settlement_is_committed_on_postgres: Orders at "settle payments: committed#1" in Payment;
    gateway_dies_before_it_says_complete_on_postgres: Gateway at "complete: call#1" in Payment;
    idem_dies_once_the_answer_is_stored_on_postgres: Idem at "idem swap: answered#2" in Payment;
    orders_dies_once_the_refund_is_made_on_postgres: Orders at "acquirer refund: answered#1" in Refund;
}
