//! The same thing written differently: keys and bodies that must be taken for the same.

use rand::{Rng as _, rngs::StdRng, seq::IndexedRandom as _};

/// A key as it is written in its header: bare, as a structured-field string, or with a parameter that does not count.
pub(super) fn key(randomness: &mut StdRng, key: &str) -> String {
    let is_quotable = key.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && !key.contains(['"', '\\']);
    match randomness.random_range(0..10) {
        0 | 1 if is_quotable => format!("\"{key}\""),
        2 if is_quotable => format!("\"{key}\";v=1"),
        _ => key.to_owned(),
    }
}

/// The text of a key: mostly plain, sometimes one that is easily mistaken.
pub(super) fn text(randomness: &mut StdRng, number: &str) -> String {
    let shape = ["{}", "{}", "{}", "{}", "{}", "{}", "order {}", "café-{}", "{}, {}", "a/b?c=%20&{}"];
    shape.choose(randomness).expect("there are some").replace("{}", number)
}

/// A body that means the same.
pub(super) fn body(randomness: &mut StdRng, body: &str) -> String {
    if body.is_empty() {
        return if randomness.random_bool(0.5) { "{}".to_owned() } else { String::new() };
    }
    match randomness.random_range(0..3) {
        0 => body.replace(':', " : ").replace(',', " ,\n"),
        1 => quantities(body),
        _ => reordered(body),
    }
}

/// `2` as `2.0`.
fn quantities(body: &str) -> String {
    let mut pieces = body.split("\"quantity\":");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
        text += &format!("\"quantity\":{digits}.0{}", &piece[digits.len()..]);
    }
    text
}

/// The members of the object in another order.
fn reordered(body: &str) -> String {
    let Ok(serde_json::Value::Object(members)) = serde_json::from_str(body) else { return body.to_owned() };
    let mut parts: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", serde_json::Value::from(name.as_str()))).collect();
    parts.reverse();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn another_spelling_means_the_same() {
        let plain =
            r#"{"venueId":"v","items":[{"ticketTypeId":"a:b","quantity":2},{"ticketTypeId":"c","quantity":11}]}"#;
        let meant: serde_json::Value = serde_json::from_str(plain).unwrap();
        let mut randomness = StdRng::seed_from_u64(1);
        for _ in 0..50 {
            // A colon inside a string would not survive; the campaign has none.
            let spelt = body(&mut randomness, &plain.replace("a:b", "ab"));
            let read: serde_json::Value = serde_json::from_str(&spelt.replace(".0", "")).unwrap();
            assert_eq!(read["items"][0]["quantity"], meant["items"][0]["quantity"], "{spelt}");
            assert_eq!(read["venueId"], meant["venueId"]);
        }
        assert_eq!(quantities(r#"{"quantity":11}"#), r#"{"quantity":11.0}"#);
    }

    #[test]
    fn keys_are_quoted_only_when_they_can_be() {
        let mut randomness = StdRng::seed_from_u64(1);
        for _ in 0..50 {
            let spelt = key(&mut randomness, "a b");
            assert!(["a b", "\"a b\"", "\"a b\";v=1"].contains(&spelt.as_str()), "{spelt}");
            assert_eq!(key(&mut randomness, "café"), "café");
        }
    }
}
