//! A Postgres that is demoted or restarted under the services: refused meanwhile, used again soon, and nothing runs twice.

use std::time::Duration;

use e2e::{Cluster, Reply, Store, World, eventually};
use tokio::sync::watch;

async fn on(cluster: &Cluster) -> World {
    let url = cluster.url();
    World::start_with(Store::Sqlite, |settings| settings.data = idem_local::Data::Postgres(url)).await
}

fn order(world: &World, key: &str) -> impl Future<Output = Reply> {
    world.post("/v1/orders", key, World::order_body(1))
}

/// A write that meets a demoted primary (SQLSTATE 25006) gives its connection up and looks for the server that takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_leave_a_demoted_primary_for_the_promoted_standby_on_postgres() {
    let cluster = Cluster::start_with_standby().await;
    let standby = cluster.standby.as_ref().unwrap();
    let world = on(&cluster).await;
    // Several at once, so that both services hold several connections.
    let world = &world;
    let first = (0..20).map(|n| async move {
        world.post_patiently("/v1/orders", &n.to_string(), World::order_body(1)).await.expect(201)
    });
    let first = futures::future::join_all(first).await;
    const KEYS: &str = "SELECT count(*) FROM idem_keys";
    assert_eq!((cluster.primary.number(KEYS).await, standby.number(KEYS).await), (20, 20));

    cluster.primary.demote().await;
    // Its sessions hear of it one by one: until theirs have, orders are placed as before.
    let mut before = 20;
    let meanwhile = loop {
        let key = format!("demoted {before}");
        let reply = order(world, &key).await;
        if reply.status == 503 {
            assert_eq!(reply.json()["retryable"], true);
            break key;
        }
        reply.expect(201);
        before += 1;
        assert!(before < 1000, "a demoted primary takes no writes");
    };
    let kept = cluster.primary.number(KEYS).await;
    standby.promote().await;
    let placed = eventually("writes succeed", || async {
        let reply = order(world, &meanwhile).await;
        assert!(reply.status == 201 || reply.json()["retryable"] == true, "{}", reply.status);
        (reply.status == 201).then_some(reply)
    })
    .await;
    assert!(!placed.is_replay());
    // No connection to the demoted server is left: nobody meets it any more, for reading either.
    for (n, first) in first.iter().enumerate() {
        let replay = order(world, &n.to_string()).await;
        assert!(replay.is_replay() && replay.body == first.body, "{n}");
        order(world, &format!("after {n}")).await.expect(201);
    }
    assert_eq!((cluster.primary.number(KEYS).await, standby.number(KEYS).await), (kept, before + 21));
    assert_eq!(standby.number("SELECT held FROM ticket_types WHERE id = 'general'").await, before + 21);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_server_is_used_again_and_nothing_ran_twice_on_postgres() {
    let cluster = Cluster::start().await;
    let world = on(&cluster).await;
    world.put_ticket_type("general", 100_000).await.expect(200);
    let (stop, stopping) = watch::channel(false);
    let buyers = (0..8).map(|buyer| {
        let (world, stopping) = (world.clone(), stopping.clone());
        async move {
            let mut placed = Vec::new();
            while !*stopping.borrow() {
                let key = format!("{buyer}/{}", placed.len());
                let reply = eventually("the purchase is answered", || async {
                    let reply = order(&world, &key).await;
                    assert!(reply.status == 201 || reply.json()["retryable"] == true, "{}", reply.status);
                    if reply.status != 201 {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    (reply.status == 201).then_some(reply)
                })
                .await;
                placed.push((key, reply));
            }
            placed
        }
    });
    let nemesis = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.primary.restart().await;
            // Errors stop: a purchase of a key of its own is answered at the first try, ten times in a row.
            eventually("the services are back", || async {
                for _ in 0..10 {
                    let key = uuid::Uuid::new_v4().to_string();
                    if order(&world, &key).await.status != 201 {
                        return None;
                    }
                }
                Some(())
            })
            .await;
        }
        stop.send_replace(true);
    };
    let (placed, ()) = futures::join!(futures::future::join_all(buyers), nemesis);
    let placed: Vec<_> = placed.into_iter().flatten().collect();
    for (key, reply) in &placed {
        // Whoever was found out afterwards says so; the order is the same.
        let replay = order(&world, key).await.expect(201);
        assert!(replay.is_replay() && replay.body == reply.body, "{key}");
    }
    let orders = cluster.primary.number("SELECT count(*) FROM orders").await;
    let keys = cluster.primary.number("SELECT count(*) FROM idem_keys WHERE state = 'completed'").await;
    let held = cluster.primary.number("SELECT held FROM ticket_types WHERE id = 'general'").await;
    assert!(orders == keys && orders == held, "{orders} orders, {keys} completed keys, {held} held");
    assert!(orders >= placed.len() as i64);
    world.stop().await;
}
