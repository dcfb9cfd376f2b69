//! What a buyer goes through: an order, how it is paid or not, and what becomes of it.

use rand::{Rng as _, seq::IndexedRandom as _};
use serde_json::{Value, json};

use super::{
    ask::Ask,
    buyer::Buyer,
    market::{VENUE, is_hot},
    pursuit::Want,
};
use crate::{
    checker::{Class, encoded},
    history::{Answer, Kind, Purpose},
};

/// Methods of payment and how often each is chosen.
const METHODS: [(&str, u32); 12] = [
    ("pm_approved", 40),
    ("pm_declined", 9),
    ("pm_pending", 7),
    ("pm_slow_300", 6),
    ("pm_slow_900", 4),
    ("pm_slow_1500", 4),
    ("pm_charge_then_hang", 6),
    ("pm_charge_then_drop", 7),
    ("pm_pending_charge_then_hang", 4),
    ("pm_error", 3),
    ("pm_drop", 4),
    ("pm_late_", 6),
];

/// A client that walks away for good does so after at most so many tries.
const ABANDONED: f64 = 0.07;

impl Buyer {
    /// One order and what comes of it.
    pub(super) async fn journey(&mut self) {
        if self.chance(0.25) {
            self.look_back().await;
        }
        let basket = self.market.clone().basket(&mut self.randomness);
        self.is_after_hot_seats = is_hot(&basket);
        let given_back = if self.is_after_hot_seats { 0.75 } else { 0.2 };
        let Some(order) = self.place(&basket).await else { return };
        if self.chance(0.15) {
            self.look_at("orders", &order).await;
        }
        if self.chance(0.05) {
            self.link(&order).await;
        }
        match self.randomness.random_range(0..100) {
            0..=59 => self.pay_until_paid(&order).await,
            60..=66 => drop(self.change(Kind::Confirm, &order).await),
            67..=76 => drop(self.change(Kind::Cancel, &order).await),
            77..=87 => self.rush(&order).await,
            88..=92 => {
                self.linger().await;
                self.pay_until_paid(&order).await;
            }
            // The hold runs out by itself.
            _ => return,
        }
        if self.chance(0.3) {
            self.look_at("orders", &order).await;
        }
        if self.chance(0.2) {
            self.use_tickets(&order).await;
        }
        if self.chance(given_back) {
            self.change(Kind::Cancel, &order).await;
            self.look_at("orders", &order).await;
        }
        if self.chance(0.05) {
            self.trespass(&order).await;
        }
    }

    async fn place(&mut self, basket: &[(&str, u32)]) -> Option<String> {
        let items = |more: u32| -> Vec<Value> {
            basket.iter().map(|(name, seats)| json!({"ticketTypeId": name, "quantity": seats + more})).collect()
        };
        let (body, other) =
            (json!({"venueId": VENUE, "items": items(0)}), json!({"venueId": VENUE, "items": items(1)}));
        let want = self.want(Kind::Place, "/v1/orders".to_owned(), body.to_string(), Some(other.to_string()));
        let bought = self.pursue(want).await?;
        text(&bought.answer, "id")
    }

    /// Tries to pay, with other means when one is declined or leads nowhere.
    async fn pay_until_paid(&mut self, order: &str) {
        for _ in 0..3 {
            let method = self.method();
            let body = json!({"orderId": order, "paymentMethod": method}).to_string();
            let other = if method == "pm_approved" { "pm_slow_300" } else { "pm_approved" };
            let other = json!({"orderId": order, "paymentMethod": other}).to_string();
            let mut want = self.want(Kind::Pay, "/v1/payments".to_owned(), body, Some(other));
            // Some of these are never decided: nobody goes on asking for ever.
            let tries_max = match method.as_str() {
                "pm_error" | "pm_drop" => Some(3),
                "pm_pending" | "pm_pending_charge_then_hang" => Some(9),
                _ => None,
            };
            want.tries_max = want.tries_max.or(tries_max);
            let bought = self.pursue(want).await;
            match bought.map(|bought| bought.answer) {
                Some(answer) if answer.status == 402 => self.think(0..600).await,
                Some(answer) => {
                    if let (true, Some(payment)) = (self.chance(0.2), text(&answer, "id")) {
                        self.look_at("payments", &payment).await;
                    }
                    if self.chance(0.04) {
                        self.forge(&answer).await;
                    }
                    return;
                }
                None => self.think(0..2_000).await,
            }
        }
    }

    /// Pays and does something else with the same order at the same time, under another key: only one of them may come to something.
    async fn rush(&mut self, order: &str) {
        let mut twin = self.twin();
        let other = async {
            twin.think(0..400).await;
            match twin.randomness.random_range(0..3) {
                0 => drop(twin.change(Kind::Cancel, order).await),
                1 => drop(twin.change(Kind::Confirm, order).await),
                _ => twin.pay_until_paid(order).await,
            }
        };
        tokio::join!(self.pay_until_paid(order), other);
        self.bought.append(&mut twin.bought);
    }

