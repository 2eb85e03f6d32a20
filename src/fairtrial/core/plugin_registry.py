"""The registry of plug-ins: their kinds, the names of each kind, and the packages that provide them.

A plug-in of another package is an entry point in the group of its kind; `docs/plugins.md` shows one of each kind. Names
come from the metadata of installed packages, so listing names does not import plug-ins. A plug-in is imported when it
is used by name; an error in it is reported with the name of its package.

Start-up time depends on this module, so it avoids slow imports. `importlib.metadata` would take longer than the rest
of `fairtrial --help`, so this module parses the few relevant lines of metadata itself and uses strings as paths.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fairtrial.core.errors import FairtrialError, UserError, unknown

LARGEST_METADATA_BYTES = 1 << 20
BUILT_IN_ONLY = "FAIRTRIAL_BUILT_IN_ONLY"
"""If this environment variable is 1, plug-ins of other packages are ignored, here and in subprocesses."""


class PluginKind(NamedTuple):
    """One kind of plug-in. `built_in` maps a name to `module` or `module:attribute`."""

    noun: str
    group: str
    built_in: Mapping[str, str]
    contract: str | None = None
    """The class, as `module:attribute`, that a plug-in must be an instance of; None: the caller checks it."""


class PluginOffer(NamedTuple):
    """A plug-in of another package, known only from the package's metadata."""

    name: str
    reference: str
    package: str
    version: str

    @property
    def origin(self) -> str:
        return f"the package {self.package} {self.version}".rstrip()


def _modules_of(room: str) -> dict[str, str]:
    """Return the modules of a package by name; every module in the directory is a built-in recipe or command."""
    files = sorted(os.listdir(f"{os.path.dirname(__file__)}/../{room}"))  # noqa: PTH120, PTH208
    stems = [name.removesuffix(".py") for name in files if name.endswith(".py") and not name.startswith("_")]
    return {stem: f"fairtrial.{room}.{stem}" for stem in stems}


RECIPES = PluginKind("recipe", "fairtrial.recipes", _modules_of("recipes"))
LAUNCHERS = PluginKind(
    "launcher",
    "fairtrial.launchers",
    {
        "local": "fairtrial.launch.local",
        "ray": "fairtrial.launch.ray_cluster",
        "slurm": "fairtrial.launch.slurm",
        "skypilot": "fairtrial.launch.skypilot",
    },
)
"""Built-in launchers. A module must not have the name of the package that it imports, hence `ray_cluster`."""
READERS = PluginKind(
    "reader", "fairtrial.readers", {"table": "fairtrial.record.tables:TABLE_READER"}, "fairtrial.core.readers:Reader"
)
SUMMARIES = PluginKind(
    "summary type",
    "fairtrial.summaries",
    {
        "auc": "fairtrial.stats.summaries:AUC",
        "last": "fairtrial.stats.summaries:LAST",
        "best": "fairtrial.stats.summaries:BEST",
        "slope": "fairtrial.stats.summaries:SLOPE",
        "time_to": "fairtrial.stats.summaries:TIME_TO",
    },
    "fairtrial.stats.summaries:SummaryType",
)
METHODS = PluginKind(
    "method",
    "fairtrial.methods",
    {
        "t": "fairtrial.stats.student:T",
        "bca": "fairtrial.stats.bootstrap:BCA",
        "percentile": "fairtrial.stats.bootstrap:PERCENTILE",
        "studentized": "fairtrial.stats.bootstrap:STUDENTIZED",
        "sign-flip": "fairtrial.stats.permutation:SIGN_FLIP",
        "permutation": "fairtrial.stats.permutation:PERMUTATION",
        "wilcoxon": "fairtrial.stats.permutation:WILCOXON",
        "mann-whitney": "fairtrial.stats.permutation:MANN_WHITNEY",
    },
    "fairtrial.stats.inference:Method",
)
ADJUSTMENTS = PluginKind(
    "family adjustment",
    "fairtrial.adjustments",
    {
        "auto": "fairtrial.stats.adjustments:AUTOMATIC",
        "max-spread": "fairtrial.stats.adjustments:LARGEST_SPREAD",
        "tukey": "fairtrial.stats.adjustments:TUKEY_POOLED",
        "holm": "fairtrial.stats.adjustments:HOLM_STEP_DOWN",
        "bh": "fairtrial.stats.adjustments:BENJAMINI_HOCHBERG",
    },
    "fairtrial.stats.adjustments:Adjustment",
)
CHARTS = PluginKind(
    "chart",
    "fairtrial.charts",
    {
        "learning_curves": "fairtrial.api.comparing.plots:CURVES",
        "distributions": "fairtrial.api.comparing.distribution_plots:DISTRIBUTIONS",
        "differences": "fairtrial.api.comparing.plots:DIFFERENCES",
        "forest": "fairtrial.api.comparing.plots:FOREST",
        "radial_profile": "fairtrial.api.comparing.plots:RADIAL_PROFILE",
        "performance_profiles": "fairtrial.api.comparing.plots:PERFORMANCE_PROFILES",
    },
    "fairtrial.api.comparing.analysis_charts:AnalysisChart",
)
FORMATS = PluginKind(
    "format",
    "fairtrial.formats",
    {
        "text": "fairtrial.report.documents:TEXT",
        "json": "fairtrial.report.documents:JSON",
        "csv": "fairtrial.report.documents:CSV",
        "markdown": "fairtrial.report.documents:MARKDOWN",
        "latex": "fairtrial.report.documents:LATEX",
    },
    "fairtrial.report.formats:OutputFormat",
)
COMMANDS = PluginKind(
    "command",
    "fairtrial.commands",
    {stem.replace("_", "-"): f"{module}:command" for stem, module in _modules_of("cli").items() if stem != "app"},
    "click:Command",
)

