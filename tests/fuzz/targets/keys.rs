//! `Idempotency-Key`: what is a key, and what is refused before anybody is asked.

use fuzz::{Edge, Http1Wire, Panics, Text, hold, hold_async, runtime};
use http::HeaderValue;
use idem_core::IdempotencyKey;
use proptest::{collection::vec, prelude::*};

use crate::layer::Layered;

/// What a header line should come to, read from the contract and from RFC 9651.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Reading {
    Key(String),
    Refused,
    /// The string is well formed and what follows looks like parameters that the RFC would not have: both would do, but no other
    /// key than this.
    Loose(String),
}

fn read(line: &[u8]) -> Reading {
    let Ok(text) = std::str::from_utf8(line) else { return Reading::Refused };
    let text = text.trim_matches(|c| c == ' ' || c == '\t');
    if !text.starts_with('"') {
        return bounded(text.to_owned(), true);
    }
    let chars: Vec<char> = text.chars().collect();
    let Some((key, end)) = quoted(&chars, 0) else { return Reading::Refused };
    let rest: String = chars[end..].iter().collect();
    let rest = rest.trim_matches(' ');
    if rest.is_empty() {
        return bounded(key, true);
    }
    if !rest.starts_with(';') || !is_one_member(rest) {
        return Reading::Refused;
    }
    // The RFC has ASCII in strings; the contract allows more there, and only there.
    let plain: String =
        chars[..end].iter().map(|c| if c.is_ascii() { *c } else { 'x' }).chain(chars[end..].to_vec()).collect();
    bounded(key, sfv::Parser::new(&plain).parse::<sfv::Item>().is_ok())
}

/// The text of the quoted string that begins at `start`, and where it ends.
fn quoted(chars: &[char], start: usize) -> Option<(String, usize)> {
    let (mut text, mut at) = (String::new(), start + 1);
    loop {
        match (chars.get(at)?, chars.get(at + 1)) {
            ('"', _) => return Some((text, at + 1)),
            ('\\', Some(&c @ ('"' | '\\'))) => {
                text.push(c);
                at += 2;
            }
            ('\\', _) => return None,
            (&c, _) => {
                text.push(c);
                at += 1;
            }
        }
    }
}

/// Whether no comma stands outside quotes, and every quote is closed.
fn is_one_member(rest: &str) -> bool {
    let chars: Vec<char> = rest.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        match chars[at] {
            ',' => return false,
            '"' => {
                // A display string has no escapes.
                let is_display = chars[at - 1] == '%';
                let close = (at + 1..chars.len()).find(|&end| {
                    let escapes = chars[at + 1..end].iter().rev().take_while(|c| **c == '\\').count();
                    chars[end] == '"' && (is_display || escapes % 2 == 0)
                });
                let Some(close) = close else { return false };
                at = close + 1;
            }
            _ => at += 1,
        }
    }
    true
}

fn bounded(key: String, is_strict: bool) -> Reading {
    let is_fine =
        (1..=200).contains(&key.chars().count()) && !key.chars().any(|c| matches!(c as u32, 0..=0x1f | 0x7f..=0x9f));
    match (is_fine, is_strict) {
        (false, _) => Reading::Refused,
        (true, true) => Reading::Key(key),
        (true, false) => Reading::Loose(key),
    }
}

fn judge(line: &Text) -> Result<(), TestCaseError> {
    let ours = IdempotencyKey::from_header(&line.0).map(|key| key.as_str().to_owned());
    match (read(&line.0), ours) {
        (Reading::Key(key) | Reading::Loose(key), Ok(ours)) => prop_assert_eq!(ours, key),
        (Reading::Refused | Reading::Loose(_), Err(_)) => {}
        (reading, ours) => prop_assert!(false, "{line:?} is {ours:?}, but it reads as {reading:?}"),
    }
    Ok(())
}

/// Pieces of which lines are put together.
const PIECES: [&str; 43] = [
    "\\/",
    "\\a",
    "/",
    "\"",
    "\"",
    "\"",
    "\\",
    "\\\"",
    "\\\\",
    ";",
    ";",
    "=",
    ",",
    " ",
    "\t",
    "a",
    "K2",
    "é",
    "🎟",
    "\u{7f}",
    "\u{80}",
    "\u{85}",
    "\u{9f}",
    "\u{a0}",
    "\0",
    "\n",
    ";v=1",
    ";v",
    ";a=\"x\"",
    ";a=\"x,;\\\"y\"",
    ";*b=?1",
    ";d=:aGk=:",
    ";t=@1659578233",
    ";n=-1.5",
    ";e=%\"f%c3%bc\"",
    ";A=1",
    ";a=tok/en",
    "; b",
    "\u{feff}",
    "\u{202e}",
    "(",
    ")",
    "0",
];

