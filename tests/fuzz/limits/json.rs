//! Canonical JSON: linear in memory, nearly linear in time, however the text is made.

use fuzz::{Text, hold};
use idem_core::{Fingerprint, IdempotencyKey};
use idem_layer::BODY_MAX;
use proptest::{collection::vec, prelude::*, sample::select};

use crate::measure::{alone, peak, time};

/// Bytes allocated for each byte of a text. A member takes 32 bytes until its object ends, and can be written in 7.
const FACTOR: usize = 24;
/// And for any text at all.
const CONSTANT: usize = 64 * 1024;
/// How much longer than the plainest body of its size a text may take.
const RATIO: u32 = 40;

fn fingerprint(text: &[u8]) -> bool {
    Fingerprint::of_request("POST", "/v1/orders", "", text).is_ok()
}

/// Repeats a unit up to the largest body, between a head and a tail.
fn filled(head: &str, unit: &str, tail: &str) -> Vec<u8> {
    let times = (BODY_MAX - head.len() - tail.len()) / unit.len();
    format!("{head}{}{tail}", unit.repeat(times)).into_bytes()
}

/// Objects whose members come in the worst order: each name sorts before all that stand there already.
fn members(name: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::from("{");
    for n in (0..).map(|n| 999_999 - n) {
        let member = format!("\"{}\":0,", name(n));
        if text.len() + member.len() > BODY_MAX - 2 {
            break;
        }
        text.push_str(&member);
    }
    format!("{}}}", text.trim_end_matches(',')).into_bytes()
}

/// Members that are out of order on every level, as deep as it goes: each level puts all that is below it in order again.
fn towers() -> Vec<u8> {
    let filler = "x".repeat(BODY_MAX - 64 * 20);
    let inner = format!("\"{filler}\"");
    let text = (0..64).fold(inner, |inner, _| format!("{{\"b\":{inner},\"a\":0}}"));
    text.into_bytes()
}

fn rows() -> Vec<(&'static str, Vec<u8>)> {
    let digits = "7".repeat(BODY_MAX - 4);
    vec![
        ("1e999999999", b"1e999999999".to_vec()),
        ("-1e-999999999", b"-1e-999999999".to_vec()),
        ("open arrays", filled("", "[", "")),
        ("open objects", filled("", "{\"a\":", "")),
        ("digits", digits.clone().into_bytes()),
        ("digits of a fraction", format!("0.{digits}").into_bytes()),
        ("zeros", filled("1", "0", "")),
        ("zeros of a fraction", filled("0.", "0", "1")),
        ("digits of an exponent", format!("1e{digits}").into_bytes()),
        ("digits of a negative exponent", format!("1e-{digits}").into_bytes()),
        ("nines of an exponent that carry", filled("10e", "9", "")),
        ("zeros of an exponent", filled("1e", "0", "1")),
        ("exponents of many numbers", filled("[1", ",1e99999999999999999999", "]")),
        ("a long text", filled("\"", "a", "\"")),
        ("escapes", filled("\"", "\\u0000", "\"")),
        ("short escapes", filled("\"", "\\\"", "\"")),
        ("pairs", filled("\"", "\\ud83c\\udf9f", "\"")),
        ("a text without an end", filled("\"", "\\\\", "")),
        ("white space", filled("", " ", "1")),
        ("ones", filled("[1", ",1", "]")),
        ("empty arrays", filled("[[]", ",[]", "]")),
        ("empty objects", filled("[{}", ",{}", "]")),
        ("small objects out of order", filled("[{}", ",{\"b\":0,\"a\":0}", "]")),
        ("one name for all", filled("{\"a\":0", ",\"a\":0", "}")),
        ("members out of order", members(|n| format!("{n:06}"))),
        ("members with a long beginning in common", members(|n| format!("{}{n:06}", "x".repeat(200)))),
        ("members that are escapes", members(|n| format!("\\u0000\\u0000{n:06}"))),
        ("towers", towers()),
        ("bytes that are no text", vec![0xff; BODY_MAX]),
        ("the half of a character", filled("\"", "\u{e9}", "").split_last().unwrap().1.to_vec()),
    ]
}

fn judge(text: &[u8]) -> Result<(), TestCaseError> {
    let (_, peak) = peak(|| fingerprint(text));
    prop_assert!(peak <= FACTOR * text.len() + CONSTANT, "{peak} bytes for a text of {}", text.len());
    Ok(())
}

#[test]
fn no_text_costs_more_memory_than_its_size_allows() {
    let _alone = alone();
    for (name, text) in rows() {
        assert!(text.len() <= BODY_MAX, "{name} is {}", text.len());
        judge(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
    let pieces = select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\"a\":",
        "\"b\"",
        "\\",
        "\\u0061",
        "1",
        "e",
        ".",
        "-",
        " ",
        "{\"b\":0,\"a\":[]},",
        "0,",
        "\u{e9}",
    ]);
    let repeated = (vec(pieces, 1..6), 1..20_000usize, any::<bool>()).prop_map(|(pieces, times, is_listed)| {
        let text = pieces.concat();
        let text = text.repeat(times.min(BODY_MAX / text.len()));
        Text(if is_listed { format!("[{}]", text.trim_end_matches(',')) } else { text }.into_bytes())
    });
    hold("limits-json", 400, repeated, |text| judge(&text.0));
}

#[test]
fn no_text_takes_much_longer_than_a_plain_one_of_its_size() {
    let _alone = alone();
    let plain = filled("[1", ",1", "]");
    assert!(fingerprint(&plain));
    let baseline = time(|| fingerprint(&plain));
    for (name, text) in rows() {
        let taken = time(|| fingerprint(&text));
        assert!(taken <= RATIO * baseline, "{name}: {taken:?}, where a plain body takes {baseline:?}");
    }
}

#[test]
fn a_long_header_line_costs_no_more_than_its_size_allows() {
    let _alone = alone();
    let units =
        ["\"", "\\", "\\\"", "a", "\"a\";", "\"a\";a=\"\\\"\";", ";", " ", "é", "\"a\";a=%\"", "\"a\";=;=", "\u{85}"];
    let line = |unit: &str, len: usize| unit.repeat(len / unit.len());
    for unit in units {
        let long = line(unit, 256 * 1024);
        let read = |line: &str| IdempotencyKey::from_header(line.as_bytes()).is_ok();
        let (_, peak) = peak(|| read(&long));
        assert!(peak <= 4 * long.len(), "{unit:?}: {peak} bytes for {}", long.len());
        // Twice as long takes about twice the time, never four times; measured where a clock can see it.
        let (half, whole) = (time(|| read(&long[..long.floor_char_boundary(long.len() / 4)])), time(|| read(&long)));
        assert!(
            whole <= 12 * half + std::time::Duration::from_millis(2),
            "{unit:?}: {half:?}, four times as long {whole:?}"
        );
    }
}
