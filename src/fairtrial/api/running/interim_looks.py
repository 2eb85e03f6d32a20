"""Record every interim look at a difference in its study, and label verdicts that earlier looks affect."""

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
    """The effect of earlier looks on one view: labels for its verdict, and cautions."""

    labels: tuple[str, ...] = ()
    cautions: tuple[FilledCaution, ...] = ()


def label_and_record_looks(
    store: Store, study: str, views: Sequence[InterimLook], *, registered: bool = False
) -> list[LookLabels]:
    """Record views of differences of one study, and return the labels that earlier looks give to each view.

    A question that was `registered` before the runs never counts as a new question, whatever others asked meanwhile.
    """
    damaged = _damage_cautions(store, study)
    before = read_interim_looks(store, study)
    look_labels = [_judged_by(before, view, registered=registered) for view in views]
    unrecorded = () if record_interim_looks(store, study, views) else (LOOK_NOT_NOTED.fill(),)
    return [replace(each, cautions=(*damaged, *unrecorded, *each.cautions)) for each in look_labels]


def label_looks(
    store: Store, study: str, views: Sequence[InterimLook], *, also: Sequence[InterimLook] = ()
) -> list[LookLabels]:
    """Return the labels that earlier looks give to each view. Records nothing; `also` holds unrecorded looks."""
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
    """Return text such as `accuracy, t, two-sided`, with the summary if it differs from that of `other`."""
    summary = f" ({asked.summary})" if asked.summary and asked.summary != other.summary else ""
    return ", ".join(filter(None, [f"{asked.metric or 'an unknown metric'}{summary}", asked.method, asked.side]))
