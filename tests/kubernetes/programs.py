"""What the programs say of themselves, and whether manifests and compose file use words that they know."""

import os
import re
import subprocess

import yaml

from manifests import ROOT, name_of
from rules import PREFIX, program_of

# Read by libraries, not by flags.
FOREIGN = re.compile(r"(OTEL_[A-Z_]+|RUST_LOG|RUST_BACKTRACE)$")
VARIABLE = re.compile(r"\[env: (\w+)(?:=[^\]]*)?\](?: \[default: ([^\]]*)\])?")


class Program:
    """Variables with their defaults, and subcommands, as `--help` prints them."""

    def __init__(self, name, binaries):
        binary = binaries / name
        if not binary.exists():
            raise SystemExit(f"{binary} is not there: run `cargo build --workspace --bins` first")
        # Nothing of this environment: --help shows the values that variables have.
        clean = {key: value for key, value in os.environ.items() if not key.startswith(tuple(PREFIX.values()))}
        shown = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True, env=clean).stdout
        flat = " ".join(shown.split())
        self.variables = dict(VARIABLE.findall(flat))
        commands = shown.split("Commands:")[1].split("Options:")[0] if "Commands:" in shown else ""
        self.commands = set(re.findall(r"^  ([a-z][a-z-]*)", commands, re.MULTILINE))


class Context:
    """What rules need besides the overlay."""

    def __init__(self, binaries, secrets):
        self.programs = {name: Program(name, binaries) for name in PREFIX}
        self.secrets = secrets
        workspace = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1]
        self.version = re.search(r'^version = "(.*)"', workspace, re.MULTILINE).group(1)

    @property
    def defaults(self):
        """Program → variable → default."""
        return {name: {k: v for k, v in program.variables.items() if v} for name, program in self.programs.items()}


def programs_know_every_word(tree, context):
    for owner, pod in tree.pods():
        program = context.programs[program_of(pod)]
        for variable in tree.environment(pod):
            if variable not in program.variables and not FOREIGN.match(variable):
                yield f"{name_of(owner)} sets {variable}, which {program_of(pod)} does not read"
        for argument in pod["spec"]["containers"][0].get("args", []):
            if argument not in program.commands:
                yield f"{name_of(owner)} says `{argument}`, which {program_of(pod)} does not know"
        if pod["spec"]["containers"][0].get("command"):
            yield f"{name_of(owner)} replaces the image's entry point"


def dockerfile_faults(text, context):
    """Each image starts its program as nobody in particular, and asks it by a subcommand that it has."""
    stages = dict(re.findall(r"^FROM scratch AS (\S+)\n(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL))
    for program in context.programs.keys() - stages.keys():
        yield f"Dockerfile: there is no image of {program}"
    for program, stage in stages.items():
        commands = context.programs[program].commands if program in context.programs else ()
        if f'ENTRYPOINT ["/{program}"]' not in stage or f"COPY --from=build /staged/{program} /" not in stage:
            yield f"Dockerfile: the image {program} starts something else"
        if f'CMD ["/{program}", "healthcheck"]' not in stage or "healthcheck" not in commands:
            yield f"Dockerfile: the image {program} has no health check that {program} knows"
        if not re.search(r"^USER (?!0)\d+:", stage, re.MULTILINE):
            yield f"Dockerfile: the image {program} runs as root"


def compose_faults(text, context):
    """The same for compose.yaml, and that each of its images is one that the Dockerfile makes."""
    targets = set(re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "deploy/docker/Dockerfile").read_text(), re.MULTILINE))
    compose = yaml.safe_load(text)
    for name, service in compose["services"].items():
        image = service["image"].split(":")[0]
        if not image.startswith("idem/"):
            continue
        program = image.removeprefix("idem/")
        if program not in targets:
            yield f"compose.yaml: {name} runs {image}, which the Dockerfile does not make"
            continue
        if service["build"]["target"] != program:
            yield f"compose.yaml: {name} is built as {service['build']['target']}, and runs as {program}"
        if not (service.get("read_only") and service.get("cap_drop") == ["ALL"]):
            yield f"compose.yaml: {name} may write to its image, or keeps capabilities"
        for variable in service.get("environment", {}):
            if variable not in context.programs[program].variables and not FOREIGN.match(variable):
                yield f"compose.yaml: {name} sets {variable}, which {program} does not read"
        for argument in service.get("command", []):
            if argument not in context.programs[program].commands:
                yield f"compose.yaml: {name} says `{argument}`, which {program} does not know"
        for needed in service.get("depends_on", {}):
            if needed not in compose["services"]:
                yield f"compose.yaml: {name} waits for {needed}, which is not there"


ALL = [programs_know_every_word]
