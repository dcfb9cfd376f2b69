//! The standard `OTEL_…` variables, as far as the SDK leaves them to us.

use std::{env, time::Duration};

/// What is exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// Spans.
    Traces,
    /// Counters, gauges, histograms.
    Metrics,
}

/// How it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`.
    HttpProtobuf,
    /// Anything else.
    Other,
}

/// The variables, read by whatever knows them.
#[derive(Clone, Copy)]
pub(super) struct Environment<'e>(&'e dyn Fn(&str) -> Option<String>);

/// How long an export may take unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Between two exports of metrics unless `OTEL_METRIC_EXPORT_INTERVAL` says otherwise.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(60);

/// The variables of this process.
pub(super) fn of_this_process() -> Environment<'static> {
    Environment(&|name| env::var(name).ok())
}

// === impl Signal ===

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }
}

// === impl Environment ===

impl<'e> Environment<'e> {
    #[cfg(test)]
    pub(super) fn new(read: &'e dyn Fn(&str) -> Option<String>) -> Self {
        Self(read)
    }

    /// An empty variable is one that is not set.
    fn get(self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// `OTEL_EXPORTER_OTLP_<SIGNAL>_<WHAT>`, else `OTEL_EXPORTER_OTLP_<WHAT>`.
    fn otlp(self, signal: Signal, what: &str) -> Option<String> {
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.name()));
        own.or_else(|| self.get(&format!("OTEL_EXPORTER_OTLP_{what}")))
    }

    /// There is an endpoint, and nobody has switched the signal off.
    pub(super) fn is_exported(self, signal: Signal) -> bool {
        let is = |name: &str, value: &str| self.get(name).is_some_and(|set| set.eq_ignore_ascii_case(value));
        self.otlp(signal, "ENDPOINT").is_some()
            && !is("OTEL_SDK_DISABLED", "true")
            && !is(&format!("OTEL_{}_EXPORTER", signal.name()), "none")
    }

    /// gRPC unless something is named.
    pub(super) fn protocol(self, signal: Signal) -> Protocol {
        match self.otlp(signal, "PROTOCOL").as_deref() {
            None | Some("grpc") => Protocol::Grpc,
            Some("http/protobuf") => Protocol::HttpProtobuf,
            Some(_) => Protocol::Other,
        }
    }

    /// Where a signal goes over HTTP: its own endpoint as it is, the common one with the signal's path.
    pub(super) fn http_endpoint(self, signal: Signal) -> Option<String> {
        let own = self.get(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name()));
        own.or_else(|| {
            let common = self.get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}{}", common.trim_end_matches('/'), signal.path()))
        })
    }

    /// Where a signal goes over gRPC.
    pub(super) fn grpc_endpoint(self, signal: Signal) -> Option<String> {
        self.otlp(signal, "ENDPOINT")
    }

    /// `key=value,key=value`, values percent-encoded. What cannot be read is left out.
    pub(super) fn headers(self, signal: Signal) -> Vec<(String, String)> {
        let text = self.otlp(signal, "HEADERS").unwrap_or_default();
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), percent_decoded(value.trim())?))
        };
        text.split(',').filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
    }

    /// How long an export may take.
    pub(super) fn timeout(self, signal: Signal) -> Duration {
        self.otlp(signal, "TIMEOUT").and_then(|text| text.parse().ok()).map_or(TIMEOUT_DEFAULT, Duration::from_millis)
    }

    /// Between two exports of metrics; never less than a tenth of a second.
    pub(super) fn metric_interval(self) -> Duration {
        let set = self.get("OTEL_METRIC_EXPORT_INTERVAL").and_then(|text| text.parse().ok());
        set.map_or(INTERVAL_DEFAULT, |millis: u64| Duration::from_millis(millis.max(100)))
    }

    /// Whether the operator names the service.
    pub(super) fn names_service(self) -> bool {
        self.get("OTEL_SERVICE_NAME").is_some()
            || self.get("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|it| it.contains("service.name="))
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(set: &[(&str, &str)], read: impl FnOnce(Environment<'_>) -> T) -> T {
        let get = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        read(Environment::new(&get))
    }

    #[test]
    fn a_signal_is_exported_when_it_has_an_endpoint_and_is_not_switched_off() {
        let (endpoint, metrics) = ("OTEL_EXPORTER_OTLP_ENDPOINT", Signal::Metrics);
        let exported = |set: &[(&str, &str)]| with(set, |it| (it.is_exported(Signal::Traces), it.is_exported(metrics)));
        assert_eq!(exported(&[]), (false, false));
        assert_eq!(exported(&[(endpoint, "")]), (false, false));
        assert_eq!(exported(&[(endpoint, "http://c:4317")]), (true, true));
        assert_eq!(exported(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://c:4317")]), (false, true));
        assert_eq!(exported(&[(endpoint, "http://c:4317"), ("OTEL_SDK_DISABLED", "TRUE")]), (false, false));
        assert_eq!(exported(&[(endpoint, "http://c:4317"), ("OTEL_METRICS_EXPORTER", "none")]), (true, false));
    }

    #[test]
    fn a_signals_own_variables_win() {
        let set = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:9/custom"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ];
        with(&set, |it| {
            assert_eq!(it.http_endpoint(Signal::Metrics).as_deref(), Some("http://c:4318/v1/metrics"));
            assert_eq!(it.http_endpoint(Signal::Traces).as_deref(), Some("http://t:9/custom"));
            assert_eq!(
                (it.protocol(Signal::Metrics), it.protocol(Signal::Traces)),
                (Protocol::HttpProtobuf, Protocol::Grpc)
            );
        });
    }

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let set = [("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a%3Db, x=1,,broken,y=%zz")];
        let headers = with(&set, |it| it.headers(Signal::Metrics));
        assert_eq!(headers, [("authorization".to_owned(), "Bearer a=b".to_owned()), ("x".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn times_are_milliseconds() {
        let set = [("OTEL_METRIC_EXPORT_INTERVAL", "500"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")];
        with(&set, |it| {
            assert_eq!(
                (it.metric_interval(), it.timeout(Signal::Metrics)),
                (Duration::from_millis(500), Duration::from_secs(2))
            );
        });
        with(&[], |it| {
            assert_eq!((it.metric_interval(), it.timeout(Signal::Traces)), (INTERVAL_DEFAULT, TIMEOUT_DEFAULT))
        });
    }
}
