//! Metrics over OTLP: what `/metrics` shows, sent every `OTEL_METRIC_EXPORT_INTERVAL`.
//!
//! Counting knows nothing of it: a thread of its own takes the page, sends it, and forgets it. Whatever could not be sent is not sent
//! again, since the next page has it all. So a collector that is away costs nobody anything but this thread's attempts.

use super::{
    environment::{self, Protocol, Signal},
    families::{self, Family, Value},
    observers, recorder,
};
use crate::clock;
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
        ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message as _;
use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, SystemTime},
};
use tokio::runtime::Handle;
use tonic::{
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
    transport::{Channel, Endpoint},
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The thread that sends. Dropping it sends what was counted last.
#[derive(Debug)]
pub(super) struct Push {
    end: SyncSender<()>,
    sent: Mutex<Receiver<()>>,
}

/// Where metrics go.
struct Sender {
    road: Road,
    headers: Vec<(String, String)>,
    timeout: Duration,
    resource: Resource,
    start: SystemTime,
}

enum Road {
    Grpc(Channel),
    Http { client: reqwest::Client, url: String },
}

/// Begins to send, if there is an endpoint. Call inside a runtime.
pub(super) fn start(service_name: &'static str) -> Result<Option<Push>, BoxError> {
    let environment = environment::of_this_process();
    if !environment.is_exported(Signal::Metrics) {
        return Ok(None);
    }
    let missing = || BoxError::from("there is no endpoint for metrics");
    let road = match environment.protocol(Signal::Metrics) {
        Protocol::Grpc => {
            let endpoint = environment.grpc_endpoint(Signal::Metrics).ok_or_else(missing)?;
            Road::Grpc(Endpoint::from_shared(endpoint)?.connect_timeout(Duration::from_secs(2)).connect_lazy())
        }
        Protocol::HttpProtobuf => {
            let url = environment.http_endpoint(Signal::Metrics).ok_or_else(missing)?;
            // A proxy meant for the outside has no business with telemetry.
            Road::Http { client: reqwest::Client::builder().no_proxy().build()?, url }
        }
        Protocol::Other => return Err("OTEL_EXPORTER_OTLP_PROTOCOL is neither grpc nor http/protobuf".into()),
    };
    let sender = Sender {
        road,
        headers: environment.headers(Signal::Metrics),
        timeout: environment.timeout(Signal::Metrics),
        resource: (&super::export::resource(service_name)).into(),
        start: clock::wall(),
    };
    let (runtime, interval) = (Handle::current(), environment.metric_interval());
    let (end, ended) = mpsc::sync_channel(1);
    let (done, sent) = mpsc::sync_channel(1);
    thread::Builder::new().name("otlp metrics".to_owned()).spawn(move || {
        let mut is_failing = false;
        loop {
            let is_last = !matches!(ended.recv_timeout(interval), Err(RecvTimeoutError::Timeout));
            let outcome = runtime.block_on(sender.send());
            if let (Err(error), false) = (&outcome, is_failing) {
                tracing::warn!(error = &**error as &dyn std::error::Error, "metrics cannot be exported; trying on");
            }
            is_failing = outcome.is_err();
            if is_last {
                let _ = done.send(());
                return;
            }
        }
    })?;
    Ok(Some(Push { end, sent: Mutex::new(sent) }))
}

// === impl Push ===

impl Push {
    /// Sends what was counted last, waiting no longer than `limit`.
    pub(super) fn finish(self, limit: Duration) -> bool {
        let sent = self.sent.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.end.try_send(()).is_ok() && sent.recv_timeout(limit).is_ok()
    }
}

// === impl Sender ===

impl Sender {
    async fn send(&self) -> Result<(), BoxError> {
        observers::observe().await;
        let request = request(&families::read(&recorder::render_metrics()), &self.resource, self.start, clock::wall());
        tokio::time::timeout(self.timeout, self.send_request(request)).await?
    }

    async fn send_request(&self, message: ExportMetricsServiceRequest) -> Result<(), BoxError> {
        match &self.road {
            Road::Grpc(channel) => {
                let mut request = tonic::Request::new(message);
                for (name, value) in &self.headers {
                    let name: AsciiMetadataKey = name.parse()?;
                    request.metadata_mut().insert(name, AsciiMetadataValue::try_from(value.as_str())?);
                }
                MetricsServiceClient::new(channel.clone()).export(request).await?;
            }
            Road::Http { client, url } => {
                let mut request = client.post(url).header("content-type", "application/x-protobuf");
                for (name, value) in &self.headers {
                    request = request.header(name, value);
                }
                request.body(message.encode_to_vec()).send().await?.error_for_status()?;
            }
        }
        Ok(())
    }
}

/// Everything on the page as one request; all of it is counted since `start`.
fn request(
    families: &[Family],
    resource: &Resource,
    start: SystemTime,
    now: SystemTime,
) -> ExportMetricsServiceRequest {
    let times = (nanos(start), nanos(now));
    let metrics = families.iter().filter_map(|family| metric(family, times)).collect();
    let scope = InstrumentationScope { name: "idem".to_owned(), ..InstrumentationScope::default() };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, schema_url: String::new() }];
    let resource = Some(resource.clone());
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics { resource, scope_metrics, schema_url: String::new() }],
    }
}

