"""What traces, logs and counters must tell of a few purchases."""

import concurrent.futures
import json
import signal
import time

from stage import OPERATOR_KEY, SECRET, TENANT_KEY, Trace, call, eventually

ORDER = {"venueId": "hall", "items": [{"ticketTypeId": "general", "quantity": 2}]}
PLANTED = "planted"


def check(condition, what):
    assert condition, what


def one_tree(sink, trace, services, names=frozenset()):
    """The spans of a trace, once those services and names are there; each has its parent in the trace, up to the client's own span."""
    def whole():
        spans = sink.spans(trace.id)
        ids = {span.id for span in spans} | {trace.span}
        is_there = services <= {span.service for span in spans} and names <= {span.name for span in spans}
        return spans if is_there and all(span.parent in ids for span in spans) else None
    try:
        return eventually("a trace is whole", whole, 15)
    except AssertionError:
        spans = sink.spans(trace.id)
        ids = {span.id for span in spans} | {trace.span}
        lost = [span for span in spans if span.parent not in ids]
        raise AssertionError(f"not one tree: {sorted({s.service for s in spans})}, without a parent: {lost}") from None


def named(spans, name, service=None):
    found = [span for span in spans if span.name == name and service in (None, span.service)]
    assert found, f"no span {name!r} of {service} among {sorted((s.service, s.name) for s in spans)}"
    return found


def only(spans, name, service=None):
    found = named(spans, name, service)
    assert len(found) == 1, found
    return found[0]


def sells(stage, sink, client):
    """One order is one trace, through every process and down to both stores."""
    trace, key = Trace(), f"{PLANTED}-order"
    status, _, order = client.post(stage.port["a"], "/v1/orders", ORDER, key, trace)
    check(status == 201, order)
    spans = one_tree(sink, trace, {"gateway", "idem-service", "orders-service"}, {"POST /v1/orders", "run operation", "complete key"})
    server = only(spans, "POST /v1/orders", "gateway")
    check(server.parent == trace.span and server.kind == "server", server)
    check(server.attributes["http.route"] == "/v1/orders" and server.attributes["http.response.status_code"] == 201, server)
    check(server.attributes["idem.outcome"] == "executed", server)
    operation = only(spans, "run operation")
    check(operation.parent == server.id, operation)
    about = operation.attributes
    check(about["idem.attempt"] == 1 and about["idem.fencing_token"] == 1 and about["idem.outcome"] == "executed", about)
    for name, outcome in [("reserve key", "granted"), ("complete key", "completed")]:
        command = only(spans, name, "idem-service")
        check(command.attributes["idem.outcome"] == outcome, command)
        check(command.attributes["idem.operation_id"] == about["idem.operation_id"], command)
        check(command.attributes["idem.fencing_token"] == 1 and command.attributes["idem.attempt"] == 1, command)
    statement = named(spans, "swap idem_keys", "idem-service")[0]
    check(statement.kind == "client" and statement.attributes["db.system.name"] == "postgresql", statement)
    placed = only(spans, "rpc OrdersService/PlaceOrder", "orders-service")
    check(placed.kind == "server" and placed.attributes["rpc.system"] == "grpc", placed)
    check(placed.attributes["idem.operation_id"] == about["idem.operation_id"], placed)
    transaction = [span for span in spans if span.service == "orders-service" and "db.system.name" in span.attributes]
    check(transaction, "no transaction of the orders service")
    return order, about["idem.operation_id"]


def pays(stage, sink, client, order):
    """A payment is one trace with the acquirer and its webhook."""
    trace, key = Trace(), f"{PLANTED}-payment"
    body = {"orderId": order["id"], "paymentMethod": "pm_approved"}
    status, _, payment = client.post(stage.port["a"], "/v1/payments", body, key, trace)
    check(status == 201, payment)
    spans = one_tree(sink, trace, {"gateway", "idem-service", "orders-service", "acquirer-sandbox"},
                     {"charge payment", "PUT /payments/{id}"})
    charge = only(spans, "charge payment", "orders-service")
    check(charge.kind == "client" and charge.attributes["http.request.method"] == "PUT", charge)
    check(charge.attributes["http.response.status_code"] in (200, 201), charge)
    check(only(spans, "PUT /payments/{id}", "acquirer-sandbox").parent == charge.id, "the acquirer is not called by the charge")
    webhook = eventually("the webhook is in the trace", lambda: sink.spans(trace.id, "POST /webhooks/acquirer", "gateway"))
    check(webhook[0].attributes["http.response.status_code"] == 200, webhook)
    one_tree(sink, trace, {"gateway"})
    return trace, key, body


