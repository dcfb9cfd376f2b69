//! Answers have the form that clients are promised: problems say what they are and whether to come back, keyed answers name their key.

use crate::{
    checker::{Case, Class, Problem, Violation, case::key_of},
    history::{Answer, Call},
};

pub(super) const NAME: &str = "form";

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for call in &case.history.calls {
        let Some((ms, answer)) = call.answered() else { continue };
        if let Err(what) = judge(call, answer) {
            let what = format!("call {} was answered {} {}: {what}", call.id, answer.status, answer.body);
            let mut violation = Violation::new(NAME, what).at(ms);
            violation.key = key_of(call);
            found.push(violation);
        }
    }
    found
}

fn judge(call: &Call, answer: &Answer) -> Result<(), String> {
    let is_keyed = key_of(call).is_some();
    if is_keyed && answer.header("idempotency-key").is_none() {
        return Err("the key is not echoed".to_owned());
    }
    if let (true, Some(wait)) = (is_keyed, call.wait_s)
        && answer.header("preference-applied") != Some(&format!("wait={wait}"))
        && Class::of(answer).is_bound()
    {
        return Err(format!("it does not say that it would wait for {wait} s"));
    }
    if answer.is_replayed() && !is_keyed {
        return Err("a replay without a key".to_owned());
    }
    if answer.status < 400 {
        return Ok(());
    }
    if answer.header("content-type") != Some("application/problem+json") {
        return Err("it is no problem document".to_owned());
    }
    let problem = Problem::of(answer);
    if answer.json()["status"] != answer.status || problem.error.is_empty() {
        return Err("the document does not say what it is".to_owned());
    }
    let must_wait = answer.status == 503
        || matches!(problem.code.as_str(), "request_in_progress" | "outcome_pending" | "payment_in_progress");
    let waits = answer.header("retry-after").map(|seconds| seconds.parse::<u64>().ok());
    match waits {
        Some(Some(1..)) if must_wait => Ok(()),
        None if !must_wait => Ok(()),
        _ => Err(format!("Retry-After is {:?}", answer.header("retry-after"))),
    }?;
    let may_return = must_wait || problem.error == "sold_out" || answer.status >= 500;
    if may_return != problem.is_retryable {
        return Err("it says the wrong thing about a retry".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture::{Fixture, problem};

    fn answered(key: bool, change: impl FnOnce(&mut Answer), answer: Answer) -> Vec<String> {
        let mut fixture = Fixture::good();
        let mut answer = answer;
        change(&mut answer);
        let call = fixture.sent("a", "POST", "/v1/orders", answer);
        call.key = key.then(|| "k1".to_owned());
        fixture.broken(check)
    }

    #[test]
    fn an_answer_out_of_form_is_reported() {
        let running = || problem(409, "conflict", "request_in_progress");
        type Change = fn(&mut Answer);
        let table: [(Change, &str); 6] = [
            (|it| drop(it.headers.remove("idempotency-key")), "the key is not echoed"),
            (|it| drop(it.headers.insert("content-type".into(), "text/plain".into())), "no problem document"),
            (|it| it.body = it.body.replace("409", "400"), "does not say what it is"),
            (|it| it.body = it.body.replace("true", "false"), "the wrong thing about a retry"),
            (|it| drop(it.headers.remove("retry-after")), "Retry-After is None"),
            (|it| drop(it.headers.insert("retry-after".into(), "0".into())), "Retry-After is"),
        ];
        assert_eq!(answered(true, |_| {}, running()), Vec::<String>::new());
        for (change, what) in table {
            let found = answered(true, change, running());
            assert!(found.iter().any(|it| it.contains(what)), "{what}: {found:?}");
        }
    }

    #[test]
    fn an_answer_that_was_waited_for_says_so() {
        for (applied, is_reported) in [(Some("wait=3"), false), (Some("wait=2"), true), (None, true)] {
            let mut fixture = Fixture::good();
            let answer = fixture.heard("k1", 1);
            if let Some(applied) = applied {
                answer.headers.insert("preference-applied".into(), applied.into());
            }
            let call = fixture.history.calls.iter_mut().filter(|call| call.key.as_deref() == Some("k1")).nth(1);
            call.unwrap().wait_s = Some(3);
            assert_eq!(!fixture.broken(check).is_empty(), is_reported, "{applied:?}");
        }
    }

    #[test]
    fn a_refusal_that_time_does_not_change_says_nothing_of_waiting() {
        for answer in
            [problem(409, "conflict", "not_pending"), problem(409, "sold_out", ""), problem(404, "not_found", "")]
        {
            assert_eq!(answered(true, |_| {}, answer), Vec::<String>::new());
        }
        let waiting = |it: &mut Answer| drop(it.headers.insert("retry-after".into(), "5".into()));
        assert!(answered(true, waiting, problem(409, "conflict", "not_pending"))[0].contains("Retry-After"));
        let replayed = |it: &mut Answer| drop(it.headers.insert("idempotent-replayed".into(), "true".into()));
        assert!(answered(false, replayed, problem(404, "not_found", ""))[0].contains("a replay without a key"));
    }
}
