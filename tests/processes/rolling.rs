//! A deployment under load: two gateways and two idempotency services, restarted in turn, and nobody who buys notices.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::tasks::Tasks;
use e2e::{API_KEY, Balancer, OPERATOR_KEY, Role, Server, Site, eventually};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, MissedTickBehavior},
};

/// Between two buyers: a hundred in a second.
const EVERY: Duration = Duration::from_millis(10);

/// Buyers at a time: on a machine that cannot carry a hundred in a second there are fewer, instead of an overload that would fail
/// requests without any restart.
const BUYERS_MAX: usize = 32;

/// As many rows of stock, so that buyers do not wait for each other.
const TICKET_TYPES: usize = 16;

/// What became of a buyer's one request; no buyer asks twice.
struct Sale {
    key: String,
    /// The id of the order, or what went wrong.
    order: Result<String, String>,
    took: Duration,
}

async fn buy(http: reqwest::Client, url: String, n: usize) -> Sale {
    let (key, ticket_type) = (format!("buyer-{n}"), format!("type-{}", n % TICKET_TYPES));
    let body = json!({"venueId": "demo", "items": [{"ticketTypeId": ticket_type, "quantity": 1}]});
    let asked = Instant::now();
    let answer = http.post(url).bearer_auth(API_KEY).header("idempotency-key", &key).json(&body).send().await;
    let order = match answer {
        Ok(answer) if answer.status() == 201 => match answer.json::<Value>().await {
            Ok(order) => Ok(order["id"].as_str().unwrap_or_default().to_owned()),
            Err(error) => Err(format!("{error:?}")),
        },
        Ok(answer) => Err(format!("{}: {}", answer.status(), answer.text().await.unwrap_or_default())),
        Err(error) => Err(format!("{error:?}")),
    };
    Sale { key, order, took: asked.elapsed() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_a_hundred_orders_a_second_fails_no_request_on_postgres() {
    let mut site = Site::new().await;
    // Longer than a balancer takes to notice, and than a client keeps a connection that it does not use.
    site.drain_delay = Duration::from_millis(500);
    site.drain = Duration::from_secs(10);
    let (gateways, idems) = ([site.gateway, Site::server()], [site.idem, Site::server()]);
    let to_gateways = Balancer::before(&gateways).await;
    let to_idems = Balancer::before(&idems).await;
    site.idem_endpoint = to_idems.address();
    site.webhooks = to_gateways.address();

    let _sandbox = site.start(Role::Sandbox);
    let _orders = site.start(Role::Orders);
    let mut idem_processes = idems.map(|at| site.start_at(Role::Idem, at));
    let mut gateway_processes = gateways.map(|at| site.start_at(Role::Gateway, at));
    to_idems.until_all_are_ready().await;
    to_gateways.until_all_are_ready().await;

    let http = reqwest::Client::builder()
        .pool_idle_timeout(Duration::from_millis(200))
        .timeout(Duration::from_secs(20))
        .retry(reqwest::retry::never())
        .build()
        .unwrap();
    let base = format!("http://{}", to_gateways.address());
    for n in 0..TICKET_TYPES {
        let price = json!({"amount": 1000, "currency": "EUR"});
        let body = json!({"venueId": "demo", "name": "Some", "price": price, "capacity": 1_000_000});
        eventually("the ticket type is there", || async {
            let request = http.put(format!("{base}/v1/ticket-types/type-{n}")).bearer_auth(OPERATOR_KEY).json(&body);
            request.send().await.ok().filter(|answer| answer.status().is_success()).map(drop)
        })
        .await;
    }

    let (is_over, sales) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let began = Instant::now();
    let buying = {
        let (is_over, sales, http, url) = (is_over.clone(), sales.clone(), http.clone(), format!("{base}/v1/orders"));
        let buyers = Tasks::new();
        let (crowd, places) = (buyers.clone(), Arc::new(Semaphore::new(BUYERS_MAX)));
        Tasks::new().spawn("crowd", async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for n in 0.. {
                ticks.tick().await;
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let place = places.clone().acquire_owned().await.expect("it is never closed");
                let (sales, sale) = (sales.clone(), buy(http.clone(), url.clone(), n));
                drop(crowd.spawn("buyer", async move {
                    let _place = place;
                    let sale = sale.await;
                    sales.lock().unwrap().push(sale);
                }));
            }
            buyers.wait().await;
        })
    };

    let mut used = Duration::ZERO;
    for at in 0..2 {
        used += restart(&site, Role::Idem, &mut idem_processes[at], idems[at], &to_idems).await;
        used += restart(&site, Role::Gateway, &mut gateway_processes[at], gateways[at], &to_gateways).await;
    }
    is_over.store(true, Ordering::SeqCst);
    buying.await.unwrap();
    let took = began.elapsed();

    let sales = std::mem::take(&mut *sales.lock().unwrap());
    let failed: Vec<_> =
        sales.iter().filter_map(|sale| sale.order.as_ref().err().map(|why| format!("{}: {why}", sale.key))).collect();
    let mut times: Vec<_> = sales.iter().map(|sale| sale.took).collect();
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).or(times.last()).copied().unwrap_or_default();
    let rate = sales.len() as f64 / took.as_secs_f64();
    println!(
        "{} orders in {took:?} ({rate:.0}/s), median {:?}, 99th {:?}, slowest {:?}, restarted processes used {used:?}",
        sales.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(failed.is_empty(), "{} of {} failed: {:#?}", failed.len(), sales.len(), &failed[..failed.len().min(5)]);
    assert_eq!((to_gateways.refused(), to_idems.refused()), (0, 0), "nobody was sent to a closed door");
    assert!(sales.len() >= 100, "the load was there: {} at {rate:.0}/s", sales.len());

    // Each key one order, each answer stored.
    let mut ids: Vec<_> = sales.iter().filter_map(|sale| sale.order.as_ref().ok()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), sales.len());
    let expected = sales.len() as i64;
    assert_eq!(site.database.number("SELECT count(*) FROM orders").await, expected);
    let completed = "SELECT count(*) FROM idem_keys WHERE state = 'completed' AND fencing_token = 1";
    assert_eq!(site.database.number(completed).await, expected);
    assert_eq!(site.database.number("SELECT sum(held)::bigint FROM ticket_types").await, expected);
}

/// SIGTERM, the end with 0, and a new one in its place. Returns how long the old one has used processors.
async fn restart(site: &Site, role: Role, process: &mut e2e::Process, at: Server, balancer: &Balancer) -> Duration {
    // Some load on both before the next one goes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let used = process.processor_time();
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{role:?}");
    *process = site.start_at(role, at);
    balancer.until_all_are_ready().await;
    used
}
