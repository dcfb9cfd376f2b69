//! Canonical JSON and fingerprints against Python: the same bodies are accepted, and two have one fingerprint exactly when they mean
//! the same.

mod spelling;

use fuzz::{Python, Text, hold};
use idem_core::{Fingerprint, json};
use proptest::{collection::vec, prelude::*, sample::select};

use spelling::{Json, Number, nudge, spell};

fn fingerprint(body: &[u8]) -> Option<Fingerprint> {
    Fingerprint::of_request("POST", "/v1/orders", "", body).ok()
}

fn judge(python: &Python, first: &Text, second: &Text) -> Result<bool, TestCaseError> {
    let theirs = python.json(&first.0, &second.0);
    let ours = (fingerprint(&first.0), fingerprint(&second.0));
    prop_assert_eq!((ours.0.is_some(), ours.1.is_some()), (theirs.first, theirs.second), "accepted");
    if let (Some(a), Some(b)) = ours {
        prop_assert_eq!(a == b, theirs.same, "one fingerprint");
    }
    for text in [first, second] {
        if let Ok(form) = json::canonical(&text.0) {
            prop_assert_eq!(json::canonical(&form), Ok(form), "the form of a form is itself");
        }
    }
    Ok(theirs.same)
}

fn number() -> impl Strategy<Value = Number> {
    let digits = prop_oneof![
        4 => "0|[1-9][0-9]{0,2}",
        1 => "[1-9][0-9]{0,40}",
        1 => select(vec!["9007199254740992", "9007199254740993", "18446744073709551616", "1000", "9223372036854775807"]).prop_map(str::to_owned),
    ];
    let power = prop_oneof![
        4 => Just(0i128),
        3 => -4..4i128,
        1 => -400..400i128,
        2 => select(vec![
            999_999_999i128, -999_999_999, i128::from(i64::MAX), i128::from(i64::MIN), 1_000_000_000_000_000_000, -1_000_000_000_000_000_000,
            100_000_000_000_000_000_000_000_000, -100_000_000_000_000_000_000_000_000
        ]).prop_flat_map(|near| near - 3..near + 3),
    ];
    (any::<bool>(), digits, power).prop_map(|(is_negative, digits, power)| Number { is_negative, digits, power })
}

fn text() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        6 => proptest::char::range('a', 'c'),
        2 => select(vec!['"', '\\', '/', '\0', '\n', '\u{1f}', '\u{7f}', '\u{2028}', 'é', '\u{ffff}', '🎟', '\u{10ffff}', '\u{d7ff}', '\u{e000}']),
        1 => any::<char>(),
    ];
    vec(char, 0..5).prop_map(String::from_iter)
}

fn tree() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        1 => Just(Json::Null),
        1 => any::<bool>().prop_map(Json::Bool),
        4 => number().prop_map(Json::Number),
        3 => text().prop_map(Json::Text),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let member = (text(), inner.clone());
        let object = vec(member, 0..6).prop_map(|mut members| {
            // Names stand once; a name that stands twice is a damage of its own.
            members.sort_by(|a, b| a.0.cmp(&b.0));
            members.dedup_by(|a, b| a.0 == b.0);
            Json::Object(members)
        });
        prop_oneof![vec(inner, 0..6).prop_map(Json::Array), object]
    })
}

/// Texts made of what JSON is made of, most of them none.
const PIECES: [&str; 44] = [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\"a\"",
    "\"a\":1",
    "{\"a\":1,\"a\":1}",
    "{\"a\":1,\"\\u0061\":2}",
    "1",
    "-",
    "0",
    "-0",
    "01",
    "1.",
    ".5",
    "1e5",
    "1E+05",
    "1e",
    "e",
    "+1",
    "1e999999999",
    "0.1e1000000000",
    "10e-1",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    "True",
    "null",
    "nul",
    "\\u0000",
    "\\ud83c",
    "\\udf9f",
    "\"\\ud83c\\udf9f\"",
    "\"\\ud800\"",
    "\"\\u00E9\"",
    "\"é\"",
    " ",
    "\u{a0}",
    "\u{feff}",
    "\u{c}",
];

fn soup() -> impl Strategy<Value = Text> {
    let piece =
        prop_oneof![20 => select(PIECES.to_vec()).prop_map(|it| it.as_bytes().to_vec()), 1 => vec(any::<u8>(), 1..3)];
    vec(piece, 0..6).prop_map(|pieces| Text(pieces.concat()))
}

