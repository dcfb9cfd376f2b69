//! Many at once with one key, and clients that do not stay.

use std::time::Duration;

use e2e::{World, eventually, on_both_stores};
use futures::StreamExt as _;
use idem_local::Settings;
use tokio::io::AsyncWriteExt;

fn short(settings: &mut Settings) {
    settings.acquirer_timeout = Duration::from_secs(1);
    settings.upstream_timeout = Duration::from_secs(2);
    settings.lease = Duration::from_secs(4);
}

on_both_stores! {
    async fn a_hundred_requests_with_one_key_make_one_order(world: World) {
        let all = (0..100).map(|_| world.post("/v1/orders", "k1", World::order_body(2)));
        let replies = futures::future::join_all(all).await;
        assert!(replies.iter().all(|r| r.status == 201 || r.status == 409), "only 201 and 409");
        for busy in replies.iter().filter(|r| r.status == 409) {
            let busy = busy.clone().expect_problem(409, "conflict", Some("request_in_progress"), true);
            assert_eq!(busy.header("retry-after"), Some("1"));
        }
        let firsts: Vec<_> = replies.iter().filter(|r| r.status == 201 && !r.is_replay()).collect();
        assert_eq!(firsts.len(), 1, "one execution");
        assert_eq!(world.ticket_type("general").await["held"], 2);
        assert_eq!(world.key_state("k1").await.json()["attempts"], 1);
        let again = futures::future::join_all((0..100).map(|_| world.post("/v1/orders", "k1", World::order_body(2)))).await;
        for replay in again {
            assert!(replay.expect_same_as(firsts[0]).is_replay());
        }
    }

    async fn waiting_duplicates_get_the_answer_of_the_original(world: World) {
        let order = world.place("k1", 1).await;
        let body = serde_json::json!({"orderId": order, "paymentMethod": "pm_slow_700"});
        let pay = |prefer: Option<&'static str>| {
            let ask = world.ask(http::Method::POST, "/v1/payments").key("k2").json(&body);
            match prefer { Some(wait) => ask.header("prefer", wait), None => ask }.send()
        };
        let original = pay(None);
        let follow = async {
            world.until_key_is("k2", "in_progress").await;
            let impatient = pay(None).await.expect_problem(409, "conflict", Some("request_in_progress"), true);
            assert!(impatient.header("preference-applied").is_none());
            futures::join!(pay(Some("wait=10")), pay(Some("respond-async, wait=99")))
        };
        let (original, (ten, long)) = futures::join!(original, follow);
        let original = original.expect(201);
        assert!(!original.is_replay());
        assert_eq!(ten.header("preference-applied"), Some("wait=10"));
        assert_eq!(long.header("preference-applied"), Some("wait=30"), "at most 30 seconds");
        assert!(ten.expect_same_as(&original).is_replay());
        assert!(long.expect_same_as(&original).is_replay());
        assert_eq!(world.acquirer_totals().await["charges"], 1);
    }

    async fn a_wait_that_ends_too_early_is_told_to_come_again(world: World) {
        let order = world.place("k1", 1).await;
        let body = serde_json::json!({"orderId": order, "paymentMethod": "pm_slow_3000"});
        let pay = || world.ask(http::Method::POST, "/v1/payments").key("k2").json(&body);
        let original = pay().send();
        let short = async {
            world.until_key_is("k2", "in_progress").await;
            let busy = pay().header("prefer", "wait=1").send().await;
            busy.expect_problem(409, "conflict", Some("request_in_progress"), true)
        };
        let (original, busy) = futures::join!(original, short);
        assert_eq!(busy.header("preference-applied"), Some("wait=1"));
        original.expect(201);
    }

    // A Reserve that a busy machine answers too late may still have landed: its lease must end within the patience of a test.
    #[settings(short)]
    async fn clients_that_leave_at_any_moment_leave_one_order_each(world: World) {
        world.put_ticket_type("field", 10_000).await.expect(201);
        let seed: u64 = rand_seed();
        show(seed);
        let leavers = (0..300_u64).map(|n| {
            let world = world.clone();
            // xorshift: which moment between nothing sent and the answer read.
            let mut random = seed ^ (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            async move {
                let body = World::order_body_of("field", 1).to_string();
                let request = format!(
                    "POST /v1/orders HTTP/1.1\r\nhost: idem\r\nauthorization: Bearer sk_demo_a\r\ncontent-type: application/json\r\n\
                     idempotency-key: leaver-{n}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
                let mut socket = tokio::net::TcpStream::connect(world.addresses().rest).await.unwrap();
                let sent = if random.is_multiple_of(4) { (random / 4) as usize % request.len() } else { request.len() };
                socket.write_all(&request.as_bytes()[..sent]).await.unwrap();
                tokio::time::sleep(Duration::from_micros(random % 20_000)).await;
                drop(socket);
            }
        });
        futures::future::join_all(leavers).await;
        let retries = (0..300).map(|n| {
            let world = world.clone();
            async move {
                eventually("the retry is answered", || async {
                    let reply = world.post("/v1/orders", &format!("leaver-{n}"), World::order_body_of("field", 1)).await;
                    // Too many at once may be too many for the two seconds of a Reserve; they may all come again.
                    assert!(reply.status == 201 || reply.json()["retryable"] == true, "{}", reply.status);
                    (reply.status == 201).then(|| reply.text("id"))
                }).await
            }
        });
        let ids: Vec<String> = futures::stream::iter(retries).buffer_unordered(32).collect().await;
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), 300);
        assert_eq!(world.ticket_type("field").await["held"], 300, "one order a key");
    }
}

#[allow(clippy::print_stderr, reason = "shown when the test fails")]
fn show(seed: u64) {
    eprintln!("seed {seed}");
}

fn rand_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
