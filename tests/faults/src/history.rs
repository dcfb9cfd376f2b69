//! What was seen at the edge: every request, every answer, every sample, in the order in which it was seen.
//!
//! It is written while the campaign runs, one JSON event a line, and only ever read afterwards: the checker has nothing else
//! than this, what the databases and the acquirer say at the end, and when which fault was at work.

mod event;
mod recorder;

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    path::Path,
};

use anyhow::Context as _;

pub use event::{
    Answer, Call, Control, Course, Deed, Event, Heard, How, Intent, IntentId, Kind, Purpose, StockSample, TokenSample,
    TokenStore, TypeSample, Why,
};
pub use recorder::Recorder;

/// The file of the events, in the directory of a run.
pub const FILE: &str = "history.jsonl";

/// A campaign as its buyers saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// What the campaign was, and when its parts began.
    pub course: Course,
    /// Every intent, by its number.
    pub intents: BTreeMap<IntentId, Intent>,
    /// Every request, in the order in which they were sent.
    pub calls: Vec<Call>,
    /// What was done behind the gateways' backs.
    pub controls: Vec<Control>,
    /// The stock, as the orders database had it.
    pub stock: Vec<StockSample>,
    /// When all fencing tokens were looked at.
    pub token_looks: Vec<u64>,
    /// Fencing tokens that were new or had changed.
    pub tokens: Vec<TokenSample>,
}

impl History {
    /// Puts events together.
    pub fn of(events: impl IntoIterator<Item = Event>) -> Self {
        let mut history = Self::default();
        let mut place = BTreeMap::new();
        for event in events {
            match event {
                Event::Course(course) => history.course = course,
                Event::FaultsStopped { ms } => history.course.faults_stopped_ms = Some(ms),
                Event::SweepBegan { ms } => history.course.sweep_began_ms = Some(ms),
                Event::Intent(intent) => drop(history.intents.insert(intent.id, intent)),
                Event::IntentEnded { id, ms, how } => {
                    if let Some(intent) = history.intents.get_mut(&id) {
                        intent.ended = Some((ms, how));
                    }
                }
                Event::Sent(call) => {
                    place.insert(call.id, history.calls.len());
                    history.calls.push(call);
                }
                Event::Heard { call, ms, heard } => {
                    if let Some(call) = place.get(&call).and_then(|at| history.calls.get_mut(*at)) {
                        call.done_ms = Some(ms);
                        call.heard = Some(heard);
                    }
                }
                Event::Control(control) => history.controls.push(control),
                Event::Stock(sample) => history.stock.push(sample),
                Event::Tokens { ms, seen } => {
                    history.token_looks.push(ms);
                    history.tokens.extend(seen);
                }
            }
        }
        history
    }

    /// Reads a recorded run. A last line that was cut off by the end of its process is left out.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let file = std::fs::File::open(&path).with_context(|| format!("no history at {}", path.display()))?;
        let lines = BufReader::new(file).lines().collect::<Result<Vec<_>, _>>()?;
        let mut events = Vec::with_capacity(lines.len());
        for (number, line) in lines.iter().enumerate() {
            match serde_json::from_str(line) {
                Ok(event) => events.push(event),
                Err(_) if number + 1 == lines.len() => {}
                Err(error) => return Err(error).with_context(|| format!("line {} is no event", number + 1)),
            }
        }
        Ok(Self::of(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64) -> Call {
        Call {
            id,
            intent: Some(IntentId(7)),
            buyer: 3,
            purpose: Purpose::First,
            gateway: 1,
            tenant: "a".into(),
            method: "POST".into(),
            path: "/v1/orders".into(),
            key: Some("k \"1\" é".into()),
            body: r#"{"venueId":"v"}"#.into(),
            wait_s: Some(3),
            sent_ms: 10,
            done_ms: None,
            heard: None,
        }
    }

    fn events() -> Vec<Event> {
        let answer = Answer {
            status: 201,
            headers: BTreeMap::from([("location".to_owned(), "/v1/orders/1".to_owned())]),
            body: "{\"id\":\"1\"}".into(),
        };
        let intent = Intent {
            id: IntentId(7),
            buyer: 3,
            kind: Kind::Place,
            tenant: "a".into(),
            key: Some("k \"1\" é".into()),
            path: "/v1/orders".into(),
            body: String::new(),
            ended: None,
        };
        vec![
            Event::Course(Course { seed: 5, lease_ms: 2000, ..Course::default() }),
            Event::Intent(intent),
            Event::Sent(call(1)),
            Event::Sent(call(2)),
            Event::Heard { call: 2, ms: 30, heard: Heard::Answer(answer) },
            Event::Heard { call: 1, ms: 31, heard: Heard::Nothing(Why::Left) },
            Event::IntentEnded { id: IntentId(7), ms: 32, how: How::Final },
            Event::FaultsStopped { ms: 40 },
            Event::SweepBegan { ms: 50 },
            Event::Control(Control { ms: 55, deed: Deed::Forge, target: "evt".into(), status: None }),
            Event::Tokens {
                ms: 56,
                seen: vec![TokenSample {
                    ms: 56,
                    store: TokenStore::Idem,
                    name: "rest/a k".into(),
                    operation: "o".into(),
                    token: 3,
                    state: "released".into(),
                }],
            },
            Event::Stock(StockSample {
                ms: 60,
                types: vec![TypeSample { id: "t".into(), capacity: 4, sold: 1, held: 2, orders: Some((1, 2)) }],
            }),
        ]
    }

    #[test]
    fn events_become_calls_with_what_was_heard() {
        let history = History::of(events());
        assert_eq!(history.calls.len(), 2);
        assert_eq!((history.controls.len(), history.tokens.len(), history.stock.len()), (1, 1, 1));
        assert_eq!(history.calls[0].heard, Some(Heard::Nothing(Why::Left)));
        assert_eq!((history.calls[1].done_ms, history.calls[1].answer().map(|it| it.status)), (Some(30), Some(201)));
        assert_eq!(history.intents[&IntentId(7)].ended, Some((32, How::Final)));
        assert_eq!((history.course.faults_stopped_ms, history.course.sweep_began_ms), (Some(40), Some(50)));
    }

    #[test]
    fn a_recorded_history_reads_back_and_a_torn_last_line_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(directory.path()).unwrap();
        for event in events() {
            recorder.record(event);
        }
        recorder.flush().unwrap();
        assert_eq!(History::read(directory.path()).unwrap(), recorder.history());
        assert_eq!(recorder.history(), History::of(events()));

        let path = directory.path().join(FILE);
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"event\":\"heard\",\"ca")).unwrap();
        assert_eq!(History::read(directory.path()).unwrap(), History::of(events()));
        std::fs::write(&path, format!("nonsense\n{whole}")).unwrap();
        assert!(History::read(directory.path()).is_err());
    }
}