def replays(stage, sink, client, original, key, body):
    """A replay links to the trace of the original, at whichever gateway."""
    for gateway in ["b", "b", "a"]:
        trace = Trace()
        status, headers, _ = client.post(stage.port[gateway], "/v1/payments", body, key, trace)
        check(status == 201 and headers.get("idempotent-replayed") == "true", headers)
        spans = one_tree(sink, trace, {"gateway"}, {"POST /v1/payments"})
        check(only(spans, "POST /v1/payments").attributes["idem.outcome"] == "replayed", spans)
        eventually(f"a replay links to {original.id}", lambda: original.id in {
            linked for span in sink.spans(trace.id) for linked, _ in span.links})


def until_charging(sink, trace):
    """The payment is written down; what comes next is the call that charges."""
    eventually("the charge is on its way", lambda: sink.spans(trace.id, "begin payments", "orders-service"))


def crashes(stage, sink, client):
    """A holder is killed while the acquirer charges: the reconciler settles the key in a trace that links to the holder's."""
    status, _, order = client.post(stage.port["a"], "/v1/orders", ORDER, f"{PLANTED}-crash-order")
    check(status == 201, order)
    trace, key = Trace(), f"{PLANTED}-crash"
    body = {"orderId": order["id"], "paymentMethod": "pm_slow_1500"}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paying = pool.submit(client.post, stage.port["a"], "/v1/payments", body, key, trace)
        until_charging(sink, trace)
        stage.a.kill()
        check(paying.exception(10) is not None, "the client of a killed gateway got an answer")
    settled = eventually("a reconciler settles the key", lambda: [
        span for span in sink.spans(name="settle key") if trace.id in {linked for linked, _ in span.links}
        and span.attributes["idem.outcome"] in ("completed", "superseded")], 25)
    about = settled[0].attributes
    check(about["idem.fencing_token"] == 2 and len(about["idem.key_hash"]) == 16, about)
    recovered = one_tree_of(sink, settled[0].trace, {"gateway", "idem-service", "orders-service"})
    named(recovered, "rpc OrdersService/Lookup", "orders-service")
    line = eventually("the reconciler says which key", lambda: [
        line for line in stage.b.lines() if line.get("message") == "unfinished key"
        and line.get("idem.operation_id") == about["idem.operation_id"]])
    check(line[0]["idem.key_hash"] == about["idem.key_hash"] and line[0]["trace_id"] == settled[0].trace, line)
    status, headers, _ = client.post(stage.port["b"], "/v1/payments", body, key, Trace(), headers={"prefer": "wait=10"})
    check(status == 201 and headers.get("idempotent-replayed") == "true", (status, headers))
    stage.a.start()
    eventually("the gateway is back", lambda: stage.is_ready(stage.port["a-admin"]))
    return about["idem.operation_id"]


def one_tree_of(sink, trace, services):
    def whole():
        spans = sink.spans(trace)
        ids = {span.id for span in spans} | {""}
        return spans if services <= {span.service for span in spans} and all(span.parent in ids for span in spans) else None
    return eventually("the trace of a recovery is whole", whole, 15)


def folds(stage, sink, client):
    """Many at once share calls and statements, and each purchase is still one trace; what is shared is linked both ways."""
    traces = [Trace() for _ in range(64)]
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        place = lambda pair: client.post(stage.port["b"], "/v1/orders", ORDER, f"{PLANTED}-many-{pair[0]}", pair[1])[0]
        check(set(pool.map(place, enumerate(traces))) == {201}, "an order of many failed")
    for trace in traces:
        one_tree(sink, trace, {"gateway", "idem-service", "orders-service"},
                 {"reserve key", "complete key", "rpc OrdersService/PlaceOrder"})
    ours = {trace.id for trace in traces}
    by_id = {span.id: span for span in sink.spans()}
    shared = [span for span in by_id.values() if span.name == "place orders" and any(linked in ours for linked, _ in span.links)]
    check(shared, "no statement was shared by several orders")
    for span in shared:
        for _, other in span.links:
            back = {linked for _, linked in by_id[other].links} if other in by_id else set()
            check(span.id in back, f"{by_id.get(other)} does not link back to {span}")


