//! Each key has one stored answer: whoever has seen it sees it again, byte for byte, and nothing else.

use crate::{
    checker::{
        Case, Class, KeyId, Violation,
        answer::{difference, is_stored},
        request,
    },
    history::{Answer, Call, Purpose},
    ledger::KeyRow,
};

pub(super) const NAME: &str = "stored-answer";

/// A final answer that was seen.
#[derive(Clone, Copy)]
struct Seen<'c> {
    call: &'c Call,
    ms: u64,
    answer: &'c Answer,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    case.keyed.iter().flat_map(|(key, calls)| check_key(case, key, calls)).collect()
}

fn check_key(case: &Case<'_>, key: &KeyId, calls: &[&Call]) -> Vec<Violation> {
    let mut seen: Vec<Seen<'_>> = calls.iter().filter_map(|call| final_answer(call)).collect();
    seen.sort_by_key(|it| it.ms);
    let Some(first) = seen.first().copied() else { return Vec::new() };
    let stored = seen.iter().copied().find(|it| is_stored(it.answer));
    let reference = stored.unwrap_or(first);
    let mut found = Vec::new();
    let mut say = |what: String, ms: u64| found.push(Violation::new(NAME, what).of(key).at(ms));

    for other in &seen {
        if let Some(difference) = difference(reference.answer, other.answer) {
            say(
                format!("call {} and call {} got different answers: {difference}", reference.call.id, other.call.id),
                other.ms,
            );
        }
    }
    let executed: Vec<&Seen<'_>> = seen.iter().filter(|it| !it.answer.is_replayed()).collect();
    if let [one, others @ ..] = &executed[..] {
        for other in others {
            say(format!("calls {} and {} were both answered as executed", one.call.id, other.call.id), other.ms);
        }
    }
    let meaning = request::meaning(first.call);
    for call in calls.iter().filter(|call| call.sent_ms > first.ms && request::meaning(call) == meaning) {
        let is_stored_known = stored.is_some_and(|it| it.ms < call.sent_ms);
        if let Some((ms, answer)) = call.answered()
            && let Some(what) = after(answer, is_stored_known)
        {
            say(format!("call {}, sent after the answer was known, {what}", call.id), ms);
        }
    }
    if case.history.course.sweep_began_ms.is_some() && !calls.iter().any(|call| is_swept(call)) {
        say("the final sweep did not get the answer again".to_owned(), case.history.course.sweep_began_ms.unwrap_or(0));
    }
    if let Some(what) = stored_otherwise(case.keys.get(key).copied(), reference.answer) {
        say(what, case.ledger.read_ms);
    }
    found
}

fn final_answer(call: &Call) -> Option<Seen<'_>> {
    let (ms, answer) = call.answered()?;
    (Class::of(answer) == Class::Final).then_some(Seen { call, ms, answer })
}

/// What is wrong with an answer to the same request, sent after its final answer had been seen.
fn after(answer: &Answer, is_stored_known: bool) -> Option<String> {
    match Class::of(answer) {
        Class::Final if answer.is_replayed() => None,
        Class::Final => Some("was answered as executed".to_owned()),
        Class::Unreserved | Class::Failed if answer.status == 503 => None,
        // Given before it was stored: until recovery has stored it, the key is open.
        Class::Open if !is_stored_known => None,
        _ => Some(format!("was answered {} {}", answer.status, answer.body)),
    }
}

fn is_swept(call: &Call) -> bool {
    call.purpose == Purpose::Sweep
        && call.answer().is_some_and(|answer| answer.is_replayed() && Class::of(answer) == Class::Final)
}

fn stored_otherwise(row: Option<&KeyRow>, answer: &Answer) -> Option<String> {
    let Some(row) = row else { return Some("its answer was seen and its row is gone".to_owned()) };
    if row.state != "completed" {
        return Some(format!("its answer was seen and its row is {}", row.state));
    }
    let kept = Answer {
        status: row.status.and_then(|status| u16::try_from(status).ok()).unwrap_or_default(),
        headers: answer.headers.clone(),
        body: row.body.clone().unwrap_or_default(),
    };
    difference(answer, &kept).map(|difference| format!("the stored answer is not the one that was seen: {difference}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, json, problem};

    fn broken(change: impl FnOnce(&mut Fixture)) -> Vec<String> {
        let mut fixture = Fixture::good();
        change(&mut fixture);
        fixture.broken(check)
    }

    #[test]
    fn answers_that_differ_in_a_byte_a_status_or_a_header_are_reported() {
        let byte = broken(|it| it.heard("k1", 1).body.push(' '));
        assert!(byte[0].contains("got different answers: bodies"), "{byte:?}");
        let status = broken(|it| it.heard("k1", 1).status = 200);
        assert!(status[0].contains("status 201 and 200"), "{status:?}");
        let header = broken(|it| drop(it.heard("k1", 1).headers.insert("location".into(), "/v1/orders/x".into())));
        assert!(header[0].contains("location"), "{header:?}");
    }

    #[test]
    fn an_answer_that_is_executed_twice_is_reported() {
        let twice = broken(|it| drop(it.heard("k1", 1).headers.remove("idempotent-replayed")));
        assert!(twice.iter().any(|what| what.contains("both answered as executed")), "{twice:?}");
        assert!(twice.iter().any(|what| what.contains("sent after the answer was known, was answered as executed")));
    }

    #[test]
    fn after_the_stored_answer_only_it_or_a_503_may_come() {
        for (answer, is_reported) in [
            (problem(503, "idempotency_unavailable", ""), false),
            (problem(409, "conflict", "request_in_progress"), true),
            (problem(409, "sold_out", ""), true),
            (problem(500, "internal_error", ""), true),
            (json(202, "{}"), true),
        ] {
            let found = broken(|it| it.late("k1", answer.clone()));
            assert_eq!(!found.is_empty(), is_reported, "{answer:?} {found:?}");
        }
        // Until it is stored, it may be in progress.
        let unstored = broken(|it| {
            it.late("k1", problem(409, "conflict", "request_in_progress"));
            for place in 0..3 {
                it.heard("k1", place).headers.remove("idempotency-key-expires");
            }
        });
        assert_eq!(unstored, Vec::<String>::new());
    }

    #[test]
    fn an_answer_that_the_sweep_or_the_store_does_not_have_is_reported() {
        let unswept = broken(|it| it.history.calls.retain(|call| call.purpose != Purpose::Sweep));
        assert!(unswept.iter().all(|what| what.contains("sweep")) && !unswept.is_empty(), "{unswept:?}");
        let gone = broken(|it| it.ledger.keys.retain(|row| row.key != "k4"));
        assert_eq!(gone, ["its answer was seen and its row is gone"]);
        let released = broken(|it| it.key_row("k4").state = "released".into());
        assert_eq!(released, ["its answer was seen and its row is released"]);
        let other = broken(|it| it.key_row("k4").body = Some("{}".into()));
        assert!(other[0].contains("the stored answer is not the one that was seen"), "{other:?}");
    }

    #[test]
    fn a_refusal_before_the_answer_is_no_answer() {
        let found = broken(|it| it.early("k1", problem(409, "sold_out", "")));
        assert_eq!(found, Vec::<String>::new());
    }
}
