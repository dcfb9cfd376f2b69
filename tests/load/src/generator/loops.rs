//! Drives sessions, in a closed or an open loop, and says every second how it goes.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use anyhow::Context;
use futures::future::join_all;
use tokio::{
    select,
    sync::{Mutex, oneshot},
    time::{Instant, sleep, sleep_until},
};

use super::{
    Answer, Session,
    measured::Measured,
    pace::{Pace, Plan, arrivals},
};
use crate::say;

/// After a wrong answer, so that a system that is down is not asked a million times.
const PAUSE: Duration = Duration::from_millis(20);
/// A run with more wrong answers than this is not worth its time.
const WRONG_MAX: u64 = 500;
/// How long after the end answers may still come.
const PATIENCE: Duration = Duration::from_secs(200);

/// Runs `count` sessions on a thread of their own.
pub async fn run<S: Session>(
    label: &str,
    count: usize,
    plan: Plan,
    make: impl Fn(usize) -> S + Send + 'static,
) -> anyhow::Result<Measured> {
    let (tell, told) = oneshot::channel();
    let label = label.to_owned();
    std::thread::Builder::new().name("generator".to_owned()).spawn(move || {
        let measured =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("a runtime").map(|runtime| {
                // Within the runtime: sessions may connect as soon as they are made.
                runtime.block_on(async { drive(&label, (0..count).map(make).collect(), plan).await })
            });
        // Whoever has gone does not want it any more.
        let _ = tell.send(measured);
    })?;
    told.await.context("the generator ended without a result")?
}

/// Drives the sessions on the current task.
pub async fn drive<S: Session>(label: &str, sessions: Vec<S>, plan: Plan) -> Measured {
    let start = Instant::now();
    let (begin, end) = (start + plan.warm_up, start + plan.warm_up + plan.length);
    let measured = RefCell::new(Measured::new());
    let asked = Cell::new(0_u64);
    let note = |from: Instant, answer: Answer| {
        let now = Instant::now();
        let mut measured = measured.borrow_mut();
        asked.set(asked.get() + 1);
        match answer {
            Answer::Unexpected(what) => measured.record_unexpected(what),
            Answer::Expected if counts(plan.pace, from, now, begin, end) => {
                measured.record(now - from);
                measured.elapsed = measured.elapsed.max((now - begin).min(plan.length));
            }
            _ => {}
        }
    };
    let sessions_run = async {
        match plan.pace {
            Pace::Closed => {
                let callers = sessions.into_iter().map(|session| closed(session, end, &note));
                join_all(callers).await;
            }
            Pace::Open(rate) => {
                let moments = Mutex::new(arrivals(rate, start, end));
                let callers = sessions.into_iter().map(|session| open(session, &moments, &note));
                join_all(callers).await;
            }
        }
        // What an early end leaves out of the time is not in the count either.
        Instant::now()
    };
    let ended = select! {
        ended = sessions_run => ended,
        () = report(label, start, &measured, &asked) => Instant::now(),
        () = sleep_until(end + PATIENCE) => {
            measured.borrow_mut().record_unexpected("no answer for minutes after the end".to_owned());
            end
        }
    };
    let mut measured = measured.into_inner();
    if ended >= end {
        measured.elapsed = plan.length;
    }
    measured
}

/// In a closed loop what was answered within the time counts; in an open loop what was due within it, however late its answer.
fn counts(pace: Pace, from: Instant, answered: Instant, begin: Instant, end: Instant) -> bool {
    match pace {
        Pace::Closed => answered >= begin && answered <= end,
        Pace::Open(_) => from >= begin,
    }
}

