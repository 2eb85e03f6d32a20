"""doctor: check the installation, and what this machine can measure."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.errors import FairtrialError
from fairtrial.core.plugin_registry import KINDS, RECIPES, PluginKind, PluginOffer, load_plugin, plugin_offers
from fairtrial.core.registry import install_command, load_recipe, missing_packages, recipe_names
from fairtrial.probe.gpu import Gpus
from fairtrial.record.damage import Damage, find_damage, mend
from fairtrial.record.environment import git_state, machine
from fairtrial.record.remote import open_remote
from fairtrial.record.store import Store, open_store
from fairtrial.record.store_location import StoreLocation

LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class OptionalFeature:
    """What Fairtrial can do only with other packages or programs."""

    name: str
    purpose: str
    extra: str | None
    packages: Sequence[str] = ()
    program: str | None = None
    install: str | None = None
    """How to get the program, which no extra installs."""


FEATURES = (
    OptionalFeature("charts", "--plots and --output with png, svg or pdf", "charts", ["altair", "vl_convert"]),
    OptionalFeature("ray", "launch --on ray", "ray", ["ray"]),
    OptionalFeature(
        "slurm", "launch --on slurm", "slurm", ["submitit"], "sbatch", "Launch from a login node of the cluster."
    ),
    OptionalFeature("skypilot", "launch --on skypilot", None, [], "sky", "pip install 'skypilot[aws]'"),
    OptionalFeature("s3", "stores at s3://…", "s3", ["s3fs"]),
    OptionalFeature("gcs", "stores at gs://…", "gcs", ["gcsfs"]),
    OptionalFeature("otlp", "--otlp: events sent to a receiver", "otlp", ["opentelemetry.proto"]),
    OptionalFeature("gpu figures", "load and memory of NVIDIA GPUs", "gpu", ["pynvml"]),
    OptionalFeature("atari", "ppo on Atari games", "atari", ["ale_py"]),
    OptionalFeature("signatures", "signed research bundles", "research", ["cryptography"]),
)


@dataclass(frozen=True)
class InstallationCheck:
    """One check. `ok` is None if the finding is neither good nor bad."""

    name: str
    ok: bool | None
    finding: str
    hint: str | None = None


def doctor(store: str | os.PathLike[str] | None = None) -> tuple[list[InstallationCheck], dict[str, Any]]:
    """Run all checks, and return them with the facts about the machine that they are based on.

    >>> checks, facts = fairtrial.doctor()
    >>> bool(checks)
    True
    """
    facts = machine()
    checks = [
        InstallationCheck("python", sys.version_info >= (3, 11), facts["python"]),
        InstallationCheck("processor", None, f"{facts['cpu']}, {facts['cpu_count']} cores"),
        InstallationCheck("memory", None, f"{facts['memory_bytes'] / 2**30:.1f} GiB"),
        _gpu(facts),
        _clock(),
        _git(),
        _store(Store.at(store)),
        *map(_feature, FEATURES),
        *(_recipe(name) for name in recipe_names()),
        *(_plugin(kind, offer) for kind in KINDS for offer in sorted(plugin_offers(kind)) if kind is not RECIPES),
        *(_plugin(RECIPES, offer) for offer in plugin_offers(RECIPES) if offer.name in RECIPES.built_in),
    ]
    return checks, facts


def _gpu(facts: dict[str, Any]) -> InstallationCheck:
    cards = Gpus()
    if cards.unavailable or facts["gpu"] is None:
        return InstallationCheck(
            "gpu", None, f"unavailable: {cards.unavailable or 'no device is visible'}; GPU figures will be null"
        )
    return InstallationCheck("gpu", True, ", ".join(card.name for card in cards.read()))


def _clock() -> InstallationCheck:
    """Measure the resolution of the clock instead of quoting the system's figure."""
    gaps = []
    for _ in range(2000):
        start = now = time.perf_counter_ns()
        while now == start:
            now = time.perf_counter_ns()
        gaps.append(now - start)
    load = os.getloadavg()[0]
    return InstallationCheck(
        "clock", None, f"resolution {min(gaps)} ns; load average {load:.2f} on {os.cpu_count()} cores"
    )


