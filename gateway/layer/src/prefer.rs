//! `Prefer: wait=N`, RFC 7240.

use std::time::Duration;

use http::HeaderMap;
use idem_core::WAIT_MAX;

/// How long the client would rather wait than be told to come back: whole seconds, at most 30. Anything that makes no sense is
/// ignored, as the RFC asks.
pub(crate) fn wait(headers: &HeaderMap) -> Option<Duration> {
    // Of a preference that is given twice, the first counts.
    let value = headers
        .get_all("prefer")
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| split(line, b','))
        .find_map(|preference| wait_value(preference))?;
    let digits = value.trim_matches([' ', '\t']);
    let digits = digits.strip_prefix('"').and_then(|d| d.strip_suffix('"')).unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // More digits than a number holds are more seconds than anybody waits.
    let seconds = digits.parse().unwrap_or(u64::MAX);
    (seconds > 0).then(|| Duration::from_secs(seconds).min(WAIT_MAX))
}

/// What stands after `wait=` in a preference, its parameters left out; empty when there is no value.
fn wait_value(preference: &str) -> Option<&str> {
    let token = split(preference, b';').next()?;
    let (name, value) = token.split_once('=').unwrap_or((token, ""));
    name.trim_matches([' ', '\t']).eq_ignore_ascii_case("wait").then_some(value)
}

/// The parts between separators that do not stand inside quotes.
fn split(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c: char| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => return !is_quoted && c == char::from(separator),
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_as_the_rfc_has_them() {
        let table: [(&[&str], Option<u64>); 22] = [
            (&[], None),
            (&["wait=5"], Some(5)),
            (&["WAIT=5"], Some(5)),
            (&["wait = 5"], Some(5)),
            (&["wait=\"5\""], Some(5)),
            (&["respond-async, wait=10"], Some(10)),
            (&["respond-async,wait=10"], Some(10)),
            (&["return=minimal; foo=\"a, wait=3\", wait=7"], Some(7)),
            (&["foo=\"\\\", wait=3\", wait=7"], Some(7)),
            (&["wait=4; foo=bar"], Some(4)),
            (&["respond-async", "wait=6"], Some(6)),
            (&["wait=6, wait=7"], Some(6)),
            (&["wait=x, wait=7"], None),
            (&["wait=30"], Some(30)),
            (&["wait=31"], Some(30)),
            (&["wait=99999999999999999999999"], Some(30)),
            (&["wait=0"], None),
            (&["wait=-1"], None),
            (&["wait=1.5"], None),
            (&["wait"], None),
            (&["wait="], None),
            (&["waiting=5, await=5"], None),
        ];
        for (lines, seconds) in table {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("prefer", line.parse().unwrap());
            }
            assert_eq!(wait(&headers), seconds.map(Duration::from_secs), "{lines:?}");
        }
    }
}
