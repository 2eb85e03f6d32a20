"""Find launchers by the name that users pass to `--on`: built in, or from the entry points `fairtrial.launchers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fairtrial.core.errors import InvalidOptions, UserError, unknown
from fairtrial.core.options import parse_options
from fairtrial.core.plugin_registry import LAUNCHERS, load_plugin, plugin_names, refuse_plugin
from fairtrial.core.registry import require_packages
from fairtrial.launch.contract import Described, EngineOptions, Launcher, LaunchRequest

_NEEDED = ("SUMMARY", "REQUIRES", "EXTRA", "Options", "open_launcher")


@dataclass(frozen=True)
class LauncherModule:
    """A launcher's module, with defaults for its optional functions."""

    word: str
    module: ModuleType

    @property
    def summary(self) -> str:
        return str(self.module.SUMMARY)

    @property
    def options(self) -> type[EngineOptions]:
        model: type[EngineOptions] = self.module.Options
        return model

    def settings(self, given: Mapping[str, Any]) -> EngineOptions:
        """Validate the settings passed as `--with key=value`, reporting all errors at once."""
        if given and not self.options.model_fields:
            raise InvalidOptions(
                f"--on {self.word} has no settings, but --with set '{next(iter(given))}'",
                hint="Pass --with only to clusters: --on ray, --on slurm, --on skypilot.",
            )
        return parse_options(self.options, given, where=f"--on {self.word}")

    def require_installed(self) -> None:
        require_packages(f"--on {self.word}", self.module.REQUIRES, self.module.EXTRA)

    def check(self, request: LaunchRequest) -> None:
        """Raise an error if opening the launcher would certainly fail. Called before anything is written."""
        check: Callable[[LaunchRequest], None] = getattr(self.module, "check", lambda _: None)
        check(request)

    def describe(self, request: LaunchRequest, runs: Sequence[Sequence[str]]) -> Described | None:
        """Describe what a launch would submit, or return None if there is nothing to show.

        `runs` has one list per task, with the names of the runs that share a process.
        """
        describe: Callable[[LaunchRequest, Sequence[Sequence[str]]], Described] | None = getattr(
            self.module, "describe", None
        )
        return describe(request, runs) if describe else None

    def open(self, request: LaunchRequest) -> Launcher:
        launcher: Launcher = self.module.open_launcher(request)
        return launcher


def load_engine(word: str, *, to_use: bool = True) -> LauncherModule:
    """Load a launcher by name. With `to_use=False`, as for a dry run, its packages need not be installed."""
    if word not in plugin_names(LAUNCHERS):
        raise UserError(unknown("launcher", word, plugin_names(LAUNCHERS)), hint="Pass one of these to --on.")
    engine = LauncherModule(word, load_plugin(LAUNCHERS, word))
    missing = [name for name in _NEEDED if not hasattr(engine.module, name)]
    if missing:
        raise refuse_plugin(LAUNCHERS, word, f"is not a launcher: it does not define {', '.join(missing)}")
    if to_use:
        engine.require_installed()
    return engine