/// Rows that once were a fault, or nearly: pairs, and whether they mean the same.
const ROWS: [(&str, &str, bool); 30] = [
    ("", "{}", true),
    ("", " ", false),
    ("-0", "0e-999999999999999999999", true),
    ("1e999999999", "10e999999998", true),
    ("1e999999999", "1e999999998", false),
    ("1e9223372036854775807", "10e9223372036854775806", true),
    ("1e9223372036854775808", "0.1e9223372036854775809", true),
    ("1e-9223372036854775808", "10e-9223372036854775809", true),
    ("1e1000000000000000000", "10e999999999999999999", true),
    ("1e00000000000000000000000000001", "10", true),
    ("1e-00000000000000000000000000001", "0.1", true),
    ("100e-9999999999999999999999999", "1e-9999999999999999999999997", true),
    ("0.001e10000000000000000000000", "1e9999999999999999999997", true),
    ("9007199254740992", "9007199254740993", false),
    ("0.1", "0.10000000000000000000000000001", false),
    ("{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"c\":2e0,\"b\":1}}", true),
    ("{\"a\":1,\"ab\":2}", "{\"ab\":2,\"a\":1}", true),
    ("{\"a\\\"\":1,\"a\":2}", "{\"a\":2,\"\\u0061\\u0022\":1}", true),
    ("{\"\":1}", "{\"\\u0000\":1}", false),
    ("\"\\u0000\"", "\"\\u0000\\u0000\"", false),
    ("\"\\/\"", "\"/\"", true),
    ("\"\u{7f}\"", "\"\\u007F\"", true),
    ("\"e\u{301}\"", "\"é\"", false),
    ("\"\\ud83c\\udf9f\"", "\"🎟\"", true),
    ("\"\\ud83c\"", "\"\\udf9f\"", false),
    ("{\"a\":1,\"a\":1}", "{\"a\":1}", false),
    ("[1,2]", "[2,1]", false),
    ("{\"a\":[]}", "{\"a\":{}}", false),
    ("\"1\"", "1", false),
    ("\u{feff}1", "1", false),
];

#[test]
fn known_pairs_mean_what_they_mean() {
    let python = Python::start();
    for (first, second, same) in ROWS {
        let judged =
            judge(&python, &first.into(), &second.into()).unwrap_or_else(|why| panic!("{first} {second}: {why}"));
        assert_eq!(judged, same, "{first} {second}");
    }
    for depth in 60..70 {
        let nested =
            |open: &str, close: &str| Text(format!("{}1{}", open.repeat(depth), close.repeat(depth)).into_bytes());
        let (arrays, objects) = (nested("[", "]"), nested("{\"a\":", "}"));
        judge(&python, &arrays, &objects).unwrap_or_else(|why| panic!("depth {depth}: {why}"));
        assert_eq!(fingerprint(&arrays.0).is_some(), depth <= 64);
    }
}

#[test]
fn two_spellings_of_one_value_have_one_fingerprint() {
    let python = Python::start();
    hold("json-spelled", 3_000, (tree(), any::<u64>(), any::<u64>()), |(value, one, two)| {
        let (first, second) = (spell(&value, one), spell(&value, two));
        prop_assert!(judge(&python, &Text(first.into()), &Text(second.into()))?, "two spellings of one value");
        Ok(())
    });
}

#[test]
fn a_small_change_has_another_fingerprint_exactly_when_it_means_something() {
    let python = Python::start();
    hold("json-nudged", 3_000, (tree(), any::<u64>(), any::<u64>()), |(value, how, seed)| {
        let other = nudge(value.clone(), how);
        let (first, second) = (spell(&value, seed), spell(&other, seed ^ 1));
        judge(&python, &Text(first.into()), &Text(second.into())).map(drop)
    });
}

#[test]
fn two_numbers_have_one_fingerprint_exactly_when_they_are_equal() {
    let python = Python::start();
    // Few digits and near powers, so that many pairs are equal.
    let near = (select(vec!["1", "10", "100", "5", "0", "12", "120"]), -3..3i128, any::<bool>());
    let near = near.prop_map(|(digits, power, is_negative)| Number { is_negative, digits: digits.to_owned(), power });
    let base =
        prop_oneof![Just(0i128), Just(i128::from(i64::MAX)), Just(-1_000_000_000_000_000_000), Just(10i128.pow(30))];
    let pair = (near.clone(), near, base, any::<u64>());
    hold("json-numbers", 4_000, pair, |(mut first, mut second, base, seed)| {
        (first.power, second.power) = (first.power + base, second.power + base);
        let (first, second) = (spell(&Json::Number(first), seed), spell(&Json::Number(second), !seed));
        judge(&python, &Text(first.into()), &Text(second.into())).map(drop)
    });
}

#[test]
fn what_is_no_json_for_one_is_none_for_the_other() {
    let python = Python::start();
    let mutated = (tree(), any::<u64>(), any::<prop::sample::Index>(), any::<u8>(), 0..3u8).prop_map(
        |(value, seed, at, byte, how)| {
            let mut text = spell(&value, seed).into_bytes();
            let at = at.index(text.len());
            match how {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => drop(text.remove(at)),
            }
            Text(text)
        },
    );
    let inputs = prop_oneof![soup(), mutated];
    hold("json-soup", 6_000, (inputs, soup()), |(first, second)| judge(&python, &first, &second).map(drop));
}
