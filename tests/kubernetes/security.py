"""Who may do and reach what: restricted pods, authenticated listeners, and the whole matrix of the network policies."""

from manifests import labels_of, name_of, selects
from rules import PREFIX, program_of

# Every connection that may be made inside the namespace or out of it, and none besides.
# (from, to, port); `ns:` is a namespace by its label idem-role.
MATRIX = {
    "small": {
        ("ns:ingress", "gateway", 8080),
        ("acquirer-sandbox", "gateway", 8080),
        ("gateway", "idem-service", 7001),
        ("gateway", "orders-service", 7101),
        ("orders-service", "acquirer-sandbox", 8090),
    },
    "production": {
        ("ns:ingress", "gateway", 8080),
        ("gateway", "idem-service", 7001),
        ("gateway", "orders-service", 7101),
        ("idem-service", "postgres", 5432),
        ("orders-service", "postgres", 5432),
        ("migrate", "postgres", 5432),
        ("orders-service", "ns:egress", 8080),
    },
}
ADMIN = {"gateway": 8081, "idem-service": 7002, "orders-service": 7102}
OTLP = (4317, 4318)


def pods_are_restricted(tree, _context):
    for owner, pod in tree.pods():
        spec, name = pod["spec"], name_of(owner)
        around = spec.get("securityContext", {})
        if around.get("runAsNonRoot") is not True or around.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name} does not say runAsNonRoot and seccompProfile RuntimeDefault"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name} is handed a token of the API server"
        if spec.get("enableServiceLinks") is not False:
            yield f"{name} is handed a variable for each Service"
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name} shares a namespace of its host"
        for container in spec["containers"]:
            within = container.get("securityContext", {})
            if within.get("allowPrivilegeEscalation") is not False or within.get("capabilities", {}).get("drop") != ["ALL"]:
                yield f"{name} does not drop every capability and the escalation of privileges"
            if within.get("readOnlyRootFilesystem") is not True:
                yield f"{name} may write to its image"
            if "memory" not in container.get("resources", {}).get("limits", {}):
                yield f"{name} has no limit on memory"
    namespaces = tree.of("Namespace")
    if not namespaces or any(n["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") != "restricted" for n in namespaces):
        yield "the namespace does not enforce restricted pod security"


def listeners_know_their_callers(tree, _context):
    for owner, pod in tree.pods():
        environment, program = tree.environment(pod), program_of(pod)
        if owner["kind"] == "Job":
            continue
        prefix = PREFIX[program]
        if prefix + "INSECURE" in environment:
            yield f"{name_of(owner)} sets {prefix}INSECURE"
        if program in ("idem-service", "orders-service") and not environment.get(prefix + "SERVICE_TOKENS"):
            yield f"{name_of(owner)} serves beyond loopback without {prefix}SERVICE_TOKENS"
        for variable, value in environment.items():
            is_secret = variable.endswith(("_TOKEN", "_SECRET")) or (variable.endswith("_STORE") and not value.startswith("sqlite:"))
            if is_secret and not value.startswith("secret:"):
                yield f"{name_of(owner)}: {variable} holds a secret, and does not come from one"


def images_are_named(tree, context):
    """A `small` deployment is for trying; in production a pod that starts later must be the same program."""
    if tree.name != "production":
        return
    for owner, pod in tree.pods():
        for container in pod["spec"]["containers"]:
            tag = container["image"].rpartition(":")[2]
            if tag in ("latest", container["image"]):
                yield f"{name_of(owner)} runs {container['image']}, whichever that is on the day"
            elif tag != context.version:
                yield f"{name_of(owner)} runs {container['image']}, but this is release {context.version}"


def only_the_said_connections_are_open(tree, _context):
    policies = tree.of("NetworkPolicy")
    if not any(p["spec"]["podSelector"] == {} and set(p["spec"]["policyTypes"]) == {"Ingress", "Egress"}
               and "ingress" not in p["spec"] and "egress" not in p["spec"] for p in policies):
        yield "no policy denies by default"
    pods = {labels_of(pod)["app.kubernetes.io/name"]: pod for _, pod in tree.pods()}
    found = connections(policies, pods)
    wanted = set(MATRIX[tree.name])
    for name, port in ADMIN.items():
        wanted.add(("ns:monitoring", name, port))
    for name in pods:
        wanted |= {(name, "ns:monitoring", port) for port in OTLP}
        wanted.add((name, "dns", 53))
    for edge in sorted(found - wanted, key=str):
        yield f"{edge[0]} may reach {edge[1]} on port {edge[2]}, and should not"
    for edge in sorted(wanted - found, key=str):
        yield f"{edge[0]} must reach {edge[1]} on port {edge[2]}, and may not"


def connections(policies, pods):
    """What the policies open. Between two of our pods both ends must agree; a stranger is open as our end says."""
    opened = {"Ingress": set(), "Egress": set()}
    for policy in policies:
        for name, pod in pods.items():
            if selects(policy["spec"]["podSelector"], labels_of(pod)):
                for way, key, peer_key in (("Ingress", "ingress", "from"), ("Egress", "egress", "to")):
                    if way in policy["spec"]["policyTypes"]:
                        for rule in policy["spec"].get(key, []):
                            opened[way] |= edges(way, rule, peer_key, name, pods)
    between = opened["Ingress"] & opened["Egress"]
    strangers = {e for e in opened["Ingress"] if e[0] not in pods} | {e for e in opened["Egress"] if e[1] not in pods}
    return between | strangers


def edges(way, rule, peer_key, name, pods):
    found = set()
    for other in {o for peer in rule.get(peer_key, [{}]) for o in peers(peer, pods)}:
        server = name if way == "Ingress" else other
        for port in rule.get("ports", [{"port": "any"}]):
            number = port["port"]
            if isinstance(number, str) and server in pods:
                named = {p["name"]: p["containerPort"] for p in pods[server]["spec"]["containers"][0].get("ports", [])}
                if number not in named and number != "any":
                    continue
                number = named.get(number, "any")
            found.add((other, name, number) if way == "Ingress" else (name, other, number))
    return found


def peers(peer, pods):
    """Names of those that a peer of a policy means."""
    if not peer:
        return ["anybody"]
    if "ipBlock" in peer:
        return [peer["ipBlock"]["cidr"]]
    if "namespaceSelector" in peer:
        if peer.get("podSelector", {}).get("matchLabels", {}).get("k8s-app") == "kube-dns":
            return ["dns"]
        role = peer["namespaceSelector"].get("matchLabels", {}).get("idem-role")
        return [f"ns:{role}" if role else "anybody"]
    if "cnpg.io/cluster" in peer["podSelector"].get("matchLabels", {}):
        return ["postgres"]
    return [name for name, pod in pods.items() if selects(peer["podSelector"], labels_of(pod))]


ALL = [pods_are_restricted, listeners_know_their_callers, images_are_named, only_the_said_connections_are_open]
