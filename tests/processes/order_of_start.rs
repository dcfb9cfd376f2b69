//! The four programs start in each of the twenty-four orders, on an empty database: each ends ready, and a ticket is sold.

use std::net::SocketAddr;

use e2e::{API_KEY, OPERATOR_KEY, Role, Site, eventually};
use serde_json::{Value, json};

async fn until_answers(what: &str, at: SocketAddr, path: &str) {
    let http = reqwest::Client::new();
    eventually(what, || async {
        let answer = http.get(format!("http://{at}{path}")).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
}

/// `POST path` until the answer is 201: who has just started may not have found the others yet, and the key makes repeating safe.
async fn until_made(site: &Site, path: &str, key: &str, body: Value) -> Value {
    let http = reqwest::Client::new();
    let url = format!("http://{}{path}", site.gateway.listen);
    eventually(path, || async {
        let request = http.post(&url).bearer_auth(API_KEY).header("idempotency-key", key).json(&body);
        let answer = request.send().await.ok()?;
        assert!(answer.status() == 201 || answer.status() == 503 || answer.status() == 409, "{answer:?}");
        if answer.status() == 201 { answer.json().await.ok() } else { None }
    })
    .await
}

async fn start_in(order: [Role; 4]) {
    let site = Site::new().await;
    let mut processes = Vec::new();
    for role in order {
        processes.push((role, site.start(role)));
        // Each is up before the next one starts, so that the order is the one that is tested.
        match role {
            Role::Gateway => until_answers("the gateway is up", site.gateway.admin, "/healthz").await,
            Role::Idem => until_answers("the idempotency service is up", site.idem.admin, "/healthz").await,
            Role::Orders => until_answers("the orders service is up", site.orders.admin, "/healthz").await,
            Role::Sandbox => until_answers("the sandbox is up", site.sandbox, "/sandbox/totals").await,
        }
    }
    for server in [site.gateway, site.idem, site.orders] {
        until_answers("everybody is ready", server.admin, "/readyz").await;
    }
    let http = reqwest::Client::new();
    let put =
        json!({"venueId": "demo", "name": "General", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 1});
    eventually("the ticket type is there", || async {
        let url = format!("http://{}/v1/ticket-types/general", site.gateway.listen);
        let answer = http.put(url).bearer_auth(OPERATOR_KEY).json(&put).send().await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let body = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]});
    let order = until_made(&site, "/v1/orders", "order", body).await;
    let body = json!({"orderId": order["id"], "paymentMethod": "pm_approved"});
    let payment = until_made(&site, "/v1/payments", "payment", body).await;
    assert_eq!(payment["status"], "approved");
    assert_eq!(site.database.number("SELECT sold FROM ticket_types").await, 1);
    for (role, mut process) in processes {
        assert!(process.ended().is_none(), "{role:?} is still there");
    }
}

/// Every order in which `first` comes first.
async fn start_first(first: Role) {
    let all = [Role::Sandbox, Role::Idem, Role::Orders, Role::Gateway];
    let others: Vec<Role> = all.into_iter().filter(|role| *role != first).collect();
    for [second, third, fourth] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        start_in([first, others[second], others[third], others[fourth]]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sandbox_first_on_postgres() {
    start_first(Role::Sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_idempotency_service_first_on_postgres() {
    start_first(Role::Idem).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_orders_service_first_on_postgres() {
    start_first(Role::Orders).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_first_on_postgres() {
    start_first(Role::Gateway).await;
}
