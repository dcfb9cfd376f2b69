//! Who watches the points of this process: one test at a time, or the environment.

use std::{
    collections::BTreeMap,
    fmt,
    panic::resume_unwind,
    sync::{
        Condvar, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Action, Plan};

/// The variable that arms a point of a real process.
const VARIABLE: &str = "IDEM_FAULT_POINT";

/// One crossing of a point.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Crossing {
    /// Name of the point.
    pub point: String,
    /// Which crossing it was, counted from 1.
    pub nth: u32,
    /// Whether there is something that can fail.
    pub is_fallible: bool,
}

/// What happened since points were last recorded or armed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crossed {
    /// Every crossing, in order.
    pub crossed: Vec<Crossing>,
    /// Whether every plan has been carried out.
    pub is_spent: bool,
}

/// The right to record and arm points. There is one in a process; dropping it disarms everything.
#[derive(Debug)]
pub struct Watch(());

/// Begins to record, with nothing armed. Waits for whoever is watching.
pub fn watch() -> Watch {
    let mut registry = REGISTRY.lock();
    while registry.is_watched {
        registry = REGISTRY.free.wait(registry).unwrap_or_else(PoisonError::into_inner);
    }
    registry.is_watched = true;
    drop(registry);
    let watch = Watch(());
    watch.arm([]);
    watch
}

/// Notes that a point is crossed, and does what is planned there; true when it is to fail.
///
/// # Panics
/// When the task is to die.
pub fn cross(name: fmt::Arguments<'_>, is_fallible: bool) -> bool {
    // What the environment arms is read at the first crossing.
    LazyLock::force(&REGISTRY);
    if !IS_ARMED.load(Ordering::Relaxed) {
        return false;
    }
    let point = name.to_string();
    match REGISTRY.lock().cross(&point, is_fallible) {
        None => false,
        Some(Action::Fail) => true,
        // Not `panic!`: dying here is no news, and a thousand backtraces would hide the news.
        Some(Action::Die) => resume_unwind(Box::new(format!("died at the fault point {point}"))),
        Some(Action::Kill) => std::process::abort(),
    }
}

/// So that a point costs next to nothing while nobody looks.
static IS_ARMED: AtomicBool = AtomicBool::new(false);

static REGISTRY: LazyLock<Shared> = LazyLock::new(|| {
    let shared = Shared::default();
    if let Ok(text) = std::env::var(VARIABLE) {
        let plan = text.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
        shared.lock().plans.push(plan);
        IS_ARMED.store(true, Ordering::SeqCst);
    }
    shared
});

#[derive(Default)]
struct Shared {
    registry: Mutex<Registry>,
    free: Condvar,
}

#[derive(Default)]
struct Registry {
    is_watched: bool,
    counts: BTreeMap<String, u32>,
    crossed: Vec<Crossing>,
    plans: Vec<Plan>,
}

// === impl Watch ===

impl Watch {
    /// Begins anew: forgets what was crossed, and counts crossings from 1 towards these plans.
    pub fn arm(&self, plans: impl IntoIterator<Item = Plan>) {
        let mut registry = REGISTRY.lock();
        registry.counts.clear();
        registry.crossed.clear();
        registry.plans = plans.into_iter().collect();
        IS_ARMED.store(true, Ordering::SeqCst);
    }

    /// What has been crossed so far.
    pub fn seen(&self) -> Crossed {
        let registry = REGISTRY.lock();
        Crossed { crossed: registry.crossed.clone(), is_spent: registry.plans.is_empty() }
    }

    /// Disarms, and says what was crossed until now.
    pub fn stop(&self) -> Crossed {
        IS_ARMED.store(false, Ordering::SeqCst);
        let seen = self.seen();
        REGISTRY.lock().plans.clear();
        seen
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
        REGISTRY.lock().is_watched = false;
        REGISTRY.free.notify_one();
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        // Nothing here is ever left half done.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Registry ===

impl Registry {
    fn cross(&mut self, point: &str, is_fallible: bool) -> Option<Action> {
        let count = self.counts.entry(point.to_owned()).or_default();
        *count += 1;
        let nth = *count;
        // A real process has nobody who asks, and crosses points for as long as it runs.
        if self.is_watched {
            self.crossed.push(Crossing { point: point.to_owned(), nth, is_fallible });
        }
        let planned = self.plans.iter().position(|plan| plan.point == point && plan.nth == nth)?;
        Some(self.plans.swap_remove(planned).action)
    }
}

// === impl Crossing ===

impl Crossing {
    /// The plan that does `action` here.
    pub fn plan(&self, action: Action) -> Plan {
        Plan { point: self.point.clone(), nth: self.nth, action }
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.point, self.nth)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::fault_point;

    fn work() -> Result<(), &'static str> {
        fault_point!("work: begin" => Err("failed at the beginning"));
        for step in 1..=2 {
            fault_point!("work: step {}", step => Err("failed at a step"));
            fault_point!("work: pause");
        }
        Ok(())
    }

    fn armed(watch: &Watch, plan: &str) -> Result<(), &'static str> {
        watch.arm([plan.parse().unwrap()]);
        let done = work();
        assert!(watch.stop().is_spent, "{plan}");
        done
    }

    #[test]
    fn crossings_are_recorded_in_order_and_counted() {
        let watch = watch();
        work().unwrap();
        let crossed: Vec<String> = watch.stop().crossed.iter().map(Crossing::to_string).collect();
        let expected = ["work: begin#1", "work: step 1#1", "work: pause#1", "work: step 2#1", "work: pause#2"];
        assert_eq!(crossed, expected);
        work().unwrap();
        assert_eq!(watch.seen().crossed.len(), expected.len(), "a stopped watch records nothing");
    }

    #[test]
    fn each_point_fails_with_its_own_error_once() {
        let watch = watch();
        assert_eq!(armed(&watch, "work: begin#1=fail"), Err("failed at the beginning"));
        assert_eq!(armed(&watch, "work: step 2#1=fail"), Err("failed at a step"));
        watch.arm(["work: begin#1=fail".parse().unwrap()]);
        assert!(work().is_err());
        assert!(work().is_ok(), "a plan is carried out once");
    }

    #[test]
    fn the_nth_crossing_dies() {
        let watch = watch();
        watch.arm(["work: pause#2=die".parse().unwrap()]);
        let died = catch_unwind(work).unwrap_err();
        assert_eq!(died.downcast_ref::<String>().unwrap(), "died at the fault point work: pause");
        let crossed = watch.stop();
        assert!(crossed.is_spent);
        assert_eq!(crossed.crossed.len(), 5);
    }

    #[test]
    fn what_was_never_reached_is_not_spent() {
        let watch = watch();
        watch.arm(["work: begin#2=fail".parse().unwrap()]);
        work().unwrap();
        assert!(!watch.stop().is_spent);
        drop(watch);
        work().unwrap();
    }
}
