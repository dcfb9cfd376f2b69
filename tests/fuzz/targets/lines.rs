//! Header lines as a stranger writes them.

use fuzz::Text;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::{
    collection::vec,
    prelude::*,
    sample::{Index, select},
};

/// Lines put together of these pieces, with a byte of anything here and there, and lines that are nearly one of `sane`. Nothing
/// that HTTP itself would not pass on.
pub fn lines(
    sane: &'static [&'static str],
    pieces: &'static [&'static str],
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Text>> {
    let piece = prop_oneof![12 => select(pieces).prop_map(|piece| piece.as_bytes().to_vec()), 1 => vec(any::<u8>(), 1)];
    let soup = vec(piece, 0..8).prop_map(|pieces| Text(pieces.concat()));
    let line = prop_oneof![2 => soup, 1 => nearly(sane, pieces)];
    let line = line.prop_filter("a header value", |line| HeaderValue::from_bytes(&line.0).is_ok());
    vec(line, count)
}

/// One of these lines, with a piece put in, a byte taken out, or another byte in its place; or as it is.
fn nearly(sane: &'static [&'static str], pieces: &'static [&'static str]) -> impl Strategy<Value = Text> {
    let edit = (0..4u8, any::<Index>(), select(pieces), 0x20..=0x7eu8);
    (select(sane), edit).prop_map(|(line, (how, at, piece, byte))| {
        let mut line = line.as_bytes().to_vec();
        let at = at.index(line.len());
        match how {
            0 => drop(line.splice(at..at, piece.bytes())),
            1 => drop(line.remove(at)),
            2 => line[at] = byte,
            _ => {}
        }
        Text(line)
    })
}

pub fn headers(name: &'static str, lines: &[Text]) -> HeaderMap {
    lines.iter().map(|line| (HeaderName::from_static(name), HeaderValue::from_bytes(&line.0).unwrap())).collect()
}

/// A line that is visible ASCII, spaces and tabs; others are not looked at.
pub fn visible(line: &Text) -> Option<&str> {
    let is_visible = line.0.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
    is_visible.then(|| std::str::from_utf8(&line.0).unwrap())
}
