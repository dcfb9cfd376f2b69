"""An overlay, running: pods of podman, a Postgres and an ingress beside them, and somebody who plays the controllers."""

import hashlib
import json
import os
import secrets
import subprocess
import time
from urllib.parse import urlsplit

from ingress import Ingress, until_ready
from manifests import ROOT, Tree, build
from podman import resident_kib
from render import alias_of, encoded, pod_objects, port_of, probe_of, times_of

# None that a service of this machine is likely to have on every address.
PORT = 30080
SERVICES = ("idem-service", "orders-service", "gateway")


class World:
    """`overlay` is one of tests/kubernetes/overlays. Images are kept by `podman`, which outlives it."""

    def __init__(self, home, podman, overlay):
        self.home = home
        self.tree = Tree(overlay, build(ROOT / "tests/kubernetes/overlays" / overlay))
        self.podman = podman
        self.ingress = None
        self.postgres_home = None
        # Service → names of its pods that live; how many were ever made.
        self.pods = {}
        self.made = 0
        self.claims = set()
        self.keys = {"buyer": f"sk_{secrets.token_hex(8)}", "operator": f"sk_{secrets.token_hex(8)}"}
        self.exits = []

    def deployment(self, name):
        return self.tree.find("Deployment", name)

    # --- the beginning

    def start(self):
        self.home.mkdir()
        gateway_ip, subnet = self.podman.make_network()
        self.address = (gateway_ip, PORT)
        self.make_secrets()
        # The network has an address on this machine only while somebody is on it.
        self.start_pod("acquirer-sandbox")
        self.sandbox = (self.podman.address(self.pods["acquirer-sandbox"][0]), 8090)
        jobs = self.tree.of("Job")
        if jobs:
            self.start_postgres(gateway_ip, subnet)
        for job in jobs:
            self.run_job(job)
        self.ingress = Ingress(self.home / "nginx", f"{gateway_ip}:{PORT}")
        for service in SERVICES:
            for _ in range(self.tree.replicas(self.deployment(service))):
                self.start_pod(service)
        self.ingress.start()
        until_ready(*self.address, "/docs")

    def make_secrets(self):
        def hashed(text):
            return hashlib.sha256(text.encode()).hexdigest()

        token, webhook = secrets.token_hex(16), secrets.token_hex(16)
        api_keys = [{"tenant": "shop", "sha256": hashed(self.keys["buyer"])}, {"tenant": "ops", "sha256": hashed(self.keys["operator"]), "operator": True}]
        grant = {"service": "gateway", "sha256": hashed(token), "scopes": ["rest/*"], "rpcs": ["IdempotencyService/*", "AdminService/ListStale", "OrdersService/*"]}
        self.podman.make_secret("gateway-service-token", encoded({"token": token}))
        for name, file, content in (("gateway-api-keys", "api-keys.json", api_keys), ("service-tokens", "service-tokens.json", [grant])):
            data = {file: json.dumps(content)}
            self.tree.objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
        self.podman.make_secret("acquirer-webhook", encoded({"secret": webhook}))

    def start_postgres(self, listen, subnet):
        self.postgres_home = self.home / "postgres"
        self.postgres_home.mkdir()
        self.postgres_home.chmod(0o755)
        password = secrets.token_hex(16)
        environment = os.environ | {
            "IDEM_TEST_POSTGRES_HOME": str(self.postgres_home),
            "IDEM_TEST_POSTGRES_ALSO_LISTEN": listen,
            "IDEM_TEST_POSTGRES_ALSO_ALLOW": subnet,
        }
        said = subprocess.run(["tests/postgres", "start"], env=environment, capture_output=True, text=True, check=True).stdout
        url = said.strip().removeprefix("export IDEM_TEST_POSTGRES=")
        for statement in (f"CREATE ROLE idem LOGIN PASSWORD '{password}'", "CREATE DATABASE idem OWNER idem"):
            subprocess.run(["psql", "-q", url, "-c", statement], check=True)
        uri = f"postgres://idem:{password}@{listen}:{urlsplit(url).port}/idem"
        self.podman.make_secret("idem-db-app", encoded({"uri": uri}))

    def run_job(self, job):
        name = job["metadata"]["name"]
        self.podman.play(pod_objects(self.tree, job, name), name)
        code = self.podman.wait(f"{name}-migrate", 60)
        if code != 0:
            raise RuntimeError(f"Job {name} ends with {code}: {self.logs(f'{name}-migrate')}")
        self.podman.run("pod", "rm", "-f", name)

    # --- what kubelet, the endpoints and the deployment controller do

    def start_pod(self, service):
        """One more pod of a Deployment, ready when this returns."""
        owner = self.deployment(service)
        self.made += 1
        name = f"{service}-{self.made}"
        objects = pod_objects(self.tree, owner, name)
        # A claim is made once, and outlives its pods.
        known = set(self.claims)
        self.claims |= {item["metadata"]["name"] for item in objects if item["kind"] == "PersistentVolumeClaim"}
        objects = [item for item in objects if item["kind"] != "PersistentVolumeClaim" or item["metadata"]["name"] not in known]
        self.podman.play(objects, alias_of(self.tree, owner))
        address = self.podman.address(name)
        probe_port, path = probe_of(owner)
        try:
            until_ready(address, probe_port, path)
        except RuntimeError as error:
            raise RuntimeError(f"{name}: {error}: {self.logs(f'{name}-{service}')}") from error
        self.pods.setdefault(service, []).append(name)
        if service == "gateway":
            self.ingress.add(name, address, port_of(owner), probe_port, path)
        return name

    def end_pod(self, service, name):
        """As a kubelet ends one: taken out of the endpoints, preStop, SIGTERM, and SIGKILL when its grace is over."""
        before, grace = times_of(self.deployment(service))
        self.ingress.leave(name)
        time.sleep(before)
        begun = time.monotonic()
        self.podman.run("kill", "--signal", "TERM", f"{name}-{service}")
        code = self.podman.wait(f"{name}-{service}", grace - before)
        self.exits.append((name, code, time.monotonic() - begun))
        self.forget(service, name)
        if code != 0:
            raise RuntimeError(f"{name} did not end in peace within {grace} s, but with {code}")

    def roll(self, service):
        """A rolling update as the Deployment says: one more, then one of the old ones less."""
        for old in list(self.pods[service]):
            self.start_pod(service)
            self.end_pod(service, old)

    def recreate(self, service):
        """A new pod where only one may be: the old one ends first."""
        for old in list(self.pods[service]):
            self.end_pod(service, old)
            self.start_pod(service)

    def kill_pod(self, service):
        """The end without a word, and a new pod in its place as soon as somebody has noticed."""
        name = self.pods[service][0]
        self.podman.run("kill", "--signal", "KILL", f"{name}-{service}")
        self.podman.wait(f"{name}-{service}", 10)
        self.forget(service, name)
        self.start_pod(service)

    def silence(self, service, is_silent):
        """Takes the network from the first pod of a service, and gives it back: nothing comes, nothing leaves, and nobody is told."""
        pid = self.podman.inspect(f"{self.pods[service][0]}-{service}")["State"]["Pid"]
        for chain in ("INPUT", "OUTPUT"):
            words = ["iptables", "-I" if is_silent else "-D", chain, "-j", "DROP"]
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", *words], check=True)

    def forget(self, service, name):
        self.pods[service].remove(name)
        self.ingress.remove(name)
        self.podman.run("pod", "rm", "-f", "-t", "0", name)

    # --- looking

    def logs(self, container):
        done = self.podman.run("logs", "--tail", "5", container, check=False)
        return done.stdout + done.stderr

    def resident_mib(self):
        """Service → MiB of each of its pods."""
        shown = {}
        for service, names in self.pods.items():
            pids = [self.podman.inspect(f"{name}-{service}")["State"]["Pid"] for name in names]
            shown[service] = [round(resident_kib(pid) / 1024, 1) for pid in pids]
        return shown

    # --- the end

    def stop(self):
        if self.ingress:
            self.ingress.stop()
        self.podman.remove_pods()
        if self.postgres_home:
            environment = os.environ | {"IDEM_TEST_POSTGRES_HOME": str(self.postgres_home)}
            subprocess.run(["tests/postgres", "stop"], env=environment, check=False)