def _git() -> InstallationCheck:
    state = git_state(Path.cwd())
    if state["git_commit"] is None:
        return InstallationCheck(
            "git", None, "not in a repository: runs will record no commit", "Run inside a git working tree."
        )
    dirty = "with uncommitted changes" if state["git_dirty"] else "clean"
    return InstallationCheck("git", True, f"commit {state['git_commit'][:12]}, {dirty}")


def _store(store: Store) -> InstallationCheck:
    path = store.root
    if store.url:
        try:
            open_remote(store.url).identity()
        except FairtrialError as error:
            return InstallationCheck("store", False, error.message, error.hint)
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if path.exists():
        try:
            store.check_writable()
        except FairtrialError as error:
            return InstallationCheck("store", False, error.message, error.hint)
    elif not os.access(there, os.W_OK):
        return InstallationCheck(
            "store", False, f"{path} cannot be created: {there} is not writable", "Choose another --store."
        )
    free = shutil.disk_usage(there).free
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    called = f"{store.url}: reachable; local mirror {path}" if store.url else str(path)
    finding = f"{called}: writable, {free / 2**30:.1f} GiB free, {limit} open files allowed"
    return InstallationCheck(
        "store", free > LOW_DISK_BYTES, finding, None if free > LOW_DISK_BYTES else "Free some space."
    )


def _feature(feature: OptionalFeature) -> InstallationCheck:
    """Check an optional feature. One that is missing is not a fault: `ok` is then None."""
    missing = missing_packages(feature.packages)
    if missing:
        hint = install_command(missing, feature.extra)
        return InstallationCheck(feature.name, None, f"not installed ({feature.purpose})", hint)
    if feature.program is not None and shutil.which(feature.program) is None:
        finding = f"no program '{feature.program}' on this machine ({feature.purpose})"
        return InstallationCheck(feature.name, None, finding, feature.install)
    return InstallationCheck(feature.name, True, feature.purpose)


def _recipe(name: str) -> InstallationCheck:
    label = f"recipe {name}"
    try:
        recipe = load_recipe(name)
    except FairtrialError as error:
        return InstallationCheck(label, False, error.message, error.hint)
    missing = missing_packages(recipe.requires)
    if missing:
        return InstallationCheck(label, False, f"needs {', '.join(missing)}", install_command(missing, recipe.extra))
    origins = [offer.origin for offer in plugin_offers(RECIPES) if offer.name == name and name not in RECIPES.built_in]
    return InstallationCheck(label, True, " ".join([recipe.summary, *(f"From {origin}." for origin in origins)]))


def _plugin(kind: PluginKind, offer: PluginOffer) -> InstallationCheck:
    """Check a plug-in of another package. A broken plug-in affects only the commands that need it."""
    label = f"{kind.noun} {offer.name}"
    if offer.name in kind.built_in:
        return InstallationCheck(label, False, f"from {offer.origin} is ignored: Fairtrial has one of that name")
    try:
        load_plugin(kind, offer.name)
    except FairtrialError as error:
        return InstallationCheck(label, False, error.message, error.hint)
    return InstallationCheck(label, True, f"from {offer.origin}")


@dataclass(frozen=True)
class DamageReport:
    """All damage in a store, repaired or not."""

    store: str
    root: Path
    runs: int
    damage: Sequence[Damage]

    @property
    def remaining(self) -> list[Damage]:
        return [each for each in self.damage if not each.repaired]

    def to_dict(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "runs": self.runs,
            "damage": [each.to_dict(self.root) for each in self.damage],
            "repaired": len(self.damage) - len(self.remaining),
            "remaining": len(self.remaining),
        }


def damage_of(
    store: StoreLocation = None,
    *,
    repair: bool = False,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> DamageReport:
    """Find everything in a store that differs from what was recorded; with `repair`, fix what can be fixed losslessly.

    After a repair the store is searched again, because restored files may reveal further damage.
    """
    place = open_store(store)
    damages = list(find_damage(place, on_progress=on_progress))
    repaired: list[Damage] = []
    while repair and (able := [each for each in damages if each.mend is not None]):
        done = [mend(place, each) for each in able]
        repaired += [each for each in done if each.repaired]
        if not any(each.repaired for each in done):
            break
        damages = list(find_damage(place, on_progress=on_progress))
    runs = sum(1 for _ in place.directories())
    return DamageReport(place.address, place.root, runs, [*repaired, *damages])
