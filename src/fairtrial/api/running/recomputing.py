"""Verbs whose recorded results others can check, because the verb can recompute them from the runs."""

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
    """How to recompute the recorded results of a verb.

    A question is JSON with `study`, `metric`, `direction`, `day` and the verb's own keys. The verb derives the question
    from the logged result only, never from the logged command line: an option may come from a --config file, and a
    call from Python has no command line.
    """

    questions: Callable[[Mapping[str, Any]], Sequence[Document]]
    """Returns the verb's own keys of the question that a result answers. Several candidates if the result is
    ambiguous: the one that reproduces the result is the right one. Empty if the runs alone do not determine it."""
    claims: Callable[[Mapping[str, Any]], Document]
    """Returns the numbers of a result that a bundle claims."""
    recompute: Callable[[Store, Mapping[str, Any]], Mapping[str, Any]]
    """Recomputes these numbers for a question from the runs of a store. Loads no code that came with the runs."""
    basis: str
    """The recorded data that the numbers are computed from."""
