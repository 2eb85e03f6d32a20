"""Matching of the options of TRAIN and BENCH, and detection of renamed options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.sync.parameters import Parameter

CLOSE = 0.75
SAYS_NOTHING = frozenset({"None", "False", "True", "()", "''", "0", "1", "0.0", "1.0"})
"""Defaults that are too common to be evidence of a renaming."""


@dataclass(frozen=True)
class OptionPair:
    """The same option in both programs."""

    train: Parameter
    bench: Parameter


@dataclass(frozen=True)
class Renamed:
    """A flag of TRAIN that BENCH seems to have under another name. `certain`: both set the same parameter."""

    pair: OptionPair
    because: tuple[str, ...]
    certain: bool

    def __str__(self) -> str:
        verb = "renamed" if self.certain else "looks renamed"
        train, bench = self.pair.train.shown, self.pair.bench.shown
        return f"{verb}: {train} in TRAIN, {bench} in BENCH ({', '.join(self.because)})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "train": self.pair.train.shown,
            "bench": self.pair.bench.shown,
            "because": list(self.because),
            "certain": self.certain,
        }


def match(train: Sequence[Parameter], bench: Sequence[Parameter]) -> list[OptionPair]:
    """Pair options that share a long flag, else set the same parameter, else share the only kind of flag they have."""
    pairs: list[OptionPair] = []
    for same in (_share_a_long_flag, _fill_the_same_parameter, _share_a_short_flag):
        pairs += _pairs_by(
            same, unmatched(train, [pair.train for pair in pairs]), unmatched(bench, [pair.bench for pair in pairs])
        )
    return sorted(pairs, key=lambda pair: train.index(pair.train))


def unmatched(parameters: Sequence[Parameter], taken: Sequence[Parameter]) -> list[Parameter]:
    return [each for each in parameters if each not in taken]


def _pairs_by(
    same: Callable[[Parameter, Parameter], bool], train: Sequence[Parameter], bench: Sequence[Parameter]
) -> list[OptionPair]:
    left, pairs = list(bench), []
    for each in train:
        parameter = next((other for other in left if same(each, other)), None)
        if parameter is not None:
            left.remove(parameter)
            pairs.append(OptionPair(each, parameter))
    return pairs


def _share_a_long_flag(one: Parameter, other: Parameter) -> bool:
    return bool(set(one.long_flags) & set(other.long_flags))


def _fill_the_same_parameter(one: Parameter, other: Parameter) -> bool:
    return one.variable == other.variable


def _share_a_short_flag(one: Parameter, other: Parameter) -> bool:
    """Whether both share a short flag. `-l` alone is not enough if one also has --lr and the other --log."""
    return bool(set(one.flags) & set(other.flags)) and not (one.long_flags and other.long_flags)


def certainly_renamed(pairs: Sequence[OptionPair]) -> list[Renamed]:
    """Return the pairs that set the same parameter but share no long flag."""
    return [
        Renamed(pair, (f"the same parameter {pair.train.variable}",), certain=True)
        for pair in pairs
        if pair.train.long_flags and pair.bench.long_flags and not _share_a_long_flag(pair.train, pair.bench)
    ]


def perhaps_renamed(missing: Sequence[Parameter], bench_only: Sequence[Parameter]) -> list[Renamed]:
    """Pair options that only TRAIN has with options that only BENCH has, by most evidence, each option once."""
    candidates = [(each, other, _evidence(each, other)) for each in missing for other in bench_only]
    chosen: list[Renamed] = []
    for each, other, because in sorted(candidates, key=lambda item: (-len(item[2]), -_similarity(item[0], item[1]))):
        taken = any(each is known.pair.train or other is known.pair.bench for known in chosen)
        if because and not taken:
            chosen.append(Renamed(OptionPair(each, other), because, certain=False))
    return sorted(chosen, key=lambda renamed: list(missing).index(renamed.pair.train))


def _evidence(one: Parameter, other: Parameter) -> tuple[str, ...]:
    """Return the evidence for a renaming. Equal types are required, but do not count as evidence."""
    if one.kind != other.kind:
        return ()
    close = ("close name",) if _is_close(one, other) else ()
    if one.type != other.type or one.given != other.given:
        return close
    signs = {
        "same help": bool(one.help) and one.help == other.help,
        "same default": one.default == other.default and one.default not in SAYS_NOTHING,
        "same choices": one.type.choices is not None,
        "same short flag": bool(set(one.flags) & set(other.flags)),
    }
    return (*close, *(sign for sign, holds in signs.items() if holds))


def _similarity(one: Parameter, other: Parameter) -> float:
    return difflib.SequenceMatcher(None, one.name, other.name).ratio()


def _is_close(one: Parameter, other: Parameter) -> bool:
    """Whether two names are similar: by spelling, by one additional word, or as initials of each other."""
    short, long = sorted((one.name, other.name), key=len)
    words = long.split("-")
    return (
        _similarity(one, other) >= CLOSE
        or (len(short) > 1 and short == "".join(word[:1] for word in words))
        or (set(short.split("-")) < set(words) and len(words) == len(short.split("-")) + 1)
    )
