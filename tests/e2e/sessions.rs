//! No session of the store is kept waiting for anything but the store.

use e2e::{PrivateDatabase, Store, World, eventually};

/// Twenty payments of which the acquirer says nothing: while they wait, both services are without a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_is_open_while_the_acquirer_is_waited_for_on_postgres() {
    let database = PrivateDatabase::create().await;
    let url = database.url.clone();
    let world = World::start_with(Store::Sqlite, |s| s.data = idem_local::Data::Postgres(url)).await;
    let mut orders = Vec::new();
    for n in 0..20 {
        orders.push(world.place(&format!("o{n}"), 1).await);
    }
    let paying = orders.iter().enumerate().map(|(n, order)| {
        let world = world.clone();
        async move { world.pay(&format!("p{n}"), order, "pm_slow_3600000").await }
    });
    let meanwhile = async {
        let ids = eventually("the acquirer is waited for", || async {
            let ids = database.texts("SELECT id FROM payments").await;
            for id in &ids {
                let heard = world.sandbox(http::Method::GET, &format!("/sandbox/payments/{id}"), None).await;
                if heard.status != 200 {
                    return None;
                }
            }
            (ids.len() == 20).then_some(ids)
        })
        .await;
        // Sweepers and reconcilers come and go; a transaction that waits for the acquirer would be there at every look.
        eventually("nobody is in a transaction", || async {
            let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                         AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";
            (database.number(open).await == 0).then_some(())
        })
        .await;
        assert_eq!(world.acquirer_totals().await["charges"], 0, "all twenty are still waited for");
        for id in ids {
            world.settle(&id, "approved").await;
        }
    };
    let (replies, ()) = futures::join!(futures::future::join_all(paying), meanwhile);
    assert!(replies.iter().all(|reply| reply.status == 201));
    assert_eq!(world.acquirer_totals().await["charges"], 20);
    world.stop().await;
}
