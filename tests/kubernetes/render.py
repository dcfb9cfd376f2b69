"""Pods of a Deployment, as podman 4.3 can play them."""

import base64
import copy

from manifests import labels_of, selects

# What podman does not do, and who does it here: the end of a pod and its probes are cluster.py's and ingress.py's, nodes and
# accounts there are none.
LEFT_OUT = ("topologySpreadConstraints", "serviceAccountName")
# Ports would be published on this machine's own addresses, where only one pod can have each.
LEFT_OUT_OF_CONTAINERS = ("ports", "lifecycle", "startupProbe", "readinessProbe", "livenessProbe")


def pod_objects(tree, owner, name):
    """The objects to play for one pod of a Deployment or Job: its ConfigMaps, its claims, and itself."""
    template = copy.deepcopy(owner["spec"]["template"])
    spec = template["spec"]
    for key in LEFT_OUT:
        spec.pop(key, None)
    for container in spec["containers"]:
        for key in LEFT_OUT_OF_CONTAINERS:
            container.pop(key, None)
        container["image"] = "localhost/" + container["image"]
        # There is no registry to ask.
        container["imagePullPolicy"] = "Never"
    for volume in spec.get("volumes", []):
        if "secret" in volume:
            # podman 4.3 mounts an empty directory for a Secret; world.py keeps what is mounted in a ConfigMap of the same name.
            volume["configMap"] = {"name": volume.pop("secret")["secretName"]}
    # What has ended stays ended, so that its exit code can be seen; cluster.py starts another.
    spec["restartPolicy"] = "Never"
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in spec.get("volumes", []) if "persistentVolumeClaim" in volume}
    read = {source["configMapRef"]["name"] for c in spec["containers"] for source in c.get("envFrom", [])}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels_of(template)}, "spec": spec}
    read |= {volume["configMap"]["name"] for volume in spec.get("volumes", []) if "configMap" in volume}
    configs = [tree.find("ConfigMap", config) for config in sorted(read)]
    return configs + [tree.find("PersistentVolumeClaim", claim) for claim in sorted(claims)] + [pod]


def alias_of(tree, owner):
    """The name of the Service that leads to its pods."""
    for service in tree.of("Service"):
        if selects({"matchLabels": service["spec"]["selector"]}, labels_of(owner["spec"]["template"])):
            return service["metadata"]["name"]
    return owner["metadata"]["name"]


def probe_of(owner):
    """Port and path of the readinessProbe."""
    container = owner["spec"]["template"]["spec"]["containers"][0]
    probe = container["readinessProbe"]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    return ports[probe["port"]], probe["path"]


def port_of(owner):
    return owner["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]


def times_of(owner):
    """Seconds of the preStop sleep and of the whole grace period."""
    spec = owner["spec"]["template"]["spec"]
    hook = spec["containers"][0].get("lifecycle", {}).get("preStop", {})
    return hook.get("sleep", {}).get("seconds", 0), spec["terminationGracePeriodSeconds"]


def encoded(values):
    return {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
