"""Two programs side by side: what both take, what one lacks, what differs. Pure: nouns in, one noun out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairtrial.sync.categories import Category, category_of
from fairtrial.sync.exclusions import Exclusion, Stale, declared_exclusions, stale_exclusions
from fairtrial.sync.matching import Pair, Renamed, certainly_renamed, match, perhaps_renamed, unmatched
from fairtrial.sync.parameters import Parameter


@dataclass(frozen=True)
class Difference:
    """One respect in which the same option is not the same."""

    parameter: Parameter
    what: str
    train: str
    bench: str

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.parameter.name, "what": self.what, "train": self.train, "bench": self.bench}


@dataclass(frozen=True)
class Missing:
    """An option that BENCH lacks and no exclusion explains, with what to do about it."""

    parameter: Parameter
    category: Category

    @property
    def suggestion(self) -> str | None:
        """The word that would exclude it; None where BENCH should have it."""
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
class Excluded:
    """An option that BENCH leaves out on purpose."""

    parameter: Parameter
    exclusion: Exclusion

    @property
    def category(self) -> Category:
        return category_of(self.parameter)

    def to_dict(self) -> dict[str, Any]:
        pattern = None if self.exclusion.declared else self.exclusion.pattern
        return {"name": self.parameter.name, "reason": self.exclusion.reason, "pattern": pattern}


@dataclass(frozen=True)
class Agreement:
    """Everything that two lists of options say about each other."""

    common: tuple[Pair, ...]
    excluded: tuple[Excluded, ...]
    missing: tuple[Missing, ...]
    bench_only: tuple[Parameter, ...]
    differing: tuple[Difference, ...]
    renamed: tuple[Renamed, ...]
    stale: tuple[Stale, ...]
    train: tuple[Parameter, ...] = field(repr=False)
    bench: tuple[Parameter, ...] = field(repr=False)

    @property
    def train_only(self) -> list[Parameter]:
        return unmatched(self.train, [pair.train for pair in self.common])

    @property
    def suspicious(self) -> list[Excluded]:
        """Excluded, yet they look like parameters of training. A warning and no gap: the reason may be good."""
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
            "suspicious_exclusions": [
                {**each.to_dict(), "category": each.category.name, "help": each.parameter.help}
                for each in self.suspicious
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per option, with its state."""
        differing: dict[Parameter, list[str]] = {}
        for each in self.differing:
            differing.setdefault(each.parameter, []).append(each.what)
        rows = [_row(pair.train, "common", differs=differing.get(pair.train, ())) for pair in self.common]
        rows += [_row(left_out.parameter, "excluded", reason=left_out.exclusion.reason) for left_out in self.excluded]
        rows += [_row(lacking.parameter, "missing") for lacking in self.missing]
        return rows + [_row(each, "bench-only") for each in self.bench_only]


def compare_parameters(
    train: Sequence[Parameter], bench: Sequence[Parameter], exclusions: Sequence[Exclusion] = ()
) -> Agreement:
    """Hold TRAIN's options against BENCH's. An exclusion that was given wins over one that an option declares."""
    common = match(train, bench)
    in_both = [pair.train for pair in common]
    every = [*exclusions, *declared_exclusions(train)]
    excluded, missing = [], []
    for each in unmatched(train, in_both):
        why = next((exclusion for exclusion in every if exclusion.covers(each)), None)
        if why is None:
            missing.append(Missing(each, category_of(each)))
        else:
            excluded.append(Excluded(each, why))
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
        stale=tuple(stale_exclusions(every, train, in_both)),
        train=tuple(train),
        bench=tuple(bench),
    )


def differences(pair: Pair) -> list[Difference]:
    """Every respect in which the two sides of a pair differ."""
    train, bench = _aspects(pair.train), _aspects(pair.bench)
    said_otherwise = set()
    if pair.train.kind != pair.bench.kind:  # an argument has no flags
        said_otherwise.add("flags")
    if pair.train.type.choices is None or pair.bench.type.choices is None:  # the types say it
        said_otherwise.add("choices")
    return [
        Difference(pair.train, what, train[what].shown, bench[what].shown)
        for what in train
        if what not in said_otherwise and train[what].compared != bench[what].compared
    ]


@dataclass(frozen=True)
class _Aspect:
    """What is shown of an option in one respect, and what of it counts: the order of choices does not."""

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


def _row(parameter: Parameter, state: str, *, differs: Sequence[str] = (), reason: str | None = None) -> dict[str, Any]:
    return {
        "option": parameter.shown,
        "state": state,
        "differs": ", ".join(differs) or None,
        "category": category_of(parameter).name,
        "reason": reason,
        "type": str(parameter.type),
        "default": parameter.default,
        "hidden": parameter.hidden,
        "help": parameter.help or None,
    }
