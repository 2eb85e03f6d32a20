"""sync: check that two command-line programs still take the same options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.core.errors import UserError, all_at_once
from fairtrial.core.formatting import counted
from fairtrial.core.results import Result
from fairtrial.core.untrusted import read_file
from fairtrial.plan.study import read_mapping
from fairtrial.sync.categories import HINT as CATEGORIES_HINT
from fairtrial.sync.categories import Categories, built_in_categories, parse_categories
from fairtrial.sync.comparison import Agreement, compare_parameters
from fairtrial.sync.exclusions import Exclusion, make_exclusions
from fairtrial.sync.functions import Accepted, NotAccepted, not_accepted, read_function
from fairtrial.sync.pages import Undocumented, undocumented
from fairtrial.sync.parameters import read_parameters
from fairtrial.sync.programs import ExaminedProgram, as_command, load_command, load_object, subcommand
from fairtrial.sync.trials import Trial, run_trial, split_command

FilePath = str | os.PathLike[str]


@dataclass(frozen=True, repr=False)
class Sync(Result):
    """Result of comparing the options of two programs. The result of a check that was not requested is None.

    `train` and `bench` are the programs as the caller named them; `names` are the names of the two commands.

    >>> import click
    >>> command = click.Command("train", params=[click.Option(["--lr"], default=0.1)])
    >>> fairtrial.sync(command, command).status
    'PASS'
    """

    train: str
    bench: str
    names: tuple[str, str]
    options: Agreement
    interface: Accepted | None = None
    not_accepted: tuple[NotAccepted, ...] | None = None
    undocumented: tuple[Undocumented, ...] | None = None
    test: Trial | None = None

    @property
    def gaps(self) -> list[str]:
        """Problems to fix, counted by kind; empty if the two programs agree."""
        agreement = self.options
        kinds = (
            (agreement.missing, "option", "MISSING"),
            (agreement.differing, "difference", ""),
            (agreement.stale, "stale exclusion", ""),
            (agreement.forbidden, "option", "that BENCH must not have"),
            (self.not_accepted or (), "parameter", "that the interface function lacks"),
            (self.undocumented or (), "option", "absent from the docs"),
            ([self.test] if self.test and not self.test.passed else (), "test command", "failed"),
        )
        return [f"{counted(len(each), noun)} {what}".strip() for each, noun, what in kinds if each]

    @property
    def agrees(self) -> bool:
        return not self.gaps

    @property
    def status(self) -> str:
        return "PASS" if self.agrees else "FAIL"

    @property
    def test_result(self) -> str:
        return "not run" if self.test is None else self.test.result

    @property
    def counts(self) -> dict[str, int]:
        """Number of options of each kind, keyed by the labels of the report lines."""
        train, bench = self.names
        agreement = self.options
        return {
            "Common options": len(agreement.common),
            f"{train} only (excluded)": len(agreement.excluded),
            f"{train} only (MISSING - action required)": len(agreement.missing),
            f"{bench} only": len(agreement.bench_only),
        }

    def to_dict(self) -> dict[str, Any]:
        keys = ("common", "excluded", "missing", "bench_only")
        return {
            "status": self.status,
            "gaps": self.gaps,
            "train": self.train,
            "bench": self.bench,
            "train_name": self.names[0],
            "bench_name": self.names[1],
            "counts": dict(zip(keys, self.counts.values(), strict=True)),
            **self.options.to_dict(),
            "interface": self.interface and self.interface.to_dict(),
            "not_accepted": _dicts(self.not_accepted),
            "undocumented": _dicts(self.undocumented),
            "test_result": self.test_result,
            "test": self.test and self.test.to_dict(),
        }


def _dicts(items: tuple[Any, ...] | None) -> list[dict[str, Any]] | None:
    return None if items is None else [each.to_dict() for each in items]


def sync(
    train: Any,
    bench: Any,
    *,
    interface: Any = None,
    exclude: Mapping[str, str] | None = None,
    exclude_file: FilePath | None = None,
    forbid: Mapping[str, str] | None = None,
    categories: FilePath | None = None,
    docs: FilePath | None = None,
    run_test: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Sync:
    """Compare the options of two Click or Typer commands.

    Name each command as `module:attribute`, followed by subcommands where needed, or pass the command object.
    `exclude` maps patterns of options that `bench` omits on purpose to reasons, and overrides `exclude_file`. `forbid`
    maps patterns of options that `bench` must not have to reasons. `categories` is a file that replaces the built-in
    list of which options may be excluded, and why. `interface` is the function that `bench` calls.

    >>> import click
    >>> command = click.Command("train", params=[click.Option(["--lr"], default=0.1)])
    >>> fairtrial.sync(command, command).agrees
    True
    """
    ours, theirs, exclusions, forbidden, kinds, function, page, words = all_at_once(
        lambda: _program(train),
        lambda: _program(bench),
        lambda: _exclusions(exclude or {}, exclude_file),
        lambda: make_exclusions(forbid or {}, noun="--forbid rule"),
        lambda: built_in_categories() if categories is None else _read_categories(Path(categories)),
        lambda: None if interface is None else _function(interface),
        lambda: None if docs is None else _read_page(Path(docs)),
        lambda: None if run_test is None else split_command(run_test),
    )
    taken = read_parameters(theirs.command)
    agreement = compare_parameters(
        read_parameters(ours.command), taken, exclusions, forbidden=forbidden, categories=kinds
    )
    if run_test is not None:
        tell(f"Running: {run_test}")
    return Sync(
        train=_named(train),
        bench=_named(bench),
        names=_distinct_names((ours.name, theirs.name), (_named(train), _named(bench))),
        options=agreement,
        interface=function,
        not_accepted=None if function is None else tuple(not_accepted(function, taken)),
        undocumented=None if page is None else tuple(undocumented(taken, page)),
        test=None if run_test is None else run_trial(run_test, words),
    )


def _program(program: Any) -> ExaminedProgram:
    if isinstance(program, str):
        return load_command(program)
    name = _named(program)
    return ExaminedProgram(subcommand(as_command(program, name), [], name), name)


def _distinct_names(names: tuple[str, str], words: tuple[str, str]) -> tuple[str, str]:
    """Return the names of the commands; if they are equal or one is empty, return what the user typed."""
    return names if all(names) and names[0] != names[1] else words


def _named(program: Any) -> str:
    """Return the name that the user typed, or the name of the object."""
    return program if isinstance(program, str) else str(getattr(program, "name", None) or type(program).__name__)


def _function(interface: Any) -> Accepted:
    if isinstance(interface, str):
        return read_function(load_object(interface), interface)
    return read_function(interface, getattr(interface, "__name__", repr(interface)))


def _exclusions(given: Mapping[str, str], file: FilePath | None) -> list[Exclusion]:
    hint = "Write one 'pattern: reason' per line, such as: tensorboard-*: nothing is logged"
    in_file = {} if file is None else read_mapping(Path(file), hint=hint)
    return make_exclusions({**in_file, **given})


def _read_categories(path: Path) -> Categories:
    return parse_categories(read_mapping(path, hint=CATEGORIES_HINT), where=str(path))


def _read_page(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"cannot read the docs file {path}: No such file or directory") from None
    except UnicodeDecodeError:
        raise UserError(f"cannot read the docs file {path}: it is not UTF-8 text") from None
