"""Makes every alert of deploy/prometheus fire once, for real: the same rules, only shorter."""

import concurrent.futures
import hashlib
import hmac
import json
import pathlib
import re
import signal
import subprocess
import time
import urllib.parse

from stage import HOST, SECRET, Process, Trace, call, eventually, free_port
from traces import until_charging

ORDER = {"venueId": "hall", "items": [{"ticketTypeId": "general", "quantity": 1}]}
RULES = pathlib.Path("deploy/prometheus/alerts.yaml")


def shortened(rules):
    """The rules as they are, with minutes made seconds: of thresholds, windows and how long something must last."""
    rules = re.sub(r"> (\d+) \* 60\b", lambda m: f"> {int(m[1]) / 5}", rules)
    rules = re.sub(r"\[(\d+)m\]", lambda m: f"[{max(4, 2 * int(m[1]))}s]", rules)
    return re.sub(r"for: \d+m", "for: 500ms", rules)


class Prometheus:
    def __init__(self, home, stage):
        self.port, self.begun = free_port(), time.time()
        (home / "alerts.yaml").write_text(shortened(RULES.read_text()))
        targets = [{"targets": [f"{HOST}:{stage.port[name]}"], "labels": {"service": service}} for name, service in
                   [("a-admin", "gateway"), ("b-admin", "gateway"), ("idem-admin", "idem-service"), ("orders-admin", "orders-service")]]
        config = {"global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
                  "rule_files": ["alerts.yaml"], "scrape_configs": [{"job_name": "idem", "static_configs": targets}]}
        # JSON is YAML.
        (home / "prometheus.yaml").write_text(json.dumps(config))
        self.process = Process("prometheus", ["prometheus", f"--config.file={home}/prometheus.yaml", f"--storage.tsdb.path={home}/tsdb",
                               f"--web.listen-address={HOST}:{self.port}", "--log.level=warn"], home)
        eventually("Prometheus is ready", lambda: self.answers("/-/ready"))
        # What happens before the first scrape has not risen since.
        eventually("Prometheus has asked everybody", lambda: len(self.query("up == 1")) == len(targets))

    def answers(self, path):
        try:
            return call(self.port, "GET", path, timeout=2)[0] == 200
        except OSError:
            return False

    def query(self, expression):
        status, _, body = call(self.port, "GET", "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        assert status == 200, body
        return body["data"]["result"]

    def range(self, expression, since):
        asked = {"query": expression, "start": since, "end": time.time(), "step": 1}
        status, _, body = call(self.port, "GET", "/api/v1/query_range?" + urllib.parse.urlencode(asked))
        assert status == 200, body
        return body["data"]["result"]

    def fired(self):
        """Every alert that has fired so far."""
        return {result["metric"]["alertname"] for result in self.query('max_over_time(ALERTS{alertstate="firing"}[1h])')}

    def until_fired(self, *alerts):
        for alert in alerts:
            eventually(f"{alert} fires", lambda: alert in self.fired(), 25)


def declared():
    return set(re.findall(r"- alert: (\w+)", RULES.read_text()))


def event(stage, body, secret=SECRET, at=None):
    """Sends a webhook as the acquirer would."""
    text, now = json.dumps(body), int(at or time.time())
    signature = hmac.new(secret.encode(), f"{now}.{text}".encode(), hashlib.sha256).hexdigest()
    return call(stage.port["b"], "POST", "/webhooks/acquirer", text, {"acquirer-signature": f"t={now},v1={signature}"})[0]


def place(stage, client, key, port="b"):
    status, _, order = client.post(stage.port[port], "/v1/orders", ORDER, f"planted-order-{key}")
    assert status == 201, order
    return order


def buy(stage, client, key, method, port="b"):
    order = place(stage, client, key, port)
    body = {"orderId": order["id"], "paymentMethod": method}
    return order, client.post(stage.port[port], "/v1/payments", body, f"planted-pay-{key}"), body


def about_money(stage, prometheus, client):
    """An undecided payment, a refund that is not acknowledged, an acquirer that does not answer, webhooks nobody can believe."""
    paid, answer, _ = buy(stage, client, "refunded", "pm_approved")
    assert answer[0] == 201, answer
    _, answer, _ = buy(stage, client, "undecided", "pm_pending")
    assert answer[0] == 202, answer
    undecided = answer[2]["id"]
    call(stage.port["sandbox"], "POST", "/sandbox/outage", {"seconds": 12})
    status, _, cancelled = client.post(stage.port["b"], f"/v1/orders/{paid['id']}/cancel", None, "planted-cancel")
    assert status == 200 and cancelled["status"] == "refund_pending", cancelled
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for number in range(3):
            pool.submit(buy, stage, client, f"outage-{number}", "pm_approved")
    then = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    late = {"type": "payment.approved", "amount": 1, "currency": "EUR", "occurredAt": then}
    for number in range(30):
        assert event(stage, {**late, "id": f"late-{number}", "paymentId": f"00000000-0000-4000-8000-{number:012}"}) == 200
        if number == 15:
            time.sleep(0.7)
    assert event(stage, {**late, "id": "forged", "paymentId": undecided}, secret="another") == 401
    # Other money than ours: believed by its signature, never adopted.
    assert event(stage, {**late, "id": "mismatch", "paymentId": undecided, "amount": 999}) == 200
    prometheus.until_fired("IdemKeyInDoubt", "OrdersPaymentUndecided", "OrdersRefundStuck", "OrdersAcquirerUnreachable",
                           "OrdersWebhooksLate", "OrdersWebhooksRefused", "OrdersMoneyNeedsSomebody")
    nothing = "/payments/00000000-0000-4000-8000-000000000000"
    eventually("the outage is over", lambda: call(stage.port["sandbox"], "GET", nothing)[0] == 404)


def about_holders(stage, sink, prometheus, client):
    """A holder that stops and comes back too late; then one that dies while nobody is there to take over."""
    def begins_to_pay(pool, name, method):
        body, trace = {"orderId": place(stage, client, name, "a")["id"], "paymentMethod": method}, Trace()
        paying = pool.submit(client.post, stage.port["a"], "/v1/payments", body, f"planted-pay-{name}", trace)
        until_charging(sink, trace)
        return paying

    with concurrent.futures.ThreadPoolExecutor() as pool:
        before = len(stage.b.lines())
        paying = begins_to_pay(pool, "stopped", "pm_slow_3000")
        stage.a.signal(signal.SIGSTOP)
        eventually("somebody else settles it", lambda: any(
            line.get("message") == "unfinished key" and line.get("outcome") == "completed" for line in stage.b.lines()[before:]), 25)
        stage.a.signal(signal.SIGCONT)
        prometheus.until_fired("IdemFencedWrites")
        paying.result(20)

        begins_to_pay(pool, "dead", "pm_slow_3000")
        stage.b.signal(signal.SIGSTOP)
        stage.a.kill()
        prometheus.until_fired("IdemTargetDown", "IdemKeyNotRecovered")
        stage.b.signal(signal.SIGCONT)
        stage.a.start()


def about_stores(stage, prometheus, client, stop_postgres):
    """An idempotency service that hangs, one whose store is gone, and one that is gone itself."""
    def asks(number):
        return client.post(stage.port["b"], "/v1/orders", ORDER, f"planted-store-{number}")[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        stage.idem.signal(signal.SIGSTOP)
        assert set(pool.map(asks, range(16))) == {503}
        stage.idem.signal(signal.SIGCONT)
        prometheus.until_fired("IdemSlow", "IdemKeyedRequestsRefused", "IdemServerErrors")
        stop_postgres()
        assert set(pool.map(asks, range(16, 24))) == {503}
        prometheus.until_fired("IdemStoreUnavailable")
    stage.idem.kill()
    prometheus.until_fired("IdemReconcilerFailing")


def has_series(prometheus):
    """What the dashboard asks for is there: each series of each of its questions."""
    dashboard = json.loads(pathlib.Path("deploy/grafana/idem.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    names = {name for expr in asked for name in re.findall(r"\b(?:idem|orders|gateway|http|rpc)_[a-z_]+\b", expr)}
    assert len(names) > 20, names
    for name in sorted(names):
        eventually(f"Prometheus has {name}", lambda: prometheus.query(name), 10)
    for expr in asked:
        prometheus.query(expr)


def all_of(stage, sink, prometheus, client, stop_postgres):
    about_money(stage, prometheus, client)
    about_holders(stage, sink, prometheus, client)
    has_series(prometheus)
    about_stores(stage, prometheus, client, stop_postgres)
    assert prometheus.fired() == declared(), prometheus.fired() ^ declared()
    runbook = pathlib.Path("docs/runbook.md").read_text()
    for alert in declared():
        assert f"\n## {alert}\n" in runbook, f"docs/runbook.md has no section {alert}"
