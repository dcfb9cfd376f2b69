"""Runs pods with `podman kube play`, in a storage and on a network of their own."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import yaml

# As deep as a pod of these needs; some hosts allow no more.
LIMITS = ["nofile=1024:1024", "nproc=1024:1024"]
# How it says that it has no systemd to run health checks; who starts pods here asks them itself.
NOISE = ("unable to get systemd connection", "failed to connect to syslog")


class Podman:
    """podman and buildah with everything that they keep under one directory."""

    def __init__(self, home: Path):
        self.home = home
        self.network = f"idem-{os.getpid()}"
        home.mkdir(parents=True)
        containers, storage = home / "containers.conf", home / "storage.conf"
        containers.write_text(
            f"[containers]\ndefault_ulimits={json.dumps(LIMITS)}\n"
            '[engine]\nruntime="runc"\ncgroup_manager="cgroupfs"\nevents_logger="file"\n'
            f'[network]\nnetwork_backend="netavark"\nnetwork_config_dir="{home}/networks"\n'
        )
        storage.write_text(f'[storage]\ndriver="vfs"\ngraphroot="{home}/storage"\nrunroot="{home}/run"\n')
        self.environment = os.environ | {"CONTAINERS_CONF": str(containers), "CONTAINERS_STORAGE_CONF": str(storage)}

    def run(self, *words, check=True, stdin=None):
        done = subprocess.run(["podman", *words], env=self.environment, input=stdin, capture_output=True, text=True, check=False)
        if check and done.returncode:
            said = "\n".join(line for line in done.stderr.splitlines() if not any(noise in line for noise in NOISE))
            raise RuntimeError(f"podman {' '.join(words)} exits with {done.returncode}: {said}")
        return done

    def build_images(self, binaries):
        builder = f"buildah --root {self.home}/storage --runroot {self.home}/run --storage-driver vfs bud --format docker --isolation chroot"
        environment = self.environment | {"IMAGE_BUILDER": builder}
        made = subprocess.run(["deploy/docker/images", binaries], env=environment, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"deploy/docker/images: {made.stdout}{made.stderr}")

    def images(self):
        """Name → what is in the image's description."""
        shown = json.loads(self.run("images", "--format", "json").stdout)
        names = [name for image in shown for name in image.get("Names") or [] if "/idem/" in name]
        return {name: self.inspect(name) for name in names}

    def make_network(self):
        # Internal: what runs on it reaches this machine, and nobody else.
        self.run("network", "create", "--internal", self.network)
        shown = json.loads(self.run("network", "inspect", self.network).stdout)[0]
        subnet = shown["subnets"][0]
        return subnet["gateway"], subnet["subnet"]

    def make_secret(self, name, values):
        """In the form in which this podman reads a Secret of Kubernetes back (4.3 cannot read what it writes itself)."""
        self.run("secret", "create", name, "-", stdin=json.dumps(values))

    def play(self, objects, alias):
        """Starts a pod; it answers to `alias` too, as all pods of a headless Service do."""
        self.run("kube", "play", "--network", f"{self.network}:alias={alias}", "-", stdin=yaml.safe_dump_all(objects))

    def inspect(self, what):
        return json.loads(self.run("inspect", what).stdout)[0]

    def address(self, pod):
        infra = json.loads(self.run("pod", "inspect", pod).stdout)["InfraContainerID"]
        return self.inspect(infra)["NetworkSettings"]["Networks"][self.network]["IPAddress"]

    def wait(self, container, limit):
        """The exit code; None when it has not ended within `limit` seconds."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            state = self.inspect(container)["State"]
            if state["Status"] == "exited":
                return state["ExitCode"]
            time.sleep(0.1)
        return None

    def remove_pods(self):
        """Everything but the images."""
        for words in (["pod", "rm", "-f", "-a", "-t", "0"], ["network", "rm", "-f", self.network], ["secret", "rm", "-a"], ["volume", "rm", "-a", "-f"]):
            self.run(*words, check=False)

    def clean(self):
        self.remove_pods()
        self.run("system", "reset", "-f", check=False)
        shutil.rmtree(self.home, ignore_errors=True)


def resident_kib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
