//! What is shown of a key agrees with what was answered under it, and never is a body.

use std::collections::HashMap;

use crate::{
    checker::{Case, Class, KeyId, Route, Violation, answer::is_stored, encoded},
    history::{Answer, Call},
};

pub(super) const NAME: &str = "key-reads";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let by_path: HashMap<(&str, String), &KeyId> =
        case.keyed.keys().map(|key| ((key.tenant.as_str(), encoded(&key.key)), key)).collect();
    let mut found = Vec::new();
    for call in &case.history.calls {
        let (Route::Key(path), Some((ms, answer))) = (Route::of(call), call.answered()) else { continue };
        let key = by_path.get(&(call.tenant.as_str(), path.to_owned())).copied();
        if let Some(what) = judge(call, answer, key, key.map_or(&[], |key| &case.keyed[key])) {
            let what = format!("call {} was shown {}: {what}", call.id, answer.body);
            let mut violation = Violation::new(NAME, what).at(ms);
            violation.key = key.cloned();
            found.push(violation);
        }
    }
    found
}

fn judge(call: &Call, answer: &Answer, key: Option<&KeyId>, calls: &[&Call]) -> Option<String> {
    let known =
        calls.iter().filter(|it| it.done_ms.is_some_and(|done| done < call.sent_ms)).filter_map(|it| it.answer());
    let mut stored = known.clone().filter(|it| Class::of(it) == Class::Final && is_stored(it));
    let is_held = known.clone().any(|it| Class::of(it).is_bound());
    match answer.status {
        404 if is_held => return Some("the key was held".to_owned()),
        404 | 503 => return None,
        200 => {}
        other => return Some(format!("it is no answer to that question: {other}")),
    }
    let said = answer.json();
    if key.is_none_or(|key| said["key"] != key.key) {
        return Some("that is another key".to_owned());
    }
    if said.get("body").is_some() || said.get("response").is_some() {
        return Some("it shows the answer".to_owned());
    }
    let is_completed = said["state"] == "completed";
    if is_completed != said["statusCode"].is_u64() {
        return Some("a status code belongs to a completed key".to_owned());
    }
    match stored.next() {
        Some(stored) if !is_completed || said["statusCode"] != stored.status => {
            Some(format!("the answer {} was stored", stored.status))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, json, problem};

    fn shown(answer: Answer) -> Vec<String> {
        let mut fixture = Fixture::good();
        fixture.sent("a", "GET", "/v1/idempotency-keys/k1", answer);
        fixture.broken(check)
    }

    #[test]
    fn a_key_that_is_shown_as_it_is_not_is_reported() {
        let body = r#"{"key":"k1","state":"completed","statusCode":201}"#;
        assert_eq!(shown(json(200, body)), Vec::<String>::new());
        assert_eq!(shown(problem(503, "idempotency_unavailable", "")), Vec::<String>::new());
        for (answer, what) in [
            (json(200, &body.replace("k1", "k2")), "another key"),
            (json(200, &body.replace("201", "200")), "the answer 201 was stored"),
            (json(200, r#"{"key":"k1","state":"in_progress","statusCode":null}"#), "the answer 201 was stored"),
            (json(200, &body.replace("completed", "released")), "belongs to a completed key"),
            (json(200, &body.replace("}", ",\"body\":\"\"}")), "it shows the answer"),
            (problem(404, "not_found", ""), "the key was held"),
            (json(202, body), "no answer to that question"),
        ] {
            let found = shown(answer);
            assert!(found.len() == 1 && found[0].contains(what), "{what}: {found:?}");
        }
    }
}
