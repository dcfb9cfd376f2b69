//! Values of flags: parsers for clap and checks between flags, each refusal one clear sentence.

mod endpoint;
mod masked;
mod relation;
mod secret;

pub use endpoint::{Endpoint, EndpointError};
pub use masked::without_passwords;
pub use relation::{RelationError, Term, check_less};
pub use secret::{EmptySecret, Secret};

use std::time::Duration;

/// Reads the beginning of a link for people: `https://shop.example/pay`. What else a browser would run or open is refused.
pub fn web_address(text: &str) -> Result<String, String> {
    let refused = |why: &str| Err(format!("`{text}` is not an address such as https://shop.example/pay: {why}"));
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("http" | "https")) {
        return refused("it does not begin with http:// or https://");
    }
    match text.parse::<http::Uri>() {
        Ok(uri) if uri.query().is_some() || text.contains('#') => refused("something is added at its end"),
        Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => Ok(text.to_owned()),
        _ => refused("it names no host"),
    }
}

/// Reads `60s`, `100ms`, `24h` or `1h 30m`. Zero is allowed: `--drain 0s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|error| match text.trim().parse::<f64>() {
        Ok(_) => format!("the unit is missing; write for example {}s or {}ms", text.trim(), text.trim()),
        Err(_) => format!("{error}; write for example 60s, 100ms or 24h"),
    })
}

/// Like [`duration`], but refuses zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than 0s".to_owned()),
        duration => Ok(duration),
    }
}

/// A parser like [`duration`] that accepts `min` to `max`, both included.
pub fn duration_between(
    min: Duration,
    max: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let duration = duration(text)?;
        if duration < min || duration > max {
            return Err(format!("must be {} to {}", humantime::format_duration(min), humantime::format_duration(max)));
        }
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_the_web() {
        for good in ["http://127.0.0.1:8080/pay", "https://shop.example", "HTTPS://shop.example/pay/"] {
            assert_eq!(web_address(good), Ok(good.to_owned()));
        }
        for bad in [
            "javascript:alert(1)",
            "javascript://shop.example/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "shop.example/pay",
            "/pay",
            "https://",
            "https:///pay",
            "https://shop.example/a b",
            "https://shop.example/pay?a=b",
            "https://shop.example/pay#a",
            "",
        ] {
            assert!(web_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        let ms = Duration::from_millis;
        for (text, expected) in
            [("60s", ms(60_000)), ("100ms", ms(100)), ("24h", ms(86_400_000)), ("1h 30m", ms(5_400_000)), ("0s", ms(0))]
        {
            assert_eq!(duration(text), Ok(expected), "{text}");
        }
        assert_eq!(duration("60"), Err("the unit is missing; write for example 60s or 60ms".to_owned()));
        for bad in ["", "s", "-1s", "1 fortnight", "60 seconds later", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn zero_and_out_of_range_are_refused_where_told() {
        assert!(positive_duration("0s").unwrap_err().contains("longer than 0s"));
        let lease = duration_between(Duration::from_millis(100), Duration::from_secs(3600));
        assert_eq!(lease("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(lease("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(lease("99ms"), Err("must be 100ms to 1h".to_owned()));
        assert_eq!(lease("61m"), Err("must be 100ms to 1h".to_owned()));
    }
}
