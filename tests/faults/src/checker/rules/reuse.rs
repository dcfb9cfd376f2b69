//! A key belongs to one request: another one under it is told so, and is never executed.

use std::collections::BTreeMap;

use crate::{
    checker::{Case, Class, Problem, Violation, request},
    history::{Answer, Call},
};

pub(super) const NAME: &str = "reuse";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (key, calls) in &case.keyed {
        let meanings: Vec<(String, &&Call)> = calls.iter().map(|call| (request::meaning(call), call)).collect();
        // Which request the key belongs to shows in any answer but a refusal before it was reserved.
        let mut owners = BTreeMap::<&str, &Call>::new();
        for (meaning, call) in &meanings {
            if call.answer().is_some_and(is_owned) {
                owners.entry(meaning).or_insert(call);
            }
        }
        if let [one, other, ..] = &owners.values().collect::<Vec<_>>()[..] {
            let what = format!("calls {} and {} asked for different things and were both taken on", one.id, other.id);
            found.push(Violation::new(NAME, what).of(key).at(other.done_ms.unwrap_or_default()));
        }
        for (meaning, call) in &meanings {
            let Some((ms, answer)) = call.answered() else { continue };
            if Class::of(answer) != Class::Mismatch {
                continue;
            }
            let is_alone = !meanings.iter().any(|(other, it)| other != meaning && it.sent_ms <= ms);
            if is_alone || owners.contains_key(meaning.as_str()) {
                let what =
                    format!("call {} was told that the key belongs to another request, and it does not", call.id);
                found.push(Violation::new(NAME, what).of(key).at(ms));
            }
        }
    }
    found
}

fn is_owned(answer: &Answer) -> bool {
    match Class::of(answer) {
        Class::Failed => Problem::of(answer).error == "upstream_unavailable",
        class => class.is_bound(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, json, problem};

    fn other_body(answer: Answer) -> Vec<String> {
        let mut fixture = Fixture::good();
        fixture.late("k1", answer);
        let call = fixture.history.calls.last_mut().unwrap();
        call.body = call.body.replace(":2", ":1");
        fixture.broken(check)
    }

    #[test]
    fn another_request_under_the_key_is_told_so_or_reported() {
        assert_eq!(other_body(problem(422, "idempotency_key_reuse", "")), Vec::<String>::new());
        assert_eq!(other_body(problem(503, "idempotency_unavailable", "")), Vec::<String>::new());
        for answer in [
            json(201, "{}"),
            problem(409, "conflict", "request_in_progress"),
            problem(409, "sold_out", ""),
            problem(503, "upstream_unavailable", "in_doubt"),
        ] {
            assert!(other_body(answer)[0].contains("were both taken on"));
        }
    }

    #[test]
    fn the_request_that_the_key_belongs_to_is_never_told_that_it_does_not() {
        let mut fixture = Fixture::good();
        fixture.late("k1", problem(422, "idempotency_key_reuse", ""));
        assert!(fixture.broken(check)[0].contains("belongs to another request, and it does not"));
    }
}
