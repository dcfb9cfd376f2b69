"""Customers: each buys again and again through the ingress, and writes down what it was told."""

import http.client
import json
import threading
import time
import uuid

ORDER = {"venueId": "hall", "items": [{"ticketTypeId": "seat", "quantity": 2}]}
PRICE = 1000
# Whatever ends later than this is no answer.
PATIENCE = 30


class Buyers:
    """`retries` says what they do about a request that fails: nothing but count it, or repeat it with the same key."""

    def __init__(self, address, key, count, retries):
        self.address, self.key, self.count, self.retries = address, key, count, retries
        self.lock = threading.Lock()
        self.failures, self.repeats = [], 0
        # When each was asked first, and how long it took with its repeats.
        self.times = []
        self.orders, self.payments, self.replays = {}, {}, 0
        self.ended = threading.Event()
        self.threads = []

    def __enter__(self):
        self.threads = [threading.Thread(target=self.buy_on) for _ in range(self.count)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def buy_on(self):
        while not self.ended.is_set():
            self.buy()

    def buy(self):
        intent = uuid.uuid4().hex
        status, order, _ = self.post("/v1/orders", f"order-{intent}", ORDER)
        if status != 201:
            return
        with self.lock:
            self.orders[order["id"]] = intent
        again, same, replayed = self.post("/v1/orders", f"order-{intent}", ORDER)
        if again != 201 or same["id"] != order["id"] or not replayed:
            self.fail(f"the repeat of order {order['id']} was answered {again} {same}, replayed: {replayed}")
        status, payment, _ = self.post("/v1/payments", f"pay-{intent}", {"orderId": order["id"], "paymentMethod": "pm_approved"})
        with self.lock:
            self.replays += 1
            if status == 201:
                self.payments[payment["id"]] = order["id"]

    def post(self, path, key, body):
        """Status, body, and whether it is a replay. None for a status when there is no answer at all."""
        begun = time.monotonic()
        until = begun + 120
        while True:
            status, answer, replayed = once(self.address, "POST", path, self.key, key, body)
            if status in (200, 201):
                with self.lock:
                    self.times.append((begun, time.monotonic() - begun))
                return status, answer, replayed
            # 202: the acquirer has not decided. 502 and 504 are nginx's own: a gateway that took the request with it.
            may_repeat = status in (None, 202, 502, 504) or (isinstance(answer, dict) and answer.get("retryable"))
            if not (self.retries and may_repeat and time.monotonic() < until):
                self.fail(f"POST {path} with {key}: {status} {answer}")
                return status, answer, replayed
            with self.lock:
                self.repeats += 1
            time.sleep(0.2)

    def slowest(self):
        return max((took for _, took in self.times), default=0.0)

    def p99_from(self, moment):
        """Of what was asked from then on; and of how many that is."""
        with self.lock:
            took = sorted(took for begun, took in self.times if begun >= moment)
        return (took[min(len(took) * 99 // 100, len(took) - 1)] if took else None), len(took)

    def fail(self, what):
        with self.lock:
            self.failures.append(what)


def once(address, method, path, api_key, key=None, body=None):
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json", "Connection": "close"}
    if key:
        headers["Idempotency-Key"] = key
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        response = connection.getresponse()
        text = response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text[:200].decode(errors="replace")
        return response.status, answer, response.headers.get("Idempotent-Replayed") == "true"
    except (OSError, http.client.HTTPException) as error:
        return None, repr(error), False
    finally:
        connection.close()
