"""Build SkyPilot tasks for groups of remote jobs: the machine, the files to copy, setup and run commands.

All functions are pure: the same request gives the same task in a launch and in a dry run.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from fairtrial.core.errors import UserError
from fairtrial.core.registry import LoadedRecipe, load_recipe
from fairtrial.jobs.processes import VISIBLE_DEVICES
from fairtrial.launch.contract import EngineOptions, LaunchRequest
from fairtrial.launch.sky_shipping import ShippedFolder, packages_of, source_mounts, this_fairtrial

AT_ONCE = 8
"""Default number of runs at once."""
DEFAULT_GPUS = 4
"""Default number of GPUs for a run of a user's program."""
DEFAULT_CARD = "L4"
"""Default GPU type: the cheapest current one that several clouds offer."""
STORE_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
ENVIRONMENT = "~/.fairtrial/venv"
PYTHON = f"{ENVIRONMENT}/bin/python"


def _words(value: Any) -> Any:
    return [word for word in re.split(r"[,\s]+", value) if word] if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Options(EngineOptions):
    """Settings of the launcher. The first ones are SkyPilot's resources, by its own names; SkyPilot validates them."""

    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    accelerators: str | None = None
    image_id: str | None = None
    disk_size: str | None = None
    disk_tier: str | None = None
    job_recovery: Literal["EAGER_NEXT_REGION", "FAILOVER"] | None = None
    spot: bool = False
    group: int | None = Field(None, ge=1)
    at_once: int = Field(1, ge=1)
    project: str | None = None
    setup: str | None = None
    install: str | None = None
    extras: Words = ()
    python: str | None = None
    secrets: Annotated[tuple[Variable, ...], BeforeValidator(_words)] = ()


PASSED_ON = (
    "cloud", "region", "zone", "instance_type", "image_id", "disk_size", "disk_tier", "job_recovery",
)  # fmt: skip


def options_of(request: LaunchRequest) -> Options:
    assert isinstance(request.options, Options)
    return request.options


def secrets_of(request: LaunchRequest) -> list[str]:
    """Return the environment variables to pass: those that the user named, and those that {env:NAME} refers to."""
    return list(dict.fromkeys([*options_of(request).secrets, *request.environment]))


def divide(count: int, request: LaunchRequest) -> list[list[int]]:
    """Divide remote jobs into groups that share a machine: of size `group`, or so that `--jobs` runs run at once."""
    options = options_of(request)
    machines = max(1, math.ceil((request.jobs or AT_ONCE) / options.at_once))
    size = options.group or max(options.at_once, math.ceil(count / machines))
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def task_name(study: str, suffix: str) -> str:
    """Return the name shown by `sky jobs queue`. SkyPilot allows letters, digits, dots, dashes and underscores."""
    stem = re.sub(r"[^A-Za-z0-9._]+", "-", study).strip("-._")
    return f"fairtrial-{stem[:40].rstrip('-._')}-{suffix}"


def make_task(
    request: LaunchRequest,
    project: ShippedFolder,
    name: str,
    remote_jobs: Mapping[str, Sequence[str]],
    mailbox_address: str,
) -> dict[str, Any]:
    """Return the task file of a group of remote jobs, each with its runs. They write results to `mailbox_address`."""
    options = options_of(request)
    task: dict[str, Any] = {"name": name, "resources": _resources(request), "workdir": str(project.root)}
    if mounts := {} if options.python or options.install else source_mounts():
        task["file_mounts"] = mounts
    task["envs"] = {"OMP_NUM_THREADS": "1"}  # small models run several times slower with competing threads
    if secrets := secrets_of(request):
        task["secrets"] = dict.fromkeys(secrets)  # SkyPilot reads the values because of `--secret NAME`
    if setup := _setup(request):
        task["setup"] = setup
    return {**task, "run": _run(request, project, remote_jobs, mailbox_address)}


def _resources(request: LaunchRequest) -> dict[str, Any]:
    options, needs = options_of(request), request.resources
    resources = {name: value for name in PASSED_ON if (value := getattr(options, name)) is not None}
    if needs.cpus:
        resources["cpus"] = f"{needs.cpus * options.at_once}+"
    if needs.memory_gb:
        resources["memory"] = f"{math.ceil(needs.memory_gb * options.at_once)}+"
    if cards := _accelerators(request):
        resources["accelerators"] = cards
    return {**resources, "use_spot": True} if options.spot else resources


def _gpus_per_run(request: LaunchRequest) -> int:
    """Return --gpus if set; else 1 if a GPU type is named, 0 if an instance type is, or the default."""
    if request.resources.gpus is not None:
        return request.resources.gpus
    options = options_of(request)
    if options.accelerators is not None:
        return 1
    if options.instance_type is not None:
        return 0
    return DEFAULT_GPUS if request.usable_gpus is None else request.usable_gpus


def about_cards(request: LaunchRequest) -> str | None:
    """Return a sentence about the default choice of GPUs, or None if the user has chosen them."""
    options, gpus = options_of(request), request.resources.gpus
    if options.accelerators is not None or options.instance_type is not None or gpus == 0:
        return None
    count = _gpus_per_run(request)
    if not count:
        return "GPUs: none by default, because these runs compute on the CPU. Pass --gpus N to request some."
    change = "--with accelerators=NAME selects another type"
    if gpus is None:
        change = f"--gpus N selects another number, --gpus 0 none, {change}"
    return f"GPUs: {count} {DEFAULT_CARD} per run{' by default' if gpus is None else ''}; {change}."


