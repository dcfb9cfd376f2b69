//! One target's campaign: how many cases, where its seeds are kept, and what is said of a failure.

use std::{fmt::Debug, future::Future};

use proptest::{
    strategy::Strategy,
    test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner},
};
use tokio::runtime::{Builder, Runtime};

/// Tries `property` on `cases` inputs, or on as many as `PROPTEST_CASES` says. Panics with the smallest failing input.
pub fn hold<S>(target: &str, cases: u32, inputs: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S: Strategy,
    S::Value: Debug,
{
    let mut runner = TestRunner::new(config(target, cases));
    match runner.run(&inputs, property) {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => panic!("{target}: {why}\nsmallest input: {input:?}"),
        Err(TestError::Abort(why)) => panic!("{target}: given up: {why}"),
    }
}

/// [`hold`] for a property that has to wait, one case at a time.
pub fn hold_async<S, F>(runtime: &Runtime, target: &str, cases: u32, inputs: S, property: impl Fn(S::Value) -> F)
where
    S: Strategy,
    S::Value: Debug,
    F: Future<Output = Result<(), TestCaseError>>,
{
    hold(target, cases, inputs, |input| runtime.block_on(property(input)));
}

/// A runtime like that of the services, for [`hold_async`].
pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn config(target: &str, cases: u32) -> Config {
    // The default has read the environment; here only an unset variable is of interest.
    let given = std::env::var_os("PROPTEST_CASES").is_some();
    let seeds = format!("{}/seeds/{target}.txt", env!("CARGO_MANIFEST_DIR"));
    let mut config = Config::default();
    if !given {
        config.cases = cases;
    }
    // The place must be a constant for proptest; there is one a target.
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(Box::leak(seeds.into_boxed_str()))));
    config.max_shrink_iters = 2_000;
    config
}
