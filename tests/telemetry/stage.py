"""The world of tests/observed: the product's processes, a collector, a Prometheus; all on loopback, all ended by their process ids."""

import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import threading
import time

HOST = "127.0.0.1"
SECRET = "whsec_observed"
TENANT_KEY, OPERATOR_KEY = "sk_observed_planted", "sk_observed_ops_planted"


def free_port():
    """Below the ephemeral ports, so that nobody's outgoing connection takes it meanwhile."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(low, 10_100))
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
                return port
            except OSError:
                continue


def eventually(what, look, seconds=30):
    """Looks until there is something to see."""
    until = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > until:
            raise AssertionError(f"never happened within {seconds} s: {what}")
        time.sleep(0.1)


class Process:
    """A program with its log. `logs` keeps what it said under earlier lives too."""

    def __init__(self, name, arguments, home, environment=None):
        self.name, self.arguments, self.log = name, arguments, home / f"{name}.log"
        self.environment = {**os.environ, **(environment or {})}
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.arguments, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def signal(self, which):
        self.child.send_signal(which)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.kill()

    def lines(self):
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def call(port, method, path, body=None, headers=None, timeout=40):
    """One request, one connection: status, headers, and the body as JSON or text."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        headers = {"content-type": "application/json", **(headers or {})}
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        try:
            return answer.status, dict(answer.getheaders()), json.loads(text)
        except ValueError:
            return answer.status, dict(answer.getheaders()), text
    finally:
        connection.close()


class Client:
    """A client of the shop, that counts how many keyed requests it has sent to which gateway."""

    def __init__(self):
        self.sent, self.lock = {}, threading.Lock()

    def post(self, port, path, body, key, trace=None, timeout=40, headers=None):
        with self.lock:
            self.sent[port] = self.sent.get(port, 0) + 1
        headers = {"authorization": f"Bearer {TENANT_KEY}", "idempotency-key": key, **(headers or {})}
        if trace:
            headers["traceparent"] = trace.parent
        return call(port, "POST", path, body, headers, timeout)


class Trace:
    """A trace that a client began."""

    def __init__(self):
        self.id, self.span = os.urandom(16).hex(), os.urandom(8).hex()
        self.parent = f"00-{self.id}-{self.span}-01"


class Stage:
    """Everything that runs."""

    def __init__(self, home, bins, collector_grpc, collector_http, postgres):
        self.home, self.bins = home, bins
        self.port = {name: free_port() for name in
                     ["a", "a-admin", "b", "b-admin", "idem", "idem-admin", "orders", "orders-admin", "sandbox"]}
        url = postgres.rsplit("/", 1)[0]
        keys = home / "keys.json"
        keys.write_text(json.dumps([{"tenant": "shop", "key": TENANT_KEY}, {"tenant": "ops", "key": OPERATOR_KEY, "operator": True}]))
        # Both transports of OTLP, and everything soon.
        common = {"RUST_LOG": "info", "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "500",
                  "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=observed"}
        grpc = {**common, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector_grpc}"}
        http_ = {**common, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector_http}", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        at = lambda name: f"{HOST}:{self.port[name]}"
        program = lambda name: str(bins / name)
        self.sandbox = Process("sandbox", [program("acquirer-sandbox"), "--listen", at("sandbox"), "--webhook-secret", SECRET,
                               "--webhook-url", f"http://{at('b')}/webhooks/acquirer"], home, http_)
        self.idem = Process("idem", [program("idem-service"), "--listen", at("idem"), "--admin-listen", at("idem-admin"),
                            "--store", f"{url}/observed_idem"], home, http_)
        self.orders = Process("orders", [program("orders-service"), "--listen", at("orders"), "--admin-listen", at("orders-admin"),
                              "--store", f"{url}/observed_orders", "--acquirer-url", f"http://{at('sandbox')}",
                              "--acquirer-timeout", "4s", "--webhook-secret", SECRET], home, grpc)
        gateway = lambda name: Process(name, [program("gateway"), "--listen", at(name), "--admin-listen", at(f"{name}-admin"),
                                       "--idem-endpoint", f"http://{at('idem')}", "--orders-endpoint", f"http://{at('orders')}",
                                       "--api-keys", str(keys), "--lease", "6s", "--upstream-timeout", "5s"], home, grpc)
        self.a, self.b = gateway("a"), gateway("b")
        self.processes = [self.a, self.b, self.orders, self.idem, self.sandbox]
        for name in ["a-admin", "b-admin", "idem-admin", "orders-admin"]:
            eventually(f"{name} is ready", lambda: self.is_ready(self.port[name]))
        offer = {"venueId": "hall", "name": "General", "price": {"amount": 1000, "currency": "EUR"}, "capacity": 100000}
        status, _, body = call(self.port["a"], "PUT", "/v1/ticket-types/general", offer, {"authorization": f"Bearer {OPERATOR_KEY}"})
        assert status == 201, (status, body)

    def is_ready(self, port):
        try:
            return call(port, "GET", "/readyz", timeout=2)[0] == 200
        except OSError:
            return False

    def metrics(self, name):
        """The page of a process: by series, as it is written there."""
        page = call(self.port[name], "GET", "/metrics")[2]
        pairs = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, value in pairs}

    def end(self):
        for process in self.processes:
            process.end()
