"""One way of breaking an overlay for each rule, and the complaint that must come of it: no rule is there that cannot fail."""


def spec(tree, kind, name):
    return tree.find(kind, name)["spec"]


def pod(tree, name, kind="Deployment"):
    return spec(tree, kind, name)["template"]["spec"]


def container(tree, name, kind="Deployment"):
    return pod(tree, name, kind)["containers"][0]


def config(tree, name):
    return next(c for c in tree.of("ConfigMap") if c["metadata"]["name"].startswith(name + "-"))["data"]


def policy(tree, name):
    return spec(tree, "NetworkPolicy", name)


def put(place, key, value):
    place[key] = value


def drop(tree, kind, name):
    tree.objects.remove(tree.find(kind, name))


# (overlay, what is done to it, part of the complaint)
BROKEN = [
    ("production", lambda t: put(spec(t, "Service", "gateway"), "selector", {"app": "x"}), "Service/gateway selects no pod"),
    ("production", lambda t: put(spec(t, "Deployment", "gateway"), "selector", {"matchLabels": {"app": "x"}}), "does not select its own pods"),
    ("production", lambda t: put(spec(t, "PodDisruptionBudget", "gateway"), "selector", {"matchLabels": {"app": "x"}}), "PodDisruptionBudget/gateway selects no pod"),
    ("production", lambda t: put(policy(t, "gateway"), "podSelector", {"matchLabels": {"app": "x"}}), "speaks of pods that nobody makes"),
    ("production", lambda t: put(spec(t, "HorizontalPodAutoscaler", "gateway")["scaleTargetRef"], "name", "x"), "scales x, which is not there"),
    ("production", lambda t: put(pod(t, "gateway")["topologySpreadConstraints"][0]["labelSelector"], "matchLabels", {"a": "b"}), "spreads pods that are not its own"),
    ("production", lambda t: drop(t, "ServiceAccount", "gateway"), "runs as ServiceAccount gateway, which is not there"),
    ("production", lambda t: put(container(t, "gateway")["envFrom"][0]["configMapRef"], "name", "x"), "reads ConfigMap x, which is not there"),
    ("production", lambda t: put(container(t, "gateway")["env"][0]["valueFrom"]["secretKeyRef"], "key", "x"), "reads gateway-service-token/x, which secrets.example.yaml"),
    ("production", lambda t: put(pod(t, "gateway")["volumes"][0]["secret"], "secretName", "x"), "mounts Secret x, which secrets.example.yaml"),
    ("small", lambda t: drop(t, "PersistentVolumeClaim", "idem-service-data"), "mounts PersistentVolumeClaim idem-service-data, which is not there"),
    ("production", lambda t: put(spec(t, "Ingress", "gateway")["tls"][0], "secretName", "x"), "needs Secret x, which secrets.example.yaml"),
    ("production", lambda t: put(config(t, "gateway"), "GATEWAY_API_KEYS", "/etc/idem/api-keys/keys.json"), "gateway-api-keys has no key keys.json"),
    ("small", lambda t: put(config(t, "idem-service"), "IDEM_STORE", "sqlite:/data/idem.db"), "nothing is mounted at /data"),
    ("production", lambda t: put(config(t, "gateway"), "GATEWAY_LISTEN", "0.0.0.0:9090"), "listens on [8081, 9090] and declares [8080, 8081]"),
    ("production", lambda t: put(container(t, "gateway")["readinessProbe"]["httpGet"], "port", "x"), "the readinessProbe asks port x"),
    ("production", lambda t: put(config(t, "gateway"), "GATEWAY_IDEM_ENDPOINT", "http://idem-service:7000"), "where no Service of ours is"),
    ("production", lambda t: put(spec(t, "Service", "gateway")["ports"][0], "targetPort", "x"), "leads to port x, which its pods do not have"),
    ("production", lambda t: put(spec(t, "Service", "gateway")["ports"][0], "name", "x"), "leads to gateway:http, which is not there"),
    ("production", lambda t: put(pod(t, "gateway"), "terminationGracePeriodSeconds", 39), "is killed after 39 s, but may take 40 s"),
    ("production", lambda t: put(config(t, "idem-service"), "IDEM_DRAIN", "60s"), "Deployment/idem-service is killed after 45 s"),
    ("production", lambda t: put(config(t, "orders-service"), "ORDERS_DRAIN", "10s"), "drains for 10 s, less than the 20s"),
    ("production", lambda t: put(container(t, "gateway")["lifecycle"], "preStop", {"exec": {"command": ["sh"]}}), "preStop that is no sleep"),
    ("production", lambda t: container(t, "gateway").pop("lifecycle"), "before whoever sends requests has heard of it"),
    ("production", lambda t: put(spec(t, "PodDisruptionBudget", "gateway"), "maxUnavailable", 2), "lets all 2 of Deployment/gateway go at once"),
    ("production", lambda t: put(spec(t, "Deployment", "gateway")["strategy"]["rollingUpdate"], "maxUnavailable", 1), "has fewer pods than it should"),
    ("production", lambda t: put(spec(t, "Deployment", "gateway"), "replicas", 3), "which undoes HorizontalPodAutoscaler/gateway"),
    ("production", lambda t: container(t, "gateway")["resources"]["requests"].pop("cpu"), "scales by a CPU request that is not there"),
    ("small", lambda t: put(spec(t, "Deployment", "idem-service"), "replicas", 2), "keeps SQLite and has 2 replicas"),
    ("small", lambda t: put(spec(t, "Deployment", "idem-service"), "strategy", {"type": "RollingUpdate"}), "which has the file"),
    ("production", lambda t: put(container(t, "gateway")["livenessProbe"]["httpGet"], "path", "/readyz"), "is restarted while its store is away"),
    ("production", lambda t: container(t, "idem-service")["livenessProbe"]["grpc"].pop("service"), "is restarted while its store is away"),
    ("production", lambda t: put(container(t, "gateway")["readinessProbe"]["httpGet"], "path", "/healthz"), "stays ready while it drains"),
    ("production", lambda t: container(t, "gateway").pop("startupProbe"), "has no startupProbe"),
    ("production", lambda t: pod(t, "gateway")["securityContext"].pop("runAsNonRoot"), "does not say runAsNonRoot"),
    ("production", lambda t: pod(t, "gateway").pop("automountServiceAccountToken"), "is handed a token of the API server"),
    ("production", lambda t: pod(t, "gateway").pop("enableServiceLinks"), "is handed a variable for each Service"),
    ("production", lambda t: put(pod(t, "gateway"), "hostNetwork", True), "shares a namespace of its host"),
    ("production", lambda t: container(t, "gateway")["securityContext"].pop("capabilities"), "does not drop every capability"),
    ("production", lambda t: put(container(t, "idem-service-migrate", "Job")["securityContext"], "readOnlyRootFilesystem", False), "may write to its image"),
    ("production", lambda t: container(t, "gateway")["resources"].pop("limits"), "has no limit on memory"),
    ("production", lambda t: t.find("Namespace", "idem")["metadata"].pop("labels") and put(t.find("Namespace", "idem")["metadata"], "labels", {}), "does not enforce restricted"),
    ("production", lambda t: put(config(t, "idem-service"), "IDEM_INSECURE", "true"), "sets IDEM_INSECURE"),
    ("production", lambda t: config(t, "orders-service").pop("ORDERS_SERVICE_TOKENS"), "serves beyond loopback without ORDERS_SERVICE_TOKENS"),
    ("production", lambda t: put(config(t, "idem-service"), "IDEM_STORE", "postgres://idem:pw@db/idem") or container(t, "idem-service").pop("env"), "holds a secret, and does not come from one"),
    ("production", lambda t: put(container(t, "gateway"), "image", "idem/gateway:latest"), "whichever that is on the day"),
    ("production", lambda t: put(container(t, "gateway"), "image", "idem/gateway:0.0.1"), "but this is release"),
    ("production", lambda t: drop(t, "NetworkPolicy", "default-deny"), "no policy denies by default"),
    ("production", lambda t: policy(t, "orders-service")["ingress"][0].pop("from"), "anybody may reach orders-service on port 7101, and should not"),
    ("production", lambda t: drop(t, "NetworkPolicy", "to-postgres"), "idem-service must reach postgres on port 5432, and may not"),
    ("production", lambda t: policy(t, "gateway")["egress"].pop(), "gateway must reach orders-service on port 7101, and may not"),
    ("small", lambda t: drop(t, "NetworkPolicy", "acquirer-sandbox"), "orders-service must reach acquirer-sandbox on port 8090, and may not"),
    ("production", lambda t: put(config(t, "gateway"), "GATEWAY_RETANTION", "1h"), "sets GATEWAY_RETANTION, which gateway does not read"),
    ("production", lambda t: put(container(t, "orders-service-migrate", "Job"), "args", ["migrat"]), "says `migrat`, which orders-service does not know"),
    ("production", lambda t: put(container(t, "gateway"), "command", ["/bin/sh"]), "replaces the image's entry point"),
]