fn line() -> impl Strategy<Value = Text> {
    let piece = proptest::sample::select(PIECES.to_vec());
    let soup = vec(piece, 0..12).prop_map(|pieces| Text(pieces.concat().into_bytes()));
    let bytes = vec(any::<u8>(), 0..40).prop_map(Text);
    let text = vec(any::<char>(), 0..24).prop_map(|chars| Text(chars.into_iter().collect::<String>().into_bytes()));
    let long = (190..210usize, any::<bool>(), proptest::sample::select(vec!["a", "é", "🎟", "\\\\"]));
    let long = long.prop_map(|(times, is_quoted, unit)| {
        let quote = if is_quoted { "\"" } else { "" };
        Text(format!("{quote}{}{quote}", unit.repeat(times)).into_bytes())
    });
    let parameters = vec(proptest::sample::select(PIECES.to_vec()), 0..5);
    let quoted =
        (text_key(), parameters).prop_map(|(key, rest)| Text(format!("{}{}", quote(&key), rest.concat()).into_bytes()));
    prop_oneof![4 => soup, 1 => bytes, 1 => text, 1 => long, 3 => quoted]
}

/// A key that may also be sent bare.
pub fn text_key() -> impl Strategy<Value = String> {
    let char = prop_oneof![4 => proptest::char::range(' ', '~'), 1 => any::<char>()];
    let key = vec(char, 1..30).prop_map(|chars| chars.into_iter().filter(|c| !c.is_control()).collect::<String>());
    key.prop_filter("a bare key", |key| !key.is_empty() && !key.starts_with('"') && key.trim_matches(' ') == key)
}

