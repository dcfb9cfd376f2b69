"""`check.py --binaries DIR`: kustomize, strict schemas, our own rules, and for each of these that it can fail."""

import argparse
import sys
import warnings
from pathlib import Path

import kubernetes_validate
import yaml

import fixtures
import programs
import rules
import security
from manifests import K8S, ROOT, build, documented_secrets, name_of, overlay

# `sleep` in a preStop is for good since 1.34; the newest is the newest with a schema.
VERSIONS = ("1.34.0", "1.37.0")
OVERLAYS = ("small", "production")
RULES = rules.ALL + security.ALL + programs.ALL


def schema_faults(objects):
    for item in objects:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(step) for step in error.path)
                yield f"{name_of(item)} is not valid in Kubernetes {version}: {where}: {error.message.splitlines()[0][:200]}"


def rule_faults(tree, context):
    return [fault for rule in RULES for fault in rule(tree, context)]


def unproven(trees, context, compose, dockerfile):
    """Fixtures that were broken on purpose and found nothing."""
    for number, (name, break_it, complaint) in enumerate(fixtures.BROKEN):
        broken = trees[name].copy()
        break_it(broken)
        faults = rule_faults(broken, context)
        if not any(complaint in fault for fault in faults):
            yield f"fixture {number}: nobody said “{complaint}”, but {faults or 'nothing'}"
    for break_it, where in fixtures.UNKNOWN_TO_KUBERNETES:
        broken = trees["production"].copy()
        break_it(broken)
        found = [f for f in schema_faults([i for i in broken.objects if name_of(i) == where])]
        if len(found) != len(VERSIONS):
            yield f"a schema accepts a broken {where}: {found}"
    texts = (
        (fixtures.BROKEN_COMPOSE, compose, programs.compose_faults),
        (fixtures.BROKEN_DOCKERFILE, dockerfile, programs.dockerfile_faults),
    )
    for broken_texts, whole, judge in texts:
        for text, becomes, complaint in broken_texts:
            if text not in whole:
                raise SystemExit(f"fixtures.py breaks {text!r}, which is not there any more")
            faults = list(judge(whole.replace(text, becomes, 1), context))
            if not any(complaint in fault for fault in faults):
                yield f"with {becomes!r} nobody said “{complaint}”, but {faults or 'nothing'}"


def rules_without_a_fixture(trees, context):
    """A rule that no fixture makes speak."""
    spoken = set()
    for name, break_it, _ in fixtures.BROKEN:
        broken = trees[name].copy()
        break_it(broken)
        spoken |= {rule.__name__ for rule in RULES if list(rule(broken, context))}
    return [rule.__name__ for rule in RULES if rule.__name__ not in spoken]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=Path, required=True, help="where the programs are that the manifests start")
    binaries = parser.parse_args().binaries
    # The library says that it knows a version only by its minor number.
    warnings.simplefilter("ignore")
    context = programs.Context((ROOT / binaries).resolve(), documented_secrets())
    trees = {name: overlay(name) for name in OVERLAYS}
    compose = (ROOT / "deploy/docker/compose.yaml").read_text()
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text()

    faults = []
    for name, tree in trees.items():
        faults += [f"{name}: {fault}" for fault in [*schema_faults(tree.objects), *rule_faults(tree, context)]]
    # A Cluster is the operator's own kind, of which there is no schema here.
    beside = [item for item in build(K8S / "postgres") if item["apiVersion"] != "postgresql.cnpg.io/v1"]
    secrets = list(yaml.safe_load_all((K8S / "secrets.example.yaml").read_text()))
    faults += schema_faults(beside + secrets)
    faults += programs.compose_faults(compose, context)
    faults += programs.dockerfile_faults(dockerfile, context)
    faults += unproven(trees, context, compose, dockerfile)
    faults += [f"rule {name} has no fixture that breaks it" for name in rules_without_a_fixture(trees, context)]
    for fault in faults:
        print(f"tests/manifests: {fault}", file=sys.stderr)
    if faults:
        sys.exit(1)
    objects = sum(len(tree.objects) for tree in trees.values())
    print(f"{objects} objects in {len(trees)} overlays hold in Kubernetes {' and '.join(VERSIONS)} and to {len(RULES)} rules; {len(fixtures.BROKEN)} broken ones were found out")


if __name__ == "__main__":
    main()
