//! Calls that do not arrive, and how long they take.

use std::time::Duration;

use idem_client::{ClientError, IdemClient, Reserved};
use idem_proto::idem::v1::{self as proto, reserve_response::Outcome};
use tokio::{net::TcpListener, time::Instant};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::server::{Fake, Reply, after, granted, intent, reserve, unavailable};

fn grant() -> proto::ReserveResponse {
    reserve(Outcome::Granted(granted(1, false)))
}

#[tokio::test]
async fn a_reserve_that_hangs_is_made_again_with_the_same_attempt_id() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    fake.will_not(Reply::Hang).will(grant());
    let intent = intent();
    let reserved = client.reserve(&intent, after(10_000)).await.unwrap();
    assert!(matches!(reserved, Reserved::Granted(_)));
    let (first, second): (proto::ReserveRequest, proto::ReserveRequest) = (fake.message(0), fake.message(1));
    assert_eq!((&first, &first.attempt_id), (&second, &intent.attempt_id.to_string()));
    assert_eq!(fake.calls()[0].metadata.get("grpc-timeout").unwrap(), "900000u");
}

#[tokio::test]
async fn a_service_that_is_unavailable_is_asked_again_until_the_deadline() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    fake.will_not(unavailable()).will_not(unavailable()).will(grant());
    assert!(matches!(client.reserve(&intent(), after(10_000)).await.unwrap(), Reserved::Granted(_)));
    assert_eq!(fake.calls().len(), 3);

    for _ in 0..50 {
        fake.will_not(unavailable());
    }
    let start = Instant::now();
    let error = client.reserve(&intent(), after(500)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let tries = fake.calls().len() - 3;
    assert!((2..20).contains(&tries), "{tries} tries in half a second");
}

#[tokio::test]
async fn a_pause_that_the_service_asks_for_is_kept_within_bounds() {
    let fake = Fake::default();
    let client = fake.serve().await.client();
    let details = ErrorDetails::with_retry_info(Some(Duration::from_secs(60)));
    fake.will_not(Reply::Refuse(Status::with_error_details(Code::Unavailable, "away", details))).will(grant());
    let start = Instant::now();
    assert!(client.reserve(&intent(), after(10_000)).await.is_ok());
    let took = start.elapsed();
    // At least half of the longest pause, and far from the minute.
    assert!((Duration::from_millis(200)..Duration::from_secs(8)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_client_starts_before_its_service_and_survives_its_restarts() {
    let fake = Fake::default();
    let running = fake.serve().await;
    let (address, client) = (running.address, running.client());
    running.stop().await;
    let error = client.reserve(&intent(), after(300)).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
    for _ in 0..3 {
        let running = fake.serve_on(address).await;
        // Both connections.
        for _ in 0..4 {
            fake.will(grant());
            assert!(client.reserve(&intent(), after(10_000)).await.is_ok());
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_under_a_call_is_no_refusal() {
    let fake = Fake::default();
    let running = fake.serve().await;
    let (address, client) = (running.address, running.client());
    fake.will_not(Reply::Hang).will(grant());
    let calling = crate::server::spawn(async move { client.reserve(&intent(), after(10_000)).await });
    while fake.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    running.stop().await;
    let _running = fake.serve_on(address).await;
    assert!(matches!(calling.await.unwrap().unwrap(), Reserved::Granted(_)));
    assert_eq!(fake.calls().len(), 2);
}

#[tokio::test]
async fn a_peer_that_never_answers_costs_no_more_than_the_deadline() {
    // Connections are taken by the kernel and nobody speaks.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = IdemClient::connect_lazy(format!("http://{}", silent.local_addr().unwrap()), None).unwrap();
    for budget in [300, 1200] {
        let start = Instant::now();
        let error = client.reserve(&intent(), after(budget)).await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
        let took = start.elapsed();
        assert!(took < Duration::from_millis(budget + 5000), "{took:?}");
    }
    let error = client.reserve(&intent(), Instant::now()).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable(_)), "{error}");
}
