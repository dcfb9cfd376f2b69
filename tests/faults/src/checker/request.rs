//! Which requests are the same: the checker's own reading of the fingerprint.

use serde_json::{Map, Value};

use crate::history::Call;

/// What makes a request that one: method, path, and what its body means. Member order, spacing, escapes and the spelling of
/// numbers do not count.
pub(super) fn meaning(call: &Call) -> String {
    let body = if call.body.is_empty() { "{}" } else { &call.body };
    let body = match serde_json::from_str::<Value>(body) {
        Ok(value) => canonical(value).to_string(),
        Err(_) => format!("no JSON: {body}"),
    };
    format!("{} {} {body}", call.method, call.path)
}

fn canonical(value: Value) -> Value {
    match value {
        // The campaign writes small numbers only, so that a double holds each of them exactly.
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(list) => Value::Array(list.into_iter().map(canonical).collect()),
        Value::Object(members) => {
            let mut sorted: Vec<(String, Value)> =
                members.into_iter().map(|(name, value)| (name, canonical(value))).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(Map::from_iter(sorted))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::fixture;

    fn of(body: &str) -> String {
        meaning(&Call { body: body.into(), ..fixture::call(1, "k", 0) })
    }

    #[test]
    fn spelling_does_not_count_and_content_does() {
        let plain = of(r#"{"venueId":"v","items":[{"ticketTypeId":"t","quantity":2}]}"#);
        assert_eq!(plain, of(r#" {"items": [{"quantity": 2.0, "ticketTypeId": "t"}], "venueId": "\u0076"} "#));
        assert_eq!(of(""), of("{}"));
        for other in [
            r#"{"venueId":"v","items":[{"ticketTypeId":"t","quantity":3}]}"#,
            r#"{"venueId":"v","items":[{"ticketTypeId":"t","quantity":"2"}]}"#,
            r#"{"venueId":"v","items":[]}"#,
        ] {
            assert_ne!(plain, of(other));
        }
    }
}
