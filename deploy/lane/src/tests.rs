#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, MutexGuard},
};

use futures::future::{join_all, poll_immediate};
use tokio::{sync::Semaphore, task::yield_now};

use super::*;

/// Answers each number with its double, for as many trips as it is told to, and remembers what each carried.
#[derive(Clone)]
struct Gate(Arc<Inside>);

struct Inside {
    door: Semaphore,
    trips: Mutex<Vec<Vec<u64>>>,
}

/// Numbers that do something else.
const BROKEN: u64 = 666;
const AWAY: u64 = 503;
const PANIC: u64 = 999;
const FORGOTTEN: u64 = 404;

#[derive(Debug, PartialEq)]
enum Trouble {
    OfOne,
    Away,
    Shared(String),
    Lost(Lost),
}

impl Failure for Trouble {
    fn is_of_one(&self) -> bool {
        *self == Trouble::OfOne
    }

    fn share(shared: &Arc<Self>) -> Self {
        Trouble::Shared(format!("{shared:?}"))
    }

    fn lost(how: Lost) -> Self {
        Trouble::Lost(how)
    }
}

impl Gate {
    fn new() -> Self {
        Self(Arc::new(Inside { door: Semaphore::new(0), trips: Mutex::default() }))
    }

    fn lane(&self, flights: usize, load: Load) -> Lane<u64, u64, Trouble> {
        let gate = self.clone();
        // A number weighs what it says.
        Lane::new(flights, load, |number| *number as usize, move |numbers| gate.clone().carry(numbers).boxed())
    }

    async fn carry(self, numbers: Vec<u64>) -> Result<Vec<u64>, Trouble> {
        self.trips_so_far().push(numbers.clone());
        self.0.door.acquire().await.unwrap().forget();
        assert!(!numbers.contains(&PANIC), "on purpose");
        match numbers {
            numbers if numbers.contains(&BROKEN) => Err(Trouble::OfOne),
            numbers if numbers.contains(&AWAY) => Err(Trouble::Away),
            numbers => Ok(numbers.into_iter().filter(|n| *n != FORGOTTEN).map(|n| n * 2).collect()),
        }
    }

    fn trips_so_far(&self) -> MutexGuard<'_, Vec<Vec<u64>>> {
        self.0.trips.lock().unwrap()
    }

    fn trips(&self) -> Vec<Vec<u64>> {
        self.trips_so_far().clone()
    }

    fn let_through(&self, trips: usize) {
        self.0.door.add_permits(trips);
    }

    /// Lets every flight that can depart depart.
    async fn settle(&self) {
        for _ in 0..100 {
            yield_now().await;
        }
    }
}

const ROOMY: Load = Load { questions: 100, bytes: usize::MAX };

type Pending<'l> = Pin<Box<dyn Future<Output = Result<u64, Trouble>> + Send + 'l>>;

/// Asks, without waiting for the answers.
async fn ask(lane: &Lane<u64, u64, Trouble>, numbers: impl IntoIterator<Item = u64>) -> Vec<Pending<'_>> {
    let mut pending: Vec<Pending<'_>> = Vec::new();
    for number in numbers {
        pending.push(lane.carry_one(number).boxed());
        assert!(poll_immediate(pending.last_mut().unwrap()).await.is_none(), "the gate is closed");
    }
    pending
}

/// Sends 1 and 2 on their way, one in each of two flights.
async fn both_flights_out<'l>(gate: &Gate, lane: &'l Lane<u64, u64, Trouble>) -> Vec<Pending<'l>> {
    let mut pending = ask(lane, [1]).await;
    gate.settle().await;
    pending.extend(ask(lane, [2]).await);
    gate.settle().await;
    pending
}

async fn answers(pending: Vec<Pending<'_>>) -> Vec<Result<u64, Trouble>> {
    join_all(pending).await
}

#[tokio::test]
async fn a_lone_question_departs_at_once_and_alone() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    for number in 1..4 {
        let pending = ask(&lane, [number]).await;
        gate.settle().await;
        assert_eq!(gate.trips().last(), Some(&vec![number]));
        gate.let_through(1);
        assert_eq!(answers(pending).await, [Ok(number * 2)]);
    }
}

#[tokio::test]
async fn callers_that_are_woken_together_travel_together() {
    let gate = Gate::new();
    let lane = gate.lane(2, ROOMY);
    let pending = ask(&lane, 1..6).await;
    gate.settle().await;
    assert_eq!(gate.trips(), [[1, 2, 3, 4, 5]]);
    gate.let_through(1);
    assert_eq!(answers(pending).await, [2, 4, 6, 8, 10].map(Ok));
}

#[tokio::test]
async fn what_waits_while_every_flight_is_out_travels_together_and_each_hears_its_own() {
    let gate = Gate::new();
    let lane = gate.lane(2, ROOMY);
    let mut pending = both_flights_out(&gate, &lane).await;
    pending.extend(ask(&lane, 3..13).await);
    gate.settle().await;
    assert_eq!(gate.trips(), [vec![1], vec![2]]);
    gate.let_through(3);
    assert_eq!(answers(pending).await, (1..13).map(|n| Ok(n * 2)).collect::<Vec<_>>());
    assert_eq!(gate.trips(), [vec![1], vec![2], (3..13).collect()]);
}

#[tokio::test]
async fn a_crowd_is_shared_among_the_flights_and_stays_shared() {
    let gate = Gate::new();
    let lane = gate.lane(2, ROOMY);
    let first = ask(&lane, 1..65).await;
    gate.settle().await;
    assert_eq!(gate.trips(), [(1..33).collect::<Vec<_>>(), (33..65).collect()]);
    // Half of them are answered, and ask again while the others travel.
    gate.let_through(1);
    gate.settle().await;
    let again = ask(&lane, 65..97).await;
    gate.settle().await;
    assert_eq!(gate.trips()[2..], [(65..97).collect::<Vec<_>>()]);
    gate.let_through(2);
    assert_eq!(answers(first).await.len() + answers(again).await.len(), 96);
}

