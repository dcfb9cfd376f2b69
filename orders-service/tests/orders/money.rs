//! Whatever happens, in whatever sequence: no order is paid twice, and no charge is kept that paid nothing.

use std::{collections::BTreeMap, time::Duration};

use idem_proto::orders::v1::{OrderStatus, PaymentStatus};
use orders_service::payment::Verdict;

use crate::{
    on_both_stores,
    world::{HOLD, Intent, World, event},
};

on_both_stores!(every_charge_pays_an_order_or_goes_back);

const STEPS: u32 = 150;
const METHODS: [&str; 7] =
    ["pm_approved", "pm_declined", "pm_pending", "pm_late", "pm_charge_then_drop", "pm_pending_then_drop", "pm_error"];

/// A try at paying an order, as a gateway and its reconciler would drive it.
struct Attempt {
    order: String,
    intent: Intent,
    method: &'static str,
    token: i64,
}

/// Reproducible chance.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[allow(clippy::print_stdout, reason = "shown when the test fails, to play the same again")]
async fn every_charge_pays_an_order_or_goes_back(world: World) {
    let seed = std::env::var("ORDERS_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from_be_bytes(*uuid::Uuid::new_v4().as_bytes().first_chunk().unwrap()) | 1);
    println!("ORDERS_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    world.put("general", 10, 1000).await;
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut orders: Vec<String> = Vec::new();
    for step in 0..STEPS {
        act(&world, &mut dice, step, &mut orders, &mut attempts).await;
        let (sold, held, available) = world.stock("general").await;
        assert!(sold >= 0 && held >= 0 && available >= 0, "step {step}: {sold} {held} {available}");
    }
    settle_everything(&world, &attempts).await;
    check(&world, &orders, &attempts).await;
}

/// One thing that somebody does, or that happens.
async fn act(world: &World, dice: &mut Dice, step: u32, orders: &mut Vec<String>, attempts: &mut Vec<Attempt>) {
    let any_attempt = |dice: &mut Dice, attempts: &[Attempt]| (!attempts.is_empty()).then(|| dice.roll(attempts.len()));
    match dice.roll(12) {
        0 | 1 => {
            let answer = world.place(&Intent::new(), 1, 1 + dice.roll(3) as u32).await.unwrap();
            if let Some(idem_proto::orders::v1::result::Kind::Order(order)) =
                answer.result.and_then(|result| result.kind)
            {
                orders.push(order.id);
            }
        }
        2..=4 if !orders.is_empty() => {
            let order = orders[dice.roll(orders.len())].clone();
            let method = METHODS[dice.roll(METHODS.len())];
            let attempt = Attempt { order, intent: Intent::new(), method, token: 1 };
            let _ = world.pay(&attempt.intent, 1, &attempt.order, attempt.method).await.unwrap();
            attempts.push(attempt);
        }
        5 | 6 => {
            if let Some(at) = any_attempt(dice, attempts) {
                // The client comes again: fence, ask, execute.
                let attempt = &mut attempts[at];
                attempt.token += 1;
                if world.lookup(&attempt.intent, attempt.token).await.is_ok() {
                    let _ = world.pay(&attempt.intent, attempt.token, &attempt.order, attempt.method).await.unwrap();
                }
            }
        }
        7 => {
            if let Some(at) = any_attempt(dice, attempts) {
                attempts[at].token += 1;
                let _ = world.close(&attempts[at].intent, attempts[at].token).await;
            }
        }
        8 if !orders.is_empty() => drop(world.cancel(None, 0, &orders[dice.roll(orders.len())]).await.unwrap()),
        9 if !orders.is_empty() && dice.roll(3) == 0 => {
            drop(world.confirm(None, 0, &orders[dice.roll(orders.len())]).await.unwrap());
        }
        10 => {
            if let Some(at) = any_attempt(dice, attempts) {
                happen(world, dice, step, &attempts[at]).await;
            }
        }
        _ => {
            let waits = [1, 5, 60, 600, HOLD.as_secs() / 2, HOLD.as_secs()];
            world.advance(Duration::from_secs(waits[dice.roll(waits.len())]));
        }
    }
}

/// Something happens at the acquirer, and perhaps it tells.
async fn happen(world: &World, dice: &mut Dice, step: u32, attempt: &Attempt) {
    let payment = attempt.intent.payment();
    let verdict = match world.script.status(&payment) {
        Some(Verdict::Pending) => {
            let verdict = [Verdict::Approved, Verdict::Declined][dice.roll(2)];
            world.script.decide(&payment, verdict);
            verdict
        }
        Some(decided) => decided,
        None if world.script.land_if_late(&payment) => Verdict::Approved,
        None => return,
    };
    if dice.roll(2) == 0 {
        let kind = if verdict == Verdict::Approved { "payment.approved" } else { "payment.declined" };
        let amount = world.order(&attempt.order).await.total.unwrap().amount;
        world.deliver(&event(&format!("evt-{step}"), kind, &payment, amount)).await;
    }
}

/// The acquirer decides whatever is left, and time passes until nothing is undecided.
async fn settle_everything(world: &World, attempts: &[Attempt]) {
    for attempt in attempts {
        let payment = attempt.intent.payment();
        let _ = world.script.land_if_late(&payment);
        if world.script.status(&payment) == Some(Verdict::Pending) {
            world.script.decide(&payment, Verdict::Approved);
        }
    }
    world
        .eventually("every charge is accounted for", || async {
            world.advance(Duration::from_secs(601));
            let mut is_over = true;
            for attempt in attempts {
                let payment = attempt.intent.payment();
                let Ok(row) = world.payment_of("demo-a", &payment).await else { continue };
                let is_known = world.script.status(&payment).is_some();
                is_over &= row.status() != PaymentStatus::RefundPending;
                is_over &= !is_known || row.status() != PaymentStatus::Pending;
            }
            is_over
        })
        .await;
}

async fn check(world: &World, orders: &[String], attempts: &[Attempt]) {
    let mut kept: BTreeMap<&str, u32> = BTreeMap::new();
    for attempt in attempts {
        let payment = attempt.intent.payment();
        let charged = world.script.status(&payment) == Some(Verdict::Approved);
        let refunds = world.script.refunds(&payment);
        assert!(refunds <= usize::from(charged), "refunded more than was charged");
        if let Ok(row) = world.payment_of("demo-a", &payment).await {
            let expected = match (charged, refunds) {
                (true, 0) => PaymentStatus::Approved,
                (true, _) => PaymentStatus::Refunded,
                (false, _) if row.status() == PaymentStatus::Declined => PaymentStatus::Declined,
                (false, _) => PaymentStatus::Pending,
            };
            assert_eq!(row.status(), expected, "{payment} by {}", attempt.method);
        }
        *kept.entry(&attempt.order).or_default() += u32::from(charged && refunds == 0);
    }
    let (mut sold, mut held) = (0, 0);
    for id in orders {
        let order = world.order(id).await;
        let kept = kept.get(id.as_str()).copied().unwrap_or_default();
        let seats = order.tickets.len() as i64;
        match order.status() {
            // Once at the acquirer, or elsewhere.
            OrderStatus::Paid => sold += seats,
            OrderStatus::Pending => held += seats,
            _ => {}
        }
        let most = u32::from(order.status() == OrderStatus::Paid);
        assert!(kept <= most, "{kept} charges kept for an order that is {:?}", order.status());
        assert_ne!(order.status(), OrderStatus::RefundPending);
    }
    let stock = world.stock("general").await;
    assert_eq!((stock.0, stock.1), (sold, held));
}
