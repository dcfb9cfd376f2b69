//! Payments that come at once begin and are settled together, and each has the end it would have had alone.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use idem_proto::orders::v1::{Label, Order, OrderStatus, PaymentStatus, RefusalReason};
use orders_service::Config;
use tokio_postgres::NoTls;
use tonic::Code;

use crate::{
    on_both_stores,
    world::{HOLD, Intent, Says as _, World, why},
};

on_both_stores!(a_crowd_pays_for_one_ticket_type, odd_payments_in_a_crowd_end_as_they_would_alone);

const DEADLOCKS: &str = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";

/// How long a crowd may take. Transactions that wait for each other in a circle are only told after a second each.
const PATIENCE: Duration = Duration::from_secs(30);

async fn orders(world: &World, count: usize, items: &[(&str, u32)]) -> Vec<Order> {
    let place = |_| async { world.place_of(&Intent::new(), 1, "demo", items).await.unwrap().order() };
    join_all((0..count).map(place)).await
}

async fn a_crowd_pays_for_one_ticket_type(world: World) {
    let orders = orders(&world, 60, &[("general", 1)]).await;
    let intents: Vec<_> = orders.iter().map(|order| (Intent::new(), order)).collect();
    let pays = intents.iter().map(|(intent, order)| world.pay(intent, 1, &order.id, "pm_approved"));
    for ((intent, order), answer) in intents.iter().zip(join_all(pays).await) {
        let payment = answer.unwrap().payment();
        assert_eq!((payment.id, payment.order_id), (intent.payment(), order.id.clone()));
        assert_eq!(world.script.charge_calls(&intent.payment()), 1);
        assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    }
    assert_eq!(world.stock("general").await, (60, 0, 40));
}

async fn odd_payments_in_a_crowd_end_as_they_would_alone(world: World) {
    // One whose hold is over when its approval comes.
    let (lapsed, late) = (world.ordered(1).await, Intent::new());
    let late_call = {
        let (client, request) = (world.client.clone(), crate::world::pay_request(&late, 1, &lapsed.id, "pm_gated"));
        chassis::tasks::Tasks::new().spawn("late", async move { client.clone().pay(request).await })
    };
    world.eventually("it is sent", || async { world.script.charge_calls(&late.payment()) == 1 }).await;
    world.advance(HOLD * 2);
    world.eventually_order(&lapsed.id, OrderStatus::Expired).await;

    let orders = orders(&world, 24, &[("general", 1)]).await;
    let (paid, earlier) = world.paid(1).await;
    let [declined, pending, stale] = [Intent::new(), Intent::new(), Intent::new()];
    world.lookup(&stale, 5).await.unwrap();
    let crowd: Vec<_> = orders[3..].iter().map(|order| (Intent::new(), order)).collect();
    let crowd_pays = crowd.iter().map(|(intent, order)| world.pay(intent, 1, &order.id, "pm_approved"));
    let odd = async {
        world.script.open_gate();
        tokio::join!(
            world.pay(&declined, 1, &orders[0].id, "pm_declined"),
            world.pay(&pending, 1, &orders[1].id, "pm_pending"),
            world.pay(&stale, 4, &orders[2].id, "pm_approved"),
            world.pay(&earlier, 2, &paid.id, "pm_approved"),
        )
    };
    let (answers, (refused, undecided, fenced, replayed)) = tokio::join!(join_all(crowd_pays), odd);
    for answer in answers {
        answer.unwrap().payment();
    }
    assert_eq!(refused.unwrap().refusal(), (Label::Final, RefusalReason::PaymentDeclined));
    assert_eq!(undecided.unwrap().label(), Label::Unknown);
    assert_eq!(world.payment(&pending).await.status(), PaymentStatus::Pending);
    assert_eq!(why(fenced), (Code::FailedPrecondition, "STALE_FENCING_TOKEN".to_owned()));
    assert_eq!(world.script.charge_calls(&stale.payment()), 0);
    let replayed = replayed.unwrap();
    assert!(replayed.replayed && replayed.payment().id == earlier.payment());
    assert_eq!(world.script.charge_calls(&earlier.payment()), 1);
    // Its seat was free to be taken again.
    late_call.await.unwrap().unwrap().into_inner().answer.unwrap().payment();
    assert_eq!(world.order(&lapsed.id).await.status(), OrderStatus::Paid);
    assert_eq!(world.stock("general").await, (23, 3, 74));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_of_two_services_in_opposite_order_never_wait_in_a_circle_on_postgres() {
    let world = World::on_postgres("pay_opposite").await;
    let other = World::with(world.store(), Config::default(), Arc::clone(&world.script) as _).await;
    for id in ["a", "b"] {
        world.put(id, 100, 100).await;
    }
    let mut orders = orders(&world, 40, &[("a", 1), ("b", 1)]).await;
    orders.extend(self::orders(&other, 40, &[("b", 1), ("a", 1)]).await);
    // Both services have some of every kind, one from the front and the other from the back.
    let (here, there): (Vec<_>, Vec<_>) = orders.iter().enumerate().partition(|(at, _)| at % 2 == 0);
    let intents: Vec<_> = orders.iter().map(|_| Intent::new()).collect();
    let pay = |at: usize, world: &World| {
        let (client, intent) = (world.client.clone(), intents[at].clone());
        let request = crate::world::pay_request(&intent, 1, &orders[at].id, "pm_approved");
        async move { client.clone().pay(request).await.unwrap().into_inner().answer.unwrap().payment() }
    };
    let front = here.iter().map(|(at, _)| pay(*at, &world));
    let back = there.iter().rev().map(|(at, _)| pay(*at, &other));
    tokio::time::timeout(PATIENCE, async { tokio::join!(join_all(front), join_all(back)) }).await.unwrap();
    for id in ["a", "b"] {
        assert_eq!(world.stock(id).await, (80, 0, 20));
    }
    let database::StoreUrl::Postgres(config) = world.store_directly() else { panic!("a server is needed") };
    let (client, connection) = config.connect(NoTls).await.unwrap();
    drop(chassis::tasks::Tasks::new().spawn("client", connection));
    assert_eq!(client.query_one(DEADLOCKS, &[]).await.unwrap().get::<_, i64>(0), 0);
}