def leaves(stage, client):
    """A client that goes away leaves a line, and another one when its request has ended."""
    status, _, order = client.post(stage.port["b"], "/v1/orders", ORDER, f"{PLANTED}-gone-order")
    check(status == 201, order)
    trace = Trace()
    body = {"orderId": order["id"], "paymentMethod": "pm_slow_1000"}
    try:
        client.post(stage.port["b"], "/v1/payments", body, f"{PLANTED}-gone", trace, timeout=0.3)
        raise AssertionError("the client waited")
    except TimeoutError:
        pass
    mine = lambda: [line for line in stage.b.lines() if line.get("trace_id") == trace.id and line.get("client_gone")]
    lines = eventually("both lines", lambda: mine() if len(mine()) == 2 else None)
    check(lines[0]["target"] == "access" and lines[0]["route"] == "/v1/payments" and "status" not in lines[0], lines)
    check(lines[1]["target"] == "access" and lines[1]["status"] == 201 and lines[1]["outcome"] == "executed", lines)


def refuses(stage, client):
    """The trace id that a client is told is in the log, with the outcome; also of a 4xx."""
    status, _, problem = client.post(stage.port["b"], "/v1/orders", {"venueId": "hall"}, f"{PLANTED}-refused")
    check(status == 400, problem)
    line = eventually("the refusal is in the log", lambda: [
        line for line in stage.b.lines() if line.get("trace_id") == problem["traceId"] and line.get("target") == "access"])
    check(line[0]["status"] == 400 and line[0]["outcome"] == "refused", line)


def counts(stage, client):
    """Every keyed request counts in exactly one outcome, whatever became of it and of its client."""
    def outcomes():
        page = stage.metrics("b-admin")
        return sum(value for series, value in page.items() if series.startswith("gateway_idempotency_outcomes_total"))
    sent = client.sent[stage.port["b"]]
    eventually("everything is counted", lambda: outcomes() >= sent)
    check(outcomes() == sent, f"{outcomes()} outcomes of {sent} requests")


def shows(stage, operation_id):
    """An operation can be looked up by its id, at the console and at the orders service."""
    status, _, keys = call(stage.port["idem-admin"], "GET", f"/console/api/keys?operationId={operation_id}", headers={"x-idem-console": "1"})
    check(status == 200 and [key["operationId"] for key in keys["keys"]] == [operation_id], keys)
    status, _, shown = call(stage.port["orders-admin"], "GET", f"/operations/{operation_id}")
    check(status == 200 and shown["order"]["status"] == "paid" and shown["payment"]["status"] == "approved", shown)
    check("pm_" not in json.dumps(shown), "it shows the payment method")
    check(call(stage.port["orders-admin"], "GET", "/operations/0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11")[0] == 404, "unknown")


def exports(sink):
    """The metrics of /metrics come by OTLP too, over both transports."""
    wanted = [("gateway", "gateway_idempotency_outcomes_total", "sum"), ("idem-service", "idem_outcomes_total", "sum"),
              ("idem-service", "idem_keys", "gauge"), ("orders-service", "orders_acquirer_call_duration_seconds", "histogram"),
              ("orders-service", "orders_holds", "gauge"), ("gateway", "http_server_request_duration_seconds", "histogram")]
    for service, name, kind in wanted:
        metric = eventually(f"{name} comes by OTLP", lambda: sink.metrics.get((service, name)), 10)
        check(metric.WhichOneof("data") == kind, metric)
    check(all(it.get("deployment.environment.name") == "observed" for it in sink.resources), "a resource attribute is missing")


def keeps_secrets(stage, sink, more=()):
    """No key, API key, secret or payment method in spans, metrics or logs."""
    time.sleep(1)
    secrets = [PLANTED, TENANT_KEY, OPERATOR_KEY, SECRET, "pm_approved", "pm_slow", *more]
    with sink.lock:
        exported = b"".join(sink.raw)
    said = {process.name: process.log.read_text(errors="replace") for process in stage.processes}
    for secret in secrets:
        check(secret.encode() not in exported, f"{secret} was exported")
        for name, log in said.items():
            check(secret not in log, f"{secret} is in the log of {name}")


def all_of(stage, sink, client):
    """Returns the trace of a payment."""
    order, _ = sells(stage, sink, client)
    original, key, body = pays(stage, sink, client, order)
    replays(stage, sink, client, original, key, body)
    operation_id = crashes(stage, sink, client)
    folds(stage, sink, client)
    leaves(stage, client)
    refuses(stage, client)
    counts(stage, client)
    shows(stage, operation_id)
    exports(sink)
    keeps_secrets(stage, sink)
    return original.id
