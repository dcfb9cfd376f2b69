"""What kustomize makes of an overlay, and how to find one's way in it."""

import copy
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy/k8s"
KUBECTL = Path(sys.executable).parent / "kubectl"


class Tree:
    """The objects of one overlay."""

    def __init__(self, name, objects):
        self.name = name
        self.objects = objects

    def of(self, *kinds):
        return [item for item in self.objects if item["kind"] in kinds]

    def find(self, kind, name):
        return next((item for item in self.of(kind) if item["metadata"]["name"] == name), None)

    def pods(self):
        """The pod templates, each with the object that makes them."""
        return [(item, item["spec"]["template"]) for item in self.of("Deployment", "StatefulSet", "Job")]

    def environment(self, pod):
        """The variables of the pod's only container; those from a Secret as `secret:NAME/KEY`."""
        container = pod["spec"]["containers"][0]
        values = {}
        for source in container.get("envFrom", []):
            config = self.find("ConfigMap", source["configMapRef"]["name"])
            values |= (config or {}).get("data", {})
        for variable in container.get("env", []):
            secret = variable.get("valueFrom", {}).get("secretKeyRef")
            values[variable["name"]] = f"secret:{secret['name']}/{secret['key']}" if secret else variable.get("value", "")
        return values

    def replicas(self, deployment):
        """How many there are at least."""
        name = deployment["metadata"]["name"]
        scaler = next((s for s in self.of("HorizontalPodAutoscaler") if s["spec"]["scaleTargetRef"]["name"] == name), None)
        return scaler["spec"]["minReplicas"] if scaler else deployment["spec"].get("replicas", 1)

    def copy(self):
        return Tree(self.name, copy.deepcopy(self.objects))


def build(directory):
    """Runs kustomize on a directory."""
    made = subprocess.run([KUBECTL, "kustomize", directory], capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"kubectl kustomize {directory}: {made.stderr.strip()}")
    return [item for item in yaml.safe_load_all(made.stdout) if item]


def overlay(name):
    return Tree(name, build(K8S / "overlays" / name))


def documented_secrets():
    """Secret name → keys, as secrets.example.yaml tells operators to make them."""
    text = (K8S / "secrets.example.yaml").read_text()
    return {item["metadata"]["name"]: set(item["stringData"]) for item in yaml.safe_load_all(text) if item}


def name_of(item):
    return f"{item['kind']}/{item['metadata']['name']}"


def labels_of(pod):
    return pod["metadata"].get("labels", {})


def selects(selector, labels):
    """Whether a label selector matches; an empty one matches everything."""
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or []:
        if rule["operator"] != "In":
            raise SystemExit(f"matchExpressions with {rule['operator']} are not understood here")
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


def seconds(text):
    """`30s` or `2m`, as the manifests write durations."""
    unit = {"s": 1, "m": 60, "h": 3600}[text[-1]]
    return int(text[:-1]) * unit
