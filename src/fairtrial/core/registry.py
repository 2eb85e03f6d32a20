"""Recipes by name: built in, from another package, or a file (`./my_recipe.py`), with their optional parts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fairtrial.core.errors import MissingExtra, UserError, unknown
from fairtrial.core.options import LOOP_OPTIONS, LoopOptions, Options, undeclared_options
from fairtrial.core.paths import StorePaths
from fairtrial.core.plugin_registry import RECIPES, load_plugin, plugin_names, refuse_plugin
from fairtrial.core.scores import References
from fairtrial.core.specs import Metric, Need
from fairtrial.core.training import Cache, Dataset, RunContext, RunLogger, Stack, StepSize, Trainable

TRAINABLE_METHODS = ("step", "evaluate", "state", "load_state")


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe module with its optional parts filled in."""

    name: str
    module: ModuleType
    file: Path | None = None

    @property
    def summary(self) -> str:
        return str(self.module.SUMMARY)

    @property
    def requires(self) -> tuple[str, ...]:
        return tuple(self.module.REQUIRES)

    @property
    def extra(self) -> str | None:
        return getattr(self.module, "EXTRA", None)

    @property
    def metric(self) -> Metric | None:
        """The metric that the recipe is judged by; None if only the user knows it, as with a user's own program."""
        metric: Metric | None = self.module.METRIC
        return metric

    @property
    def synthetic(self) -> bool:
        return bool(getattr(self.module, "SYNTHETIC", False))

    @property
    def options(self) -> type[Options]:
        model: type[Options] = self.module.Options
        return model

    @property
    def example(self) -> Mapping[str, Any]:
        """Example variants, and options if they are required, for a new study file."""
        example: Mapping[str, Any] = getattr(self.module, "EXAMPLE", {"variants": {"control": {}, "candidate": {}}})
        return example

    @property
    def main_options(self) -> Sequence[str]:
        """Names of the options that the help explains first; by default the first options that the recipe adds."""
        added = [name for name in self.options.model_fields if name not in LOOP_OPTIONS]
        main: Sequence[str] = getattr(self.module, "MAIN_OPTIONS", added[:8])
        return main

    @property
    def execute(self) -> Callable[[Options, RunContext, RunLogger], None] | None:
        return getattr(self.module, "execute", None)

    def data(self, options: Options, cache: Cache) -> Dataset | None:
        make = getattr(self.module, "data", None)
        dataset: Dataset | None = make(options, cache) if make else None
        return dataset

    def needs(self, options: Options) -> Mapping[str, Need]:
        find = getattr(self.module, "needs", None)
        needs: Mapping[str, Need] = find(options) if find else {}
        return needs

    def check(self, options: Options) -> None:
        """Let the recipe reject invalid options before any run starts."""
        check: Callable[[Options], None] = getattr(self.module, "check", lambda _: None)
        check(options)

    def evaluates(self, options: Options) -> Sequence[str] | None:
        """Return the quantities of an evaluation, without their split; None if the recipe does not declare them."""
        find = getattr(self.module, "evaluates", None)
        evaluates: Sequence[str] | None = find(options) if find else None
        return evaluates

    def step_size(self, options: Options) -> StepSize | None:
        """Return what one training step processes; None if the recipe does not declare it."""
        find = getattr(self.module, "step_size", None)
        step_size: StepSize | None = find(options) if find else None
        return step_size

    def build(self, options: Options, context: RunContext) -> Trainable:
        """Build the trainable; raise before any step if it lacks a method that the loop calls later, or on resume."""
        trainable: Trainable = self.module.build(options, context)
        missing = [name for name in TRAINABLE_METHODS if not hasattr(trainable, name)]
        if missing:
            raise UserError(f"build returned a {type(trainable).__name__} without {', '.join(missing)}")
        return trainable

    @property
    def components(self) -> Mapping[str, Mapping[str, Any]]:
        """Components that can be removed from a model of this recipe: name → the option values that remove it."""
        components: Mapping[str, Mapping[str, Any]] = getattr(self.module, "COMPONENTS", {})
        return components

    def fresh_report(self, options: Options, number: int) -> Mapping[str, Any] | None:
        """Return option values that select report data which no other run has used; None if no data are left."""
        find = getattr(self.module, "fresh_report", None)
        fresh_report: Mapping[str, Any] | None = find(options, number) if find else None
        return fresh_report

    def references(self, options: Options) -> References | None:
        """Return the reference scores for these options; None if they are unknown."""
        find = getattr(self.module, "references", None)
        references: References | None = find(options) if find else None
        return references

    def stack_key(self, options: Options) -> str | None:
        """Return the key of runs that may share a stack; None if the run cannot be stacked."""
        find = getattr(self.module, "stack_key", None)
        key: str | None = find(options) if find else None
        return key

    def stack(self, trainables: Sequence[Trainable]) -> Stack:
        stack: Stack = self.module.stack(trainables)
        return stack


