"""What the collector hands on: an OTLP receiver that keeps every span and every metric, and the raw bytes to be searched for secrets."""

import gzip
import http.server
import threading

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


def value_of(value):
    return getattr(value, value.WhichOneof("value") or "string_value")


class Span:
    def __init__(self, span, service):
        self.service, self.name, self.kind = service, span.name, KINDS.get(span.kind, "")
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.attributes = {pair.key: value_of(pair.value) for pair in span.attributes}
        self.links = [(link.trace_id.hex(), link.span_id.hex()) for link in span.links]
        self.begun, self.ended = span.start_time_unix_nano, span.end_time_unix_nano
        self.is_error = span.status.code == 2

    def __repr__(self):
        return f"{self.service}: {self.name} {self.attributes}"


class Sink:
    """Takes what the collector exports over HTTP."""

    def __init__(self, port):
        self.lock, self.all, self.metrics, self.raw, self.resources = threading.Lock(), [], {}, [], []
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.take(self.path, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, body):
        with self.lock:
            self.raw.append(body)
            if path.endswith("/v1/traces"):
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    service = self.resource(resource.resource)
                    self.all += [Span(span, service) for scope in resource.scope_spans for span in scope.spans]
            elif path.endswith("/v1/metrics"):
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    service = self.resource(resource.resource)
                    for scope in resource.scope_metrics:
                        for metric in scope.metrics:
                            self.metrics[(service, metric.name)] = metric

    def resource(self, resource):
        attributes = {pair.key: value_of(pair.value) for pair in resource.attributes}
        self.resources.append(attributes)
        return attributes.get("service.name", "")

    def spans(self, trace=None, name=None, service=None):
        with self.lock:
            return [span for span in self.all
                    if trace in (None, span.trace) and name in (None, span.name) and service in (None, span.service)]

    def end(self):
        self.server.shutdown()
