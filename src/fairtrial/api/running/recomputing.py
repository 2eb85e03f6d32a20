"""What makes a recorded result a claim that others can check: the verb that gave it can compute it again from runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairtrial.record.store import Store

Document = dict[str, Any]
FROM_SERIES = "the raw series"
FROM_SERIES_AND_TIMES = "the raw series and the times that the runs recorded"


@dataclass(frozen=True)
class RecomputableVerb:
    """What a verb knows of its recorded results. A question is JSON: `study`, `metric`, `direction`, `day` and its own.

    The log of a project keeps results, and from a result alone the verb says what had been asked: never from the words
    of a command line, where an option can also come from a --config file, or be missing because Python asked.
    """

    questions: Callable[[Mapping[str, Any]], Sequence[Document]]
    """The verb's own part of the question that a result answers. Several where the result leaves something open: the
    one that gives this result again was asked. None where the runs alone do not give the result."""
    claims: Callable[[Mapping[str, Any]], Document]
    """The numbers of a result that a bundle claims."""
    recompute: Callable[[Store, Mapping[str, Any]], Mapping[str, Any]]
    """The same numbers for a question, from the runs of a store. No code that came with the runs is loaded."""
    basis: str
    """What the numbers follow from."""