def recipe_names() -> list[str]:
    return sorted(plugin_names(RECIPES))


def load_recipe(word: str, *, file: str | None = None) -> LoadedRecipe:
    """Load a recipe by name or file: built in, from another package, or the user's own file."""
    if file or word.endswith(".py"):
        return _load_file(Path(file or word))
    if word not in plugin_names(RECIPES):
        raise UserError(unknown("recipe", word, recipe_names()), hint="A recipe may also be a file: ./my_recipe.py")
    recipe = LoadedRecipe(word, load_plugin(RECIPES, word))
    try:
        return _checked(recipe)
    except UserError as error:
        why = error.message.removeprefix(f"'{word}' ")
        raise refuse_plugin(RECIPES, word, why) from None


def require_packages(what: str, packages: Sequence[str], extra: str | None) -> None:
    """Raise MissingExtra if required packages are not installed, before any run is launched."""
    missing = missing_packages(packages)
    if missing:
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}, which is not installed",
            hint=f"Install it with: {install_command(missing, extra)}",
        )


def require_installed(recipe: LoadedRecipe) -> None:
    require_packages(f"recipe '{recipe.name}'", recipe.requires, recipe.extra)


def missing_packages(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def install_command(missing: Sequence[str], extra: str | None) -> str:
    return "pip install " + (f"'fairtrial[{extra}]'" if extra else " ".join(missing))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _load_file(path: Path) -> LoadedRecipe:
    path = path.expanduser().absolute()
    if not path.is_file():
        raise UserError(f"no recipe file {path}", hint=f"Built-in recipes: {', '.join(recipe_names())}")
    _refuse_file_of_others(path)
    name = f"fairtrial_recipe_{path.stem}"
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) != str(path):
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(path.parent))  # a recipe may import modules from its own directory
        try:
            with contextlib.redirect_stdout(sys.stderr):  # stdout is reserved for the command's result
                spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UserError(f"recipe file {path} cannot be loaded: {_told(error)}") from error
        finally:
            sys.path.remove(str(path.parent))
    return _checked(LoadedRecipe(path.stem, module, path))


def _refuse_file_of_others(path: Path) -> None:
    """Reject a recipe file in the mirror of a shared store.

    A recorded run names its recipe file, and in a mirror other users wrote both, so loading it would run their code.
    """
    for folder in path.resolve().parents:
        if StorePaths(folder).mirror.exists():
            raise UserError(
                f"recipe file {path} is in the mirror of a shared store; Fairtrial does not run code from there",
                hint="Copy it to a directory of your own, review it, and use that copy.",
            )


def _checked(recipe: LoadedRecipe) -> LoadedRecipe:
    """Return the recipe; raise an error that lists everything that is missing if the module is not a recipe."""
    why = _why_not_a_recipe(recipe.module)
    if why:
        what = f"recipe file {recipe.file}" if recipe.file else f"'{recipe.name}'"
        raise UserError(f"{what} is not a recipe: {why}", hint="docs/recipes.md shows a complete recipe.")
    return recipe


def _why_not_a_recipe(module: ModuleType) -> str | None:
    missing = [name for name in ("SUMMARY", "REQUIRES", "METRIC", "Options") if not hasattr(module, name)]
    if not (hasattr(module, "build") or hasattr(module, "execute")):
        missing.append("build (or execute)")
    if missing:
        return f"it does not define {', '.join(missing)}"
    if isinstance(module.REQUIRES, str):
        return "REQUIRES must be a list of names, not a string"
    base = LoopOptions if hasattr(module, "build") else Options
    if not (isinstance(module.Options, type) and issubclass(module.Options, base)):
        return f"its Options must derive from {base.__name__}"
    undeclared = undeclared_options(module.Options)
    if undeclared:
        return f"its Options must declare {', '.join(undeclared)} with option(default, help, role=…)"
    return None
