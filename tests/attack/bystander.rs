//! Somebody who buys while others attack.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chassis::tasks::Tasks;
use e2e::World;
use http::Method;
use tokio::{task::JoinHandle, time::Instant};

/// No purchase may take longer, attack or not. On a busy machine a Reserve may miss its two seconds, and is sent again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Buys one seat after the other as another tenant, until it is asked how it went.
pub struct Bystander {
    is_over: Arc<AtomicBool>,
    buying: JoinHandle<usize>,
}

impl Bystander {
    /// Begins to buy.
    pub async fn of(world: &World) -> Self {
        world.put_ticket_type("quiet", 1_000_000).await.expect(201);
        let is_over = Arc::new(AtomicBool::new(false));
        let (world, over) = (world.clone(), is_over.clone());
        let buying = Tasks::new().spawn("bystander", async move {
            let mut bought = 0;
            while !over.load(Ordering::Relaxed) || bought == 0 {
                let begun = Instant::now();
                loop {
                    let ask =
                        world.ask(Method::POST, "/v1/orders").api_key("sk_demo_b").key(&format!("quiet-{bought}"));
                    let answer = ask.json(&World::order_body_of("quiet", 1)).send().await;
                    assert!(begun.elapsed() < PATIENCE, "a purchase took {:?}", begun.elapsed());
                    if answer.status != 503 {
                        answer.expect(201);
                        break;
                    }
                }
                bought += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            bought
        });
        Self { is_over, buying }
    }

    /// Panics unless every purchase went well, of which there was at least one.
    pub async fn was_served(self) {
        self.is_over.store(true, Ordering::Relaxed);
        assert!(self.buying.await.expect("every purchase went well") > 0);
    }
}