    /// Waits until the hold of the order is about to be over, or just is.
    async fn linger(&mut self) {
        let hold = self.sender.edge.hold_ttl;
        let until = hold.mul_f64(self.randomness.random_range(0.93..1.03));
        self.rest_while_buying(until).await;
    }

    /// Confirms or cancels, with a key or without one.
    async fn change(&mut self, kind: Kind, order: &str) -> Option<Answer> {
        let verb = if kind == Kind::Confirm { "confirm" } else { "cancel" };
        let mut want = self.want(kind, format!("/v1/orders/{order}/{verb}"), String::new(), None);
        if self.chance(0.25) {
            want.key = None;
        }
        self.pursue(want).await.map(|bought| bought.answer)
    }

    async fn use_tickets(&mut self, order: &str) {
        let Some(answer) = self.read(Purpose::Read, self.tenant, format!("/v1/orders/{order}")).await else { return };
        let tickets: Vec<String> = answer.json()["tickets"]
            .as_array()
            .map(|tickets| tickets.iter().filter_map(|it| it["id"].as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        let Some(ticket) = tickets.choose(&mut self.randomness).cloned() else { return };
        for _ in 0..self.randomness.random_range(1..=2) {
            let mut want = self.want(Kind::CheckIn, format!("/v1/tickets/{ticket}/check-in"), String::new(), None);
            if self.chance(0.4) {
                want.key = None;
            }
            self.pursue(want).await;
        }
    }

    /// Asks for something that was finished long ago, or looks at what is for sale.
    async fn look_back(&mut self) {
        if self.chance(0.2) {
            let ticket_type = self.market.clone().any(&mut self.randomness);
            self.read(Purpose::Read, self.tenant, format!("/v1/ticket-types/{ticket_type}")).await;
        } else if let Some(bought) = self.bought.choose(&mut self.randomness).cloned() {
            match bought.want.key.as_deref().filter(|_| self.chance(0.2)) {
                Some(key) => {
                    let path = format!("/v1/idempotency-keys/{}", encoded(key));
                    self.read(Purpose::Read, self.tenant, path).await;
                }
                None => self.ask_again(&bought).await,
            }
        }
    }

    async fn look_at(&mut self, what: &str, id: &str) {
        self.read(Purpose::Read, self.tenant, format!("/v1/{what}/{id}")).await;
    }

    /// Reads, cancels or pays, as another tenant, this one's order.
    async fn trespass(&mut self, order: &str) {
        let other = (self.tenant + 1) % self.sender.edge.tenants.len();
        let read = self.reading(Purpose::Trespass, other, format!("/v1/orders/{order}"));
        let ask = match self.randomness.random_range(0..3) {
            0 => read,
            1 => Ask { method: "POST", path: format!("/v1/orders/{order}/cancel"), ..read },
            _ => {
                let key = format!("trespass {}", self.new_key());
                let body = json!({"orderId": order, "paymentMethod": "pm_approved"}).to_string();
                Ask { method: "POST", path: "/v1/payments".to_owned(), key: Some((key.clone(), key)), body, ..read }
            }
        };
        self.sender.clone().send(ask, None).await;
    }

    /// A payment link. It takes no key; one that is sent is ignored.
    async fn link(&mut self, order: &str) {
        let path = format!("/v1/orders/{order}/payment-link");
        let ask = Ask { method: "POST", ..self.reading(Purpose::Read, self.tenant, path) };
        self.sender.clone().send(ask, None).await;
    }

    async fn read(&mut self, purpose: Purpose, tenant: usize, path: String) -> Option<Answer> {
        let ask = self.reading(purpose, tenant, path);
        let answer = self.sender.clone().send(ask, None).await;
        answer.filter(|answer| answer.status == 200)
    }

    fn reading(&mut self, purpose: Purpose, tenant: usize, path: String) -> Ask {
        Ask {
            purpose,
            intent: None,
            buyer: self.number,
            tenant,
            gateway: self.gateway(),
            method: "GET",
            path,
            key: None,
            body: String::new(),
            wait_s: None,
        }
    }

    fn want(&mut self, kind: Kind, path: String, body: String, other_body: Option<String>) -> Want {
        let key = Some(self.new_key());
        let tries_max = self.chance(ABANDONED).then(|| self.randomness.random_range(1..=2));
        let other_body = other_body.filter(|_| self.chance(0.04));
        Want { kind, path, body, key, tries_max, other_body }
    }

    fn method(&mut self) -> String {
        // Whether their approval comes before or after somebody else has them, is the question for such seats.
        if self.is_after_hot_seats && self.chance(0.3) {
            return "pm_pending".to_owned();
        }
        let (method, _) =
            METHODS.choose_weighted(&mut self.randomness, |(_, weight)| *weight).expect("the weights are positive");
        match *method {
            "pm_late_" => format!("pm_late_{}", self.randomness.random_range(300..4_000)),
            method => method.to_owned(),
        }
    }
}

/// A member of an answer that was a success.
fn text(answer: &Answer, name: &str) -> Option<String> {
    (Class::of(answer) == Class::Final && answer.status < 300)
        .then(|| answer.json()[name].as_str().map(str::to_owned))
        .flatten()
}
