//! Clients that are slow on purpose, or do nothing at all.

use std::{net::SocketAddr, time::Duration};

use e2e::{Store, World};
use futures::future::join_all;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::Instant};

use crate::{
    bystander::Bystander,
    wire::{connect, statuses, to_end},
};

const HEAD: &str = "POST /v1/orders HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk_demo_a\r\n\
     content-type: application/json\r\ncontent-length: 100\r\n";

/// Sends a byte of what is left to say every second, until the server has had enough; what the server said, and after how long.
async fn drip(mut stream: TcpStream, begun: Instant, rest: &'static [u8]) -> (String, Duration) {
    let (mut reader, mut writer) = stream.split();
    let mut heard = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut heard);
    let dripping = async {
        for byte in rest.iter().cycle() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if writer.write_all(&[*byte]).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        _ = reading => {}
        () = dripping => {}
        () = tokio::time::sleep(crate::wire::PATIENCE) => panic!("the server has endless patience"),
    }
    (String::from_utf8_lossy(&heard).into_owned(), begun.elapsed())
}

async fn slow_head(at: SocketAddr) -> (String, Duration) {
    let (mut stream, begun) = (connect(at).await, Instant::now());
    stream.write_all(b"POST /v1/orders HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
    drip(stream, begun, b"a").await
}

async fn slow_body(at: SocketAddr, n: usize) -> (String, Duration) {
    let (mut stream, begun) = (connect(at).await, Instant::now());
    stream.write_all(format!("{HEAD}idempotency-key: slow-{n}\r\n\r\n").as_bytes()).await.unwrap();
    drip(stream, begun, b" ").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_heads_and_bodies_are_ended_in_time_and_hold_nobody_up() {
    let world = World::start(Store::Sqlite).await;
    let at = world.addresses().rest;
    let bystander = Bystander::of(&world).await;
    let heads = join_all((0..150).map(|_| slow_head(at)));
    let bodies = join_all((0..150).map(|n| slow_body(at, n)));
    let (heads, bodies) = tokio::join!(heads, bodies);
    for (said, after) in heads {
        assert!(said.is_empty(), "{said}");
        assert!((Duration::from_secs(8)..Duration::from_secs(20)).contains(&after), "{after:?}");
    }
    for (said, after) in bodies {
        assert_eq!(statuses(&said), [408], "{said}");
        assert!(said.contains("\"error\":\"request_timeout\"") && said.contains("\"retryable\":true"), "{said}");
        assert!(said.to_ascii_lowercase().contains("connection: close"), "{said}");
        assert!(said.to_ascii_lowercase().contains("retry-after: 1"), "{said}");
        assert!((Duration::from_secs(18)..Duration::from_secs(35)).contains(&after), "{after:?}");
    }
    bystander.was_served().await;
    // Nothing was executed, so the same key is as good as new.
    world.post("/v1/orders", "slow-0", World::order_body(1)).await.expect(201);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_does_not_read_is_left_in_time() {
    let world = World::start(Store::Sqlite).await;
    let at = world.addresses().rest;
    let bystander = Bystander::of(&world).await;
    let asking = (0..20).map(|_| async move {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        // A small window, so that the kernel does not take the answers in our place.
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(at).await.unwrap();
        let ask = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(200);
        stream.write_all(ask.as_bytes()).await.unwrap();
        stream
    });
    let mut streams = join_all(asking).await;
    // The server waits for 30 s, then closes: what is still in the pipe comes, and then the end, long before all answers.
    tokio::time::sleep(Duration::from_secs(40)).await;
    for stream in &mut streams {
        let heard = to_end(stream).await;
        assert!(statuses(&heard).len() < 200, "every answer came");
    }
    bystander.was_served().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_connections_keep_nobody_out_and_are_not_kept() {
    let world = World::start(Store::Sqlite).await;
    let at = world.addresses().rest;
    let bystander = Bystander::of(&world).await;
    let begun = Instant::now();
    let mut idle = join_all((0..1000).map(|_| connect(at))).await;
    world.post("/v1/orders", "beside", World::order_body(1)).await.expect(201);
    for stream in &mut idle {
        assert_eq!(to_end(stream).await, "", "who says nothing is told nothing");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    bystander.was_served().await;
    world.stop().await;
}
