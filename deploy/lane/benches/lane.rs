//! What a lane adds to a question: to a lone one, and to each of a crowd.
//!
//! `cargo bench -p lane -- --save-baseline before`, then after a change `-- --baseline before`.
#![allow(missing_docs, reason = "criterion writes functions without comments")]

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::{FutureExt as _, future::join_all};
use lane::{Failure, Lane, Load, Lost};

/// Nothing fails here.
#[derive(Debug)]
struct Never;

impl Failure for Never {
    fn is_of_one(&self) -> bool {
        false
    }

    fn share(_: &Arc<Self>) -> Self {
        Self
    }

    fn lost(_: Lost) -> Self {
        Self
    }
}

/// Trips that take no time but a turn of the runtime, in which others line up.
fn lane() -> Lane<u64, u64, Never> {
    let load = Load { questions: 500, bytes: 1024 * 1024 };
    let trip = |questions: Vec<u64>| {
        async move {
            tokio::task::yield_now().await;
            Ok(questions)
        }
        .boxed()
    };
    Lane::new(2, load, |_| 100, trip)
}

fn questions(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let lane = lane();
    let mut group = criterion.benchmark_group("lane");
    for crowd in [1_u64, 64, 500] {
        group.throughput(Throughput::Elements(crowd));
        group.bench_function(format!("{crowd} at once"), |bench| {
            bench.to_async(&runtime).iter(|| async {
                let answers = join_all((0..crowd).map(|question| lane.carry_one(question))).await;
                assert!(answers.last().is_some_and(|answer| matches!(answer, Ok(last) if *last == crowd - 1)));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, questions);
criterion_main!(benches);
