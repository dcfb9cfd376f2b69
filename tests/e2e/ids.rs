//! Whatever is sent to the acquirer goes by an id that follows from the operation, so that it is the same at every try.

use std::collections::BTreeSet;

use e2e::{PrivateDatabase, Store, World};
use serde_json::json;
use uuid::Uuid;

/// Fixed for good: with another one, a retry of a running payment would be another payment.
const PAYMENTS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a02);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_charge_goes_by_the_id_that_follows_from_its_operation_on_postgres() {
    let database = PrivateDatabase::create().await;
    let url = database.url.clone();
    let world = World::start_with(Store::Sqlite, |s| s.data = idem_local::Data::Postgres(url)).await;
    let methods = ["pm_approved", "pm_declined", "pm_charge_then_drop", "pm_slow_50", "pm_pending"];
    for (n, method) in methods.into_iter().enumerate() {
        let order = world.place(&format!("o{n}"), 1).await;
        for _ in 0..3 {
            world.pay(&format!("p{n}"), &order, method).await;
        }
    }
    let operations = database.texts("SELECT operation_id::text FROM idem_keys WHERE key LIKE 'p%'").await;
    let derived: BTreeSet<String> = operations
        .iter()
        .map(|operation| Uuid::new_v5(&PAYMENTS, Uuid::parse_str(operation).unwrap().as_bytes()).to_string())
        .collect();
    assert_eq!(derived.len(), methods.len());
    let mut charges = 0;
    for id in &derived {
        charges += world.acquirer_payment(id).await["charges"].as_u64().unwrap();
    }
    // The acquirer knows no other charge than those.
    assert_eq!(world.acquirer_totals().await, json!({"charges": charges, "captured": 3000, "refunded": 0}));
    assert_eq!(charges, 3);
    world.stop().await;
}