def _accelerators(request: LaunchRequest) -> str | None:
    options, gpus = options_of(request), request.resources.gpus
    if options.accelerators is None:
        cards = _gpus_per_run(request) * options.at_once
        return f"{DEFAULT_CARD}:{cards}" if cards else None
    if gpus == 0:
        raise UserError(
            f"accelerators={options.accelerators} requests GPUs, but --gpus 0 requests none", hint="Omit one of them."
        )
    card, colon, count = options.accelerators.partition(":")
    if colon and not (count.isdecimal() and int(count)):
        raise UserError(
            f"accelerators={options.accelerators} does not contain a valid number of GPUs",
            hint=f"Write {card}:1 or more.",
        )
    wanted = (gpus or 1) * options.at_once
    if colon and gpus and count != str(wanted):
        raise UserError(
            f"accelerators={options.accelerators} does not match the {wanted} that --gpus {gpus} requests",
            hint=f"Omit the number: --with accelerators={card}",
        )
    return options.accelerators if colon else f"{card}:{wanted}"


# Installation on the machine.


def extras_of(request: LaunchRequest) -> list[str]:
    """Return Fairtrial's extras that the recipes, the store and the GPUs need."""
    extras = {*options_of(request).extras, *(recipe.extra for recipe in _recipes(request) if recipe.extra)}
    extras |= {extra for scheme, extra in STORE_EXTRAS.items() if request.store.startswith(f"{scheme}://")}
    return sorted(extras | ({"gpu"} if _accelerators(request) else set()))


def _recipes(request: LaunchRequest) -> list[LoadedRecipe]:
    words = [word for word in request.preload if word.endswith(".py") or "." not in word]
    return [load_recipe(word) for word in words]


def _setup(request: LaunchRequest) -> str:
    """Return the setup script. It creates a virtual environment unless the machine's image already has it."""
    options = options_of(request)
    own = [options.setup] if options.setup else []
    if options.python:
        return "\n".join(own)
    wanted = [options.install or this_fairtrial(extras_of(request)), *packages_of(_recipes(request))]
    lines = [
        "set -e",
        f"if test -x {PYTHON}; then true",
        f"elif python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then python3 -m venv {ENVIRONMENT}",
        f"else ~/.local/bin/uv venv --seed --python 3.11 {ENVIRONMENT}  # SkyPilot brings uv to its machines",
        "fi",
        " ".join([PYTHON, "-m pip install --quiet", *(_quoted(word) for word in wanted)]),
    ]
    return "\n".join([*lines, *own]) + "\n"


# Commands on the machine.


def _run(
    request: LaunchRequest, project: ShippedFolder, remote_jobs: Mapping[str, Sequence[str]], mailbox_address: str
) -> str:
    """Return the run script: parallel workers, each with its remote jobs in turn. A failed job stops no other."""
    options = options_of(request)
    python = options.python or PYTHON
    start = project.start.relative_to(project.root)
    lines = [] if start == Path() else [f"cd {shlex.quote(str(start))}"]
    lines.append("failed=0")
    workers = [list(remote_jobs)[worker :: options.at_once] for worker in range(min(options.at_once, len(remote_jobs)))]
    for worker, names in enumerate(workers):
        command = (
            f"{_cards(request, worker)}setsid --wait {python} -m fairtrial.jobserver errand "
            f"{shlex.quote(mailbox_address)}"
        )
        work = [f"{command} {shlex.quote(name)} || failed=1  # {_shortened(remote_jobs[name])}" for name in names]
        lines += work if len(workers) == 1 else ["(", *(f"  {line}" for line in [*work, "exit $failed"]), ") &"]
    if len(workers) > 1:
        lines.append("for lane in $(jobs -p); do wait $lane || failed=1; done")
    return "\n".join([*lines, "exit $failed"]) + "\n"


def _cards(request: LaunchRequest, worker: int) -> str:
    """Return the assignment of GPUs to a worker, if several workers share a machine."""
    if options_of(request).at_once == 1 or not _accelerators(request):
        return ""
    each = _gpus_per_run(request)
    return f"{VISIBLE_DEVICES}={','.join(str(worker * each + card) for card in range(each))} "


def _shortened(runs: Sequence[str]) -> str:
    shown = ", ".join(runs)
    return shown if len(shown) <= 100 else f"{shown[:100]} …"


def _quoted(word: str) -> str:
    """Quote a word for the shell, except for a leading ~/, which the machine's shell must expand."""
    home, tilde, rest = word.partition("~/")
    return f"~/{shlex.quote(rest)}" if tilde and not home else shlex.quote(word)


# Commands on this machine.


def mailbox_location(request: LaunchRequest) -> str:
    """Return the location of the mailbox of launcher and remote jobs: next to the runs, also in a shared store."""
    if "://" not in request.store:
        return request.home
    return "/".join([request.store.rstrip("/"), *Path(request.home).parts[-2:]])


def launch_words(request: LaunchRequest, file: str) -> list[str]:
    """Return the arguments of `sky`. SkyPilot reads secrets from the environment: no file or command contains them."""
    secrets = [word for name in secrets_of(request) for word in ("--secret", name)]
    return ["jobs", "launch", "--yes", "--detach-run", *secrets, file]


def as_yaml(task: Mapping[str, Any]) -> str:
    import yaml

    class Readable(yaml.SafeDumper):
        """Writes scripts as block text instead of one quoted string."""

    Readable.add_representer(
        str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" * ("\n" in text))
    )
    return yaml.dump(dict(task), Dumper=Readable, sort_keys=False, allow_unicode=True, width=1000)
