"""Record shown comparisons as interim looks in their studies, and label verdicts that earlier looks affect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from fairtrial.api.comparing.analysis import Analysis, ComparisonsOnView
from fairtrial.api.comparing.gather import RunSet, is_scored
from fairtrial.api.comparing.numbers import label
from fairtrial.api.running.interim_looks import LookLabels, label_and_record_looks, label_looks
from fairtrial.core.findings import Comparison
from fairtrial.record.interim_looks import Asked, InterimLook
from fairtrial.record.store import Store

Judge = Callable[[str, Sequence[InterimLook]], Sequence[LookLabels]]


def comparisons_on_view(
    comparisons: Iterable[Comparison], run_set: RunSet, asked: Asked, *, secondary: bool = False
) -> ComparisonsOnView:
    """Return what these comparisons show: the question, and the seeds per study."""
    pairs = [(each.control, each.candidate) for each in comparisons]
    seeds = {study: [seeds_on_view(run_set, study, *pair) for pair in pairs] for study in run_set.studies}
    return ComparisonsOnView(asked, seeds, secondary)


def record_analysis(analysis: Analysis, store: Store, *, registered: bool = False) -> Analysis:
    """Record an analysis as an interim look in each study that its runs come from, and label its verdicts."""
    return _labelled_analysis(analysis, partial(label_and_record_looks, store, registered=registered))


def label_analysis(analysis: Analysis, store: Store, also: Sequence[InterimLook] = ()) -> Analysis:
    """Label the verdicts of an analysis by earlier looks, without recording a new one."""
    return _labelled_analysis(analysis, partial(label_looks, store, also=also))


def _labelled_analysis(analysis: Analysis, judge: Judge) -> Analysis:
    comparisons = list(analysis.comparisons)
    for view in analysis.on_view:
        labelled = _labelled_view(analysis.secondary if view.secondary else comparisons, view, judge)
        comparisons = comparisons if view.secondary else labelled
    return replace(analysis, comparisons=comparisons)


def with_look_labels(
    comparisons: Sequence[Comparison], run_set: RunSet, asked: Asked, store: Store
) -> list[Comparison]:
    """Record these comparisons as an interim look in each study that their runs come from, and label them."""
    return _labelled_view(
        comparisons, comparisons_on_view(comparisons, run_set, asked), partial(label_and_record_looks, store)
    )


def _labelled_view(comparisons: Sequence[Comparison], view: ComparisonsOnView, judge: Judge) -> list[Comparison]:
    labelled = list(comparisons)
    for study, seeds in view.seeds.items():
        shown = [number for number, each in enumerate(seeds) if each]
        for number, looked in zip(shown, judge(study, view.looks_at(study)), strict=True):
            labelled[number] = _labelled(labelled[number], looked)
    return labelled


def _labelled(comparison: Comparison, looked: LookLabels) -> Comparison:
    labels = dict.fromkeys([*([comparison.label] if comparison.label else []), *looked.labels])
    cautions = {caution["text"]: caution for caution in (*comparison.cautions, *looked.cautions)}
    return replace(comparison, label="; ".join(labels) or None, cautions=tuple(cautions.values()))


def seeds_on_view(run_set: RunSet, study: str, *arms: str) -> dict[str, list[str]]:
    """Return the recorded variants and seeds of the runs of these arms, whatever the arms are called here."""
    seeds: dict[str, set[str]] = {}
    for trace in [
        trace for name in arms for trace in run_set.arms.get(name, ()) if is_scored(trace)
    ]:  # a target is not an arm
        own = trace.facts.get("variant", trace.variant)
        name = own if trace.study == study else f"{trace.study}:{own}"
        seeds.setdefault(name, set()).add(str(trace.facts.get("seed", label(trace))))
    return {name: sorted(each) for name, each in seeds.items()}