# What a strict schema must refuse, in the oldest and in the newest version.
UNKNOWN_TO_KUBERNETES = [
    (lambda t: put(pod(t, "gateway"), "terminationGracePeriod", 45), "Deployment/gateway"),
    (lambda t: put(spec(t, "NetworkPolicy", "gateway"), "podSelector", "gateway"), "NetworkPolicy/gateway"),
]

# (text in compose.yaml, what it becomes, part of the complaint)
BROKEN_COMPOSE = [
    ("GATEWAY_LISTEN:", "GATEWAY_LISTENS:", "sets GATEWAY_LISTENS, which gateway does not read"),
    ("image: idem/gateway", "image: idem/gatewy", "which the Dockerfile does not make"),
    ("target: gateway", "target: idem-service", "is built as idem-service, and runs as gateway"),
    ("command: [migrate]", "command: [migrat]", "says `migrat`, which"),
]

# The same for the Dockerfile.
BROKEN_DOCKERFILE = [
    ("FROM scratch AS acquirer-sandbox", "FROM scratch AS acquirer", "there is no image of acquirer-sandbox"),
    ('ENTRYPOINT ["/gateway"]', 'ENTRYPOINT ["/bin/sh"]', "the image gateway starts something else"),
    ('CMD ["/gateway", "healthcheck"]', 'CMD ["/gateway", "health"]', "has no health check that gateway knows"),
    ("USER 65532:65532", "USER 0:0", "runs as root"),
]
