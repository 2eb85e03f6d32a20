"""Comparison of two programs: common options, missing options, and differences. Pure functions of plain data."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairtrial.sync.categories import Categories, Category, built_in_categories
from fairtrial.sync.exclusions import (
    Exclusion,
    Forbidden,
    Stale,
    declared_exclusions,
    forbidden_options,
    stale_exclusions,
)
from fairtrial.sync.matching import OptionPair, Renamed, certainly_renamed, match, perhaps_renamed, unmatched
from fairtrial.sync.parameters import Parameter


@dataclass(frozen=True)
class OptionMismatch:
    """One property in which the same option differs between the two programs."""

    parameter: Parameter
    what: str
    train: str
    bench: str

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "what": self.what, "train": self.train, "bench": self.bench}


@dataclass(frozen=True)
class Missing:
    """An option that BENCH lacks without an exclusion, with a suggestion."""

    parameter: Parameter
    category: Category

    @property
    def suggestion(self) -> str | None:
        """The command-line option that would exclude it; None if BENCH should have it."""
        if self.category.reason is None:
            return None
        return f"--exclude {shlex.quote(f'{self.parameter.name}={self.category.reason}')}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.parameter.name,
            "flag": self.parameter.shown,
            "kind": self.parameter.kind,
            "help": self.parameter.help,
            "hidden": self.parameter.hidden,
            "category": self.category.name,
            "add_to": "bench" if self.suggestion is None else "exclusions",
            "suggestion": self.suggestion,
        }


@dataclass(frozen=True)
class ExcludedOption:
    """An option that BENCH leaves out on purpose."""

    parameter: Parameter
    exclusion: Exclusion
    category: Category

    def to_dict(self) -> dict[str, Any]:
        pattern = None if self.exclusion.declared else self.exclusion.pattern
        return {"name": self.parameter.name, "reason": self.exclusion.reason, "pattern": pattern}


@dataclass(frozen=True)
class Agreement:
    """The complete result of comparing two lists of options."""

    common: tuple[OptionPair, ...]
    excluded: tuple[ExcludedOption, ...]
    missing: tuple[Missing, ...]
    bench_only: tuple[Parameter, ...]
    differing: tuple[OptionMismatch, ...]
    renamed: tuple[Renamed, ...]
    stale: tuple[Stale, ...]
    forbidden: tuple[Forbidden, ...]
    categories: Categories = field(repr=False)
    train: tuple[Parameter, ...] = field(repr=False)
    bench: tuple[Parameter, ...] = field(repr=False)

    @property
    def train_only(self) -> list[Parameter]:
        return unmatched(self.train, [pair.train for pair in self.common])

    @property
    def suspicious(self) -> list[ExcludedOption]:
        """Excluded options that look like training parameters. Only a warning: the reason may be valid."""
        return [each for each in self.excluded if each.category.training]

    def to_dict(self) -> dict[str, Any]:
        return {
            "common": [pair.train.name for pair in self.common],
            "train_only": [each.name for each in self.train_only],
            "bench_only": [each.name for each in self.bench_only],
            "excluded": [each.to_dict() for each in self.excluded],
            "missing": [each.to_dict() for each in self.missing],
            "differing": [each.to_dict() for each in self.differing],
            "renamed": [each.to_dict() for each in self.renamed],
            "stale_exclusions": [each.to_dict() for each in self.stale],
            "forbidden": [each.to_dict() for each in self.forbidden],
            "suspicious_exclusions": [
                {**each.to_dict(), "category": each.category.name, "help": each.parameter.help}
                for each in self.suspicious
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per option, with its state."""
        differing: dict[Parameter, list[str]] = {}
        for difference in self.differing:
            differing.setdefault(difference.parameter, []).append(difference.what)
        rows = [self._row(pair.train, "common", differs=differing.get(pair.train, ())) for pair in self.common]
        rows += [self._row(each.parameter, "excluded", reason=each.exclusion.reason) for each in self.excluded]
        rows += [self._row(lacking.parameter, "missing") for lacking in self.missing]
        return rows + [self._row(option, "bench-only") for option in self.bench_only]

    def _row(
        self, parameter: Parameter, state: str, *, differs: Sequence[str] = (), reason: str | None = None
    ) -> dict[str, Any]:
        return {
            "option": parameter.shown,
            "state": state,
            "differs": ", ".join(differs) or None,
            "category": self.categories.of(parameter).name,
            "reason": reason,
            "type": str(parameter.type),
            "default": parameter.default,
            "hidden": parameter.hidden,
            "help": parameter.help or None,
        }


