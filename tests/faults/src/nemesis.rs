//! Does harm by plan, and undoes it: every fault ends, and what it was done to is itself again before its window closes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use chassis::tasks::Tasks;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::world::World;

mod act;
pub mod kind;
pub mod plan;

use self::plan::{Fault, Plan};

/// What the nemesis did.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// The fault as planned.
    pub fault: Fault,
    /// When it began.
    pub from_ms: u64,
    /// When its target was itself again.
    pub until_ms: u64,
    /// Why it could not be done, or was not over when it should have been.
    pub trouble: Option<String>,
}

/// Carries out a plan.
#[derive(Clone)]
pub struct Nemesis {
    world: World,
    /// One fault at a time on each.
    resources: Arc<Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>>,
}

// === impl Nemesis ===

impl Nemesis {
    /// A nemesis of this world.
    pub fn new(world: World) -> Self {
        Self { world, resources: Arc::default() }
    }

    /// Carries out the plan, from now on; returns when the last fault is over.
    pub async fn carry_out(&self, plan: &Plan) -> Vec<Done> {
        let (start, tasks) = (Instant::now(), Tasks::new());
        let running: Vec<_> = plan
            .faults
            .iter()
            .map(|fault| {
                let (nemesis, fault) = (self.clone(), fault.clone());
                tasks.spawn("fault", async move {
                    sleep_until(start + Duration::from_millis(fault.begin_ms)).await;
                    nemesis.one(fault).await
                })
            })
            .collect();
        let mut done = Vec::new();
        for fault in running {
            match fault.await {
                Ok(fault) => done.push(fault),
                Err(error) => self.world.incidents().violation(format!("the nemesis itself: {error}")),
            }
        }
        done
    }

    async fn one(&self, fault: Fault) -> Done {
        let resource = self.resource(&fault);
        let _alone = resource.lock().await;
        let (clock, windows) = (self.world.edge().clock, &self.world.edge().windows);
        let from_ms = clock.now_ms();
        let window = windows.begin(fault.kind.name(), &fault.target, from_ms);
        tracing::info!(at_ms = from_ms, "{fault}");
        let trouble = act::carry_out(&self.world, &fault).await.err().map(|error| format!("{error:#}"));
        let until_ms = clock.now_ms();
        windows.end(window, until_ms);
        if let Some(trouble) = &trouble {
            self.world.incidents().note(format!("{} of {}: {trouble}", fault.kind.name(), fault.target));
        }
        Done { fault, from_ms, until_ms, trouble }
    }

    fn resource(&self, fault: &Fault) -> Arc<tokio::sync::Mutex<()>> {
        let mut resources = self.resources.lock().expect("nobody panics while holding the list");
        resources.entry(fault.resource().to_owned()).or_default().clone()
    }
}
