//! Work in the background goes on after a round in which it died: nobody would notice that it does not.

use std::time::Duration;

use chassis::{shutdown::Shutdown, tasks::Tasks};

use super::{
    bench::Bench,
    stage::{Next, Stage},
};
use crate::background;

/// Where each of the four begins a round.
const BEGINNINGS: [&str; 4] =
    ["holds over: begin", "due payments: begin", "due refunds: begin", "waiting events: begin"];

#[tokio::test]
async fn a_round_that_dies_is_followed_by_another() {
    let bench = Bench::on_sqlite().await;
    let (tasks, (trigger, shutdown)) = (Tasks::new(), Shutdown::new());
    let stage = Stage::new(&bench, Next::Client, None);
    bench.watch.arm(BEGINNINGS.map(|point| format!("{point}#1=die").parse().unwrap()));
    background::start(&stage.shop(), &tasks, &shutdown);
    let came_round = || {
        let crossed = bench.crossed();
        BEGINNINGS.iter().all(|point| crossed.iter().any(|crossing| crossing.point == *point && crossing.nth == 2))
    };
    for _ in 0..500 {
        if came_round() {
            trigger.begin();
            tasks.wait().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("only these came round: {:?}", bench.crossed());
}
