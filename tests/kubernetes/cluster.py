"""`cluster.py --binaries DIR`: sells tickets in both overlays; in the production one while its pods are rolled and killed."""

import argparse
import signal
import sys
import time
from pathlib import Path

from buyers import PRICE, Buyers, once
from ingress import until_ready
from manifests import ROOT
from podman import Podman
from world import SERVICES, World

IMAGE_BYTES_MAX = 25_000_000
BUYERS = 6
CAPACITY = 1_000_000
# By then a replica that is a black hole has cost what it may cost.
SILENCE_NOTICED = 10
P99_MAX = 3.0


def say(text):
    print(f"   {text}", flush=True)


def step(text):
    print(f"== {text}", flush=True)


def must(holds, what):
    if not holds:
        raise AssertionError(what)


def images_are_small_and_bare(podman):
    for name, image in sorted(podman.images().items()):
        config, labels = image["Config"], image["Labels"]
        say(f"{name}: {image['Size'] / 1e6:.1f} MB")
        must(image["Size"] < IMAGE_BYTES_MAX, f"{name} has {image['Size']} bytes")
        must(config["User"] == "65532:65532", f"{name} runs as {config['User']!r}")
        must(labels.get("org.opencontainers.image.version") and labels.get("org.opencontainers.image.revision"), f"{name} has labels {labels}")
        must(image.get("Healthcheck") or config.get("Healthcheck"), f"{name} has no health check")
        shell = podman.run("run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", name, "-c", "true", check=False)
        must(shell.returncode == 127, f"{name} has a shell: {shell.returncode} {shell.stderr}")


def health_checks_answer(world):
    for service, names in world.pods.items():
        for name in names:
            done = world.podman.run("exec", f"{name}-{service}", f"/{service}", "healthcheck", check=False)
            must(done.returncode == 0, f"{name}: healthcheck exits with {done.returncode}: {done.stderr}")
    # And says no where nobody serves.
    nowhere = world.podman.run("exec", f"{world.pods['gateway'][0]}-gateway", "/gateway", "healthcheck", "--admin-listen", "127.0.0.1:9", check=False)
    must(nowhere.returncode == 1 and "cannot be asked" in nowhere.stderr, f"a health check of nobody exits with {nowhere.returncode}: {nowhere.stderr}")


def one_purchase(world):
    """Sold, repeated, paid, through the ingress."""
    address, buyer, operator = world.address, world.keys["buyer"], world.keys["operator"]
    for name, capacity in (("seat", CAPACITY), ("box", 2)):
        status, answer, _ = once(address, "PUT", f"/v1/ticket-types/{name}", operator, body={
            "venueId": "hall", "name": name, "price": {"amount": PRICE, "currency": "EUR"}, "capacity": capacity})
        must(status in (200, 201), f"a ticket type: {status} {answer}")
    order = {"venueId": "hall", "items": [{"ticketTypeId": "box", "quantity": 2}]}
    status, first, replayed = once(address, "POST", "/v1/orders", buyer, "the-first", order)
    must(status == 201 and not replayed, f"an order: {status} {first}")
    status, again, replayed = once(address, "POST", "/v1/orders", buyer, "the-first", order)
    must((status, again, replayed) == (201, first, True), f"its repeat: {status} {again} {replayed}")
    status, other, _ = once(address, "POST", "/v1/orders", buyer, "another", order)
    must((status, other["error"]) == (409, "sold_out"), f"one more than there are: {status} {other}")
    status, paid, _ = once(address, "POST", "/v1/payments", buyer, "its-payment", {"orderId": first["id"], "paymentMethod": "pm_approved"})
    must(status == 201 and paid["status"] == "approved", f"a payment: {status} {paid}")
    must(totals(world)["charges"] == 1, f"the acquirer: {totals(world)}")
    say("an order was sold, replayed, refused to the next one, and paid")


def totals(world):
    return once(world.sandbox, "GET", "/sandbox/totals", "none")[1]


def books_balance(world, before, *crowds):
    """What buyers were told, what the orders service holds, and what the acquirer took are one."""
    orders = sum(len(crowd.orders) for crowd in crowds)
    payments = {payment: order for crowd in crowds for payment, order in crowd.payments.items()}
    must(len(set(payments.values())) == len(payments), "an order was paid twice")
    _, seat, _ = once(world.address, "GET", "/v1/ticket-types/seat", world.keys["buyer"])
    after = totals(world)
    say(f"{orders} orders, {len(payments)} payments; seats {seat['sold']} sold, {seat['held']} held; the acquirer has {after}")
    must(seat["sold"] + seat["held"] == 2 * orders, f"{orders} orders of 2 seats, but {seat}")
    must(seat["sold"] == 2 * len(payments), f"{len(payments)} payments of 2 seats, but {seat}")
    must(after["charges"] - before["charges"] == len(payments), f"{len(payments)} payments, but {after}")
    must(after["captured"] - before["captured"] == 2 * PRICE * len(payments) and after["refunded"] == 0, f"the acquirer: {after}")


