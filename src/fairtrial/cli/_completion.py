"""Shell completion: what can follow on an incomplete command line.

The scripts that `fairtrial completion` prints call the program with the words of the line. The program prints the
candidates and nothing else: an error means that there are none. It never runs a recipe file, never reads runs, and
never contacts a shared store.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fairtrial.cli._command_shapes import CommandShape, OptionShape, shape_of

RECIPE_COMMANDS = ("train", "bench", "launch", "sweep")
STUDY_FILES = (".yaml", ".yml")
FIXED = {
    "status": ("completed", "diverged", "failed", "interrupted", "running", "damaged"),
    "checkpoint": ("best", "last", "step-"),
    "export": ("folder", "markdown", "notebook"),
    "citation": ("bibtex", "cff", "apa"),
    "artifact": ("dataset", "model", "code", "experiment"),
}
Candidates = Iterable[tuple[str, str]]
"""Words with a description, which may be empty."""


def complete(shell: str, arguments: Sequence[str]) -> None:
    """Print the candidates for a shell. An error of any kind prints nothing."""
    from fairtrial.cli._completion_shells import SHELLS

    with contextlib.suppress(Exception), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # noqa: PTH123
        sys.stdout.write(SHELLS[shell].answer(arguments, candidates))


def candidates(words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """Return what can replace the incomplete last word. `words` are those before it, without the program's name."""
    line = _parsed(words)
    found = dict(line.offer(incomplete))
    return [(word, text) for word, text in found.items() if word.startswith(incomplete) and word.isprintable()]


@dataclass
class IncompleteLine:
    """An incomplete command line, divided into the command, its options and its arguments."""

    path: tuple[str, ...]
    shape: CommandShape
    given: dict[str, list[str]] = field(default_factory=dict)
    """Values by parameter name."""
    arguments: list[str] = field(default_factory=list)
    waiting: OptionShape | None = None
    """The option whose value comes next."""
    greedy: OptionShape | None = None
    """The option that may take a further value."""
    only_arguments: bool = False
    """Whether `--` was given."""

    def offer(self, incomplete: str) -> Candidates:
        if self.waiting is not None:
            return self.values(self.waiting.source, self.waiting.choices, incomplete)
        if incomplete.startswith("-") and not self.only_arguments:
            flag, equals, value = incomplete.partition("=")
            return self._after_equals(flag, value) if equals else self._flags()
        return [*self._plain_words(incomplete)] or ([] if self.only_arguments or incomplete else self._flags())

    def _plain_words(self, incomplete: str) -> Iterator[tuple[str, str]]:
        if self.greedy is not None:
            yield from self.values(self.greedy.source, self.greedy.choices, incomplete)
        yield from self.shape.commands if self.shape.commands and not self.arguments else ()
        if self.shape.commands and self.path in [(name,) for name in RECIPE_COMMANDS]:
            endings = (".py", *STUDY_FILES) if self.path == ("launch",) else (".py",)
            yield from _files(incomplete, endings)
        left = len(self.arguments)
        for argument in self.shape.arguments:
            if argument.values < 0 or left < argument.values:
                yield from self.values(argument.source, argument.choices, incomplete)
                return
            left -= argument.values

    def _flags(self) -> Candidates:
        for option in self.shape.options:
            if option.many or option.name not in self.given:
                yield from ((flag, option.help) for flag in option.flags if flag.startswith("--") or flag == "-f")

    def _after_equals(self, flag: str, value: str) -> Candidates:
        option = next((each for each in self.shape.options if flag in each.flags), None)
        found = self.values(option.source, option.choices, value) if option else ()
        return [(f"{flag}={word}", text) for word, text in found]

    def values(self, source: str | None, choices: Sequence[str], incomplete: str) -> Candidates:
        """Return the values of a parameter."""
        if choices:
            return [(choice, "") for choice in choices]
        if source in FIXED:
            return [(word, "") for word in FIXED[source]]
        find: dict[str, Callable[[str], Candidates]] = {
            "study": self._studies,
            "run": self._runs,
            "run or variant": self._runs_and_variants,
            "variant": self._variants,
            "metric": self._metrics,
            "profile": self._profiles,
            "recipe": lambda text: [*_recipes(), *_files(text, (".py",))],
            "file": lambda text: _files(text, ()),
            "study file": lambda text: _files(text, STUDY_FILES),
            "folder": lambda text: _files(text, (), folders=True),
        }
        return find[source](incomplete) if source in find else ()

    @property
    def store(self) -> str | None:
        return self.given.get("store", [None])[-1]

    def _named_studies(self) -> list[str]:
        """Return the studies that the line already names, as arguments, by --study or as part of a run's name."""
        words = [*self.given.get("study", ()), *self.arguments]
        names = [word.partition(":")[0].partition("/")[0] for word in words]
        known = self._study_names()
        return [name for name in names if name in known]

    def _study_names(self) -> list[str]:
        from fairtrial.record.recorded_names import study_names

        return study_names(self.store)

    def _studies(self, _incomplete: str) -> Candidates:
        return [(name, "study") for name in self._study_names()]

    def _runs(self, incomplete: str) -> Candidates:
        from fairtrial.record.recorded_names import run_names

        study, slash, _ = incomplete.partition("/")
        if slash:
            return [(f"{study}/{name}", "run") for name in run_names(self.store, study)]
        return [(f"{name}/", "runs of a study") for name in self._study_names()]

    def _runs_and_variants(self, incomplete: str) -> Candidates:
        from fairtrial.record.recorded_names import variant_names

        study, colon, _ = incomplete.partition(":")
        if colon:
            return [(f"{study}:{name}", "variant") for name in variant_names(self.store, [study])]
        of_studies = [] if "/" in incomplete else [(f"{name}:", "variants of a study") for name in self._study_names()]
        return [*of_studies, *self._runs(incomplete)]

    def _variants(self, _incomplete: str) -> Candidates:
        from fairtrial.record.recorded_names import variant_names

        return [(name, "variant") for name in variant_names(self.store, self._named_studies())]

    def _metrics(self, _incomplete: str) -> Candidates:
        from fairtrial.record.recorded_names import metric_names

        return [(name, "metric") for name in metric_names(self.store, self._named_studies())]

    def _profiles(self, _incomplete: str) -> Candidates:
        from fairtrial.record.recorded_names import profile_snapshot_names

        return [(name, "snapshot") for name in profile_snapshot_names(self.store)]


