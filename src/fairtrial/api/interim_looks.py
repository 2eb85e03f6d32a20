"""Every view of a difference is recorded in the study, and a verdict says what was looked at before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fairtrial.api.gather import Gathered, is_scored
from fairtrial.api.numbers import label
from fairtrial.core.cautions import ANOTHER_QUESTION, LOOK_NOT_NOTED, LOOKS_DAMAGED, SEEDS_AFTER_LOOK
from fairtrial.core.findings import Comparison, FilledCaution
from fairtrial.record.looks import Asked, Look, came_later, first_asked, note_looks, read_looks, why_looks_damaged
from fairtrial.record.store import Store

EXPLORATORY = "exploratory: seeds added after looking"


@dataclass(frozen=True)
class Looked:
    """What earlier looks mean for one view: labels of its verdict, and what to be careful about."""

    labels: tuple[str, ...] = ()
    cautions: tuple[FilledCaution, ...] = ()


def record_looks(store: Store, study: str, views: Sequence[Look], *, registered: bool = False) -> list[Looked]:
    """Record views of differences of one study; says of each what was looked at before.

    A question that was `registered` before the runs is never another one, whoever asked something else meanwhile.
    """
    damage = why_looks_damaged(store, study)
    shared = [LOOKS_DAMAGED.fill(reason=damage)] if damage else []
    before = read_looks(store, study)
    found = [_judged_by(before, view, registered=registered) for view in views]
    if not note_looks(store, study, views):
        shared.append(LOOK_NOT_NOTED.fill())
    return [replace(each, cautions=(*shared, *each.cautions)) for each in found]


def _judged_by(before: Sequence[Mapping[str, object]], view: Look, *, registered: bool) -> Looked:
    found = Looked()
    if came_later(before, view.seeds):
        found = Looked((EXPLORATORY,), (SEEDS_AFTER_LOOK.fill(),))
    first = first_asked(before, view.seeds)
    if registered or first is None or not view.asked.differs_from(first):
        return found
    told = question_words(first, beside=view.asked)
    said = f"another question about runs already looked at: first asked for {told}"
    return Looked((*found.labels, said), (*found.cautions, ANOTHER_QUESTION.fill(first=told)))


def question_words(asked: Asked, *, beside: Asked) -> str:
    """`accuracy, t, two-sided`; the summary is named where it is not the one that is asked for now."""
    summary = f" ({asked.summary})" if asked.summary and asked.summary != beside.summary else ""
    return ", ".join(filter(None, [f"{asked.metric or 'an unknown metric'}{summary}", asked.method, asked.side]))


def with_looks(
    found: Iterable[Comparison], gathered: Gathered, asked: Asked, store: Store, *, registered: bool = False
) -> list[Comparison]:
    """Record that these comparisons are on view, in each study that their runs come from, and label them."""
    labelled = list(found)
    for study in gathered.studies:
        seeds = [seeds_on_view(gathered, study, each.control, each.candidate) for each in labelled]
        shown = [number for number, each in enumerate(seeds) if each]
        views = [Look(asked, seeds[number]) for number in shown]
        for number, looked in zip(shown, record_looks(store, study, views, registered=registered), strict=True):
            labelled[number] = _labelled(labelled[number], looked)
    return labelled


def _labelled(found: Comparison, looked: Looked) -> Comparison:
    labels = dict.fromkeys([*([found.label] if found.label else []), *looked.labels])
    cautions = {caution["text"]: caution for caution in (*found.cautions, *looked.cautions)}
    return replace(found, label="; ".join(labels) or None, cautions=tuple(cautions.values()))


def seeds_on_view(gathered: Gathered, study: str, *arms: str) -> dict[str, list[str]]:
    """The runs of these arms, by the variants and seeds they were recorded under, whatever the arms are called here."""
    seeds: dict[str, set[str]] = {}
    for trace in [
        trace for name in arms for trace in gathered.arms.get(name, ()) if is_scored(trace)
    ]:  # a target is no arm
        own = trace.facts.get("variant", trace.variant)
        name = own if trace.study == study else f"{trace.study}:{own}"
        seeds.setdefault(name, set()).add(str(trace.facts.get("seed", label(trace))))
    return {name: sorted(each) for name, each in seeds.items()}
