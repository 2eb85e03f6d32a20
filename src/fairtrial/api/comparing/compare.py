"""Compare what is given: scores per seed, data frames, recorded runs, or variants of studies."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairtrial.api.comparing.analyze import analyze
from fairtrial.api.comparing.frames import is_frame, open_two_frames
from fairtrial.api.comparing.gather import from_source
from fairtrial.api.comparing.settings import settle_settings
from fairtrial.api.running.recording import unrecorded
from fairtrial.api.running.runs import RunList
from fairtrial.core.cells import seed_text
from fairtrial.core.directions import GIVE_ARGUMENT, settle
from fairtrial.core.errors import UserError
from fairtrial.core.findings import Comparison
from fairtrial.core.runs import Run
from fairtrial.plan.study import Study
from fairtrial.stats.compare import RESAMPLES, compare_samples

HINT = (
    "Give two lists of scores, two mappings from seed to score, two data frames, two variants such as 'demo:base' and "
    "'demo:new', or two lists of runs."
)
_OF_SCORES = ("metric", "direction", "alpha", "side", "sesoi", "method", "resamples", "failure_value", "seed")
"""Settings that apply to a comparison of plain scores."""


def compare_given(
    control: Any,
    candidate: Any = None,
    *,
    paired: bool | None = None,
    names: tuple[str, str] | None = None,
    store: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any],
) -> Comparison:
    """Do what `fairtrial.compare` does, for the settings as a mapping."""
    if control is None:
        raise UserError("there is nothing to compare", hint=HINT)
    if candidate is None:
        return _within(control, paired, store, settings)
    references = [_references(given) for given in (control, candidate)]
    if None not in references:
        return _recorded_runs(references, paired, names, store, settings)
    if is_frame(control) and is_frame(candidate):
        return _two_frames(control, candidate, paired, names or _labels(control, candidate), store, settings)
    return _scores(control, candidate, paired, names or _labels(control, candidate), settings)


def _within(control: Any, paired: bool | None, store: Any, settings: Mapping[str, Any]) -> Comparison:
    """Compare the two variants of one study or one frame."""
    given = control.study if isinstance(control, Study) else control
    if not (is_frame(given) or isinstance(given, str)):
        raise UserError("there is no candidate to compare with", hint=HINT)
    analysis = unrecorded(analyze)(given, store=store, **_with_pairing(settings, paired))
    if len(analysis.comparisons) != 1:
        others = ", ".join(each.candidate for each in analysis.comparisons)
        raise UserError(
            f"{analysis.source} has {len(analysis.comparisons)} candidates: {others}",
            hint="Use analyze(), which compares all of them and corrects for their number.",
        )
    return _carrying(analysis)


def _two_frames(
    control: Any, candidate: Any, paired: bool | None, names: tuple[str, str], store: Any, settings: Mapping[str, Any]
) -> Comparison:
    from fairtrial.api.comparing.analyze import analyze_run_set
    from fairtrial.record.store import open_store

    question, columns = settle_settings(_with_pairing(settings, paired), None, None)
    metric = question.metrics[0] if question.metrics else None
    source = open_two_frames(control, candidate, names, columns, metric)
    run_set = from_source(source, question.metric_query)
    return _carrying(analyze_run_set(run_set, names[0], [names[1]], question, open_store(store)))


def _recorded_runs(
    references: Sequence[Any], paired: bool | None, names: tuple[str, str] | None, store: Any, settings: Any
) -> Comparison:
    (first, second), how = references, _with_pairing(settings, paired)
    if len(first) == len(second) == 1 and ":" in first[0] + second[0]:
        analysis = unrecorded(analyze)(control=first[0], candidate=second[0], store=store, **how)
    else:
        analysis = unrecorded(analyze)(control_run_ids=first, candidate_run_ids=second, store=store, **how)
    comparison = _carrying(analysis)
    return replace(comparison, control=names[0], candidate=names[1]) if names else comparison


def _carrying(analysis: Any) -> Comparison:
    """Return the comparison of an analysis with the cautions of the whole analysis."""
    comparison: Comparison = analysis.comparisons[0]
    return replace(comparison, cautions=[*comparison.cautions, *analysis.cautions])


def _with_pairing(settings: Mapping[str, Any], paired: bool | None) -> dict[str, Any]:
    return dict(settings) if paired is None else {**settings, "unpaired": not paired}


def _references(given: Any) -> list[str] | None:
    """Return the references to recorded runs, or None if these are not runs."""
    if isinstance(given, RunList):
        return [f"{row['study']}/{row['run']}" for row in given]
    if is_frame(given):
        return None
    listed = [given] if isinstance(given, str | os.PathLike | Run) or hasattr(given, "run") else given
    if isinstance(listed, Mapping) or not isinstance(listed, Iterable):
        return None
    references = [_reference(each) for each in listed]
    return None if not references or None in references else [str(each) for each in references]


def _reference(each: Any) -> str | None:
    if isinstance(each, str | os.PathLike):
        return os.fspath(each)
    run = getattr(each, "run", each)  # a Trained has its run
    return str(run.path) if isinstance(run, Run) else None


def _scores(
    control: Any, candidate: Any, paired: bool | None, names: tuple[str, str], settings: Mapping[str, Any]
) -> Comparison:
    unused = [name for name in settings if name not in _OF_SCORES]
    if unused:
        raise UserError(
            f"{unused[0]} does not apply to a comparison of scores", hint=f"Valid: {', '.join(_OF_SCORES)}."
        )
    settle_settings(settings, None, None)
    first, second = (_by_seed(given, name) for given, name in zip((control, candidate), names, strict=True))
    metric, direction = settings.get("metric"), settings.get("direction")
    if metric is not None and direction is None:
        direction = settle(metric).known(GIVE_ARGUMENT)
    is_paired, samples = _laid_out(first, second, paired, names)
    comparison = compare_samples(
        *samples, paired=is_paired, alpha=settings.get("alpha", 0.05), side=settings.get("side", "two-sided"),
        sesoi=settings.get("sesoi"), method=settings.get("method", "t"), rng=settings.get("seed"),
        direction=direction or "max", resamples=settings.get("resamples", RESAMPLES),
        failure_value=settings.get("failure_value"), names=names,
    )  # fmt: skip
    return replace(comparison, metric=metric)


def _laid_out(
    first: Mapping[str, float] | list[float],
    second: Mapping[str, float] | list[float],
    paired: bool | None,
    names: tuple[str, str],
) -> tuple[bool, tuple[list[float], list[float]]]:
    """Return whether to pair, and the scores: by seed if both have seeds, else by position if the caller says so."""
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        values = [list(each.values()) if isinstance(each, Mapping) else each for each in (first, second)]
        if paired and (isinstance(first, Mapping) or isinstance(second, Mapping)):
            raise UserError("only one of the two has seeds, so they cannot be paired", hint="Give both with seeds.")
        return bool(paired), (values[0], values[1])
    if paired is False:
        return False, (list(first.values()), list(second.values()))
    if set(first) == set(second):
        return True, (list(first.values()), [second[seed] for seed in first])
    apart = [f"only {name} has {_listed(seeds)}" for name, seeds in zip(
        names, ([s for s in first if s not in second], [s for s in second if s not in first]), strict=True) if seeds
    ]  # fmt: skip
    raise UserError(
        f"the seeds differ: {'; '.join(apart)}",
        hint="A lost run is NaN, not absent. To compare without pairing, pass paired=False.",
    )


def _listed(seeds: Sequence[str]) -> str:
    return ", ".join(seeds[:5]) + (f" and {len(seeds) - 5} more" if len(seeds) > 5 else "")


def _by_seed(given: Any, name: str) -> Mapping[str, float] | list[float]:
    """Return the scores of one arm: by seed if they have seeds, else in their order. None and NaN are lost runs."""
    if isinstance(given, Mapping):
        return {seed_text(seed): _number(value, name) for seed, value in given.items()}
    index = getattr(given, "index", None)
    if index is not None and not callable(index) and hasattr(given, "to_numpy"):  # a pandas Series
        values = [_number(value, name) for value in given.tolist()]
        labels = index.tolist()
        if labels == list(range(len(values))):
            return values
        if len(set(labels)) < len(labels):
            raise UserError(f"the index of {name} has a seed twice")
        return {seed_text(label): value for label, value in zip(labels, values, strict=True)}
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UserError(f"{type(given).__name__} cannot be compared", hint=HINT)
    return [_number(value, name) for value in (given.tolist() if hasattr(given, "tolist") else given)]


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(f"the scores of {name} must be numbers, not {str(value)[:40]!r}", hint=HINT) from None


def _labels(control: Any, candidate: Any) -> tuple[str, str]:
    """Return the names of two Series, if they have different ones."""
    labels = [getattr(each, "name", None) for each in (control, candidate)]
    first, second = labels
    if isinstance(first, str) and isinstance(second, str) and first and second and first != second:
        return first, second
    return "control", "candidate"