fn quote(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Lines that once were a fault, or nearly.
const ROWS: [&str; 26] = [
    "\"a\\/b\"",
    "\"a\\nb\"",
    "",
    "\"",
    "\"\"",
    "\"\\\"",
    "\"\\\\\"",
    "\"a\\",
    "\"a\" ;b",
    "\"a\"; b ; c",
    "\"a\";b=\"\\\"\"",
    "\"a\";b=\"\\\\\"",
    "\"a\";b=\"\\\\\\\"",
    "\"a\";b=\"c\"d",
    "\"a\";b==",
    "\"a\";b=;c",
    "\"a\",",
    "\"a\"\t",
    "\"a\"\t;b",
    "\"a\";b=1,2",
    "\"a\";b=(1 2)",
    "\"a\";b=%\"f%c3%bc\"",
    "a\"b\"",
    "'a'",
    ":YQ==:",
    "\u{a0}\"a\"",
];

#[test]
fn every_line_is_read_as_the_contract_and_the_rfc_have_it() {
    ROWS.iter().for_each(|row| judge(&Text::from(*row)).unwrap());
    hold("keys", 20_000, line(), |line| judge(&line));
}

#[test]
fn quoted_and_bare_name_the_same_key() {
    hold("keys-quoted", 5_000, text_key(), |key| {
        let bare = IdempotencyKey::from_header(key.as_bytes()).map(|key| key.as_str().to_owned());
        prop_assert_eq!(bare.as_ref(), Ok(&key));
        for line in [quote(&key), format!(" {};v=1;w=\"a, b\"\t", quote(&key))] {
            let quoted = IdempotencyKey::from_header(line.as_bytes()).map(|key| key.as_str().to_owned());
            prop_assert_eq!(quoted.as_ref(), Ok(&key));
        }
        Ok(())
    });
}

/// Header lines that are no key, whatever is in them: one line, or two.
fn hostile() -> impl Strategy<Value = Vec<Text>> {
    let visible = || vec(prop_oneof![9 => 0x21..=0x7eu8, 1 => 0xa1..=0xffu8], 0..20);
    let around = |bad: Vec<u8>| (visible(), proptest::sample::select(bad), visible());
    let eight_bit = around(vec![0x80, 0xbf, 0xc0, 0xc1, 0xf5, 0xfe, 0xff])
        .prop_map(|(before, bad, after)| [before, vec![bad], after].concat())
        .prop_filter("not UTF-8", |line| std::str::from_utf8(line).is_err());
    let ascii = || proptest::string::string_regex("[!#-\\[\\]-~]{1,20}").expect("a pattern");
    let control = (ascii(), 0x80..=0x9fu32, ascii()).prop_map(|(before, c, after)| {
        format!("{before}{}{after}", char::from_u32(c).expect("a C1 control")).into_bytes()
    });
    let tab = (ascii(), ascii()).prop_map(|(before, after)| format!("{before}\t{after}").into_bytes());
    let quotes = (
        ascii(),
        proptest::sample::select(vec!["\"$", "\"$\\\"", "\"$\"x", "\"$\" x", "\"$\\n\"", "\"$\";a=\"", "\"\""]),
    )
        .prop_map(|(text, shape)| shape.replace('$', &text).into_bytes());
    let commas =
        (ascii(), ascii(), proptest::sample::select(vec!["\"$\", \"&\"", "\"$\",&", "\"$\";a=1, \"&\"", "\"$\","]))
            .prop_map(|(one, two, shape)| shape.replace('$', &one).replace('&', &two).into_bytes());
    let long = (proptest::sample::select(vec!["a", "é", "🎟"]), 201..400usize)
        .prop_map(|(unit, times)| unit.repeat(times).into_bytes());
    let empty = proptest::sample::select(vec![&b""[..], b" ", b" \t "]).prop_map(<[u8]>::to_vec);
    let one = prop_oneof![4 => eight_bit, 3 => control, 3 => tab, 4 => quotes, 4 => commas, 1 => long, 1 => empty];
    let two = (ascii(), ascii()).prop_map(|(a, b)| vec![Text(a.into_bytes()), Text(b.into_bytes())]);
    prop_oneof![6 => one.prop_map(|line| vec![Text(line)]), 1 => two]
}

/// The layer itself: 10,000 hostile values, and neither the store nor the route hears of one.
#[test]
fn ten_thousand_hostile_values_are_400_before_any_backend_call() {
    let runtime = runtime();
    let layered = Layered::new();
    hold_async(&runtime, "keys-hostile", 10_000, hostile(), |lines| {
        let layered = &layered;
        async move {
            let mut headers = http::HeaderMap::new();
            for line in &lines {
                prop_assert!(lines.len() > 1 || read(&line.0) == Reading::Refused, "not hostile");
                headers.append("idempotency-key", HeaderValue::from_bytes(&line.0).unwrap());
            }
            let answer = layered.post(headers, b"{}").await;
            prop_assert_eq!((answer.status, answer.error.as_str()), (400, "invalid_idempotency_key"));
            prop_assert_eq!((layered.backend_calls(), layered.executions()), (0, 0));
            Ok(())
        }
    });
}

const ORDER: &[u8] = br#"{"venueId":"demo","items":[{"ticketTypeId":"general","quantity":1}]}"#;

/// Everything that can stand in a header line on the wire, control bytes too, through a real gateway: 400, and neither service is
/// asked anything.
#[test]
fn hostile_values_on_the_wire_are_400_before_any_service_is_asked() {
    let (runtime, panics) = (runtime(), Panics::watch());
    let edge = runtime.block_on(Edge::start());
    let wire = tokio::sync::Mutex::new(Http1Wire::to(edge.api));
    let control = (
        vec(0x21..=0x7eu8, 0..10),
        prop_oneof![0..9u8, 0x0b..=0x0cu8, 0x0e..=0x1fu8, Just(0x7f)],
        vec(0x21..=0x7eu8, 0..10),
    );
    let control = control.prop_map(|(before, bad, after)| vec![Text([before, vec![bad], after].concat())]);
    hold_async(&runtime, "keys-wire", 10_000, prop_oneof![3 => hostile(), 1 => control], |lines| {
        let (wire, edge) = (&wire, &edge);
        async move {
            let mut headers: Vec<(&str, &[u8])> =
                vec![("authorization", b"Bearer sk_a"), ("content-type", b"application/json")];
            headers.extend(lines.iter().map(|line| ("idempotency-key", line.0.as_slice())));
            let answer = wire.lock().await.send("POST", "/v1/orders", &headers, ORDER).await;
            prop_assert_eq!(answer.status, 400, "{}", answer.text());
            // What is no header line at all is refused by HTTP itself, without a word.
            let text = answer.text();
            prop_assert!(text.is_empty() || text.contains("invalid_idempotency_key"), "{}", text);
            prop_assert_eq!(edge.calls(), 0);
            Ok(())
        }
    });
    // The counting itself works: a key in order is asked for.
    let fine: [(&str, &[u8]); 3] =
        [("authorization", b"Bearer sk_a"), ("content-type", b"application/json"), ("idempotency-key", b"fine")];
    let answer = runtime.block_on(async { wire.lock().await.send("POST", "/v1/orders", &fine, ORDER).await });
    assert_eq!((answer.status, edge.calls() > 0), (503, true), "{}", answer.text());
    panics.assert_none();
}