async fn closed<S: Session>(mut session: S, end: Instant, note: &impl Fn(Instant, Answer)) {
    loop {
        let from = Instant::now();
        if from >= end {
            break;
        }
        match session.once().await {
            Answer::Exhausted => break,
            answer => {
                let is_wrong = answer != Answer::Expected;
                note(from, answer);
                if is_wrong {
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn open<S: Session>(
    mut session: S,
    moments: &Mutex<tokio::sync::mpsc::UnboundedReceiver<Instant>>,
    note: &impl Fn(Instant, Answer),
) {
    loop {
        let Some(due) = moments.lock().await.recv().await else { break };
        match session.once().await {
            Answer::Exhausted => break,
            answer => note(due, answer),
        }
    }
}

/// A line each second, until there is no point in going on.
async fn report(label: &str, start: Instant, measured: &RefCell<Measured>, asked: &Cell<u64>) {
    let mut before = 0;
    loop {
        sleep(Duration::from_secs(1)).await;
        let (all, measured) = (asked.get(), measured.borrow());
        let wrong: u64 = measured.unexpected.values().sum();
        if wrong > WRONG_MAX {
            break;
        }
        let wrong = if wrong == 0 { String::new() } else { format!(", {wrong} UNEXPECTED") };
        say::progress(&format!(
            "  {label} {:>3} s  {:>7}/s  p50 {:.2} ms  p99 {:.2} ms{wrong}",
            start.elapsed().as_secs(),
            all - before,
            measured.quantile_ms(0.5),
            measured.quantile_ms(0.99),
        ));
        before = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at once, but for one long stall.
    struct Stalling<'s> {
        asked: &'s Cell<u32>,
    }

    impl Session for Stalling<'_> {
        async fn once(&mut self) -> Answer {
            self.asked.set(self.asked.get() + 1);
            if self.asked.get() == 10 {
                sleep(Duration::from_millis(300)).await;
            }
            Answer::Expected
        }
    }

    fn plan(pace: Pace) -> Plan {
        Plan { pace, warm_up: Duration::ZERO, length: Duration::from_millis(500) }
    }

    #[tokio::test]
    async fn a_stall_is_charged_to_every_request_that_was_due_during_it() {
        let asked = Cell::new(0);
        let open = drive("", vec![Stalling { asked: &asked }], plan(Pace::Open(200.0))).await;
        // Sixty were due within the stall. A closed loop would have seen it once.
        assert_eq!(open.count, 100);
        let late = open.latency.count_between(50_000, u64::MAX);
        assert!((40..=70).contains(&late), "{late} of them late");
        assert!(open.quantile_ms(0.99) > 200.0);
    }

    #[tokio::test]
    async fn a_closed_loop_asks_again_when_it_was_answered_and_sees_a_stall_once() {
        struct Slow(u32);
        impl Session for Slow {
            async fn once(&mut self) -> Answer {
                self.0 += 1;
                sleep(Duration::from_millis(if self.0 == 3 { 100 } else { 5 })).await;
                Answer::Expected
            }
        }
        let closed = drive("", vec![Slow(0)], plan(Pace::Closed)).await;
        assert!(closed.count <= 100 && closed.latency.count_between(90_000, u64::MAX) == 1, "{}", closed.line());
    }

    #[tokio::test]
    async fn a_run_of_wrong_answers_does_not_go_on_to_its_end() {
        struct Wrong;
        impl Session for Wrong {
            async fn once(&mut self) -> Answer {
                Answer::Unexpected("500".to_owned())
            }
        }
        let callers: Vec<Wrong> = std::iter::repeat_with(|| Wrong).take(64).collect();
        let long = Plan { length: Duration::from_secs(600), ..plan(Pace::Closed) };
        let measured = drive("", callers, long).await;
        assert!(measured.unexpected["500"] > WRONG_MAX && measured.count == 0);
    }

    #[tokio::test]
    async fn a_run_that_runs_out_of_requests_counts_the_time_until_then() {
        struct Few(u32);
        impl Session for Few {
            async fn once(&mut self) -> Answer {
                self.0 += 1;
                sleep(Duration::from_millis(10)).await;
                if self.0 > 5 { Answer::Exhausted } else { Answer::Expected }
            }
        }
        let measured = drive("", vec![Few(0), Few(0)], plan(Pace::Closed)).await;
        assert_eq!(measured.count, 10);
        assert!(measured.elapsed < Duration::from_millis(400), "{:?}", measured.elapsed);
    }
}