fn metric(family: &Family, (start, now): (u64, u64)) -> Option<Metric> {
    let temporality = AggregationTemporality::Cumulative.into();
    let number = |attributes, value| NumberDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    };
    let (mut counted, mut gauged, mut measured) = (Vec::new(), Vec::new(), Vec::new());
    for series in &family.series {
        let attributes = series.labels.iter().map(attribute).collect();
        match &series.value {
            Value::Counter(value) => counted.push(number(attributes, *value)),
            // Not known now.
            Value::Gauge(value) if value.is_nan() => {}
            Value::Gauge(value) => gauged.push(number(attributes, *value)),
            Value::Histogram { bounds, counts, sum } => measured.push(HistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: now,
                count: counts.iter().sum(),
                sum: Some(*sum),
                bucket_counts: counts.clone(),
                explicit_bounds: bounds.clone(),
                ..HistogramDataPoint::default()
            }),
        }
    }
    let data = if !counted.is_empty() {
        Data::Sum(Sum { data_points: counted, aggregation_temporality: temporality, is_monotonic: true })
    } else if !measured.is_empty() {
        Data::Histogram(Histogram { data_points: measured, aggregation_temporality: temporality })
    } else if !gauged.is_empty() {
        Data::Gauge(Gauge { data_points: gauged })
    } else {
        return None;
    };
    let unit = if family.name.ends_with("_seconds") { "s" } else { "1" };
    Some(Metric {
        name: family.name.clone(),
        description: family.help.clone(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    })
}

fn attribute((name, value): &(String, String)) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.clone())) };
    KeyValue { key: name.clone(), value: Some(value), ..KeyValue::default() }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_sums_gauges_and_histograms_and_leaves_out_what_is_not_known() {
        let page = "# TYPE a_total counter\na_total{k=\"v\"} 3\n# TYPE b gauge\nb 1\n# TYPE c gauge\nc NaN\n\
            # TYPE d_seconds histogram\nd_seconds_bucket{le=\"1\"} 2\nd_seconds_bucket{le=\"+Inf\"} 5\nd_seconds_sum 9\nd_seconds_count 5\n";
        let request =
            request(&families::read(page), &Resource::default(), SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let names: Vec<_> = metrics.iter().map(|metric| (metric.name.as_str(), metric.unit.as_str())).collect();
        assert_eq!(names, [("a_total", "1"), ("b", "1"), ("d_seconds", "s")]);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic && sum.data_points[0].attributes[0].key == "k");
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, &point.bucket_counts, &point.explicit_bounds), (5, &vec![2, 3], &vec![1.0]));
    }
}