KINDS = (RECIPES, LAUNCHERS, READERS, SUMMARIES, METHODS, ADJUSTMENTS, CHARTS, FORMATS, COMMANDS)


def plugin_names(kind: PluginKind) -> list[str]:
    """Return all names of a kind: the built-in ones in their defined order, then those of other packages."""
    return [*kind.built_in, *sorted({offer.name for offer in plugin_offers(kind)} - set(kind.built_in))]


def plugin_offers(kind: PluginKind) -> list[PluginOffer]:
    """Return the plug-ins that other packages provide, including those whose name is already taken."""
    if os.environ.get(BUILT_IN_ONLY) == "1":
        return []
    return list(_all_offers(tuple(sys.path)).get(kind.group, ()))


def load_plugin(kind: PluginKind, name: str) -> Any:
    """Load a plug-in by name; raise a UserError if it cannot be used. Built-in plug-ins cannot be replaced."""
    offers = [offer for offer in plugin_offers(kind) if offer.name == name]
    if name in kind.built_in:
        for offer in offers:
            note_ignored(f"{kind.noun} '{name}' of {offer.origin} is ignored: its name is that of a built-in one")
        return _import(kind.built_in[name])
    if not offers:
        raise UserError(unknown(kind.noun, name, plugin_names(kind)))
    first, *others = offers
    if others:
        origins = " and ".join(offer.origin for offer in offers)
        raise UserError(f"{kind.noun} '{name}' is offered by {origins}", hint="Uninstall one of them.")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is reserved for the command's result
            plugin = _import(first.reference)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        raise UserError(f"{_named(kind, first)} cannot be loaded: {why}", hint=_hint(first)) from error
    if kind.contract is not None and not isinstance(plugin, _import(kind.contract)):
        wanted = kind.contract.partition(":")[2]
        raise UserError(
            f"{_named(kind, first)} cannot be used: {first.reference} is not an instance of {wanted}, but of "
            f"{type(plugin).__name__}",
            hint=_hint(first),
        )
    return plugin


def refuse_plugin(kind: PluginKind, name: str, why: str) -> UserError:
    """Return the error for a plug-in that was loaded but violates its contract."""
    offer = next((offer for offer in plugin_offers(kind) if offer.name == name), None)
    if offer is None or name in kind.built_in:
        return UserError(f"{kind.noun} '{name}' {why}")
    return UserError(f"{_named(kind, offer)} {why}", hint=_hint(offer))


@contextlib.contextmanager
def blame_plugin(kind: PluginKind, name: str) -> Iterator[None]:
    """Convert an exception of another package's plug-in into a UserError that names the package."""
    try:
        yield
    except FairtrialError:
        raise
    except Exception as error:
        if name in kind.built_in:
            raise
        refused = refuse_plugin(kind, name, f"failed: {type(error).__name__}: {error}".rstrip(": "))
        hint = " ".join(filter(None, ["See where with --debug.", refused.hint]))
        raise UserError(refused.message, hint=hint) from error


def load_others(kind: PluginKind) -> Iterator[tuple[str, Any]]:
    """Yield all plug-ins of other packages. Plug-ins that fail to load are skipped and reported."""
    for name in plugin_names(kind)[len(kind.built_in) :]:
        try:
            yield name, load_plugin(kind, name)
        except UserError as error:
            note_ignored(f"{error.message}; it is skipped")


def _named(kind: PluginKind, offer: PluginOffer) -> str:
    return f"{kind.noun} '{offer.name}' of {offer.origin}"


def _hint(offer: PluginOffer) -> str:
    return f"Update or uninstall it: pip uninstall {offer.package}"


def _import(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    home = importlib.import_module(module)
    return functools.reduce(getattr, attribute.split("."), home) if attribute else home


# Plug-ins that were skipped


_ignored: dict[str, None] = {}


def note_ignored(sentence: str) -> None:
    """Record that a plug-in was skipped. The command line prints the message after the command ends."""
    _ignored[sentence] = None


def take_ignored() -> list[str]:
    """Return and clear the messages recorded since the last call."""
    sentences = list(_ignored)
    _ignored.clear()
    return sentences


# The metadata of installed packages


@functools.lru_cache(maxsize=4)
def _all_offers(folders: tuple[str, ...]) -> Mapping[str, list[PluginOffer]]:
    """Return plug-ins by entry-point group. If a package is in two directories, the first wins, as for `import`."""
    offers: dict[str, list[PluginOffer]] = {}
    seen: set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208
        except OSError:
            continue
        for name in sorted(name for name in names if name.endswith((".dist-info", ".egg-info"))):
            package, _, version = name.rpartition(".")[0].partition("-")
            if package.lower() in seen:
                continue
            seen.add(package.lower())
            text = _read(f"{folder or '.'}/{name}/entry_points.txt")
            if "[fairtrial." in text:
                _add_offers(offers, text, package.replace("_", "-"), version.partition("-")[0])
    return offers


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # most packages have no entry points
        return ""
    try:
        return os.read(descriptor, LARGEST_METADATA_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _add_offers(offers: dict[str, list[PluginOffer]], text: str, package: str, version: str) -> None:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
        elif group.startswith("fairtrial.") and "=" in line and line[0] not in "#;":
            name, _, reference = (part.strip() for part in line.partition("="))
            offer = PluginOffer(name, reference.partition("[")[0].strip(), package, version)
            offers.setdefault(group, []).append(offer)