#[tokio::test]
async fn what_has_gathered_is_shared_too_and_a_few_are_not() {
    let gate = Gate::new();
    let lane = gate.lane(2, ROOMY);
    let mut pending = both_flights_out(&gate, &lane).await;
    pending.extend(ask(&lane, 3..83).await);
    gate.let_through(1);
    gate.settle().await;
    // Of 81 that wait or travel the one that has landed takes half; one of the others is still out.
    assert_eq!(gate.trips()[2..], [(3..44).collect::<Vec<_>>()]);
    gate.let_through(3);
    assert!(answers(pending).await.iter().all(Result::is_ok));
    assert_eq!(gate.trips()[3..], [(44..83).collect::<Vec<_>>()]);
}

#[tokio::test]
async fn questions_of_one_caller_are_never_parted() {
    let gate = Gate::new();
    let lane = gate.lane(1, Load { questions: 3, bytes: usize::MAX });
    let first = ask(&lane, [1]).await;
    gate.settle().await;
    let (two, three) = (lane.carry(vec![2, 3]), lane.carry(vec![4, 5, 6, 7]));
    let asked = async { tokio::join!(two, three) };
    gate.let_through(3);
    assert_eq!(asked.await, (Ok(vec![4, 6]), Ok(vec![8, 10, 12, 14])));
    assert_eq!(answers(first).await, [Ok(2)]);
    assert_eq!(gate.trips(), [vec![1], vec![2, 3], vec![4, 5, 6, 7]]);
}

#[tokio::test]
async fn a_load_is_bounded_in_number_and_in_bytes_but_for_one_that_is_more_by_itself() {
    let gate = Gate::new();
    let lane = gate.lane(1, Load { questions: 4, bytes: 100 });
    let mut pending = ask(&lane, [1]).await;
    gate.settle().await;
    pending.extend(ask(&lane, [1, 1, 1, 1, 1, 40, 40, 40, 500, 1]).await);
    gate.let_through(10);
    assert!(answers(pending).await.iter().all(Result::is_ok));
    assert_eq!(gate.trips(), [vec![1], vec![1, 1, 1, 1], vec![1, 40, 40], vec![40], vec![500], vec![1]]);
}

#[tokio::test]
async fn a_caller_that_has_gone_is_left_out_and_changes_nothing_once_it_departed() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    let departed = ask(&lane, [1]).await;
    gate.settle().await;
    let waiting = ask(&lane, [2]).await;
    let staying = ask(&lane, [3]).await;
    drop((departed, waiting));
    gate.let_through(2);
    assert_eq!(answers(staying).await, [Ok(6)]);
    assert_eq!(gate.trips(), [[1], [3]]);
}

#[tokio::test]
async fn a_failure_of_all_is_shared_and_one_of_one_stays_with_its_owner() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    let first = ask(&lane, [AWAY]).await;
    gate.settle().await;
    let rest = ask(&lane, [1, AWAY, 2]).await;
    gate.let_through(2);
    // Alone, it is the failure itself.
    assert_eq!(answers(first).await, [Err(Trouble::Away)]);
    let shared = || Err(Trouble::Shared("Away".to_owned()));
    assert_eq!(answers(rest).await, [shared(), shared(), shared()]);

    let first = ask(&lane, [1]).await;
    gate.settle().await;
    let rest = ask(&lane, [2, BROKEN, 3]).await;
    gate.let_through(5);
    assert_eq!(answers(first).await, [Ok(2)]);
    assert_eq!(answers(rest).await, [Ok(4), Err(Trouble::OfOne), Ok(6)]);
    let apart = [vec![1], vec![2, BROKEN, 3], vec![2], vec![BROKEN], vec![3]];
    assert_eq!(gate.trips()[2..], apart);
}

#[tokio::test]
async fn an_answer_too_few_is_nobodys_and_the_flight_goes_on() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    let mut pending = ask(&lane, [1]).await;
    gate.settle().await;
    pending.extend(ask(&lane, [2, FORGOTTEN, 3]).await);
    gate.let_through(2);
    let heard = answers(pending).await;
    assert_eq!(heard[0], Ok(2));
    for answer in &heard[1..] {
        let Err(Trouble::Shared(how)) = answer else { panic!("{answer:?}") };
        assert!(how.contains("questions: 3, answers: 2"), "{how}");
    }
    let pending = ask(&lane, [4]).await;
    gate.let_through(1);
    assert_eq!(answers(pending).await, [Ok(8)]);
}

#[tokio::test]
async fn a_panic_is_an_answer_to_those_aboard_and_the_flight_goes_on() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    let first = ask(&lane, [PANIC]).await;
    gate.settle().await;
    let rest = ask(&lane, [1]).await;
    gate.let_through(2);
    assert_eq!(answers(first).await, [Err(Trouble::Lost(Lost::Panicked))]);
    assert_eq!(answers(rest).await, [Ok(2)]);
}

#[test]
fn callers_hear_that_the_process_is_ending_when_the_runtime_goes_away() {
    let gate = Gate::new();
    let lane = gate.lane(1, ROOMY);
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let going = runtime();
    let pending = going.block_on(async {
        let pending = ask(&lane, [1]).await;
        gate.settle().await;
        pending
    });
    drop(going);
    assert_eq!(runtime().block_on(answers(pending)), [Err(Trouble::Lost(Lost::Ending))]);
}
