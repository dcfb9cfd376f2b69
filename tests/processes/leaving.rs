//! SIGTERM answers everybody who was let in, and ends with 0 within the drain time.

use std::time::Duration;

use e2e::{Fleet, FleetSettings, eventually};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_requests_in_flight_are_answered_after_sigterm_on_postgres() {
    let settings = FleetSettings {
        lease: Duration::from_secs(60),
        upstream_timeout: Duration::from_secs(25),
        acquirer_timeout: Duration::from_secs(20),
        drain: Duration::from_secs(30),
        ..FleetSettings::default()
    };
    let mut fleet = Fleet::start(settings).await;
    let order = json!({"venueId": "demo", "items": [{"ticketTypeId": "general", "quantity": 1}]});
    let mut bodies = Vec::new();
    for n in 0..50 {
        let id = fleet.until_answered("/v1/orders", &format!("o{n}"), &order).await.expect(201).text("id");
        bodies.push(json!({"orderId": id, "paymentMethod": "pm_slow_2000"}));
    }
    let began = Instant::now();
    let (replies, ()) = {
        let keys: Vec<_> = (0..50).map(|n| format!("p{n}")).collect();
        let paying = keys.iter().zip(&bodies).map(|(key, body)| fleet.post("/v1/payments", key, body));
        let leaving = async {
            eventually("fifty payments are begun", || async {
                (fleet.payments_at_acquirer().await == 50).then_some(())
            })
            .await;
            fleet.gateway.signal("TERM");
        };
        futures::join!(futures::future::join_all(paying), leaving)
    };
    let answered = replies.into_iter().flatten().filter(|reply| reply.status == 201).count();
    assert_eq!(answered, 50);
    let status = eventually("the gateway has left", || {
        let ended = fleet.gateway.ended();
        async move { ended }
    })
    .await;
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(30), "within the drain time");
    // Nothing is left for anybody to find out.
    fleet.gateway.restart();
    fleet.until_ready().await;
    for n in 0..50 {
        assert_eq!(fleet.key_state(&format!("p{n}")).await.as_deref(), Some("completed"), "p{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_half_open_connections_do_not_hold_a_leaving_process_on_postgres() {
    let mut fleet = Fleet::start(FleetSettings::default()).await;
    let mut sockets = Vec::new();
    for n in 0..20 {
        let mut socket = tokio::net::TcpStream::connect(fleet.rest()).await.unwrap();
        if n % 2 == 0 {
            tokio::io::AsyncWriteExt::write_all(&mut socket, b"POST /v1/orders HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        }
        sockets.push(socket);
    }
    fleet.gateway.signal("TERM");
    let began = Instant::now();
    let status = eventually("the gateway has left", || {
        let ended = fleet.gateway.ended();
        async move { ended }
    })
    .await;
    assert_eq!(status.code(), Some(0));
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    drop(sockets);
}
