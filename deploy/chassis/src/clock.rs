//! The wall clock, for what leaves the process: certificates, tokens, HTTP dates.
//!
//! Leases and retentions are judged by the store's clock and durations by `tokio::time::Instant`, which tests can move.
//! What is left for this one is the expiry of credentials and the age of signatures.

use std::time::{Duration, SystemTime};

/// The time of day on this machine.
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Reads an RFC 3339 timestamp, `2030-01-02T03:04:05Z` or with a numeric offset.
pub fn parse_rfc3339(text: &str) -> Result<SystemTime, TimestampError> {
    let refused = || TimestampError(text.to_owned());
    let (local, offset) = split_offset(text).ok_or_else(refused)?;
    let time = humantime::parse_rfc3339(&format!("{local}Z")).map_err(|_| refused())?;
    match offset {
        Offset::East(by) => time.checked_sub(by),
        Offset::West(by) => time.checked_add(by),
    }
    .ok_or_else(refused)
}

/// Writes a timestamp as RFC 3339 in UTC with milliseconds, `2030-01-02T03:04:05.678Z`.
pub fn format_rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// A text that is no RFC 3339 timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 timestamp such as 2030-01-02T03:04:05Z")]
pub struct TimestampError(String);

enum Offset {
    East(Duration),
    West(Duration),
}

/// Splits `2030-01-02T03:04:05+02:00` into the local time and how far it is from UTC.
fn split_offset(text: &str) -> Option<(&str, Offset)> {
    if let Some(local) = text.strip_suffix(['Z', 'z']) {
        return Some((local, Offset::East(Duration::ZERO)));
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let two_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u64>().ok())?;
    let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let by = Duration::from_secs(hours * 3600 + minutes * 60);
    match offset.as_bytes()[0] {
        b'+' => Some((local, Offset::East(by))),
        b'-' => Some((local, Offset::West(by))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_with_and_without_an_offset_name_the_same_instant() {
        let utc = parse_rfc3339("2030-01-02T03:04:05Z").unwrap();
        for same in [
            "2030-01-02T05:04:05+02:00",
            "2030-01-01T21:34:05-05:30",
            "2030-01-02T03:04:05.000z",
            "2030-01-02T03:04:05+00:00",
        ] {
            assert_eq!(parse_rfc3339(same), Ok(utc), "{same}");
        }
        assert_eq!(format_rfc3339(utc), "2030-01-02T03:04:05.000Z");
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for bad in [
            "",
            "Z",
            "tomorrow",
            "2030-01-02",
            "2030-01-02T03:04:05",
            "2030-13-02T03:04:05Z",
            "2030-01-02T03:04:05+2:00",
            "1893553445",
            "é+02:00",
        ] {
            let error = parse_rfc3339(bad).unwrap_err();
            assert!(error.to_string().contains("2030-01-02T03:04:05Z"), "{error}");
        }
    }
}