def compare_parameters(
    train: Sequence[Parameter],
    bench: Sequence[Parameter],
    exclusions: Sequence[Exclusion] = (),
    *,
    forbidden: Sequence[Exclusion] = (),
    categories: Categories | None = None,
) -> Agreement:
    """Compare the options of TRAIN and BENCH. A given exclusion overrides one that an option declares itself.

    BENCH must not have `forbidden` options; if TRAIN has one, it counts as excluded.
    """
    categories = categories or built_in_categories()
    common = match(train, bench)
    in_both = [pair.train for pair in common]
    given = [*exclusions, *declared_exclusions(train)]
    excluded, missing = [], []
    for each in unmatched(train, in_both):
        why = next((exclusion for exclusion in (*given, *forbidden) if exclusion.covers(each)), None)
        if why is None:
            missing.append(Missing(each, categories.of(each)))
        else:
            excluded.append(ExcludedOption(each, why, categories.of(each)))
    bench_only = unmatched(bench, [pair.bench for pair in common])
    return Agreement(
        common=tuple(common),
        excluded=tuple(excluded),
        missing=tuple(missing),
        bench_only=tuple(bench_only),
        differing=tuple(difference for pair in common for difference in differences(pair)),
        renamed=(
            *certainly_renamed(common),
            *perhaps_renamed([each.parameter for each in missing], bench_only),
        ),
        stale=tuple(stale_exclusions(given, train, in_both)),
        forbidden=tuple(forbidden_options(forbidden, bench)),
        categories=categories,
        train=tuple(train),
        bench=tuple(bench),
    )


def differences(pair: OptionPair) -> list[OptionMismatch]:
    """Return every property in which the two sides of a pair differ."""
    train, bench = _aspects(pair.train), _aspects(pair.bench)
    said_otherwise = set()
    if pair.train.kind != pair.bench.kind:  # an argument has no flags
        said_otherwise.add("flags")
    if pair.train.type.choices is None or pair.bench.type.choices is None:  # the difference is already in the types
        said_otherwise.add("choices")
    return [
        OptionMismatch(pair.train, what, train[what].shown, bench[what].shown)
        for what in train
        if what not in said_otherwise and train[what].compared != bench[what].compared
    ]


@dataclass(frozen=True)
class _Aspect:
    """One property of an option: its text for display, and the value to compare, which ignores the order of choices."""

    shown: str
    compared: Any


def _aspects(parameter: Parameter) -> dict[str, _Aspect]:
    kind = parameter.type
    choices = "|".join(kind.choices or ()) + (" (any case)" if kind.any_case else "")
    flags = "/".join(filter(None, [", ".join(parameter.flags), ", ".join(parameter.off_flags)]))
    plain = {
        "kind": parameter.kind,
        "type": str(kind),
        "default": parameter.default,
        "value": parameter.given,
        "repeats": parameter.repeats,
        "required": "yes" if parameter.required else "no",
        "environment": ", ".join(parameter.envvars) or "none",
    }
    return {
        "flags": _Aspect(flags, (frozenset(parameter.flags), frozenset(parameter.off_flags))),
        "choices": _Aspect(choices, (frozenset(kind.choices or ()), kind.any_case)),
        **{what: _Aspect(shown, shown) for what, shown in plain.items()},
    }
