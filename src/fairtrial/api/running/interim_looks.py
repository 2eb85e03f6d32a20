"""Every view of a difference is recorded in the study, and a verdict says what was looked at before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fairtrial.core.cautions import ANOTHER_QUESTION, LOOK_NOT_NOTED, LOOKS_DAMAGED, SEEDS_AFTER_LOOK
from fairtrial.core.findings import FilledCaution
from fairtrial.record.interim_looks import (
    Asked,
    InterimLook,
    came_later,
    first_asked,
    read_interim_looks,
    record_interim_looks,
    why_interim_looks_damaged,
)
from fairtrial.record.store import Store

EXPLORATORY = "exploratory: seeds added after looking"


@dataclass(frozen=True)
class LookLabels:
    """What earlier looks mean for one view: labels of its verdict, and what to be careful about."""

    labels: tuple[str, ...] = ()
    cautions: tuple[FilledCaution, ...] = ()


def label_and_record_looks(
    store: Store, study: str, views: Sequence[InterimLook], *, registered: bool = False
) -> list[LookLabels]:
    """Record views of differences of one study; says of each what was looked at before.

    A question that was `registered` before the runs is never another one, whoever asked something else meanwhile.
    """
    damaged = _damage_cautions(store, study)
    before = read_interim_looks(store, study)
    look_labels = [_judged_by(before, view, registered=registered) for view in views]
    unrecorded = () if record_interim_looks(store, study, views) else (LOOK_NOT_NOTED.fill(),)
    return [replace(each, cautions=(*damaged, *unrecorded, *each.cautions)) for each in look_labels]


def label_looks(
    store: Store, study: str, views: Sequence[InterimLook], *, also: Sequence[InterimLook] = ()
) -> list[LookLabels]:
    """What was looked at before each of these views; records nothing. `also` are looks that are recorded nowhere."""
    before = [*read_interim_looks(store, study), *(each.to_row() for each in also)]
    damaged, look_labels = _damage_cautions(store, study), [_judged_by(before, view) for view in views]
    return [replace(each, cautions=(*damaged, *each.cautions)) for each in look_labels]


def _damage_cautions(store: Store, study: str) -> tuple[FilledCaution, ...]:
    damage = why_interim_looks_damaged(store, study)
    return (LOOKS_DAMAGED.fill(reason=damage),) if damage else ()


def _judged_by(before: Sequence[Mapping[str, object]], view: InterimLook, *, registered: bool = False) -> LookLabels:
    look_labels = LookLabels()
    if came_later(before, view.seeds):
        look_labels = LookLabels((EXPLORATORY,), (SEEDS_AFTER_LOOK.fill(),))
    first = first_asked(before, view.seeds)
    if registered or first is None or not view.asked.differs_from(first):
        return look_labels
    message = question_words(first, other=view.asked)
    said = f"another question about runs already looked at: first asked for {message}"
    return LookLabels((*look_labels.labels, said), (*look_labels.cautions, ANOTHER_QUESTION.fill(first=message)))


def question_words(asked: Asked, *, other: Asked) -> str:
    """`accuracy, t, two-sided`; the summary is named where it is not the one that is asked for now."""
    summary = f" ({asked.summary})" if asked.summary and asked.summary != other.summary else ""
    return ", ".join(filter(None, [f"{asked.metric or 'an unknown metric'}{summary}", asked.method, asked.side]))
