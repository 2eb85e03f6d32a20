"""Every view of a difference is recorded in the study, and a verdict says what was looked at before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fairtrial.api.comparing.gather import RunSet, is_scored
from fairtrial.api.comparing.numbers import label
from fairtrial.api.running.interim_looks import LookLabels, record_looks
from fairtrial.core.findings import Comparison
from fairtrial.record.interim_looks import (
    Asked,
    InterimLook,
)
from fairtrial.record.store import Store


def with_looks(
    comparisons: Iterable[Comparison], run_set: RunSet, asked: Asked, store: Store, *, registered: bool = False
) -> list[Comparison]:
    """Record that these comparisons are on view, in each study that their runs come from, and label them."""
    labelled = list(comparisons)
    for study in run_set.studies:
        seeds = [seeds_on_view(run_set, study, each.control, each.candidate) for each in labelled]
        shown = [number for number, each in enumerate(seeds) if each]
        views = [InterimLook(asked, seeds[number]) for number in shown]
        for number, looked in zip(shown, record_looks(store, study, views, registered=registered), strict=True):
            labelled[number] = _labelled(labelled[number], looked)
    return labelled


def _labelled(comparison: Comparison, looked: LookLabels) -> Comparison:
    labels = dict.fromkeys([*([comparison.label] if comparison.label else []), *looked.labels])
    cautions = {caution["text"]: caution for caution in (*comparison.cautions, *looked.cautions)}
    return replace(comparison, label="; ".join(labels) or None, cautions=tuple(cautions.values()))


def seeds_on_view(run_set: RunSet, study: str, *arms: str) -> dict[str, list[str]]:
    """The runs of these arms, by the variants and seeds they were recorded under, whatever the arms are called here."""
    seeds: dict[str, set[str]] = {}
    for trace in [
        trace for name in arms for trace in run_set.arms.get(name, ()) if is_scored(trace)
    ]:  # a target is no arm
        own = trace.facts.get("variant", trace.variant)
        name = own if trace.study == study else f"{trace.study}:{own}"
        seeds.setdefault(name, set()).add(str(trace.facts.get("seed", label(trace))))
    return {name: sorted(each) for name, each in seeds.items()}
