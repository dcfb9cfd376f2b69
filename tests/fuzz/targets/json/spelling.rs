//! JSON values, and the many ways to write one.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// A value.
#[derive(Clone, Debug)]
pub enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Json>),
    /// Every name once.
    Object(Vec<(String, Json)>),
}

/// `±digits × 10^power`; no zero before other digits.
#[derive(Clone, Debug)]
pub struct Number {
    pub is_negative: bool,
    pub digits: String,
    pub power: i128,
}

/// One of the texts that mean `value`.
pub fn spell(value: &Json, seed: u64) -> String {
    let mut out = String::new();
    let rng = &mut StdRng::seed_from_u64(seed);
    space(rng, &mut out);
    write(value, rng, &mut out);
    space(rng, &mut out);
    out
}

fn write(value: &Json, rng: &mut StdRng, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Number(number) => write_number(number, rng, out),
        Json::Text(text) => write_text(text, rng, out),
        Json::Array(elements) => {
            out.push('[');
            space(rng, out);
            for (at, element) in elements.iter().enumerate() {
                comma(at, rng, out);
                write(element, rng, out);
                space(rng, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.shuffle(rng);
            out.push('{');
            space(rng, out);
            for (at, (name, member)) in members.into_iter().enumerate() {
                comma(at, rng, out);
                write_text(name, rng, out);
                space(rng, out);
                out.push(':');
                space(rng, out);
                write(member, rng, out);
                space(rng, out);
            }
            out.push('}');
        }
    }
}

fn comma(at: usize, rng: &mut StdRng, out: &mut String) {
    if at > 0 {
        out.push(',');
        space(rng, out);
    }
}

fn space(rng: &mut StdRng, out: &mut String) {
    for _ in 0..rng.random_range(0..3u8) / 2 {
        out.push([' ', '\t', '\n', '\r'][rng.random_range(0..4)]);
    }
}

fn write_text(text: &str, rng: &mut StdRng, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        let short = match c {
            '"' | '\\' | '/' => Some(c),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            _ => None,
        };
        let must_escape = matches!(c, '"' | '\\' | '\0'..='\u{1f}');
        match (rng.random_range(0..4), short) {
            (0 | 1, _) if !must_escape => out.push(c),
            (0..=2, Some(short)) => out.extend(['\\', short]),
            _ => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                out.push_str(&if rng.random() { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
            }),
        }
    }
    out.push('"');
}

fn write_number(number: &Number, rng: &mut StdRng, out: &mut String) {
    if number.is_negative {
        out.push('-');
    }
    let (mut digits, mut power) = (number.digits.clone(), number.power);
    if digits != "0" {
        for _ in 0..rng.random_range(0..4) {
            digits.push('0');
            power -= 1;
        }
    }
    // The point goes somewhere: after some digits, or before all of them.
    match rng.random_range(0..3) {
        0 => {}
        1 if digits.len() > 1 => {
            let whole = rng.random_range(1..digits.len());
            power += (digits.len() - whole) as i128;
            digits.insert(whole, '.');
        }
        1 => {}
        _ => {
            let zeros = rng.random_range(0..4);
            power += (digits.len() + zeros) as i128;
            digits = format!("0.{}{digits}", "0".repeat(zeros));
        }
    }
    out.push_str(&digits);
    if power == 0 && rng.random() {
        return;
    }
    out.push(if rng.random() { 'e' } else { 'E' });
    out.push_str(if power < 0 { "-" } else { ["", "+"][rng.random_range(0..2)] });
    out.push_str(&"0".repeat(rng.random_range(0..3)));
    out.push_str(&power.unsigned_abs().to_string());
}

/// A value that is nearly this one; now and then it is the very same.
pub fn nudge(value: Json, seed: u64) -> Json {
    let rng = &mut StdRng::seed_from_u64(seed);
    nudged(value, rng)
}

fn nudged(value: Json, rng: &mut StdRng) -> Json {
    match value {
        Json::Null => Json::Bool(false),
        Json::Bool(value) => Json::Text(value.to_string()),
        Json::Number(mut number) => {
            match rng.random_range(0..5) {
                0 => number.power += 1,
                1 => number.is_negative ^= true,
                2 if number.digits != "0" => number.digits.push('0'),
                3 if number.digits != "0" => number.digits.push('1'),
                _ => return Json::Text(format!("{}", number.power)),
            }
            Json::Number(number)
        }
        Json::Text(mut text) => {
            if rng.random() {
                text.push('\0');
            } else {
                text.pop();
            }
            Json::Text(text)
        }
        Json::Array(mut elements) => {
            let last = elements.len().saturating_sub(1);
            match (elements.pop(), rng.random_range(0..3)) {
                (None, _) => return Json::Object(Vec::new()),
                (Some(_), 0) => {}
                (Some(element), 1) => elements.insert(rng.random_range(0..=last), element),
                (Some(element), _) => elements.push(nudged(element, rng)),
            }
            Json::Array(elements)
        }
        Json::Object(mut members) => {
            match (members.pop(), rng.random_range(0..3)) {
                (None, _) => return Json::Array(Vec::new()),
                (Some(_), 0) => {}
                (Some((name, member)), 1) => members.push((format!("{name}\u{1}"), member)),
                (Some((name, member)), _) => members.push((name, nudged(member, rng))),
            }
            Json::Object(members)
        }
    }
}