def _parsed(words: Sequence[str]) -> IncompleteLine:
    line = IncompleteLine((), shape_of(()))
    rest = list(words)
    while rest:
        word = rest.pop(0)
        option = next((each for each in line.shape.options if word.partition("=")[0] in each.flags), None)
        if line.only_arguments or option is None:
            _take_word(line, word)
        elif "=" in word:
            line.given.setdefault(option.name, []).append(word.partition("=")[2])
            line.greedy = None
        else:
            values, rest = rest[: option.values], rest[option.values :]
            line.given.setdefault(option.name, []).extend(values)
            line.waiting = option if len(values) < option.values else None
            line.greedy = option if option.many and option.values else None
    return line


def _take_word(line: IncompleteLine, word: str) -> None:
    """Take a word that is not an option: a subcommand, an argument, or a further value of the last option."""
    if word == "--":
        line.only_arguments, line.greedy = True, None
    elif line.shape.commands and not line.only_arguments:
        line.path, line.shape = _inner(line.path, word)
    elif line.greedy is not None:
        line.given[line.greedy.name].append(word)
    else:
        line.arguments.append(word)


def _inner(path: tuple[str, ...], word: str) -> tuple[tuple[str, ...], CommandShape]:
    """Return the shape of a subcommand. A recipe file is not run: only the options that all recipes have are known."""
    if word.endswith(".py") and path in [(name,) for name in RECIPE_COMMANDS]:
        known = shape_of((*path, "fake"))
        other = {option.name for option in shape_of((*path, "command")).options}
        common = [option for option in known.options if option.name in {*other, *LOOP_NAMES}]
        return (*path, word), CommandShape([], common, [])
    if word.endswith(STUDY_FILES) and path == ("launch",):
        word = "study.yaml"
    return (*path, word), shape_of((*path, word))


LOOP_NAMES = ("steps", "eval_every", "log_every", "checkpoint_every", "keep_best", "best_metric", "best_mode")


def _recipes() -> Candidates:
    from fairtrial.core.plugin_registry import RECIPES, plugin_names

    return [(name, "recipe") for name in sorted(plugin_names(RECIPES))]


def _files(incomplete: str, endings: tuple[str, ...], *, folders: bool = False) -> Candidates:
    """Yield the files with one of the endings, or all files, and the folders on the way to them."""
    head, slash, tail = incomplete.rpartition("/")
    folder = os.path.expanduser(head + slash) if slash else "."  # noqa: PTH111 — the user's own words are kept
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith(".") and not tail.startswith("."):
                continue
            if entry.is_dir():
                yield f"{head}{slash}{entry.name}/", ""
            elif not folders and (not endings or entry.name.endswith(endings)):
                yield f"{head}{slash}{entry.name}", ""
