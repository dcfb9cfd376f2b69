//! A store that goes away: a clear answer in time, nothing half done, and back to work when it returns.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::tasks::Tasks;
use database::{
    Clock, StoreUrl,
    testing::{Scratch, postgres_url},
};
use idem_proto::orders::v1::OrderStatus;
use orders_service::{Config, OrdersService, acquirer::Acquirer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::Instant,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::{
    script::Script,
    world::{Intent, Says as _, World},
};

/// A wire to the store that can be cut.
struct Wire {
    is_cut: Arc<AtomicBool>,
    cutting: Arc<Notify>,
}

impl Wire {
    /// Lays a wire to the store and returns the address at its near end.
    async fn lay(store: &Scratch) -> (Self, StoreUrl) {
        let StoreUrl::Postgres(config) = store.url().clone() else { panic!("a server is needed") };
        let far = SocketAddr::from(([127, 0, 0, 1], config.get_ports()[0]));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let near = listener.local_addr().unwrap().port();
        let url =
            format!("postgres://{}@127.0.0.1:{near}/{}", config.get_user().unwrap(), config.get_dbname().unwrap());
        let wire = Self { is_cut: Arc::default(), cutting: Arc::default() };
        let (is_cut, cutting, tasks) = (Arc::clone(&wire.is_cut), Arc::clone(&wire.cutting), Tasks::new());
        let lines = tasks.clone();
        drop(tasks.spawn("wire", async move {
            loop {
                let (mut caller, _) = listener.accept().await.unwrap();
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let cutting = Arc::clone(&cutting);
                drop(lines.spawn("line", async move {
                    let mut server = TcpStream::connect(far).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut caller, &mut server) => {}
                        () = cutting.notified() => {}
                    }
                }));
            }
        }));
        (wire, url.parse().unwrap())
    }

    fn set_cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
        self.cutting.notify_waiters();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_said_so_in_time_on_postgres() {
    let store = postgres_url("outage").await;
    let (wire, url) = Wire::lay(&store).await;
    let config = Config { store: url, ..Config::default() };
    let script = Arc::new(Script::new());
    let world = World::over(Arc::new(store), config, Arc::clone(&script) as Arc<dyn Acquirer>).await;
    world.put("general", 10, 1000).await;
    let (order, intent) = (world.ordered(1).await, Intent::new());

    wire.set_cut(true);
    let asked = Instant::now();
    for status in [
        world.pay(&intent, 1, &order.id, "pm_approved").await.unwrap_err(),
        world.order_of("demo-a", &order.id).await.unwrap_err(),
        world.lookup(&intent, 1).await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.get_error_details().retry_info().is_some());
    }
    assert!(asked.elapsed() < Duration::from_secs(3 * 2), "{:?}", asked.elapsed());
    assert_eq!(script.charge_calls(&intent.payment()), 0);

    wire.set_cut(false);
    world.eventually("the store is back", || async { world.order_of("demo-a", &order.id).await.is_ok() }).await;
    world.pay(&intent, 2, &order.id, "pm_approved").await.unwrap().payment();
    assert_eq!(world.order(&order.id).await.status(), OrderStatus::Paid);
    // The loops in the background have come back, too.
    let order = world.ordered(1).await;
    world.advance(crate::world::HOLD);
    world.eventually_order(&order.id, OrderStatus::Expired).await;
    world.eventually("the seats are swept", || async { world.put("general", 1, 1000).await.outcome.is_some() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_one_store_on_postgres() {
    let store = Arc::new(postgres_url("replicas").await);
    let script = Arc::new(Script::new());
    let acquirer = || Arc::clone(&script) as Arc<dyn Acquirer>;
    let mut one = World::with(Arc::clone(&store), Config::default(), acquirer()).await;
    let two = World::with(store, Config::default(), acquirer()).await;
    one.script = Arc::clone(&script);
    one.put("general", 50, 1000).await;
    // One token at both: one acts, the other waits for its answer.
    let (order, intent) = (one.ordered(1).await, Intent::new());
    let (first, repeat, ()) =
        tokio::join!(one.pay(&intent, 1, &order.id, "pm_gated"), two.pay(&intent, 1, &order.id, "pm_gated"), async {
            one.eventually("the charge is on its way", || async { script.charge_calls(&intent.payment()) > 0 }).await;
            script.open_gate();
        },);
    assert_eq!(first.unwrap(), repeat.unwrap());
    assert_eq!(script.charge_calls(&intent.payment()), 1);
    // Both watch, one asks; both sweep and refund, once.
    let orders = futures::future::join_all((0..10).map(|_| async { one.paid(1).await })).await;
    let cancelled = orders.iter().enumerate().map(|(at, (order, _))| {
        let world = if at % 2 == 0 { &one } else { &two };
        async move { world.cancel(None, 0, &order.id).await.unwrap().order() }
    });
    futures::future::join_all(cancelled).await;
    for (order, paying) in &orders {
        two.eventually_order(&order.id, OrderStatus::Refunded).await;
        assert_eq!(script.refunds(&paying.payment()), 1);
    }
    assert_eq!(script.refund_calls(), 10);
    assert_eq!(two.stock("general").await, (1, 0, 49));
}

#[tokio::test]
async fn an_unreachable_store_is_one_sentence_at_start() {
    let config = Config {
        store: "postgres://nobody@127.0.0.1:1/nothing".parse().unwrap(),
        listen: ([127, 0, 0, 1], 0).into(),
        admin_listen: ([127, 0, 0, 1], 0).into(),
        ..Config::default()
    };
    let refused = OrdersService::bind(config, Clock::system()).await.err().expect("it must not start");
    assert!(refused.to_string().contains("cannot be reached"), "{refused}");
}
