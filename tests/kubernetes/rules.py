"""What must hold between the objects of an overlay, beyond what a schema can say. Each rule yields one sentence a fault."""

from manifests import labels_of, name_of, seconds, selects

# Which program runs in which pod, and what its variables begin with.
PREFIX = {"gateway": "GATEWAY_", "idem-service": "IDEM_", "orders-service": "ORDERS_", "acquirer-sandbox": "ACQUIRER_"}
# After the drain: the last second of blocking work, and the time to exit.
SPARE_SECONDS = 3


def program_of(pod):
    """`idem/gateway:0.1.0` → `gateway`."""
    return pod["spec"]["containers"][0]["image"].split(":")[0].split("/")[-1]


def selectors_match_pods(tree, _context):
    pods = [(owner, pod) for owner, pod in tree.pods()]
    for item in tree.of("Deployment", "StatefulSet"):
        if not selects(item["spec"]["selector"], labels_of(item["spec"]["template"])):
            yield f"{name_of(item)} does not select its own pods"
    for item in tree.of("Service"):
        if not any(selects({"matchLabels": item["spec"]["selector"]}, labels_of(pod)) for _, pod in pods):
            yield f"{name_of(item)} selects no pod"
    for item in tree.of("PodDisruptionBudget"):
        if not any(selects(item["spec"]["selector"], labels_of(pod)) for _, pod in pods):
            yield f"{name_of(item)} selects no pod"
    for item in tree.of("NetworkPolicy"):
        chosen = [item["spec"]["podSelector"]]
        for rule in item["spec"].get("ingress", []) + item["spec"].get("egress", []):
            peers = rule.get("from", []) + rule.get("to", [])
            chosen += [peer["podSelector"] for peer in peers if "podSelector" in peer and "namespaceSelector" not in peer]
        for selector in chosen:
            foreign = any(key.startswith("cnpg.io/") for key in selector.get("matchLabels", {}))
            if not foreign and not any(selects(selector, labels_of(pod)) for _, pod in pods):
                yield f"{name_of(item)} speaks of pods that nobody makes: {selector}"
    for item in tree.of("HorizontalPodAutoscaler"):
        target = item["spec"]["scaleTargetRef"]
        if tree.find(target["kind"], target["name"]) is None:
            yield f"{name_of(item)} scales {target['name']}, which is not there"
    for item in tree.of("Deployment"):
        for constraint in item["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            if not selects(constraint["labelSelector"], labels_of(item["spec"]["template"])):
                yield f"{name_of(item)} spreads pods that are not its own"


def references_lead_somewhere(tree, context):
    for owner, pod in tree.pods():
        spec = pod["spec"]
        account = spec.get("serviceAccountName")
        if account and tree.find("ServiceAccount", account) is None:
            yield f"{name_of(owner)} runs as ServiceAccount {account}, which is not there"
        for container in spec["containers"]:
            for source in container.get("envFrom", []):
                if tree.find("ConfigMap", source["configMapRef"]["name"]) is None:
                    yield f"{name_of(owner)} reads ConfigMap {source['configMapRef']['name']}, which is not there"
            for variable in container.get("env", []):
                secret = variable.get("valueFrom", {}).get("secretKeyRef")
                if secret and secret["key"] not in context.secrets.get(secret["name"], ()):
                    yield f"{name_of(owner)} reads {secret['name']}/{secret['key']}, which secrets.example.yaml does not tell how to make"
        for volume in spec.get("volumes", []):
            if "secret" in volume and volume["secret"]["secretName"] not in context.secrets:
                yield f"{name_of(owner)} mounts Secret {volume['secret']['secretName']}, which secrets.example.yaml does not tell how to make"
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                if tree.find("PersistentVolumeClaim", claim) is None:
                    yield f"{name_of(owner)} mounts PersistentVolumeClaim {claim}, which is not there"
    for item in tree.of("Ingress"):
        for tls in item["spec"].get("tls", []):
            if tls["secretName"] not in context.secrets:
                yield f"{name_of(item)} needs Secret {tls['secretName']}, which secrets.example.yaml does not tell how to make"


def files_are_where_the_program_looks(tree, context):
    """A variable that names a file under /etc/idem: the mount, the Secret behind it and the key."""
    for owner, pod in tree.pods():
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        mounts = {m["mountPath"]: m["name"] for m in pod["spec"]["containers"][0].get("volumeMounts", [])}
        for variable, value in tree.environment(pod).items():
            path = value.removeprefix("sqlite:")
            if not path.startswith("/"):
                continue
            directory, file = path.rsplit("/", 1)
            volume = volumes.get(mounts.get(directory))
            if volume is None:
                yield f"{name_of(owner)}: {variable} names {path}, but nothing is mounted at {directory}"
            elif "secret" in volume and file not in context.secrets.get(volume["secret"]["secretName"], ()):
                yield f"{name_of(owner)}: {variable} names {path}, but {volume['secret']['secretName']} has no key {file}"


def ports_agree(tree, _context):
    for owner, pod in tree.pods():
        container = pod["spec"]["containers"][0]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        listens = {int(v.rsplit(":", 1)[1]) for k, v in tree.environment(pod).items() if k.endswith("LISTEN")}
        if listens != set(ports.values()):
            yield f"{name_of(owner)} listens on {sorted(listens)} and declares {sorted(ports.values())}"
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            port = probe.get("httpGet", probe.get("grpc", {})).get("port")
            if port is not None and port not in ports and port not in ports.values():
                yield f"{name_of(owner)}: the {kind} asks port {port}, which is not there"
        for variable, value in tree.environment(pod).items():
            if variable.endswith(("_ENDPOINT", "_URL")) and value.startswith("http://"):
                yield from leads_to_a_service(tree, owner, variable, value)
    for service in tree.of("Service"):
        for _, pod in tree.pods():
            if selects({"matchLabels": service["spec"]["selector"]}, labels_of(pod)):
                named = {port["name"] for port in pod["spec"]["containers"][0].get("ports", [])}
                for port in service["spec"]["ports"]:
                    if port["targetPort"] not in named:
                        yield f"{name_of(service)} leads to port {port['targetPort']}, which its pods do not have"
    for item in tree.of("Ingress"):
        for rule in item["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                service = tree.find("Service", backend["name"])
                if service is None or backend["port"]["name"] not in {p["name"] for p in service["spec"]["ports"]}:
                    yield f"{name_of(item)} leads to {backend['name']}:{backend['port']['name']}, which is not there"


def leads_to_a_service(tree, owner, variable, url):
    host, port = url.removeprefix("http://").split("/")[0].rsplit(":", 1)
    if "." in host:
        return  # another namespace, which others deploy
    service = tree.find("Service", host)
    if service is None or int(port) not in {p["port"] for p in service["spec"]["ports"]}:
        yield f"{name_of(owner)}: {variable} is {url}, where no Service of ours is"


def pods_end_in_peace(tree, context):
    for owner, pod in tree.pods():
        program = program_of(pod)
        if owner["kind"] == "Job":
            continue
        environment = context.defaults[program] | tree.environment(pod)
        prefix = PREFIX[program]
        drain = seconds(environment[prefix + "DRAIN"])
        delay = seconds(environment.get(prefix + "DRAIN_DELAY", "0s"))
        hook = pod["spec"]["containers"][0].get("lifecycle", {}).get("preStop", {})
        before = hook.get("sleep", {}).get("seconds", 0)
        needed = before + delay + drain + SPARE_SECONDS
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if grace < needed:
            yield f"{name_of(owner)} is killed after {grace} s, but may take {needed} s: preStop {before}, delay {delay}, drain {drain}, {SPARE_SECONDS} to exit"
        if set(hook) - {"sleep"}:
            yield f"{name_of(owner)} has a preStop that is no sleep; its image has no shell"
        timeout = environment.get(prefix + "UPSTREAM_TIMEOUT") or environment.get(prefix + "ACQUIRER_TIMEOUT")
        if timeout and drain < seconds(timeout):
            yield f"{name_of(owner)} drains for {drain} s, less than the {timeout} that one request may take"
        if tree.replicas(owner) > 1 and before < 5:
            yield f"{name_of(owner)} stops {before} s after its end is announced, before whoever sends requests has heard of it"


def disruptions_leave_somebody(tree, _context):
    for item in tree.of("PodDisruptionBudget"):
        for deployment in tree.of("Deployment"):
            if selects(item["spec"]["selector"], labels_of(deployment["spec"]["template"])):
                replicas = tree.replicas(deployment)
                if item["spec"].get("maxUnavailable", replicas) > replicas - 1:
                    yield f"{name_of(item)} lets all {replicas} of {name_of(deployment)} go at once"
    for deployment in tree.of("Deployment"):
        rolling = deployment["spec"].get("strategy", {}).get("rollingUpdate") or {}
        if tree.replicas(deployment) > 1 and rolling.get("maxUnavailable", "25%") != 0:
            yield f"{name_of(deployment)} has fewer pods than it should while it is rolled"


def autoscalers_are_not_undone(tree, _context):
    for item in tree.of("HorizontalPodAutoscaler"):
        deployment = tree.find("Deployment", item["spec"]["scaleTargetRef"]["name"])
        if deployment and "replicas" in deployment["spec"]:
            yield f"{name_of(deployment)} sets replicas, which undoes {name_of(item)} at every apply"
        requests = deployment["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("requests", {}) if deployment else {}
        if "cpu" not in requests:
            yield f"{name_of(item)} scales by a CPU request that is not there"


def sqlite_has_one_process(tree, _context):
    for owner, pod in tree.pods():
        if any(value.startswith("sqlite:") for value in tree.environment(pod).values()):
            if tree.replicas(owner) != 1:
                yield f"{name_of(owner)} keeps SQLite and has {tree.replicas(owner)} replicas"
            if owner["kind"] == "Deployment" and owner["spec"].get("strategy", {}).get("type") != "Recreate":
                yield f"{name_of(owner)} keeps SQLite and starts a new pod beside the old one, which has the file"


def probes_ask_the_right_question(tree, _context):
    for owner, pod in tree.pods():
        if owner["kind"] == "Job":
            continue
        container = pod["spec"]["containers"][0]
        missing = [kind for kind in ("startupProbe", "readinessProbe", "livenessProbe") if kind not in container]
        if missing:
            yield f"{name_of(owner)} has no {', '.join(missing)}"
            continue
        live, ready = container["livenessProbe"], container["readinessProbe"]
        if live.get("httpGet", {}).get("path") == "/readyz" or live.get("grpc", {"service": "liveness"}).get("service") != "liveness":
            yield f"{name_of(owner)} is restarted while its store is away: its livenessProbe asks whether it is ready"
        if ready["httpGet"]["path"] == "/healthz":
            yield f"{name_of(owner)} stays ready while it drains: its readinessProbe asks only whether it lives"


ALL = [
    selectors_match_pods,
    references_lead_somewhere,
    files_are_where_the_program_looks,
    ports_agree,
    pods_end_in_peace,
    disruptions_leave_somebody,
    autoscalers_are_not_undone,
    sqlite_has_one_process,
    probes_ask_the_right_question,
]
