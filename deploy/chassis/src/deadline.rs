//! How long a caller is willing to wait.

mod layer;

pub use layer::{DeadlineLayer, DeadlineService, ResponseFuture};

use http::{HeaderMap, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

/// The header (gRPC: metadata) in which a caller says how long it waits.
const GRPC_TIMEOUT: &str = "grpc-timeout";

/// An instant after which nobody waits for the answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

// === impl Deadline ===

impl Deadline {
    /// `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout.min(FOREVER))
    }

    /// At `instant`.
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// What `grpc-timeout` says, counted from now. None without the header, or when it makes no sense: the specification
    /// lets a server treat that as no deadline.
    pub fn from_grpc(headers: &HeaderMap) -> Option<Self> {
        headers.get(GRPC_TIMEOUT).and_then(|value| parse_grpc_timeout(value.to_str().ok()?)).map(Self::after)
    }

    /// What [`DeadlineLayer`] noted for this call.
    pub fn of<T>(request: &tonic::Request<T>) -> Option<Self> {
        request.extensions().get::<Self>().copied()
    }

    /// How long is left; zero when it is over.
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether nobody waits any more.
    pub fn is_over(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The instant itself, for `tokio::time::timeout_at`.
    pub fn instant(&self) -> Instant {
        self.0
    }

    /// What is left as the value of `grpc-timeout`, for a call made on behalf of the caller.
    pub fn to_grpc(&self) -> HeaderValue {
        let micros = self.remaining().as_micros();
        // Eight digits at most, so a long time is written in a coarser unit.
        let text = [(1, 'u'), (1_000, 'm'), (1_000_000, 'S'), (60_000_000, 'M'), (3_600_000_000, 'H')]
            .into_iter()
            .map(|(unit, letter)| (micros / unit, letter))
            .find(|(amount, _)| *amount <= 99_999_999)
            .map_or_else(|| "99999999H".to_owned(), |(amount, letter)| format!("{amount}{letter}"));
        HeaderValue::try_from(text).expect("digits and a letter")
    }
}

/// Far enough for anybody, near enough for an `Instant` to hold.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Reads at most eight digits and a unit, as the gRPC specification has it.
fn parse_grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_of_every_unit_are_read() {
        let table = [
            ("2H", Some(7_200_000_000_000)),
            ("3M", Some(180_000_000_000)),
            ("10S", Some(10_000_000_000)),
            ("250m", Some(250_000_000)),
            ("1u", Some(1_000)),
            ("99999999n", Some(99_999_999)),
            ("0n", Some(0)),
            ("", None),
            ("S", None),
            ("10", None),
            ("10s", None),
            ("-1S", None),
            ("1.5S", None),
            ("100000000S", None),
            ("10é", None),
        ];
        for (text, nanos) in table {
            assert_eq!(parse_grpc_timeout(text), nanos.map(Duration::from_nanos), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn remaining_time_shrinks_to_zero_and_stays_there() {
        let mut headers = HeaderMap::new();
        assert_eq!(Deadline::from_grpc(&headers), None);
        headers.insert(GRPC_TIMEOUT, HeaderValue::from_static("2S"));
        let deadline = Deadline::from_grpc(&headers).unwrap();
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(deadline.remaining(), Duration::from_millis(500));
        assert_eq!(deadline.to_grpc(), "500000u");
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(deadline.is_over());
        assert_eq!(deadline.to_grpc(), "0u");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_time_is_written_in_a_coarser_unit() {
        for (timeout, text) in [
            (Duration::from_secs(99), "99000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(200_000), "200000S"),
            (Duration::MAX, "5256000M"),
        ] {
            let expected = parse_grpc_timeout(text).unwrap();
            assert_eq!(
                parse_grpc_timeout(Deadline::after(timeout).to_grpc().to_str().unwrap()),
                Some(expected),
                "{text}"
            );
        }
    }
}