def crowd(world, retries):
    return Buyers(world.address, world.keys["buyer"], BUYERS, retries)


def report(name, buyers, begun):
    took = time.monotonic() - begun
    sold = len(buyers.orders)
    say(f"{name}: {sold} orders in {took:.0f} s, {buyers.replays} replays, {buyers.repeats} repeats by buyers, slowest {buyers.slowest():.1f} s")
    must(sold > 20, f"only {sold} orders were sold: nothing was shown")


def production(world):
    step("production: network, Postgres, migrations, pods")
    world.start()
    for service, names in world.pods.items():
        say(f"{service}: {', '.join(names)}")
    health_checks_answer(world)
    step("production: one purchase through nginx")
    one_purchase(world)
    before = totals(world)
    say(f"resident MiB, idle: {world.resident_mib()}")

    step("production: every pod rolled under load; buyers repeat nothing that fails")
    begun = time.monotonic()
    with crowd(world, retries=False) as calm:
        time.sleep(3)
        say(f"resident MiB, at load: {world.resident_mib()}")
        for service in SERVICES:
            world.roll(service)
            must(not calm.failures, f"{len(calm.failures)} requests failed while {service} was rolled: {calm.failures[:3]}")
        time.sleep(2)
    report("rolled", calm, begun)
    must(not calm.failures, f"{len(calm.failures)} requests failed: {calm.failures[:3]}")
    say("ended within: " + ", ".join(f"{name} {took:.1f} s" for name, _, took in world.exits))

    step("production: a pod of each killed with SIGKILL under load; buyers repeat with the same key")
    begun = time.monotonic()
    with crowd(world, retries=True) as patient:
        for service in SERVICES:
            time.sleep(3)
            world.kill_pod(service)
        time.sleep(5)
    report("killed", patient, begun)
    must(not patient.failures, f"{len(patient.failures)} purchases were lost: {patient.failures[:3]}")
    step("production: a pod of each service behind the gateway falls silent under load; buyers repeat with the same key")
    begun = time.monotonic()
    with crowd(world, retries=True) as steadfast:
        for service in ("idem-service", "orders-service"):
            time.sleep(3)
            world.silence(service, True)
            time.sleep(SILENCE_NOTICED)
            noticed = time.monotonic()
            time.sleep(SILENCE_NOTICED)
            p99, asked = steadfast.p99_from(noticed)
            world.silence(service, False)
            must(p99 is not None and p99 < P99_MAX, f"{SILENCE_NOTICED} s after {service} fell silent p99 is {p99} s")
            say(f"{service}: from {SILENCE_NOTICED} s after one of its pods fell silent, p99 of {asked} answers is {p99:.2f} s")
        time.sleep(5)
    report("silent", steadfast, begun)
    must(not steadfast.failures, f"{len(steadfast.failures)} purchases were lost: {steadfast.failures[:3]}")
    step("production: the books")
    books_balance(world, before, calm, patient, steadfast)


def small(world):
    step("small: pods on SQLite")
    world.start()
    one_purchase(world)
    for service in SERVICES:
        world.recreate(service)
    # While there was no gateway nginx kept its old list.
    until_ready(*world.address, "/docs")
    order = {"venueId": "hall", "items": [{"ticketTypeId": "box", "quantity": 2}]}
    status, again, replayed = once(world.address, "POST", "/v1/orders", world.keys["buyer"], "the-first", order)
    must(status == 201 and replayed, f"the first order, after every pod was made anew: {status} {again} {replayed}")
    say("every pod was made anew on the same volumes, and the first order is still replayed")


def story(podman, home, binaries):
    step("images")
    podman.build_images(binaries)
    images_are_small_and_bare(podman)
    for overlay, told in (("small", small), ("production", production)):
        world = World(home / overlay, podman, overlay)
        try:
            told(world)
        finally:
            world.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="release programs, of which images are made")
    parser.add_argument("--home", type=Path, default=ROOT / "target/cluster", help="where everything is kept that this makes")
    flags = parser.parse_args()
    # An end from outside ends what was started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    flags.home = flags.home.resolve()
    podman = Podman(flags.home / "podman")
    try:
        story(podman, flags.home, flags.binaries)
    except (AssertionError, RuntimeError) as error:
        print(f"tests/cluster: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        podman.clean()
    print("a cluster that was rolled and killed sold every ticket once")


if __name__ == "__main__":
    main()
