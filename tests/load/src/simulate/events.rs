//! Events in the order of their time, and the stations between which requests travel.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use hdrhistogram::Histogram;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// Where requests wait and are served.
#[derive(Clone, Debug)]
pub struct Station {
    /// How many are served at a time: cores, or flights.
    servers: usize,
    /// How many a server takes at once.
    batch_max: usize,
    /// The mean time of one turn, whatever it carries.
    fixed_us: f64,
    /// The mean time that each of those aboard adds.
    each_us: f64,
}

/// One stop of a request on its way.
#[derive(Clone, Debug)]
pub struct Step {
    station: usize,
    /// Of the station's time, how much this stop takes.
    share: f64,
    /// To get there.
    travel_us: f64,
    stations: std::rc::Rc<[Station]>,
}

/// Time in nanoseconds, then what happens. The number makes equal times fall in the order in which they were drawn.
type Event = Reverse<(u64, u64, Happening)>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrives { request: usize, step: usize },
    Leaves { station: usize, aboard: Vec<(usize, usize)> },
}

struct Queue {
    waiting: VecDeque<(usize, usize)>,
    busy: usize,
}

// === impl Station ===

impl Station {
    /// Cores that take one request at a time.
    pub fn cores(cores: usize, us: f64) -> Self {
        Self { servers: cores, batch_max: 1, fixed_us: 0.0, each_us: us }
    }

    /// Flights that carry whatever waits.
    pub fn batches(flights: usize, batch_max: usize, fixed_us: f64, each_us: f64) -> Self {
        Self { servers: flights, batch_max, fixed_us, each_us }
    }
}

// === impl Step ===

impl Step {
    /// A way through `stations`, by their number and the share of their time; each stop is a message away.
    pub fn along(stations: &[Station], route: &[(usize, f64)], travel_us: f64) -> Vec<Self> {
        let stations: std::rc::Rc<[Station]> = stations.into();
        let step = |&(station, share): &(usize, f64)| Self { station, share, travel_us, stations: stations.clone() };
        route.iter().map(step).collect()
    }
}

/// Sends `requests` along `path` at `rate` a second; how long they took, in microseconds, without the first tenth.
pub fn simulate(path: &[Step], rate: f64, requests: usize, seed: u64) -> Histogram<u64> {
    let stations = path[0].stations.clone();
    let mut random = StdRng::seed_from_u64(seed);
    let mut queues: Vec<Queue> = stations.iter().map(|_| Queue { waiting: VecDeque::new(), busy: 0 }).collect();
    let mut events: BinaryHeap<Event> = BinaryHeap::new();
    let mut began = Vec::with_capacity(requests);
    let mut times = Histogram::new(3).expect("three digits are few enough");
    let (mut drawn, mut arrival) = (0_u64, 0.0);
    for request in 0..requests {
        arrival += exponential(&mut random, 1e9 / rate);
        began.push(arrival as u64);
        events.push(Reverse((arrival as u64, drawn, Happening::Arrives { request, step: 0 })));
        drawn += 1;
    }
    while let Some(Reverse((now, _, happening))) = events.pop() {
        let touched = match happening {
            Happening::Arrives { request, step } => {
                queues[path[step].station].waiting.push_back((request, step));
                path[step].station
            }
            Happening::Leaves { station, aboard } => {
                queues[station].busy -= 1;
                for (request, step) in aboard {
                    if step + 1 == path.len() {
                        if request >= requests / 10 {
                            times.record((now - began[request]) / 1000).expect("it grows as it must");
                        }
                        continue;
                    }
                    let travel = (path[step + 1].travel_us * 1000.0) as u64;
                    events.push(Reverse((now + travel, drawn, Happening::Arrives { request, step: step + 1 })));
                    drawn += 1;
                }
                station
            }
        };
        let (station, queue) = (&stations[touched], &mut queues[touched]);
        while queue.busy < station.servers && !queue.waiting.is_empty() {
            let size = station.batch_max.min(queue.waiting.len());
            let aboard: Vec<_> = queue.waiting.drain(..size).collect();
            let shares: f64 = aboard.iter().map(|&(_, step)| path[step].share).sum();
            let mean = (station.fixed_us + station.each_us * shares) * 1000.0;
            // Half of it always, the other half as chance will have it.
            let takes = mean / 2.0 + exponential(&mut random, mean / 2.0);
            queue.busy += 1;
            events.push(Reverse((now + takes as u64, drawn, Happening::Leaves { station: touched, aboard })));
            drawn += 1;
        }
    }
    times
}

fn exponential(random: &mut StdRng, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(station: Station) -> Vec<Step> {
        Step::along(&[station], &[(0, 1.0)], 0.0)
    }

    #[test]
    fn a_lone_request_takes_the_sum_of_its_stops() {
        let path = Step::along(&[Station::cores(1, 100.0)], &[(0, 1.0), (0, 0.5)], 50.0);
        // One in ten seconds: nobody meets anybody. 100 + 50 µs of work and one message on the way.
        let times = simulate(&path, 0.1, 20_000, 1);
        assert!((times.mean() - 200.0).abs() < 4.0, "{}", times.mean());
    }

    #[test]
    fn a_busy_core_makes_requests_wait() {
        let at = |rate: f64| simulate(&alone(Station::cores(1, 100.0)), rate, 50_000, 1).value_at_quantile(0.99);
        assert!(at(9_000.0) > 3 * at(1_000.0), "{} and {}", at(9_000.0), at(1_000.0));
    }

    #[test]
    fn whatever_waits_travels_together_and_outruns_what_goes_one_by_one() {
        let one_by_one = alone(Station::batches(1, 1, 1000.0, 10.0));
        let together = alone(Station::batches(1, 256, 1000.0, 10.0));
        // Three times what one by one can carry.
        assert!(simulate(&one_by_one, 3_000.0, 20_000, 1).value_at_quantile(0.5) > 1_000_000);
        let times = simulate(&together, 3_000.0, 20_000, 1);
        assert!(times.value_at_quantile(0.99) < 20_000, "{}", times.value_at_quantile(0.99));
    }
}
